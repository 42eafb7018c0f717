"""What the page shows: rows of the tables, and series and spans for its charts.

A :class:`Report` is bounded by :class:`Bounds` whatever the size of the analysis: its lists hold the worst rows, and
with each list comes the number of rows that the table has. Rows have the columns of their tables (see
:mod:`kquota.pipeline.dataset.tables`) and those that the query says, which the templates read by name. Amounts and
rates are in the unit of their quota key (bytes, percent-seconds of one thread, partitions, connections; rates per
second), times are milliseconds since the epoch. None means "not known" throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Row

    from kquota.pipeline.dataset.summary import Summary

__all__ = ["Bounds", "BrokerSeries", "LimitSpan", "Listed", "Report", "Span", "Timeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of an analysis the page shows. The rest is counted on the page and found in the tables."""

    meters: int = 12
    """Meters drawn over time, and lanes of throttled time."""
    brokers_per_meter: int = 5
    """Lines in one chart, apart from the limit's."""
    bins: int = 300
    """Steps of time in one chart."""
    clients: int = 200
    clients_open: int = 25
    """Limited clients in all, and those shown without unfolding."""
    episodes: int = 60
    episodes_open: int = 15
    unlimited_per_key: int = 15
    calibrated: int = 40
    calibrated_open: int = 15
    """Meters with replayed throttle times: in all, and those shown without unfolding."""
    what_if: int = 60
    what_if_open: int = 15
    """Meters that other limits touch: in all, and those shown without unfolding."""
    curves: int = 24
    curve_points: int = 64
    """Meters drawn against their limit, and limits in one of those charts."""
    recommendations: int = 60
    recommendations_open: int = 15
    reasons: int = 20
    samples_per_reason: int = 3
    names: int = 5
    """Clients named with a shared meter or an episode."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The worst rows of a table, as many as the page lists; `counts` is one row of figures of the whole table."""

    counts: Row
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Span:
    """A period of time, [start_ms, end_ms)."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class LimitSpan:
    """A period of time in which a limit was in force."""

    start_ms: int
    end_ms: int
    limit: float


@dataclass(frozen=True, slots=True)
class BrokerSeries:
    """The enforced rate on one broker: a step function, given as (from when, rate). In one bin it is the largest."""

    broker_id: int
    limit: float | None
    steps: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One limited meter over time, all brokers together."""

    meter: Row
    """cluster, meter, key, `use` and `throttle`: see :func:`kquota.pipeline.report.clients.to_use`."""
    series: tuple[BrokerSeries, ...]
    spans: tuple[Span, ...]
    """When requests of this meter were throttled, on any broker."""
    limit_spans: tuple[LimitSpan, ...] = ()
    """Which limit was in force when, where it changed."""

    @property
    def limits(self) -> tuple[float, ...]:
        """The limits to draw: one, unless it changed, or static defaults differ between the brokers drawn."""
        if self.limit_spans:
            return tuple(sorted({span.limit for span in self.limit_spans}))
        return tuple(sorted({one.limit for one in self.series if one.limit is not None}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole page. What each row holds is said by the function of the same name in `queries` and `advice`."""

    summary: Summary
    clusters: Sequence[str]
    brokers: Sequence[tuple[str, int]]
    """(cluster, broker id), at most 200 of them."""
    brokers_total: int
    range: Span | None
    """From the start of the first cell to the end of the last; None where no cell was written."""
    totals: Row
    """throttled_requests and throttle_ms of all clients."""
    limited: Listed
    unlimited: Sequence[Row]
    timelines: Sequence[Timeline]
    limited_meters: int
    """Meters with a limit that were active, of which `timelines` are the worst."""
    episodes: Listed
    lanes: Sequence[tuple[Row, tuple[Span, ...]]]
    """Throttled time by meter: a row as that of a timeline, and spans rounded to the page's bins."""
    rejected: Sequence[Row]
    calibration: Sequence[Row] | None = None
    what_if: Listed | None = None
    curves: Listed | None = None
    recommendations: Listed | None = None
    """These four are None where the analysis has no such table."""
    bounds: Bounds = field(default_factory=Bounds)
