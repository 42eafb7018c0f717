"""The jobs behind the command line: what `kquota analyze` and the steps of `kquota pipeline` do, start to end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kquota.clock import SystemClock
from kquota.config import BrokerConfig
from kquota.errors import InputError, KquotaError
from kquota.files import QuotasOverTime
from kquota.pipeline.analysis import (
    LogSettings,
    RejectLimit,
    calibration_step,
    ingest_step,
    read_table,
    read_usage,
    resolve_step,
    resolved,
    utilisation_step,
    write_summary,
)
from kquota.pipeline.dataset.output_directory import OutputDirectory
from kquota.pipeline.dataset.quotas import quotas_in_force, read_dataset_quotas, write_dataset_quotas
from kquota.pipeline.dataset.tables import LIMITS, REJECTED, REQUESTS, THROTTLED, USAGE, UTILISATION
from kquota.pipeline.ingest.from_metrics import MetricSource
from kquota.pipeline.ingest.metrics.mapping import MetricRule, parse_metric_rules
from kquota.pipeline.ingest.metrics.metric_files import REPLICA_LABELS, MetricInputs, parse_broker_ids
from kquota.pipeline.ingest.request_log.log_files import LogFile, find_log_files
from kquota.pipeline.limits.clients import to_client_totals
from kquota.pipeline.progress import Progress
from kquota.pipeline.report import write_report
from kquota.pipeline.report.charts import check_extra
from kquota.pipeline.spark.errors import to_kquota_error
from kquota.pipeline.spark.persisted_frames import keep, unpersisting
from kquota.pipeline.spark.session import active_session, start_session
from kquota.pipeline.utilisation.worst_meters import unexplained_throttles, worst_meters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = [
    "Analysis",
    "JobOptions",
    "add_to",
    "analyze",
    "check_time_zone",
    "extended",
    "ingest",
    "metric_inputs",
    "read_summary",
    "recorded_bytes",
    "report",
    "resolve",
    "spark_for",
    "utilisation",
    "without_judged",
]

WORST_SHOWN = 15

_OF_INGEST: Final = (USAGE.name, REQUESTS.name, REJECTED.name)
_KEPT_QUOTAS: Final = ("quotas.yaml", "quotas", LIMITS.name)
_OF_QUOTAS: Final = (
    "quotas_over_time",
    "throttled_meters",
    "calibration",
    "whatif",
    "curve",
    "recommendations",
    "showback",
)
"""The parts of summary.json that steps write once quotas are known."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What all jobs take. `master` is a Spark master URL, None for what Spark's settings say, otherwise ``local[*]``;
    `conf` are settings of Spark. Both are for a session that the job starts: one that is there is used as it is.
    """

    out: Path
    overwrite: bool = False
    broker_config: BrokerConfig = field(default_factory=BrokerConfig)
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False

    def progress(self) -> Progress:
        """A reporter on standard error."""
        return Progress(sys.stderr, SystemClock(), quiet=self.quiet)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a job has to say for itself: summary.json, and the meters, worst first."""

    directory: Path
    summary: Mapping[str, Any]
    meters: Sequence[Row] = ()
    """As :func:`~kquota.pipeline.utilisation.worst_meters.worst_meters` gives them."""
    unexplained: Sequence[Row] = ()
    """As :func:`~kquota.pipeline.utilisation.worst_meters.unexplained_throttles` gives them."""
    removed: tuple[str, ...] = ()
    """Tables and files that were made with other quotas, and are there no more."""


def check_time_zone(name: str) -> str:
    """Check an IANA zone name.

    :raises InputError: there is no such zone.
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InputError(
            f"--timezone {name}: no such time zone: give an IANA name such as UTC, Europe/Berlin or America/New_York"
        ) from None
    return name


def metric_inputs(
    *,
    prometheus: Sequence[str] = (),
    jmx: Sequence[str] = (),
    broker_label: str | None = None,
    brokers: Sequence[str] = (),
    replica_labels: Sequence[str] = (),
    mapping: str | None = None,
) -> MetricInputs:
    """What a command line says of metrics; `mapping` is the path of a mapping file.

    :raises InputError: it does not go together, or the mapping cannot be used.
    """
    if broker_label is None and brokers:
        raise InputError("--broker says which broker a value of a label is: give --broker-label, too")
    rules: tuple[MetricRule, ...] = ()
    if mapping is not None:
        try:
            text = Path(mapping).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--metrics-mapping {mapping}: cannot be read: {error}") from None
        rules = tuple(parse_metric_rules(text, name=mapping))
    return MetricInputs(
        prometheus=tuple(prometheus),
        jmx=tuple(jmx),
        broker_label=broker_label,
        broker_ids=parse_broker_ids(brokers),
        replica_labels=(*REPLICA_LABELS, *replica_labels),
        rules=rules,
    )


@contextmanager
def _spark(
    options: JobOptions, progress: Progress, *, log_bytes: int = 0, table_bytes: int = 0
) -> Iterator[SparkSession]:
    """The Spark session that is there, which is left as it was found; otherwise one that ends with the job.

    What goes wrong in it is told in a line, not in a stack of frames.

    :raises KquotaError: the work failed.
    :raises InputError: there is a session, and the options are for another.
    """
    joined = active_session()
    if joined is not None and (options.master is not None or options.conf):
        raise InputError("a Spark session is running in this process: it has its own master and settings, give none")
    with progress.stage("start Spark"):
        spark = joined or start_session(
            master=options.master, conf=options.conf, log_bytes=log_bytes, table_bytes=table_bytes
        )
    try:
        with unpersisting() if joined else nullcontext():
            yield spark
    except Exception as error:
        raise to_kquota_error(error) from error
    finally:
        if joined is None:
            spark.stop()


def spark_for(
    options: JobOptions, progress: Progress, directory: Path | None = None
) -> AbstractContextManager[SparkSession]:
    """A session for the tables of a directory, by default that of the output."""
    return _spark(options, progress, table_bytes=recorded_bytes(directory or options.out))


def recorded_bytes(directory: Path) -> int:
    """How large the tables of a directory are that have a row for all that was recorded."""
    files = (file for table in (USAGE, REQUESTS) for file in (directory / table.name).rglob("*.parquet"))
    return sum(file.stat().st_size for file in files)


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
    """The main job. The result is complete also where too many lines were rejected; see :func:`fail_above`."""
    check_time_zone(log_settings.timezone)
    files = find_log_files(logs, broker_id=broker_id)
    metric_source = MetricSource.of(metrics or MetricInputs(), broker_id=broker_id)
    if report:
        check_extra()
    progress = options.progress()
    output = OutputDirectory(options.out, overwrite=options.overwrite)
    log_bytes = _plain_bytes(files) + metric_source.plain_bytes
    with output, _spark(options, progress, log_bytes=log_bytes) as spark:
        result, summary = ingest_step(
            spark, files, output, log_settings, options.broker_config, progress, metrics=metric_source
        )
        staging = output.staging
        usage = read_usage(spark, staging)
        of_its_time = quotas_in_force(quotas, summary)
        clients, part = resolve_step(usage, of_its_time, summary["start_ms"], staging, options.broker_config, progress)
        summary |= part
        summary |= utilisation_step(usage, clients, staging, options.broker_config, progress)
        summary |= calibration_step(spark, clients, staging, staging, options.broker_config, progress)
        summary["seconds"] = dict(progress.seconds)
        write_summary(staging, summary)
        published = [*result.tables, "clients", "utilisation", "throttled", "calibration"]
        published += write_dataset_quotas(of_its_time, clients, staging)
        with progress.stage("write the report" if report else "find the worst"), ThreadPoolExecutor(1, "worst") as pool:
            found = pool.submit(_worst, spark, staging, clients)
            if report:
                write_report(spark, staging, generated=_now())
                published.append("report.html")
        worst, unexplained = found.result()
        summary["seconds"] = dict(progress.seconds)
        write_summary(staging, summary)
        _publish(output, [*published, "summary.json"])
    fail_above(max_rejected, summary, options.out)
    return Analysis(options.out, summary, worst, unexplained)


def _worst(spark: SparkSession, directory: Path, clients: DataFrame) -> tuple[list[Row], list[Row]]:
    """What the terminal shows of the tables `utilisation` and `throttled`, and of resolved clients."""
    throttled = read_table(spark, directory, THROTTLED)
    worst = worst_meters(read_table(spark, directory, UTILISATION), throttled, clients, count=WORST_SHOWN)
    return worst.collect(), unexplained_throttles(throttled).collect()


def fail_above(limit: RejectLimit, summary: Mapping[str, Any], directory: Path) -> None:
    """Fail where too many lines were rejected, after everything was written.

    :raises KquotaError: more than `limit`.
    """
    if limit.exceeded(good=summary["good"], rejected=summary["rejected"]):
        raise TooManyRejectedError(summary["rejected"], summary["lines"], limit, directory)


class TooManyRejectedError(KquotaError):
    """More lines than allowed could not be used; the results of the others are written."""

    def __init__(self, rejected: int, lines: int, limit: RejectLimit, directory: Path) -> None:
        super().__init__(
            f"{rejected:,} of {lines:,} lines could not be used, more than --max-rejected allows ({limit}): "
            f"{directory / 'rejected'} has each with its reason; the results of the other lines are written"
        )


def _publish(output: OutputDirectory, names: Sequence[str]) -> None:
    for name in names:
        output.publish(name)
    output.remove_others(names)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


def _plain_bytes(files: Sequence[LogFile]) -> int:
    return sum(file.plain_bytes for file in files)


def ingest(
    logs: Sequence[str],
    log_settings: LogSettings,
    options: JobOptions,
    *,
    broker_id: int = 0,
    metrics: MetricInputs | None = None,
    max_rejected: RejectLimit,
) -> Analysis:
    """Logs and metrics to `usage`, `rejected` and `requests` in a new directory."""
    check_time_zone(log_settings.timezone)
    files = find_log_files(logs, broker_id=broker_id)
    metric_source = MetricSource.of(metrics or MetricInputs(), broker_id=broker_id)
    progress = options.progress()
    output = OutputDirectory(options.out, overwrite=options.overwrite)
    log_bytes = _plain_bytes(files) + metric_source.plain_bytes
    with output, _spark(options, progress, log_bytes=log_bytes) as spark:
        result, summary = ingest_step(
            spark, files, output, log_settings, options.broker_config, progress, metrics=metric_source
        )
        summary["seconds"] = dict(progress.seconds)
        write_summary(output.staging, summary)
        _publish(output, [*result.tables, "summary.json"])
    fail_above(max_rejected, summary, options.out)
    return Analysis(options.out, summary)


def resolve(quotas: QuotasOverTime, options: JobOptions) -> Analysis:
    """`usage` of an existing directory to `clients`, under these quotas.

    What later steps have made of other quotas is removed: it does not go with these.
    """
    progress = options.progress()
    with OutputDirectory.existing(options.out) as output, spark_for(options, progress) as spark:
        summary = read_summary(options.out)
        of_its_time = quotas_in_force(quotas, summary)
        usage = read_usage(spark, options.out)
        clients, part = resolve_step(
            usage, of_its_time, summary.get("start_ms"), output.staging, options.broker_config, progress
        )
        kept = write_dataset_quotas(of_its_time, clients, output.staging)
        summary = extended(without_judged(summary), part, progress)
        write_summary(output.staging, summary)
        written = ("clients", *kept, "summary.json")
        removed = output.remove_others((*written, *_OF_INGEST))
        for name in written:
            output.publish(name)
    return Analysis(options.out, summary, removed=tuple(name for name in removed if name not in _KEPT_QUOTAS))


def utilisation(options: JobOptions) -> Analysis:
    """`usage` of an existing directory to `utilisation`, `throttled` and, of `requests`, `calibration`.

    The limits are those of the directory's quotas.yaml, or of its folder `quotas` where they changed.
    """
    progress = options.progress()
    tables = ("utilisation", "throttled", "calibration")
    with OutputDirectory.existing(options.out, *tables) as output, spark_for(options, progress) as spark:
        summary = read_summary(options.out)
        of_its_time = quotas_in_force(read_dataset_quotas(options.out), summary)
        usage = read_usage(spark, options.out)
        totals = to_client_totals(usage)
        clients = keep(resolved(totals, of_its_time, summary.get("start_ms"), options.broker_config))
        part = utilisation_step(usage, clients, output.staging, options.broker_config, progress)
        part |= calibration_step(spark, clients, options.out, output.staging, options.broker_config, progress)
        worst, unexplained = _worst(spark, output.staging, clients)
        summary = add_to(output, tables, part, progress)
    return Analysis(options.out, summary, worst, unexplained)


def report(options: JobOptions) -> Path:
    """The report of an existing directory, from its tables; returns where it is."""
    check_extra()
    progress = options.progress()
    name = "report.html"
    with OutputDirectory.existing(options.out, name) as output, spark_for(options, progress) as spark:
        with progress.stage("write the report"):
            write_report(spark, options.out, target=output.staging / name, generated=_now())
        output.publish(name)
    return options.out / name


def read_summary(directory: Path) -> dict[str, Any]:
    """summary.json of a directory.

    :raises InputError: it is not there or is damaged.
    """
    try:
        summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{directory / 'summary.json'} cannot be read ({error}): run the ingest again") from None
    if not isinstance(summary, dict):
        raise InputError(f"{directory / 'summary.json'} is not a summary: run the ingest again")
    return summary


def without_judged(summary: Mapping[str, Any]) -> dict[str, Any]:
    """summary.json without what steps say in it that quotas were given to."""
    return {name: part for name, part in summary.items() if name not in _OF_QUOTAS}


def add_to(
    output: OutputDirectory, tables: Sequence[str], part: Mapping[str, Any], progress: Progress
) -> dict[str, Any]:
    """Publish tables of a step that were staged, and its part of summary.json, which other steps add to, too."""
    with output.updating():
        summary = extended(read_summary(output.path), part, progress)
        write_summary(output.staging, summary)
        for name in (*tables, "summary.json"):
            output.publish(name)
    return summary


def extended(summary: dict[str, Any], part: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """summary.json with what a step adds to it, and how long that took."""
    return summary | dict(part) | {"seconds": summary.get("seconds", {}) | progress.seconds}
