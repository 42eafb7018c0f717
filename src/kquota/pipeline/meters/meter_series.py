"""Usage of limited meters as series over time: grouped by meter, summed by cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kquota.pipeline.limits.clients import KAFKA_METER
from kquota.pipeline.limits.identities import IDENTITY, IdentityIds
from kquota.pipeline.limits.periods import (
    VALID_FROM_MS,
    VALID_TO_MS,
    VALIDITY,
    LimitPeriods,
    MeterTimelines,
    has_periods,
)
from kquota.pipeline.spark.group_by_meter import Bools, Cells, Floats, Ints, group_by_meter
from kquota.pipeline.spark.lazy_values import LazyValue
from kquota.pipeline.spark.shuffle import group_starts

if TYPE_CHECKING:
    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["SAMPLED_SOURCES", "Meters", "Series", "is_sampled", "known_sums", "series_by_meter", "to_counts"]

SAMPLED_SOURCES: Final = ("prometheus", "jmx")

_COUNTS: Final = ("requests", "throttled_requests", "throttle_ms", "unknown_amounts")
_COLUMNS: Final = ("broker_id", "cell_start_ms", "cell_ms", "source", "amount", *_COUNTS)
_CELL: Final = np.dtype(
    [
        ("meter", np.int32),
        ("broker_id", np.int32),
        ("cell_start_ms", np.int64),
        ("cell_ms", np.int64),
        ("is_sampled", np.bool_),
        ("amount", np.float64),
        *((name, np.float64) for name in _COUNTS),
    ]
)
_NAMES: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("meter", pa.string()),
        ("key", pa.string()),
        ("limit", pa.float64()),
        ("limit_source", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Meters:
    """Limited meters, numbered, and which identities count on them, when."""

    periods: LimitPeriods
    timelines: MeterTimelines
    """By identity and period the number of a meter."""
    names: pa.Table
    """cluster, meter, key, and the last limit and limit_source that were in force: one row per meter."""
    limits: Floats
    """By meter and period; no number where there was none."""
    is_limited: Bools
    """By meter and period."""

    @classmethod
    def of(cls, clients: pa.Table) -> Self:
        """Those of rows of :func:`_on_meters`."""
        rows = clients.to_pylist()
        periods = LimitPeriods.of(rows)
        meters = [_meter_of(row) for row in rows]
        # All clients of a meter have the same limit at a time: one row for each meter and time span is enough.
        spans = {
            (*meter, row.get(VALID_FROM_MS), row.get(VALID_TO_MS)): (meter, row)
            for meter, row in zip(meters, rows, strict=True)
            if row["meter"] is not None
        }
        in_order = sorted(spans.values(), key=lambda one: one[1].get(VALID_FROM_MS) or -inf)
        numbers: dict[tuple[str | None, ...], int] = {}
        for meter, _ in in_order:
            numbers.setdefault(meter, len(numbers))
        limits = np.full((len(numbers), periods.count), np.nan)
        is_limited = np.zeros((len(numbers), periods.count), np.bool_)
        names: list[dict[str, object]] = [{}] * len(numbers)
        for meter, row in in_order:
            number, span = numbers[meter], periods.of_row(row)
            limits[number, span], is_limited[number, span] = row["limit"], True
            names[number] = {name: row[name] for name in _NAMES.names}
        counted = [numbers.get(meter, -1) for meter in meters]
        timelines = periods.timelines([tuple(row[name] for name in IDENTITY) for row in rows], rows, counted)
        return cls(periods, timelines, pa.Table.from_pylist(names, _NAMES), limits, is_limited)

    def of_cells(self, track: Ints, at_ms: Ints) -> Ints:
        """By track of an identity and time the meter that it counts on, -1 for none."""
        return self.timelines.of_period[track, self.periods.at(at_ms)]

    def limits_of(self, series: Series) -> Floats:
        """The limit in force at the time of each row; no number where there was none."""
        limits: Floats = self.limits[series.meter, self.periods.at(series.cell_start_ms)]
        return limits

    def are_limited(self, series: Series) -> Bools:
        """Whether a limit was in force at the time of each row."""
        are_limited: Bools = self.is_limited[series.meter, self.periods.at(series.cell_start_ms)]
        return are_limited


def _on_meters(clients: DataFrame) -> DataFrame:
    """Of resolved clients those that count on a meter with a limit, at some time."""
    wanted, columns = F.col("meter").isNotNull(), [*IDENTITY, "meter", "limit", "limit_source"]
    if has_periods(clients):
        # What counted on a meter while it had no limit is still in its window when it gets one.
        wanted |= F.col(VALID_FROM_MS).isNotNull() | F.col(VALID_TO_MS).isNotNull()
        columns += [KAFKA_METER, *VALIDITY]
    return clients.where(wanted).select(*columns)


def _meter_of(row: dict[str, Any]) -> tuple[str | None, ...]:
    """cluster, meter and key of a row of resolved clients, also where the meter has no limit at the time."""
    return row["cluster"], row["meter"] if row["meter"] is not None else row.get(KAFKA_METER), row["key"]


@dataclass(frozen=True, slots=True)
class Series:
    """Columns, one element per meter, broker and cell; a meter that is here is here as a whole, cells without a limit
    included where it had one before or after.

    They are in the order of meter, broker, `is_sampled`, and time. `meter` is the row of the meter in
    :attr:`Meters.names`; an unknown amount counts as 0, and `unknown_amounts` are the requests that have one.
    `is_sampled` where the rate is from a broker's metrics; other rates are the amount per second. Counts are
    NaN where they are not known.
    """

    meter: Ints
    broker_id: Ints
    cell_start_ms: Ints
    cell_ms: Ints
    is_sampled: Bools
    amount: Floats
    rate: Floats
    requests: Floats
    throttled_requests: Floats
    throttle_ms: Floats
    unknown_amounts: Floats

    @property
    def starts(self) -> Ints:
        """The rows at which another meter, or another broker, begins."""
        return group_starts(self.meter, self.broker_id)

    def where(self, chosen: Bools) -> Series:
        """Some of the rows."""
        return Series(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def series_by_meter(
    usage: ArrowSource, clients: DataFrame, transform: Callable[[Series, Meters], pa.Table], schema: pa.Schema
) -> DataFrame:
    """Apply `transform` to the series of some meters at a time, until all were.

    :param usage: rows of the `usage` table.
    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    :param transform: gives columns that can be cast to `schema`; runs on workers.
    """
    spark = clients.sparkSession
    meters = LazyValue.of(_on_meters(clients), _known_meters)
    return group_by_meter(
        spark,
        usage,
        (*IDENTITY, *_COLUMNS),
        meters,
        lambda batch, known: _cells(batch, *known),
        lambda cells, known: transform(_to_series(cells), known[0]),
        schema,
    )


def _known_meters(clients: pa.Table) -> tuple[Meters, IdentityIds]:
    """What workers look the rows of usage up in."""
    meters = Meters.of(clients)
    return meters, IdentityIds.of_mapping(meters.timelines.numbers)


def _cells(batch: pa.RecordBatch, meters: Meters, timelines: IdentityIds) -> Cells:
    """Of usage rows those that count on a meter."""
    track = timelines.of(batch)
    meter = meters.of_cells(track, batch.column("cell_start_ms").to_numpy(zero_copy_only=False))
    rows = np.flatnonzero(meter >= 0)
    cells = np.empty(len(rows), _CELL)
    cells["meter"] = meter[rows]
    cells["is_sampled"] = is_sampled(batch.column("source"))[rows]
    for name in ("broker_id", "cell_start_ms", "cell_ms", "amount"):
        cells[name] = pc.fill_null(batch.column(name), 0).to_numpy(zero_copy_only=False)[rows]
    for name in _COUNTS:
        counts = batch.column(name).cast(pa.float64())
        cells[name] = pc.fill_null(counts, np.nan).to_numpy(zero_copy_only=False)[rows]
    return cells


def is_sampled(source: pa.Array) -> Bools:
    """Where the amount comes from a rate that the broker itself had taken over its windows."""
    if isinstance(source, pa.DictionaryArray):
        found = pc.fill_null(pc.is_in(source.dictionary, pa.array(SAMPLED_SOURCES)).take(source.indices), False)
    else:
        found = pc.is_in(source, pa.array(SAMPLED_SOURCES))
    are_sampled: Bools = found.to_numpy(zero_copy_only=False)
    return are_sampled


def _to_series(cells: Cells) -> Series:
    ends_ms = cells["cell_start_ms"] + cells["cell_ms"]
    order = np.lexsort((ends_ms, cells["is_sampled"], cells["broker_id"], cells["meter"]))
    columns = {name: cells[name][order] for name in cells.dtype.names or ()}
    starts = group_starts(columns["meter"], columns["broker_id"], columns["is_sampled"], ends_ms[order])
    return Series(
        meter=columns["meter"][starts],
        broker_id=columns["broker_id"][starts],
        is_sampled=columns["is_sampled"][starts],
        # Of several clients of a meter one may just have come: its cell is the shorter.
        cell_start_ms=np.minimum.reduceat(columns["cell_start_ms"], starts),
        cell_ms=np.maximum.reduceat(columns["cell_ms"], starts),
        amount=np.add.reduceat(columns["amount"], starts),
        rate=np.add.reduceat(columns["amount"] * 1000 / columns["cell_ms"], starts),
        requests=known_sums(columns["requests"], starts),
        throttled_requests=known_sums(columns["throttled_requests"], starts),
        throttle_ms=known_sums(columns["throttle_ms"], starts),
        unknown_amounts=known_sums(columns["unknown_amounts"], starts),
    )


def known_sums(values: Floats, starts: Ints) -> Floats:
    """Sums of what is known from each of `starts` to the next; NaN where nothing is."""
    is_known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(is_known, values, 0.0), starts)
    known: Floats = np.where(np.logical_or.reduceat(is_known, starts), sums, np.nan)
    return known


def to_counts(values: Floats) -> pa.Array:
    """Counts, null for NaN."""
    is_unknown = np.isnan(values)
    return pa.array(np.where(is_unknown, 0, values).astype(np.int64), mask=is_unknown)
