"""The jobs behind the command line: what `kquota analyze` and the steps of `kquota pipeline` do, start to end."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kquota.clock import SystemClock
from kquota.files import QuotasOverTime
from kquota.pipeline.calibration.step import calibrate
from kquota.pipeline.dataset import steps
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.dataset.spark_run import JobOptions, spark_run
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.dataset.tables import THROTTLED, UTILISATION
from kquota.pipeline.ingest.from_metrics import MetricSource
from kquota.pipeline.ingest.input_file import plain_bytes
from kquota.pipeline.ingest.metrics.metric_files import MetricInputs
from kquota.pipeline.ingest.reject_limit import RejectLimit, fail_above
from kquota.pipeline.ingest.request_log.log_files import find_log_files
from kquota.pipeline.ingest.step import LogSettings
from kquota.pipeline.ingest.step import ingest as ingest_step
from kquota.pipeline.ingest.time_zone import check_time_zone
from kquota.pipeline.limits.step import resolve as resolve_step
from kquota.pipeline.limits.step import resolved_clients
from kquota.pipeline.meters.step import utilisation as utilisation_step
from kquota.pipeline.meters.worst_meters import unexplained_throttles, worst_meters
from kquota.pipeline.report.charts import check_extra
from kquota.pipeline.report.page import render_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = [
    "Analysis",
    "JobOptions",
    "LogSettings",
    "RejectLimit",
    "analyze",
    "ingest",
    "report",
    "resolve",
    "utilisation",
]

WORST_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Analysis:
    """What came of a job: the dataset as it is then, and the meters, worst first."""

    dataset: Dataset
    meters: Sequence[Row] = ()
    """As :func:`~kquota.pipeline.meters.worst_meters.worst_meters` gives them."""
    unexplained: Sequence[Row] = ()
    """As :func:`~kquota.pipeline.meters.worst_meters.unexplained_throttles` gives them."""
    removed: tuple[str, ...] = ()
    """Tables that were made with other quotas, and are there no more."""

    @property
    def summary(self) -> Summary:
        """That of the dataset."""
        return self.dataset.summary


def analyze(
    logs: Sequence[str],
    quotas: QuotasOverTime,
    log_settings: LogSettings,
    options: JobOptions,
    *,
    broker_id: int = 0,
    metrics: MetricInputs | None = None,
    max_rejected: RejectLimit,
    report: bool = True,
) -> Analysis:
    """The main job. The result is complete also where too many lines were rejected.

    :raises TooManyRejectedError: they were.
    """
    check_time_zone(log_settings.timezone)
    files = find_log_files(logs, broker_id=broker_id, envelope=log_settings.envelope)
    metric_source = MetricSource.of(metrics or MetricInputs(), broker_id=broker_id)
    if report:
        check_extra()
    target = Dataset.create(options.out, overwrite=options.overwrite)
    log_bytes = plain_bytes([*files, *metric_source.files])
    with spark_run(options, steps.ANALYZE_STEP, target, log_bytes=log_bytes) as run:
        ingest_step(run, files, metric_source, log_settings)
        clients = resolve_step(run, quotas.within(run.summary.start_ms, run.summary.end_ms))
        utilisation_step(run, clients)
        calibrate(run, clients)
        with run.stage("write the report" if report else "find the worst"), ThreadPoolExecutor(1, "worst") as pool:
            found = pool.submit(_worst, run, clients)
            if report:
                run.summary.seconds = dict(run.progress.seconds)
                run.set_report(render_report(run, generated=_now()))
        worst, unexplained = found.result()
        dataset = run.commit()
    fail_above(max_rejected, dataset)
    return Analysis(dataset, worst, unexplained)


def _worst(run: Run, clients: DataFrame) -> tuple[Sequence[Row], Sequence[Row]]:
    """What the terminal shows of the tables `utilisation` and `throttled`, and of resolved clients."""
    throttled = run.frame(THROTTLED.name)
    worst = worst_meters(run.frame(UTILISATION.name), throttled, clients, count=WORST_SHOWN)
    return worst.collect(), unexplained_throttles(throttled).collect()


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


def ingest(
    logs: Sequence[str],
    log_settings: LogSettings,
    options: JobOptions,
    *,
    broker_id: int = 0,
    metrics: MetricInputs | None = None,
    max_rejected: RejectLimit,
) -> Analysis:
    """Logs and metrics to `usage`, `rejected` and `requests` in a new dataset.

    :raises TooManyRejectedError: too many lines were rejected; the dataset is complete all the same.
    """
    check_time_zone(log_settings.timezone)
    files = find_log_files(logs, broker_id=broker_id, envelope=log_settings.envelope)
    metric_source = MetricSource.of(metrics or MetricInputs(), broker_id=broker_id)
    target = Dataset.create(options.out, overwrite=options.overwrite)
    log_bytes = plain_bytes([*files, *metric_source.files])
    with spark_run(options, steps.INGEST_STEP, target, log_bytes=log_bytes) as run:
        ingest_step(run, files, metric_source, log_settings)
        dataset = run.commit()
    fail_above(max_rejected, dataset)
    return Analysis(dataset)


def resolve(quotas: QuotasOverTime, options: JobOptions) -> Analysis:
    """`usage` of a dataset to `clients`, under these quotas.

    What later steps have made of other quotas is removed: it does not go with these.
    """
    before = Dataset.open(options.out)
    with spark_run(options, steps.RESOLVE_STEP, before) as run:
        resolve_step(run, quotas.within(run.summary.start_ms, run.summary.end_ms))
        dataset = run.commit()
    return Analysis(dataset, removed=_in_order(before.tables - dataset.tables - {*steps.RESOLVE_STEP.writes}))


def _in_order(names: frozenset[str]) -> tuple[str, ...]:
    """Names of tables and the like as the steps write them."""
    return tuple(name for step in steps.STEPS for name in step.writes if name in names)


def utilisation(options: JobOptions) -> Analysis:
    """`usage` of a dataset to `utilisation`, `throttled` and, of `requests`, `calibration`, by the dataset's quotas."""
    with spark_run(options, steps.UTILISATION_STEP, Dataset.open(options.out)) as run:
        quotas = run.quotas()
        assert quotas is not None  # the step needs them
        clients = resolved_clients(run, quotas)
        utilisation_step(run, clients)
        calibrate(run, clients)
        worst, unexplained = _worst(run, clients)
        dataset = run.commit()
    return Analysis(dataset, worst, unexplained)


def report(options: JobOptions) -> str:
    """The report of a dataset, from its tables; returns where it is."""
    check_extra()
    with spark_run(options, steps.REPORT_STEP, Dataset.open(options.out)) as run:
        with run.stage("write the report"):
            page = render_report(run, generated=_now())
        run.set_report(page)
        dataset = run.commit()
    return f"{dataset.url}/report.html"
