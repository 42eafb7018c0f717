"""What limits do to recorded traffic, meter by meter: one row per broker, meter, key and candidate limit.

Two grains: :mod:`~kquota.pipeline.simulation.request_frames`, each through the metering classes, and
:mod:`~kquota.pipeline.simulation.cell_frames`, through the compiled replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.config import BrokerConfig
from kquota.metering.statistics import Windows
from kquota.pipeline.limits.counting import CONTROLLER
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.spark.partial_sums import partial_sums
from kquota.quotas import CONTROLLER_MUTATION_RATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["SIMULATED", "Candidates", "Recording", "Replay", "own_limit_only", "recording_spans", "spans_by_place"]

SIMULATED: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("broker_id", pa.int32()),
        ("meter", pa.string()),
        ("key", pa.string()),
        ("limit", pa.float64()),
        ("recorded", pa.float64()),
        ("throttled_requests_logged", pa.int64()),
        ("requests", pa.int64()),
        ("largest", pa.float64()),
        ("recorded_ms", pa.int64()),
        ("cell_ms", pa.int64()),
        ("unknown_amounts", pa.int64()),
        ("amount", pa.float64()),
        ("throttled_requests", pa.int64()),
        ("throttled_ms", pa.float64()),
        ("muted_ms", pa.float64()),
        ("max_delay_ms", pa.float64()),
        ("total_delay_ms", pa.float64()),
        ("backlog_max", pa.float64()),
        ("peak", pa.float64()),
    ]
)
"""`limit` is the candidate, infinite for none. Of the recording: `recorded` is the amount,
`throttled_requests_logged` are those that were throttled then,
`largest` is the largest request, `recorded_ms` how long it lasted,
`cell_ms` the longest cell, null for requests, `unknown_amounts` the requests whose amount is not known, and of which
the replay knows nothing. The rest is an
:class:`~kquota.pipeline.simulation.arrivals.Outcome`."""

Span = tuple[int, int]


class Candidates(Protocol):
    """Which limits to try on a meter."""

    def __call__(self, limit: float, mean: float, highest: float) -> Sequence[float]:
        """Those for a meter with this limit, infinite for none, and with this sampled rate per second while it is
        active.
        """


def own_limit_only(limit: float, mean: float, highest: float) -> Sequence[float]:
    """The one that the meter has."""
    del mean, highest
    return [limit]


@dataclass(frozen=True, slots=True)
class Replay:
    """How recorded traffic is replayed. It goes to the workers."""

    arrivals: Arrivals
    broker_config: BrokerConfig

    def windows(self, key: str) -> Windows:
        """Over which a key is measured."""
        config = self.broker_config
        if key == CONTROLLER_MUTATION_RATE:
            return Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        return Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)


@dataclass(frozen=True, slots=True)
class Recording:
    """What all meters of a recording have in common."""

    arrivals: Arrivals
    broker_config: BrokerConfig
    spans: DataFrame
    """As :func:`recording_spans` gives them."""

    @property
    def replay(self) -> Replay:
        """Of it, what goes to the workers."""
        return Replay(self.arrivals, self.broker_config)


_SPAN: Final = pa.schema(
    [("cluster", pa.string()), ("broker_id", pa.int32()), ("first", pa.int64()), ("last", pa.int64())]
)


def recording_spans(usage: ArrowSource) -> DataFrame:
    """When the recording of each broker begins and ends; the controller's is its cluster's.

    :param usage: rows of the `usage` table.
    :returns: one row per cluster and broker, and one for its controller: cluster, broker_id, first, last (ms).
    """

    def spans_of(cells: pa.Table) -> pa.Table:
        last = pc.add(cells["cell_start_ms"], cells["cell_ms"].cast(pa.int64()))
        return pa.table([cells["cluster"], cells["broker_id"], cells["cell_start_ms"], last], _SPAN.names)

    cells = usage.select("cluster", "broker_id", "cell_start_ms", "cell_ms")
    ends = {"first": "min", "last": "max"}
    parts = partial_sums(cells, ("cluster", "broker_id"), ends, from_arrow_schema(_SPAN), spans_of)
    counted_by = F.explode(F.array("broker_id", F.lit(CONTROLLER))).alias("broker_id")
    return (
        parts.select("cluster", counted_by, "first", "last")
        .groupBy("cluster", "broker_id")
        .agg(F.min("first").alias("first"), F.max("last").alias("last"))
    )


def spans_by_place(spans: pa.Table) -> dict[tuple[str, int], Span]:
    """First and last millisecond by cluster and broker, of all rows of :func:`recording_spans`."""
    rows = zip(*(spans[name].to_pylist() for name in _SPAN.names), strict=True)
    return {(cluster, broker_id): (first_ms, last_ms) for cluster, broker_id, first_ms, last_ms in rows}
