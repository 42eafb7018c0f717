"""The step `ingest`: request logs and brokers' metrics to the tables `usage`, `rejected` and `requests`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kquota import __version__
from kquota.config import BrokerConfig
from kquota.pipeline.ingest.from_logs import ingest_logs
from kquota.pipeline.ingest.from_metrics import MetricSource, ingest_metrics
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
    summary = run.summary
    summary.kquota, summary.timezone, summary.cluster = __version__, settings.timezone, settings.cluster
    summary.settings = _settings(run.broker)
    covered = ingest_logs(
        run,
        files,
        cluster=settings.cluster,
        timezone=settings.timezone,
        keep_requests=settings.keep_requests if files else False,
        default_partitions=run.broker.num_partitions,
        topics=settings.topics,
    )
    if metrics.files:
        window_ms = run.broker.quota_window_num * run.broker.quota_window_size_seconds * 1000
        ingest_metrics(run, metrics, cluster=settings.cluster, covered=covered, window_ms=window_ms)


def _settings(broker: BrokerConfig) -> dict[str, int]:
    return {
        "quota.window.num": broker.quota_window_num,
        "quota.window.size.seconds": broker.quota_window_size_seconds,
        "controller.quota.window.num": broker.controller_quota_window_num,
        "controller.quota.window.size.seconds": broker.controller_quota_window_size_seconds,
    }
