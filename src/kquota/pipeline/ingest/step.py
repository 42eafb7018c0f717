"""The step `ingest`: request logs and brokers' metrics to the tables `usage`, `rejected` and `requests`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kquota import __version__
from kquota.config import BrokerConfig
from kquota.pipeline.ingest.from_logs import LogSettings, ingest_logs
from kquota.pipeline.ingest.from_metrics import MetricSource, ingest_metrics
from kquota.pipeline.ingest.request_log.log_files import LogFile

if TYPE_CHECKING:
    from kquota.pipeline.dataset.run import Run

__all__ = ["LogSettings", "ingest"]


def ingest(run: Run, files: Sequence[LogFile], metrics: MetricSource, settings: LogSettings) -> None:
    """Read logs and metrics into tables and the summary."""
    summary = run.summary
    summary.kquota, summary.timezone, summary.cluster = __version__, settings.timezone, settings.cluster
    summary.settings = _settings(run.broker)
    covered = ingest_logs(run, files, settings)
    if metrics.files:
        ingest_metrics(run, metrics, cluster=settings.cluster, covered=covered)


def _settings(broker: BrokerConfig) -> dict[str, int]:
    return {
        "quota.window.num": broker.quota_window_num,
        "quota.window.size.seconds": broker.quota_window_size_seconds,
        "controller.quota.window.num": broker.controller_quota_window_num,
        "controller.quota.window.size.seconds": broker.controller_quota_window_size_seconds,
    }
