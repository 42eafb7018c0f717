"""The step `ingest`: request logs and brokers' metrics to the tables `usage`, `rejected` and `requests`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kquota import __version__
from kquota.config import BrokerConfig
from kquota.pipeline.dataset.summary import AmbiguousHour, BackwardClock, DuplicateLogFile, Input, Overlap, Summary
from kquota.pipeline.ingest.from_logs import IngestResult, ingest_logs
from kquota.pipeline.ingest.from_metrics import MetricSource, MetricsResult, ingest_metrics
from kquota.pipeline.ingest.request_log.log_files import LogFile

if TYPE_CHECKING:
    from kquota.pipeline.dataset.run import Run

__all__ = ["LogSettings", "ingest"]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the logs are to be read. `timezone` is the zone that the brokers logged in."""

    timezone: str = "UTC"
    cluster: str = ""
    keep_requests: bool | None = None
    topics: Mapping[str, int] = field(default_factory=dict)


def ingest(run: Run, files: Sequence[LogFile], metrics: MetricSource, settings: LogSettings) -> None:
    """Read logs and metrics into tables and the summary."""
    result = ingest_logs(
        run,
        files,
        cluster=settings.cluster,
        timezone=settings.timezone,
        keep_requests=settings.keep_requests if files else False,
        default_partitions=run.broker.num_partitions,
        topics=settings.topics,
    )
    summary = run.summary
    summary.kquota, summary.timezone, summary.cluster = __version__, settings.timezone, settings.cluster
    summary.settings = _settings(run.broker)
    _count_logs(summary, files, result)
    summary.inputs += metrics.inputs_read()
    if metrics.files:
        read = ingest_metrics(
            run,
            metrics,
            cluster=settings.cluster,
            covered=result.covered,
            window_ms=run.broker.quota_window_num * run.broker.quota_window_size_seconds * 1000,
        )
        _count_metrics(summary, read)


def _count_logs(summary: Summary, files: Sequence[LogFile], result: IngestResult) -> None:
    left_out = {log.path for log in result.duplicate_logs}
    summary.inputs = [
        Input(file.path, "request-log", file.broker_id, file.size_bytes) for file in files if file.path not in left_out
    ]
    summary.start_ms, summary.end_ms = result.start_ms, result.end_ms
    summary.lines, summary.good = result.lines, result.good
    summary.rejected, summary.blank = result.rejected, result.blank
    summary.forwarded, summary.followers = result.forwarded, result.followers
    summary.unknown_amounts = result.unknown_amounts
    summary.versions = {api: dict(versions) for api, versions in result.versions.items()}
    summary.kept_requests = result.kept_requests
    summary.duplicate_logs = [DuplicateLogFile(log.path, log.of) for log in result.duplicate_logs]
    summary.overlaps = [Overlap(one.broker_id, list(one.paths), round(one.overlap_ms)) for one in result.overlaps]
    summary.ambiguous_hours = [AmbiguousHour(log.broker_id, log.path) for log in result.ambiguous_hours]
    summary.clock_went_backwards = [
        BackwardClock(broker_id, round(times.backwards_from_ms), round(times.backwards_ms))
        for broker_id, times in result.clock_went_backwards.items()
    ]


def _count_metrics(summary: Summary, read: MetricsResult) -> None:
    """What metrics add: a reading counts as a line does."""
    summary.lines += read.readings + read.rejected + read.blank
    summary.good += read.readings
    summary.rejected += read.rejected
    summary.blank += read.blank
    starts, ends = (summary.start_ms, read.counts.start_ms), (summary.end_ms, read.counts.end_ms)
    summary.start_ms = min((one for one in starts if one is not None), default=None)
    summary.end_ms = max((one for one in ends if one is not None), default=None)
    summary.metrics = read.summary()


def _settings(broker: BrokerConfig) -> dict[str, int]:
    return {
        "quota.window.num": broker.quota_window_num,
        "quota.window.size.seconds": broker.quota_window_size_seconds,
        "controller.quota.window.num": broker.controller_quota_window_num,
        "controller.quota.window.size.seconds": broker.controller_quota_window_size_seconds,
    }
