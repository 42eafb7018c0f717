"""From the tables of an analysis to a :class:`Report`: Spark aggregates, and only bounded results are collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.window import Window

from kquota.pipeline.dataset import tables
from kquota.pipeline.limits.identities import METER
from kquota.pipeline.report import model
from kquota.pipeline.report.calibration import calibration_of
from kquota.pipeline.report.curves import curves_of
from kquota.pipeline.report.recommendations import recommendations_of
from kquota.pipeline.report.summary import page_summary, rate_window
from kquota.pipeline.report.timeline import ChartedMeter, limit_spans, meter_steps, spans_of, throttled_by_meter
from kquota.pipeline.report.what_if import what_if_of
from kquota.pipeline.spark.arrow import decode_dictionaries
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["AnalysisTables", "build_report", "read_tables"]

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
    """Open the tables; nothing is read yet.

    :raises MissingTableError: one is not there; only `calibration`, `limits` and those of limits that were tried may be
        missing.
    """

    def read(table: tables.Table) -> DataFrame:
        frame = run.frame(table.name)
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


def build_report(run: Run, bounds: model.Bounds) -> model.Report:
    """What the page says of the tables of a run.

    :raises MissingTableError: a table is not there.
    """
    summary = page_summary(run.summary)
    read = read_tables(run)
    # Where limits changed, `clients` has the last one that each client had, which may be one that is there no more.
    in_force = read.clients if read.limits is None else read.limits.where(F.col("valid_to_ms").isNull())

    def timelines() -> tuple[tuple[model.MeterTimeline, ...], int]:
        worst, limited_meters = _worst_meters(use, bounds)
        return _timelines(read, summary, worst, time_range, bounds), limited_meters

    # Most of a small query is planning, on one core: together they keep more of them busy.
    with ThreadPoolExecutor(_QUERIES_AT_ONCE, "report") as pool:
        totals = pool.submit(_totals, read.clients)
        rejected = pool.submit(_rejected, read.rejected, bounds)
        calibration = pool.submit(calibration_of, read.calibration, bounds) if read.calibration is not None else None
        what_if = pool.submit(what_if_of, read.what_if, bounds) if read.what_if is not None else None
        curves = None
        if read.curve is not None:
            curves = pool.submit(curves_of, read.curve, in_force, read.recommendations, bounds)
        recommendations = None
        if read.recommendations is not None:
            recommendations = pool.submit(recommendations_of, read.recommendations, read.curve, in_force, bounds)
        brokers, time_range = _brokers(read.usage)
        told = throttled_by_meter(read.throttled, time_range or model.TimeRange(0, 0), bounds)
        use = _use_by_meter(read.utilisation, bounds).join(told, on=list(METER), how="left")
        drawn = pool.submit(timelines)
        limited = pool.submit(_limited, read.clients, use, bounds)
        unlimited = pool.submit(_unlimited, read.clients, bounds)
        episodes = pool.submit(_episodes, read.throttled, told, time_range, bounds)
    drawn_timelines, limited_meters = drawn.result()
    return model.Report(
        summary=summary,
        clusters=tuple(sorted({cluster for cluster, _ in brokers})),
        brokers=brokers[:_BROKERS_LISTED],
        brokers_total=len(brokers),
        range=time_range,
        window=rate_window(summary, "producer_byte_rate"),
        mutation_window=rate_window(summary, "controller_mutation_rate"),
        totals=totals.result(),
        limited=limited.result(),
        unlimited=unlimited.result(),
        timelines=drawn_timelines,
        limited_meters=limited_meters,
        episodes=episodes.result(),
        calibration=calibration.result() if calibration is not None else None,
        rejected=rejected.result(),
        what_if=what_if.result() if what_if is not None else None,
        curves=curves.result() if curves is not None else None,
        recommendations=recommendations.result() if recommendations is not None else None,
        bounds=bounds,
    )


def _brokers(usage: ArrowSource) -> tuple[tuple[tuple[str, int], ...], model.TimeRange | None]:
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
        return (), None
    brokers = sorted((row.cluster or "", row.broker_id) for row in rows)
    return tuple(brokers), model.TimeRange(min(row.start_ms for row in rows), max(row.end_ms for row in rows))


def _totals(clients: DataFrame) -> tuple[model.KeyTotals, ...]:
    rows = (
        clients.groupBy("key")
        .agg(
            F.count(F.lit(1)).alias("clients"),
            F.count("limit").alias("limited"),
            F.sum("amount").alias("amount"),
            F.sum("requests").alias("requests"),
            F.count_if(F.col("throttled_requests") > 0).alias("throttled_clients"),
            F.sum("throttled_requests").alias("throttled_requests"),
            F.sum("throttle_ms").alias("throttle_ms"),
        )
        .orderBy("key")
        .limit(len(model.QUOTA_KEYS) * 2)
        .collect()
    )
    totals = [
        model.KeyTotals(
            key=row.key,
            clients=row.clients,
            limited=row.limited,
            amount=row.amount,
            requests=row.requests or 0,
            throttled_clients=row.throttled_clients,
            throttled_requests=row.throttled_requests or 0,
            throttle_ms=row.throttle_ms or 0,
        )
        for row in rows
    ]
    return tuple(sorted(totals, key=lambda one: _key_order(one.key)))


def _key_order(key: str) -> tuple[int, str]:
    return (model.QUOTA_KEYS.index(key) if key in model.QUOTA_KEYS else len(model.QUOTA_KEYS), key)


def _closeness(rate: str = "rate_p95") -> Column:
    """Part of the limit that a rate is; -1 where unknown, so that it sorts last."""
    known = F.nanvl(F.try_divide(F.col(rate), F.when(F.col("limit") > 0, F.col("limit"))), F.lit(-1.0))
    return F.coalesce(known, F.lit(-1.0))


def _use_by_meter(utilisation: DataFrame, bounds: model.Bounds) -> DataFrame:
    """utilisation, all brokers of a meter together.

    cluster, meter, key, limit_source, brokers, meter_unknown_amounts; `closeness`, `at`: how close it came to its limit
    and the figures of the broker where that was; `closest`: (broker_id, limit) of the brokers to draw.
    """
    figures = ("rate_p95", "rate_max", "peak_1s", "seconds_active", "seconds_over_80", "seconds_over_100")
    by_closeness = F.struct(_closeness(), _closeness("rate_max"), -F.col("broker_id"))
    closest_first = F.sort_array(F.collect_list(F.struct(by_closeness.alias("order"), "broker_id", "limit")), asc=False)
    return (
        utilisation.where(F.col("limit").isNotNull() & F.col("meter").isNotNull())
        .groupBy(*METER)
        .agg(
            F.max("limit_source").alias("limit_source"),
            F.count_distinct("broker_id").alias("brokers"),
            F.max(_closeness()).alias("closeness"),
            F.max_by(F.struct("broker_id", *figures), by_closeness).alias("at"),
            F.sum("unknown_amounts").alias("meter_unknown_amounts"),
            F.slice(closest_first, 1, bounds.brokers_per_meter).alias("closest"),
        )
    )


def _worst_meters(use: DataFrame, bounds: model.Bounds) -> tuple[dict[model.MeterName, Row], int]:
    rows = use.orderBy(F.desc_nulls_last("told_ms"), F.desc("closeness"), *METER).limit(bounds.meters).collect()
    total = use.count() if len(rows) == bounds.meters else len(rows)
    return {_name(row): row for row in rows}, total


def _name(row: Row) -> model.MeterName:
    return model.MeterName(row.cluster or "", row.meter, row.key)


def _use(row: Row) -> model.MeterUse:
    return model.MeterUse(brokers=row.brokers, unknown_amounts=row.meter_unknown_amounts or 0, **row["at"].asDict())


def _told(row: Row) -> model.MeterThrottle | None:
    if row.episodes is None:
        return None
    return model.MeterThrottle(row.episodes, row.ambiguous, row.told_requests, row.told_ms)


def _timelines(
    read: AnalysisTables,
    summary: model.Summary,
    worst: Mapping[model.MeterName, Row],
    time_range: model.TimeRange | None,
    bounds: model.Bounds,
) -> tuple[model.MeterTimeline, ...]:
    if not worst or time_range is None:
        return ()
    wanted = [
        ChartedMeter(name, rate_window(summary, name.key), {one.broker_id: one.limit for one in row.closest})
        for name, row in worst.items()
    ]
    of_meters = read.clients if read.limits is None else read.limits
    series = meter_steps(read.usage, of_meters, wanted, time_range, bounds)
    changed = {} if read.limits is None else limit_spans(read.limits, list(worst), time_range)
    return tuple(
        model.MeterTimeline(
            name=name,
            limit_source=row.limit_source,
            use=_use(row),
            told=_told(row),
            series=series.get(name, ()),
            spans=spans_of(row.bins or (), time_range, bounds),
            limit_spans=changed.get(name, ()),
        )
        for name, row in worst.items()
    )


def _limited(clients: DataFrame, use: DataFrame, bounds: model.Bounds) -> model.LimitedClients:
    limited = clients.where(F.col("limit").isNotNull())
    of_meter = Window.partitionBy(*METER)
    whole_meter = of_meter.orderBy(F.desc_nulls_last("amount"), *_CLIENT).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    one = F.struct(*_CLIENT)
    shared = limited.select(
        "*",
        F.count(F.lit(1)).over(of_meter).alias("sharers"),
        F.array(*(F.nth_value(one, place).over(whole_meter) for place in range(1, bounds.names + 1))).alias("largest"),
    )
    rows = (
        shared.join(use.drop("bins", "closest", "limit_source"), on=list(METER), how="left")
        .orderBy(
            # A request percentage throttles requests of every kind, and those are counted on the key of their API.
            F.greatest("throttle_ms", F.when(F.col("key") == REQUEST_PERCENTAGE, F.col("told_ms"))).desc_nulls_last(),
            F.desc_nulls_last("closeness"),
            F.desc_nulls_last("amount"),
            "cluster",
            "key",
            *_CLIENT,
        )
        .limit(bounds.clients)
        .collect()
    )
    total = limited.count() if len(rows) == bounds.clients else len(rows)
    return model.LimitedClients(
        total=total,
        rows=tuple(
            model.LimitedClient(
                cluster=row.cluster or "",
                client=_client(row),
                key=row.key,
                amount=row.amount,
                requests=row.requests,
                throttled_requests=row.throttled_requests,
                throttle_ms=row.throttle_ms,
                limit=row.limit,
                limit_source=row.limit_source or "",
                level=row.level,
                meter=row.meter or "",
                use=_use(row) if row["at"] is not None else None,
                told=_told(row),
                sharers=model.Sharers(row.sharers, tuple(_client(one) for one in row.largest if one is not None)),
                unknown_amounts=row.unknown_amounts or 0,
            )
            for row in rows
        ),
    )


def _client(row: Row) -> model.Client:
    return model.Client(row.user, row.client_id, row.ip)


def _unlimited(clients: DataFrame, bounds: model.Bounds) -> tuple[model.UnlimitedClients, ...]:
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
    rows = ranked.where(F.col("rank") <= bounds.unlimited_per_key).orderBy("key", "rank").collect()
    keys = sorted({row.key for row in rows}, key=_key_order)
    by_key = {key: [row for row in rows if row.key == key] for key in keys}
    return tuple(
        model.UnlimitedClients(
            key=key,
            total=of_one[0].total,
            unexplained=of_one[0].unexplained,
            rows=tuple(
                model.UnlimitedClient(
                    cluster=row.cluster or "",
                    client=_client(row),
                    amount=row.amount,
                    requests=row.requests,
                    throttled_requests=row.throttled_requests,
                    throttle_ms=row.throttle_ms,
                    by_request_time=row.by_request_time,
                    unknown_amounts=row.unknown_amounts or 0,
                )
                for row in of_one
            ),
        )
        for key, of_one in by_key.items()
    )


def _episodes(
    throttled: DataFrame, told: DataFrame, time_range: model.TimeRange | None, bounds: model.Bounds
) -> model.Episodes:
    if time_range is None:
        return model.Episodes(0, 0, 0, (), ())
    longest = told.orderBy(F.desc_nulls_last("told_ms"), F.desc("episodes"), *METER).limit(bounds.meters).collect()
    lanes = [(_name(row), _told(row), spans_of(row.bins, time_range, bounds)) for row in longest]
    counts = throttled.agg(
        F.count(F.lit(1)).alias("total"),
        F.count_if(F.col("cause") == model.AMBIGUOUS).alias("ambiguous"),
        F.count_if(F.col("cause") == model.UNEXPLAINED).alias("unexplained"),
    ).first()
    assert counts is not None  # an aggregate without groups always has its row
    rows = (
        throttled.orderBy(F.desc_nulls_last("throttle_ms"), F.desc("throttle_max_ms"), "start_ms", "broker_id", *METER)
        .limit(bounds.episodes)
        .select(
            *(name for name in throttled.columns if name != "clients"),
            F.greatest(F.size("clients"), F.lit(0)).alias("clients"),
            F.slice("clients", 1, bounds.names).alias("largest"),
        )
        .collect()
    )
    return model.Episodes(
        total=counts.total,
        ambiguous=counts.ambiguous,
        unexplained=counts.unexplained,
        rows=tuple(
            model.Episode(
                broker_id=row.broker_id,
                name=_name(row),
                cause=row.cause or model.UNEXPLAINED,
                start_ms=row.start_ms,
                end_ms=row.end_ms,
                requests=row.requests,
                throttle_ms=row.throttle_ms,
                throttle_max_ms=row.throttle_max_ms or 0,
                clients=row.clients,
                largest=tuple(one or "" for one in row.largest or ()),
            )
            for row in rows
        ),
        lanes=tuple(model.Lane(name, of_meter, spans) for name, of_meter, spans in lanes if of_meter),
    )


def _rejected(rejected: DataFrame, bounds: model.Bounds) -> tuple[model.RejectedReason, ...]:
    """By what stands before the first colon of the reason: what follows it differs from line to line."""
    of_kind = Window.partitionBy("kind")
    ranked = rejected.withColumn("kind", F.substring_index("reason", ": ", 1)).select(
        "*",
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
    return tuple(_rejected_reason(kind, [row for row in rows if row.kind == kind]) for kind in kinds)


def _rejected_reason(kind: str | None, rows: list[Row]) -> model.RejectedReason:
    return model.RejectedReason(
        reason=kind or "no reason given",
        lines=rows[0].lines,
        samples=tuple(
            model.RejectedLine(
                file=row.file or "",
                line=row.line or 0,
                detail=(row.reason or "").removeprefix(kind or "").removeprefix(": "),
                sample=row["sample"] or "",
            )
            for row in rows
        ),
    )
