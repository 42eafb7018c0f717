"""From the tables of an analysis to a :class:`Report`: Spark aggregates, and only bounded results are collected."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.window import Window

from kquota.pipeline.dataset import tables
from kquota.pipeline.limits.identities import METER
from kquota.pipeline.meters.episodes import AMBIGUOUS, UNEXPLAINED
from kquota.pipeline.report import advice
from kquota.pipeline.report.clients import limited_clients, to_use, total_throttling, unlimited_clients
from kquota.pipeline.report.contents import Bounds, Listed, Report, Span, Timeline
from kquota.pipeline.report.summary import rate_window
from kquota.pipeline.report.timeline import ChartedMeter, limit_spans, meter_steps, spans_of, throttled_by_meter
from kquota.pipeline.spark.arrow import decode_dictionaries
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["build_report"]

_END_MS: Final = StructField("end_ms", LongType())
_LITTLE_BYTES: Final = 8 * 1024**2
_QUERIES_AT_ONCE: Final = 3
_BROKERS_READ: Final = 10_000
_BROKERS_LISTED: Final = 200


def build_report(run: Run, bounds: Bounds) -> Report:
    """What the page says of the tables of a run. A cluster without a name is ''.

    :raises MissingTableError: a table is not there that every analysis has.
    """

    def read(table: tables.Table) -> DataFrame:
        frame = run.frame(table.name).fillna("", ["cluster"])
        # In one partition nothing has to be shuffled, and for little data the shuffles are nearly all of the work.
        little = sum(file.bytes for file in run.files(table.name)) <= _LITTLE_BYTES
        return frame.coalesce(1) if little else frame

    def read_if_there(table: tables.Table) -> DataFrame | None:
        return read(table) if run.has(table.name) else None

    clients, utilisation, throttled = (read(one) for one in (tables.CLIENTS, tables.UTILISATION, tables.THROTTLED))
    limits = read_if_there(tables.LIMITS)
    # Where limits changed, `clients` has the last one that each client had, which may be one that is there no more.
    in_force = clients if limits is None else limits.where(F.col("valid_to_ms").isNull())
    curve, recommended = read_if_there(tables.CURVE), read_if_there(tables.RECOMMENDATIONS)
    # Most of a small query is planning, on one core: together they keep more of them busy.
    with ThreadPoolExecutor(_QUERIES_AT_ONCE, "report") as pool:
        found: dict[str, Future[Any]] = {  # by field of the report
            "totals": pool.submit(total_throttling, clients),
            "rejected": pool.submit(_rejected, read(tables.REJECTED), bounds),
        }
        if (calibration := read_if_there(tables.CALIBRATION)) is not None:
            found["calibration"] = pool.submit(_calibration, calibration, bounds)
        if (what_if := read_if_there(tables.WHATIF)) is not None:
            found["what_if"] = pool.submit(advice.what_if, what_if, bounds)
        if curve is not None:
            found["curves"] = pool.submit(advice.curves, curve, in_force, recommended, bounds)
        if recommended is not None:
            found["recommendations"] = pool.submit(advice.recommendations, recommended, curve, in_force, bounds)
        brokers, time_range = _brokers(run.source(tables.USAGE.name))
        throttle = throttled_by_meter(throttled, time_range or Span(0, 0), bounds)
        use = to_use(utilisation, bounds).join(throttle, on=list(METER), how="left")
        timelines = pool.submit(_timelines, run, clients, limits, use, time_range, bounds)
        found["limited"] = pool.submit(limited_clients, clients, use, bounds)
        found["unlimited"] = pool.submit(unlimited_clients, clients, bounds)
        found["lanes"] = pool.submit(_lanes, throttle, time_range, bounds)
        found["episodes"] = pool.submit(_episodes, throttled, bounds)
    drawn, limited_meters = timelines.result()
    return Report(
        summary=run.summary,
        clusters=sorted({cluster for cluster, _ in brokers}),
        brokers=brokers[:_BROKERS_LISTED],
        brokers_total=len(brokers),
        range=time_range,
        timelines=drawn,
        limited_meters=limited_meters,
        bounds=bounds,
        **{name: rows.result() for name, rows in found.items()},
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


def _timelines(
    run: Run, clients: DataFrame, limits: DataFrame | None, use: DataFrame, time_range: Span | None, bounds: Bounds
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
            rate_window(run.summary, row.key),
            {one.broker_id: one.limit for one in row.closest},
        )
        for row in worst
    ]
    series = meter_steps(
        run.source(tables.USAGE.name), clients if limits is None else limits, meters, time_range, bounds
    )
    changes = [()] * len(meters) if limits is None else limit_spans(limits, meters, time_range)
    return [
        Timeline(row, steps, spans_of(row.bins or (), time_range, bounds), changed)
        for row, steps, changed in zip(worst, series, changes, strict=True)
    ], total


def _lanes(throttle: DataFrame, time_range: Span | None, bounds: Bounds) -> list[tuple[Row, tuple[Span, ...]]]:
    """The meters throttled longest, each with the spans of its throttled time."""
    if time_range is None:
        return []
    order = (F.desc_nulls_last("throttle.throttle_ms"), F.desc("throttle.episodes"), *METER)
    rows = throttle.orderBy(*order).limit(bounds.meters).collect()
    return [(row, spans_of(row.bins, time_range, bounds)) for row in rows]


def _episodes(throttled: DataFrame, bounds: Bounds) -> Listed:
    """The episodes with the longest throttle times. Counts: total, ambiguous, unexplained.

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
    """The meters with the most throttle times that the replay does not reproduce, then those throttled longest.

    Rows: those of `calibration`, and is_estimate (of request time, of which nothing is known but a range; these are
    counted apart), compared (requests throttled in the log or the replay, and compared), and the sums of all meters of
    that kind: all_total (how many there are), all_compared, all_close (reproduced by the replay) and so on.
    """
    of_kind = Window.partitionBy("is_estimate")
    order = (F.desc("not_close"), F.desc("throttle_ms_logged"), *METER, "broker_id")
    sums = ("compared", "close", "throttle_ms_logged", "throttle_ms_predicted", "not_compared")
    ranked = (
        table.fillna(0, ["false_negatives", "false_positives"])
        .withColumn("is_estimate", F.col("key") == REQUEST_PERCENTAGE)
        .withColumn("compared", F.col("throttled_requests") + F.col("false_positives"))
        .withColumn("close", F.round(F.coalesce("within_5ms_or_5pct", F.lit(0.0)) * F.col("compared")).cast("long"))
        .withColumn("not_close", F.when(~F.col("is_estimate"), F.col("compared") - F.col("close")))
        .select(
            "*",
            F.row_number().over(of_kind.orderBy(*order)).alias("rank"),
            F.count(F.lit(1)).over(of_kind).alias("all_total"),
            *(F.sum(name).over(of_kind).alias(f"all_{name}") for name in sums),
        )
    )
    return ranked.where(F.col("rank") <= bounds.calibrated).orderBy("rank").collect()
