"""Utilisation over time: what the charts and the lanes are drawn from, in a bounded number of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType
from pyspark.sql.window import Window

from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.limits.identities import IDENTITY, METER, IdentityIds
from kquota.pipeline.limits.periods import (
    VALID_FROM_MS,
    VALID_TO_MS,
    VALIDITY,
    LimitPeriods,
    has_periods,
)
from kquota.pipeline.meters.episodes import AMBIGUOUS
from kquota.pipeline.meters.meter_series import is_sampled
from kquota.pipeline.report.contents import Bounds, BrokerSeries, LimitSpan, Span
from kquota.pipeline.report.summary import RateWindow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = [
    "ChartedMeter",
    "bin_ms",
    "enforced_rate_steps",
    "limit_spans",
    "meter_steps",
    "spans_of",
    "throttled_by_meter",
]


@dataclass(frozen=True, slots=True)
class ChartedMeter:
    """A meter to draw: its name, its window, and the limit on each of the brokers to draw it for."""

    cluster: str
    meter: str
    key: str
    window: RateWindow
    limits: Mapping[int, float]


_CELL: Final = ("broker_id", "cell_start_ms", "cell_ms", "amount")
_INDEX, _WINDOW_MS = StructField("index", LongType()), StructField("window_ms", LongType())
_IS_SAMPLED: Final = StructField("is_sampled", BooleanType())

_BIN_SECONDS: Final = (
    1, 2, 5, 10, 15, 30,
    60, 120, 300, 600, 900, 1_800,
    3_600, 7_200, 14_400, 21_600, 43_200, 86_400,
)  # fmt: skip


def bin_ms(time_range: Span, bins: int) -> int:
    """The finest round step that cuts `time_range` into at most `bins` steps, in milliseconds."""
    seconds = (time_range.end_ms - time_range.start_ms) / 1000
    for step in _BIN_SECONDS:
        if seconds <= step * bins:
            return step * 1000
    days = -(-int(seconds) // (86_400 * bins))
    return days * 86_400_000


def meter_steps(
    usage: ArrowSource,
    clients: DataFrame,
    meters: Sequence[ChartedMeter],
    time_range: Span,
    bounds: Bounds,
) -> list[tuple[BrokerSeries, ...]]:
    """The enforced rate of each of the meters on its brokers, in at most `bounds.bins` steps.

    The value of a step is the largest rate in it: a peak must not vanish because the page is narrow.

    :param clients: the table `clients`, or `limits` where those changed.
    """
    # Of a dozen meters: few, even if one of them has many clients.
    index = _index_of(meters).alias("index")
    identities = clients.select(index, *IDENTITY, *(VALIDITY if has_periods(clients) else ()))
    rows = identities.where(F.col("index").isNotNull()).toArrow().to_pylist()
    periods = LimitPeriods.of(rows)
    timelines = periods.timelines(
        [tuple(row[name] for name in IDENTITY) for row in rows], rows, [row["index"] for row in rows]
    )
    brokers = [sorted(one.limits) for one in meters]
    windows_ms = np.array([one.window.window_ms for one in meters], np.int64)

    numbers = IdentityIds.of_mapping(timelines.numbers)

    def cells_of_meters(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            period = periods.at(batch.column("cell_start_ms").to_numpy())
            index = timelines.of_period[numbers.of(batch), period]
            broker_id = batch.column("broker_id").to_numpy()
            is_drawn = np.zeros(batch.num_rows, np.bool_)
            for number, of_meter in enumerate(brokers):
                is_drawn |= (index == number) & np.isin(broker_id, of_meter)
            chosen = np.flatnonzero(is_drawn)
            columns = [pa.array(index[chosen]), pa.array(windows_ms[index[chosen]])]
            columns += [batch.column(name).take(pa.array(chosen)) for name in _CELL]
            columns.append(pa.array(is_sampled(batch.column("source"))[chosen]))
            yield pa.record_batch(columns, names=["index", "window_ms", *_CELL, "is_sampled"])

    schema = StructType([_INDEX, _WINDOW_MS, *(USAGE.schema[name] for name in _CELL), _IS_SAMPLED])
    cells = usage.select(*IDENTITY, *_CELL, "source").mapInArrow(cells_of_meters, schema)
    steps = enforced_rate_steps(cells)
    by_bin = _largest_by_bin(steps, time_range, bounds)
    series = by_bin.groupBy("index", "broker_id").agg(
        F.array_sort(F.collect_list(F.struct("bin", "largest", "last"))).alias("bins")
    )
    found: dict[int, list[BrokerSeries]] = defaultdict(list)
    for row in sorted(series.collect(), key=lambda row: row.broker_id):
        filled = _fill([(part.bin, part.largest, part["last"]) for part in row.bins], time_range, bounds)
        limit = meters[row["index"]].limits[row.broker_id]
        found[row["index"]].append(BrokerSeries(row.broker_id, limit, tuple(filled)))
    return [tuple(found[number]) for number in range(len(meters))]


def limit_spans(limits: DataFrame, meters: Sequence[ChartedMeter], time_range: Span) -> list[tuple[LimitSpan, ...]]:
    """Which limit was in force when on each of the meters, from the table `limits`; none where it did not change."""
    spans = limits.select(_index_of(meters).alias("index"), *VALIDITY, "limit").where(F.col("index").isNotNull())
    found: dict[int, list[LimitSpan]] = defaultdict(list)
    for row in sorted(spans.distinct().collect(), key=lambda row: row[VALID_FROM_MS] or 0):
        start_ms = time_range.start_ms if row[VALID_FROM_MS] is None else max(row[VALID_FROM_MS], time_range.start_ms)
        end_ms = time_range.end_ms if row[VALID_TO_MS] is None else min(row[VALID_TO_MS], time_range.end_ms)
        of_meter = found[row["index"]]
        if of_meter and of_meter[-1].limit == row["limit"] and start_ms <= of_meter[-1].end_ms:
            # Of several clients, which came to the meter at different times.
            of_meter[-1] = LimitSpan(of_meter[-1].start_ms, max(end_ms, of_meter[-1].end_ms), row["limit"])
        else:
            of_meter.append(LimitSpan(start_ms, end_ms, row["limit"]))
    whole = (time_range.start_ms, time_range.end_ms)
    return [
        () if [(one.start_ms, one.end_ms) for one in found[number]] == [whole] else tuple(found[number])
        for number in range(len(meters))
    ]


def _index_of(meters: Sequence[ChartedMeter]) -> Column:
    """Place in `meters` of the row's (cluster, meter, key), null for every other row. Cheaper than a join for a few."""
    places = (
        F.when((F.col("cluster") == one.cluster) & (F.col("meter") == one.meter) & (F.col("key") == one.key), index)
        for index, one in enumerate(meters)
    )
    return F.coalesce(*places, F.lit(None).cast("int"))


def enforced_rate_steps(cells: DataFrame) -> DataFrame:
    """The enforced rate as a step function: index, broker_id, at_ms, rate; one row per change.

    `cells`: index (of the meter), broker_id, window_ms, cell_start_ms, cell_ms, amount, is_sampled.

    A cell counts from its end until it leaves the window: Kafka's rate at the end of second t is the amount of the last
    `quota.window.num` windows over their length. A cell of a broker's metrics is drawn where it lies: its rate is one
    that the broker had already taken over its windows. Cells of unknown amount count nothing.
    """
    counts_from = F.col("cell_start_ms") + F.when(F.col("is_sampled"), 0).otherwise(F.col("cell_ms"))
    # A cell longer than the window counts with its own mean.
    longer_ms = F.greatest(F.col("window_ms"), F.col("cell_ms").cast("long"))
    counted_at_ms = F.when(F.col("is_sampled"), F.col("cell_ms").cast("long")).otherwise(longer_ms)
    # Whole amounts are added and taken away exactly as long as nothing is divided before the end.
    counted = F.col("amount") * (F.col("window_ms") / counted_at_ms)
    changes = cells.where(F.col("amount").isNotNull()).select(
        "index",
        "broker_id",
        "window_ms",
        F.explode(
            F.array(
                F.struct(counts_from.alias("at_ms"), counted.alias("change")),
                F.struct((counts_from + counted_at_ms).alias("at_ms"), (-counted).alias("change")),
            )
        ).alias("one"),
    )
    by_time = changes.groupBy("index", "broker_id", "window_ms", "one.at_ms").agg(F.sum("one.change").alias("change"))
    so_far = (
        Window.partitionBy("index", "broker_id")
        .orderBy("at_ms")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    # Fractional amounts (percent-seconds) leave rounding errors behind; a rate is never below 0.
    rate = F.greatest(F.round(F.sum("change").over(so_far) * 1000 / F.col("window_ms"), 6), F.lit(0.0))
    return by_time.select("index", "broker_id", "at_ms", rate.alias("rate"))


def _largest_by_bin(steps: DataFrame, time_range: Span, bounds: Bounds) -> DataFrame:
    """Per series and bin the largest rate and the one it ended with."""
    width = bin_ms(time_range, bounds.bins)
    since_ms = F.greatest(F.col("at_ms") - 1 - F.lit(time_range.start_ms), F.lit(0))
    which = F.floor(since_ms / width).cast("int")
    inside = steps.where(F.col("at_ms") <= time_range.end_ms)
    return inside.groupBy("index", "broker_id", which.alias("bin")).agg(
        F.max("rate").alias("largest"), F.max_by("rate", "at_ms").alias("last")
    )


def _fill(bins: Iterable[tuple[int, float, float]], time_range: Span, bounds: Bounds) -> Iterable[tuple[int, float]]:
    """(start of step, rate); where nothing changed in a bin, what it began with; equal neighbours are joined."""
    width = bin_ms(time_range, bounds.bins)
    known = {number: (largest, last) for number, largest, last in bins}
    carried, shown = 0.0, -1.0
    for number in range(-(-(time_range.end_ms - time_range.start_ms) // width)):
        largest, last = known.get(number, (carried, carried))
        value = max(carried, largest) if width > 1000 else largest
        if value != shown:
            yield time_range.start_ms + number * width, value
            shown = value
        carried = last


def throttled_by_meter(throttled: DataFrame, time_range: Span, bounds: Bounds) -> DataFrame:
    """Episodes by meter, all brokers together: cluster, meter, key, `throttle` and `bins`.

    `throttle`: episodes, ambiguous (how many of them another limit may have caused), requests, throttle_ms. `bins`:
    when they were, an array of (first, last) by first bin, at most one for each bin, which :func:`spans_of` reads.
    """
    width = bin_ms(time_range, bounds.bins)
    last_bin = max(0, -(-(time_range.end_ms - time_range.start_ms) // width) - 1)

    def bin_of(column: str) -> Column:
        number = F.floor((F.col(column) - F.lit(time_range.start_ms)) / width).cast("int")
        return F.greatest(F.lit(0), F.least(F.lit(last_bin), number))

    by_bin = throttled.groupBy(*METER, bin_of("start_ms").alias("first")).agg(
        F.max(bin_of("end_ms")).alias("last"),
        F.count(F.lit(1)).alias("episodes"),
        F.count_if(F.col("cause") == AMBIGUOUS).alias("ambiguous"),
        F.sum("requests").alias("requests"),
        F.sum("throttle_ms").alias("throttle_ms"),
    )
    sums = ("episodes", "ambiguous", "requests", "throttle_ms")
    return by_bin.groupBy(*METER).agg(
        F.struct(*(F.sum(name).alias(name) for name in sums)).alias("throttle"),
        F.array_sort(F.collect_list(F.struct("first", "last"))).alias("bins"),
    )


def spans_of(bins: Iterable[tuple[int, int]], time_range: Span, bounds: Bounds) -> tuple[Span, ...]:
    """The spans of (first, last) bins, which are sorted; spans that touch are joined."""
    width, start = bin_ms(time_range, bounds.bins), time_range.start_ms
    joined: list[tuple[int, int]] = []
    for first, last in bins:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(
        Span(start + first * width, min(start + (last + 1) * width, time_range.end_ms)) for first, last in joined
    )
