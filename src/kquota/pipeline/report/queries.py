"""From the tables of an analysis to a :class:`Report`: Spark aggregates, and only bounded results are collected."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.window import Window

from kquota.figures import QUOTA_KEYS
from kquota.pipeline.dataset import tables
from kquota.pipeline.limits.identities import METER
from kquota.pipeline.report import advice
from kquota.pipeline.report.contents import Bounds, Listed, Report, Span, Timeline
from kquota.pipeline.report.summary import rate_window
from kquota.pipeline.report.timeline import ChartedMeter, limit_spans, meter_steps, spans_of, throttled_by_meter
from kquota.pipeline.spark.arrow import decode_dictionaries
from kquota.pipeline.utilisation.episodes import AMBIGUOUS, UNEXPLAINED
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.dataset.summary import Summary
    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["AnalysisTables", "build_report", "read_tables", "to_use"]

_END_MS: Final = StructField("end_ms", LongType())
_LITTLE_BYTES: Final = 8 * 1024**2
_QUERIES_AT_ONCE: Final = 3
_BROKERS_READ: Final = 10_000
_BROKERS_LISTED: Final = 200
_CLIENT: Final = ("user", "client_id", "ip")


@dataclass(frozen=True, slots=True)
class AnalysisTables:
    """The tables that the page is made of, with the schemas of :mod:`kquota.pipeline.dataset.tables`."""

    usage: ArrowSource
    clients: DataFrame
    utilisation: DataFrame
    throttled: DataFrame
    rejected: DataFrame
    calibration: DataFrame | None
    """None in a directory that no step has replayed the log for."""
    limits: DataFrame | None
    """None where no limit changed while the log ran."""
    what_if: DataFrame | None
    curve: DataFrame | None
    recommendations: DataFrame | None
    """None where other limits were not tried."""


def read_tables(run: Run) -> AnalysisTables:
    """Open the tables; nothing is read yet. A cluster without a name is ''.

    :raises MissingTableError: one is not there; only `calibration`, `limits` and those of limits that were tried may be
        missing.
    """

    def read(table: tables.Table) -> DataFrame:
        frame = run.frame(table.name).fillna("", ["cluster"])
        # In one partition nothing has to be shuffled, and for little data the shuffles are nearly all of the work.
        little = sum(file.bytes for file in run.files(table.name)) <= _LITTLE_BYTES
        return frame.coalesce(1) if little else frame

    def found(table: tables.Table) -> DataFrame | None:
        return read(table) if run.has(table.name) else None

    return AnalysisTables(
        usage=run.source(tables.USAGE.name),
        clients=read(tables.CLIENTS),
        utilisation=read(tables.UTILISATION),
        throttled=read(tables.THROTTLED),
        rejected=read(tables.REJECTED),
        calibration=found(tables.CALIBRATION),
        limits=found(tables.LIMITS),
        what_if=found(tables.WHATIF),
        curve=found(tables.CURVE),
        recommendations=found(tables.RECOMMENDATIONS),
    )


def build_report(run: Run, bounds: Bounds) -> Report:
    """What the page says of the tables of a run.

    :raises MissingTableError: a table is not there.
    """
    read, summary = read_tables(run), run.summary
    # Where limits changed, `clients` has the last one that each client had, which may be one that is there no more.
    in_force = read.clients if read.limits is None else read.limits.where(F.col("valid_to_ms").isNull())
    what_if: Future[Listed] | None = None
    curves: Future[Listed] | None = None
    recommendations: Future[Listed] | None = None
    calibration: Future[list[Row]] | None = None
    # Most of a small query is planning, on one core: together they keep more of them busy.
    with ThreadPoolExecutor(_QUERIES_AT_ONCE, "report") as pool:
        totals = pool.submit(_totals, read.clients)
        rejected = pool.submit(_rejected, read.rejected, bounds)
        if read.calibration is not None:
            calibration = pool.submit(_calibration, read.calibration, bounds)
        if read.what_if is not None:
            what_if = pool.submit(advice.what_if, read.what_if, bounds)
        if read.curve is not None:
            curves = pool.submit(advice.curves, read.curve, in_force, read.recommendations, bounds)
        if read.recommendations is not None:
            recommendations = pool.submit(advice.recommendations, read.recommendations, read.curve, in_force, bounds)
        brokers, time_range = _brokers(read.usage)
        throttle = throttled_by_meter(read.throttled, time_range or Span(0, 0), bounds)
        use = to_use(read.utilisation, bounds).join(throttle, on=list(METER), how="left")
        timelines = pool.submit(_timelines, read, summary, use, time_range, bounds)
        limited = pool.submit(_limited, read.clients, use, bounds)
        unlimited = pool.submit(_unlimited, read.clients, bounds)
        lanes = pool.submit(_lanes, throttle, time_range, bounds)
        episodes = pool.submit(_episodes, read.throttled, bounds)
    drawn, limited_meters = timelines.result()
    return Report(
        summary=summary,
        clusters=sorted({cluster for cluster, _ in brokers}),
        brokers=brokers[:_BROKERS_LISTED],
        brokers_total=len(brokers),
        range=time_range,
        totals=totals.result(),
        limited=limited.result(),
        unlimited=unlimited.result(),
        timelines=drawn,
        limited_meters=limited_meters,
        episodes=episodes.result(),
        lanes=lanes.result(),
        rejected=rejected.result(),
        calibration=calibration.result() if calibration is not None else None,
        what_if=what_if.result() if what_if is not None else None,
        curves=curves.result() if curves is not None else None,
        recommendations=recommendations.result() if recommendations is not None else None,
        bounds=bounds,
    )


def _brokers(usage: ArrowSource) -> tuple[list[tuple[str, int]], Span | None]:
    def spans(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ends = pc.add(batch.column("cell_start_ms"), batch.column("cell_ms"))
            cells = decode_dictionaries(pa.Table.from_batches([batch]).append_column("end_ms", ends))
            by_broker = cells.group_by(["cluster", "broker_id"], use_threads=False)
            yield from by_broker.aggregate([("cell_start_ms", "min"), ("end_ms", "max")]).to_batches()

    columns = ("cluster", "broker_id", "cell_start_ms", "cell_ms")
    rows = (
        usage.select(*columns)
        .mapInArrow(spans, StructType([*(tables.USAGE.schema[name] for name in columns[:3]), _END_MS]))
        .groupBy("cluster", "broker_id")
        .agg(F.min("cell_start_ms").alias("start_ms"), F.max("end_ms").alias("end_ms"))
        .limit(_BROKERS_READ)
        .collect()
    )
    if not rows:
        return [], None
    brokers = sorted((row.cluster or "", row.broker_id) for row in rows)
    return brokers, Span(min(row.start_ms for row in rows), max(row.end_ms for row in rows))


def _totals(clients: DataFrame) -> Row:
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("throttled_requests", "throttle_ms"))
    return clients.agg(*sums).collect()[0]


def _rejected(rejected: DataFrame, bounds: Bounds) -> list[Row]:
    """The first lines of each kind, the most frequent kind first: file, line, sample, kind, lines and detail.

    `kind` is what is before the first colon of the reason, `detail` what follows it, which differs from line to line.
    """
    of_kind = Window.partitionBy("kind")
    known = rejected.fillna("", ["file", "sample"]).fillna("no reason given", ["reason"])
    ranked = known.withColumn("kind", F.substring_index("reason", ": ", 1)).select(
        *("file", "line", "sample", "kind"),
        F.substr("reason", F.length("kind") + F.lit(3)).alias("detail"),
        F.row_number().over(of_kind.orderBy("cluster", "file", "line")).alias("rank"),
        F.count(F.lit(1)).over(of_kind).alias("lines"),
    )
    rows = (
        ranked.where(F.col("rank") <= bounds.samples_per_reason)
        .orderBy(F.desc("lines"), "kind", "rank")
        .limit(bounds.reasons * bounds.samples_per_reason)
        .collect()
    )
    kinds = list(dict.fromkeys(row.kind for row in rows))[: bounds.reasons]
    return [row for row in rows if row.kind in kinds]


def _closeness(rate: str = "rate_p95") -> Column:
    """Part of the limit that a rate is; -1 where unknown, so that it sorts last."""
    known = F.nanvl(F.try_divide(F.col(rate), F.when(F.col("limit") > 0, F.col("limit"))), F.lit(-1.0))
    return F.coalesce(known, F.lit(-1.0))


def to_use(utilisation: DataFrame, bounds: Bounds) -> DataFrame:
    """utilisation, all brokers of a meter together: cluster, meter, key, `use`, `closeness` and `closest`.

    `closeness`: the part of its limit that it reached. `use`: broker_id, rate_p95, rate_max and seconds_over_100 of the
    broker where that was, and of all brokers: brokers (how many), unknown_amounts. `closest`: (broker_id, limit) of
    those to draw.
    """
    by_closeness = F.struct(_closeness(), _closeness("rate_max"), -F.col("broker_id"))
    closest_first = F.sort_array(F.collect_list(F.struct(by_closeness.alias("order"), "broker_id", "limit")), asc=False)
    of_all = {"brokers": F.count_distinct("broker_id"), "unknown_amounts": F.sum("unknown_amounts")}
    figures = F.struct("broker_id", "rate_p95", "rate_max", "seconds_over_100")
    meters = (
        utilisation.where(F.col("limit").isNotNull() & F.col("meter").isNotNull())
        .groupBy(*METER)
        .agg(
            F.max(_closeness()).alias("closeness"),
            F.max_by(figures, by_closeness).alias("use"),
            F.slice(closest_first, 1, bounds.brokers_per_meter).alias("closest"),
            *(figure.alias(name) for name, figure in of_all.items()),
        )
    )
    use = F.col("use")
    for name in of_all:
        use = use.withField(name, F.col(name))
    return meters.withColumn("use", use).drop(*of_all)


def _timelines(
    read: AnalysisTables, summary: Summary, use: DataFrame, time_range: Span | None, bounds: Bounds
) -> tuple[list[Timeline], int]:
    """The meters throttled longest, then those closest to their limit; and how many there are."""
    rows = use.orderBy(F.desc_nulls_last("throttle.throttle_ms"), F.desc("closeness"), *METER).limit(bounds.meters)
    worst = rows.collect()
    total = use.count() if len(worst) == bounds.meters else len(worst)
    if not worst or time_range is None:
        return [], total
    meters = [
        ChartedMeter(
            row.cluster,
            row.meter,
            row.key,
            rate_window(summary, row.key),
            {one.broker_id: one.limit for one in row.closest},
        )
        for row in worst
    ]
    of_meters = read.clients if read.limits is None else read.limits
    series = meter_steps(read.usage, of_meters, meters, time_range, bounds)
    changes = [()] * len(meters) if read.limits is None else limit_spans(read.limits, meters, time_range)
    return [
        Timeline(row, steps, spans_of(row.bins or (), time_range, bounds), changed)
        for row, steps, changed in zip(worst, series, changes, strict=True)
    ], total


def _limited(clients: DataFrame, use: DataFrame, bounds: Bounds) -> Listed:
    """Clients with a limit, those throttled longest first, then those closest to it. Count: total.

    Rows: those of `clients`, and of their meter: `sharers` (how many clients count on it), `largest` (user, client_id
    and ip of some of them), `use` (see :func:`to_use`) and `throttle` (see :func:`throttled_by_meter`); the last two
    are null where nothing is known.
    """
    limited = clients.where(F.col("limit").isNotNull())
    of_meter = Window.partitionBy(*METER)
    whole_meter = of_meter.orderBy(F.desc_nulls_last("amount"), *_CLIENT).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    one = F.struct(*_CLIENT)
    largest = F.array(*(F.nth_value(one, place).over(whole_meter) for place in range(1, bounds.names + 1)))
    shared = limited.select(
        "*", F.count(F.lit(1)).over(of_meter).alias("sharers"), F.array_compact(largest).alias("largest")
    )
    of_request_time = F.when(F.col("key") == REQUEST_PERCENTAGE, F.col("throttle.throttle_ms"))
    rows = (
        shared.join(use.drop("bins", "closest"), on=list(METER), how="left")
        .orderBy(
            # A request percentage throttles requests of every kind, and those are counted on the key of their API.
            F.greatest(F.col("throttle_ms"), of_request_time).desc_nulls_last(),
            F.desc_nulls_last("closeness"),
            F.desc_nulls_last("amount"),
            "cluster",
            "key",
            *_CLIENT,
        )
        .limit(bounds.clients)
        .collect()
    )
    return Listed(Row(total=limited.count() if len(rows) == bounds.clients else len(rows)), rows)


def _unlimited(clients: DataFrame, bounds: Bounds) -> list[Row]:
    """Clients without a limit for a key, by key, those with the largest amount first.

    Rows: those of `clients`, and by_request_time (whether a request percentage holds for the client, which can throttle
    requests of every kind), and of all clients without a limit for the key total and unexplained (how many of them were
    throttled although no request percentage holds for them either).
    """
    of_key = Window.partitionBy("key")
    largest = (F.desc_nulls_last(name) for name in ("amount", "throttle_ms", "requests"))
    largest_first = of_key.orderBy(*largest, "cluster", *_CLIENT)
    has_request_time = F.max((F.col("key") == REQUEST_PERCENTAGE) & F.col("limit").isNotNull())
    by_request_time = has_request_time.over(Window.partitionBy("cluster", "user", "client_id"))
    unlimited = clients.withColumn("by_request_time", by_request_time).where(F.col("limit").isNull())
    ranked = unlimited.select(
        "*",
        F.row_number().over(largest_first).alias("rank"),
        F.count(F.lit(1)).over(of_key).alias("total"),
        F.count_if((F.col("throttled_requests") > 0) & ~F.col("by_request_time")).over(of_key).alias("unexplained"),
    )
    rows = ranked.where(F.col("rank") <= bounds.unlimited_per_key).collect()
    places = {key: place for place, key in enumerate(QUOTA_KEYS)}
    return sorted(rows, key=lambda row: (places.get(row.key, len(places)), row.key, row["rank"]))


def _lanes(throttle: DataFrame, time_range: Span | None, bounds: Bounds) -> list[tuple[Row, tuple[Span, ...]]]:
    """The meters throttled longest, each with the spans of its throttled time."""
    if time_range is None:
        return []
    order = (F.desc_nulls_last("throttle.throttle_ms"), F.desc("throttle.episodes"), *METER)
    rows = throttle.orderBy(*order).limit(bounds.meters).collect()
    return [(row, spans_of(row.bins, time_range, bounds)) for row in rows]


def _episodes(throttled: DataFrame, bounds: Bounds) -> Listed:
    """The episodes with the longest waits. Counts: total, ambiguous, unexplained.

    Rows: those of `throttled`, but `clients` is how many there were, and `largest` names some of them.
    """
    counts = throttled.agg(
        F.count(F.lit(1)).alias("total"),
        F.count_if(F.col("cause") == AMBIGUOUS).alias("ambiguous"),
        F.count_if(F.col("cause") == UNEXPLAINED).alias("unexplained"),
    )
    names = F.coalesce("clients", F.array().cast("array<string>"))
    rows = (
        throttled.orderBy(F.desc_nulls_last("throttle_ms"), F.desc("throttle_max_ms"), "start_ms", "broker_id", *METER)
        .limit(bounds.episodes)
        .withColumns(
            {
                "cause": F.coalesce("cause", F.lit(UNEXPLAINED)),
                "throttle_max_ms": F.coalesce("throttle_max_ms", F.lit(0)),
                "largest": F.slice(names, 1, bounds.names),
                "clients": F.size(names),
            }
        )
    )
    return Listed(counts.collect()[0], rows.collect())


def _calibration(table: DataFrame, bounds: Bounds) -> list[Row]:
    """The meters with the most waits that the replay does not give, then those with the longest waits in the log.

    Rows: those of `calibration`, and is_estimate (of request time, of which nothing is known but a range; these are
    counted apart), waits (logged or predicted, and compared), and the sums of all meters of that kind: all_total (how
    many there are), all_waits, all_close (waits that the replay gives) and so on.
    """
    of_kind = Window.partitionBy("is_estimate")
    order = (F.desc("not_close"), F.desc("throttle_ms_logged"), *METER, "broker_id")
    sums = ("waits", "close", "throttle_ms_logged", "throttle_ms_predicted", "not_compared")
    ranked = (
        table.fillna(0, ["false_negatives", "false_positives"])
        .withColumn("is_estimate", F.col("key") == REQUEST_PERCENTAGE)
        .withColumn("waits", F.col("throttled_requests") + F.col("false_positives"))
        .withColumn("close", F.round(F.coalesce("within_5ms_or_5pct", F.lit(0.0)) * F.col("waits")).cast("long"))
        .withColumn("not_close", F.when(~F.col("is_estimate"), F.col("waits") - F.col("close")))
        .select(
            "*",
            F.row_number().over(of_kind.orderBy(*order)).alias("rank"),
            F.count(F.lit(1)).over(of_kind).alias("all_total"),
            *(F.sum(name).over(of_kind).alias(f"all_{name}") for name in sums),
        )
    )
    return ranked.where(F.col("rank") <= bounds.calibrated).orderBy("rank").collect()
