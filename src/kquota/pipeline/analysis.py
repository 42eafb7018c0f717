"""The main job: from a broker's logs and the quotas to who is limited by what, how close, and who was throttled."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F

from kquota import __version__
from kquota.config import BrokerConfig
from kquota.errors import InputError
from kquota.files import QuotaTimeline
from kquota.pipeline.calibration.replayed_waits import to_calibration, to_replayed_throttles
from kquota.pipeline.dataset.table_files import location, table_folder, write_table
from kquota.pipeline.dataset.tables import CALIBRATION, CLIENTS, LIMITS, REQUESTS, THROTTLED, USAGE, UTILISATION, Table
from kquota.pipeline.ingest.from_logs import IngestResult, ingest_logs
from kquota.pipeline.ingest.from_metrics import MetricSource, MetricsResult, ingest_metrics
from kquota.pipeline.ingest.request_log.log_files import LogFile
from kquota.pipeline.limits.clients import (
    KAFKA_METER,
    Period,
    to_client_totals,
    with_limits,
    with_limits_over_time,
)
from kquota.pipeline.limits.periods import IS_LATEST, has_periods, latest_limits
from kquota.pipeline.spark.parquet_source import ArrowSource, ParquetSource
from kquota.pipeline.spark.persisted_frames import keep
from kquota.pipeline.utilisation.episodes import to_throttled
from kquota.pipeline.utilisation.rates import to_utilisation
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kquota.pipeline.dataset.output_directory import OutputDirectory
    from kquota.pipeline.progress import Progress

__all__ = [
    "LogSettings",
    "RejectLimit",
    "calibration_step",
    "ingest_step",
    "read_table",
    "read_usage",
    "resolve_step",
    "resolved",
    "utilisation_step",
    "write_summary",
]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the logs are to be read. `timezone` is the zone that the brokers logged in."""

    timezone: str = "UTC"
    cluster: str = ""
    keep_requests: bool | None = None
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many lines may be rejected before the job fails: a number, or per cent of good and rejected lines."""

    value: float
    per_cent: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``25`` or ``10%``.

        :raises InputError: it is neither.
        """
        number = text.strip().removesuffix("%")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        per_cent = text.strip().endswith("%")
        if not value >= 0 or (per_cent and value > 100) or (not per_cent and value % 1):
            raise InputError(f"--max-rejected {text}: give a number of lines such as 100, or a share such as 10%")
        return cls(value, per_cent)

    def exceeded(self, *, good: int, rejected: int) -> bool:
        """Whether so many rejected lines are too many."""
        allowed = self.value * (good + rejected) / 100 if self.per_cent else self.value
        return rejected > allowed

    def __str__(self) -> str:
        return f"{self.value:g}{' %' if self.per_cent else ' lines'}"


def ingest_step(
    spark: SparkSession,
    files: list[LogFile],
    output: OutputDirectory,
    settings: LogSettings,
    broker_config: BrokerConfig,
    progress: Progress,
    *,
    metrics: MetricSource,
) -> tuple[IngestResult, dict[str, Any]]:
    """Logs and metrics to `usage`, `rejected` and, if kept, `requests` in the staging folder; also the part of
    summary.json.
    """
    result = ingest_logs(
        spark,
        files,
        output.staging,
        cluster=settings.cluster,
        timezone=settings.timezone,
        keep_requests=settings.keep_requests if files else False,
        default_partitions=broker_config.num_partitions,
        topics=settings.topics,
        progress=progress,
    )
    left_out = {log.path for log in result.duplicate_logs}
    summary: dict[str, Any] = {
        "kquota": __version__,
        "inputs": [
            {"file": file.path, "source": "request-log", "broker_id": file.broker_id, "bytes": file.size_bytes}
            for file in files
            if file.path not in left_out
        ]
        + metrics.summary(),
        "timezone": settings.timezone,
        "cluster": settings.cluster,
        "start_ms": result.start_ms,
        "end_ms": result.end_ms,
        "lines": result.lines,
        "good": result.good,
        "rejected": result.rejected,
        "blank": result.blank,
        "forwarded": result.forwarded,
        "followers": result.followers,
        "unknown_amounts": result.unknown_amounts,
        "versions": result.versions,
        "kept_requests": result.kept_requests,
        "settings": _settings(broker_config),
    }
    if result.duplicate_logs:
        summary["duplicate_logs"] = [{"file": log.path, "of": log.of} for log in result.duplicate_logs]
    if result.overlaps:
        summary["overlaps"] = [
            {"broker_id": one.broker_id, "files": list(one.paths), "overlap_ms": round(one.overlap_ms)}
            for one in result.overlaps
        ]
    if result.ambiguous_hours:
        summary["ambiguous_hours"] = [{"broker_id": log.broker_id, "file": log.path} for log in result.ambiguous_hours]
    if result.clock_went_backwards:
        summary["clock_went_backwards"] = [
            {"broker_id": broker_id, "from_ms": round(times.backwards_from_ms), "by_ms": round(times.backwards_ms)}
            for broker_id, times in result.clock_went_backwards.items()
        ]
    if metrics.files:
        read = ingest_metrics(
            spark,
            metrics,
            output.staging,
            cluster=settings.cluster,
            covered=result.covered,
            window_ms=broker_config.quota_window_num * broker_config.quota_window_size_seconds * 1000,
            progress=progress,
        )
        _add_metrics(summary, read)
    return result, summary


def _add_metrics(summary: dict[str, Any], read: MetricsResult) -> None:
    """What metrics add to summary.json: a reading counts as a line does."""
    counted = {
        "lines": read.readings + read.rejected + read.blank,
        "good": read.readings,
        "rejected": read.rejected,
        "blank": read.blank,
    }
    for name, count in counted.items():
        summary[name] += count
    for name, at_ms, pick in (("start_ms", read.counts.start_ms, min), ("end_ms", read.counts.end_ms, max)):
        summary[name] = pick((one for one in (summary[name], at_ms) if one is not None), default=None)
    summary["metrics"] = read.summary()


def _settings(broker_config: BrokerConfig) -> dict[str, int]:
    return {
        "quota.window.num": broker_config.quota_window_num,
        "quota.window.size.seconds": broker_config.quota_window_size_seconds,
        "controller.quota.window.num": broker_config.controller_quota_window_num,
        "controller.quota.window.size.seconds": broker_config.controller_quota_window_size_seconds,
    }


def read_table(spark: SparkSession, directory: Path, table: Table) -> DataFrame:
    """A table under `directory`.

    :raises InputError: it is not there, or not whole.
    """
    return spark.read.schema(table.schema).parquet(location(table_folder(directory, table)))


def read_usage(spark: SparkSession, directory: Path) -> ParquetSource:
    """The `usage` table under `directory`.

    :raises InputError: it is not there, or not whole.
    """
    return ParquetSource.of_table(spark, table_folder(directory, USAGE), USAGE)


def resolve_step(
    usage: ArrowSource,
    quotas: QuotaTimeline,
    start_ms: int | None,
    staging: Path,
    broker_config: BrokerConfig,
    progress: Progress,
) -> tuple[DataFrame, dict[str, Any]]:
    """`usage` to `clients`, and to `limits` where those changed.

    Returns the resolved clients (kept in memory) and the part of summary.json.

    :param quotas: those in force from `start_ms`, when the usage begins.
    """
    with progress.stage("resolve the limits"), ThreadPoolExecutor(1, "clients") as pool:
        clients = keep(resolved(to_client_totals(usage), quotas, start_ms, broker_config))
        have_periods = has_periods(clients)
        written = pool.submit(write_table, latest_limits(clients).select(*CLIENTS.columns), staging, CLIENTS)
        known = (F.col("user").isNotNull() & F.col("client_id").isNotNull()) | F.col("ip").isNotNull()

        def once(column: str) -> Column:
            return F.when(F.col(IS_LATEST), F.col(column)) if have_periods else F.col(column)

        totals = clients.agg(
            F.count_distinct(F.when(F.col("ip").isNull() & known, F.struct("user", "client_id"))).alias("clients"),
            F.count_distinct(F.when(F.col(KAFKA_METER).isNotNull(), F.struct("key", KAFKA_METER))).alias("meters"),
            F.count_distinct(F.when(F.col("meter").isNotNull(), F.struct("key", "meter"))).alias("limited_meters"),
            F.coalesce(F.sum(once("throttle_ms")), F.lit(0)).alias("throttle_ms"),
            F.coalesce(F.sum(once("throttled_requests")), F.lit(0)).alias("throttled_requests"),
        ).first()
        if have_periods:
            write_table(clients.select(*LIMITS.columns), staging, LIMITS)
    written.result()
    assert totals is not None
    return clients, totals.asDict() | _over_time(quotas)


def resolved(
    identities: DataFrame, quotas: QuotaTimeline, start_ms: int | None, broker_config: BrokerConfig
) -> DataFrame:
    """Identities with the limits that were in force for them from `start_ms` on; a row for each where they changed."""
    defaults = broker_config.static_defaults
    periods = [Period(valid_from_ms, file.snapshot()) for valid_from_ms, file in quotas.periods]
    if not periods:
        return with_limits(identities, {})
    first_ms = periods[0].valid_from_ms
    if first_ms is None or start_ms is None or first_ms <= start_ms:
        periods[0] = Period(None, periods[0].snapshot)
    else:
        periods.insert(0, Period(None, None))
    if len(periods) == 1:
        return with_limits(identities, periods[0].snapshot or {}, static_defaults=defaults)
    return with_limits_over_time(identities, periods, static_defaults=defaults)


def _over_time(quotas: QuotaTimeline) -> dict[str, Any]:
    """The part of summary.json about quotas that have a past; nothing for those that are just given."""
    if quotas.recorded_from_ms is None and quotas.periods and quotas.periods[0].valid_from_ms is None:
        return {}
    periods = [
        {"valid_from_ms": period.valid_from_ms, "valid_to_ms": end_ms, "entities": len(period.quotas.entries)}
        for period, end_ms in quotas.with_ends()
    ]
    return {
        "quotas_over_time": {
            "changes": max(0, len(periods) - 1),
            "recorded_from_ms": quotas.recorded_from_ms,
            "periods": periods,
        }
    }


def utilisation_step(
    usage: ArrowSource, clients: DataFrame, staging: Path, broker_config: BrokerConfig, progress: Progress
) -> dict[str, Any]:
    """`usage` and resolved clients to `utilisation` and `throttled`; returns the part of summary.json."""

    def find_throttled() -> int:
        throttled = to_throttled(usage, clients, broker_config).persist()
        try:
            write_table(throttled, staging, THROTTLED)
            named = throttled.where(F.col("meter").isNotNull()).agg(F.count_distinct("key", "meter")).first()
        finally:
            throttled.unpersist()
        return 0 if named is None else int(named[0])

    # Neither needs the other, and the planning of one leaves a core to the other.
    with progress.stage("measure and find throttles"), ThreadPoolExecutor(1, "throttled") as pool:
        throttled_meters = pool.submit(find_throttled)
        write_table(to_utilisation(usage, clients, broker_config), staging, UTILISATION)
    return {"throttled_meters": throttled_meters.result()}


def calibration_step(
    spark: SparkSession,
    clients: DataFrame,
    directory: Path,
    staging: Path,
    broker_config: BrokerConfig,
    progress: Progress,
) -> dict[str, Any]:
    """`requests` under `directory` and resolved clients to `calibration`; returns the part of summary.json.

    Without `requests` the table has no rows.
    """
    with progress.stage("replay the log"):
        if not (directory / REQUESTS.name).is_dir():
            write_table(spark.createDataFrame([], CALIBRATION.schema), staging, CALIBRATION)
            return {"calibration": None}
        requests = read_table(spark, directory, REQUESTS)
        write_table(to_calibration(to_replayed_throttles(requests, clients, broker_config)), staging, CALIBRATION)
        agreed = F.col("key") != REQUEST_PERCENTAGE
        both = F.col("throttled_requests") + F.col("false_positives")
        totals = (
            read_table(spark, staging, CALIBRATION)
            .agg(
                *(
                    F.coalesce(F.sum(F.when(agreed, column)), F.lit(0)).alias(name)
                    for name, column in {
                        "waits": both,
                        "within_5ms_or_5pct": F.round(F.col("within_5ms_or_5pct") * both).cast("long"),
                        "not_compared": F.col("not_compared"),
                        "throttle_ms_logged": F.col("throttle_ms_logged"),
                        "throttle_ms_predicted": F.col("throttle_ms_predicted"),
                    }.items()
                )
            )
            .first()
        )
    assert totals is not None
    return {"calibration": totals.asDict()}


def write_summary(staging: Path, summary: Mapping[str, Any]) -> None:
    """Write summary.json."""
    text = json.dumps(summary, indent=2, ensure_ascii=False)
    (staging / "summary.json").write_text(text + "\n", encoding="utf-8")
