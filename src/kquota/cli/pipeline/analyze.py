"""``kquota analyze``: the main job."""

from pathlib import Path
from typing import Any

import click

from kquota.cli.options.metrics import metric_options
from kquota.cli.options.paths import as_path
from kquota.cli.options.quotas_over_time import quotas_as_of_option, read_quota_timeline
from kquota.cli.options.targets import Target, broker_options, target_options
from kquota.cli.pipeline.jobs import (
    load_jobs,
    log_options,
    naming_log_options,
    print_analysis,
    read_topics,
    spark_options,
)
from kquota.config import load_broker_config
from kquota.errors import InputError

__all__ = ["analyze"]


@click.command(
    epilog="""\b
Examples:
  kquota analyze --log /var/log/kafka/kafka-request.log --quotas quotas.yaml --out report
  kquota analyze --log '1=broker1/kafka-request.log*' --log '2=broker2/kafka-request.log*' \\
                 --quotas quotas.yaml --timezone Europe/Berlin --out report --overwrite
  kquota analyze --log 'logs/broker-{broker}/*' --quotas quotas.yaml --out report
  kquota analyze --log 'logs/*' --bootstrap-server broker:9093 --command-config admin.properties --out report
  kquota analyze kafka-request.log.*.gz --quotas quotas.yaml --broker-config server.properties --out report
  kquota analyze --log 'logs/*' --quotas quotas-by-date --out report
  kquota analyze --log 'logs/*' --store sqlite:///kquota.db --out report
  kquota analyze --log 'logs/*' --quotas quotas.yaml --master spark://master:7077 --out /shared/report
  spark-submit $(kquota pipeline entrypoint) analyze --log 'logs/*' --quotas quotas.yaml --out /shared/report
  kquota analyze --prometheus 'range-*.json' --broker-label instance --broker 'kafka1:9404=1' \\
                 --broker 'kafka2:9404=2' --quotas quotas.yaml --out report
  kquota analyze --jmx 1=jmx-broker1.csv --log '2=broker2/kafka-request.log*' --quotas quotas.yaml --out report

\b
The log is that of the broker's logger kafka.request.logger at DEBUG, as JSON (Kafka 2.8 and later).
Metrics tell less (docs/usage-sources.md); where a log covers the same broker and time, the log is taken.
Limits that changed while the log ran: --quotas DIR holds a quota file for each time at which they did, called by it
(2026-01-02T03:04:05Z.yaml); a --store knows its own history. Each second is judged by what was in force then.
--out gets the tables (Parquet), summary.json, the quotas and report.html.
Exit codes: 0 done, 1 failed or too many lines rejected, 2 something given cannot be used."""
)
@log_options
@metric_options
@target_options(files=True, folders=True)
@quotas_as_of_option
@click.option(
    "--out",
    callback=as_path,
    required=True,
    metavar="URL",
    help="Where the results go: missing, empty, or with --overwrite.",
)
@click.option("--overwrite", is_flag=True, help="Replace the results that kquota wrote to --out before.")
@click.option("--report/--no-report", default=True, help="Write report.html.  [default: report]")
@broker_options
@spark_options
def analyze(
    *,
    logs: tuple[str, ...],
    more_logs: tuple[str, ...],
    target: Target,
    quotas_as_of: str | None,
    out: str,
    overwrite: bool,
    report: bool,
    metrics: dict[str, Any],
    broker_id: int,
    timezone: str,
    cluster: str,
    topics_file: str | None,
    max_rejected: str,
    keep_requests: bool | None,
    broker_config: str | None,
    defines: tuple[str, ...],
    spark: dict[str, Any],
) -> None:
    """Say who is limited by what, how close, and who was throttled, from brokers' request logs or metrics."""
    patterns = [*logs, *more_logs]
    if not patterns and not metrics["prometheus"] and not metrics["jmx"]:
        raise InputError(
            "no log is given: --log FILE, or a quoted glob such as --log '/var/log/kafka/kafka-request.log*'; or a "
            "broker's metrics: --prometheus FILE, --jmx FILE"
        )
    config = load_broker_config(broker_config, defines)
    quotas = read_quota_timeline(target, quotas_as_of)
    topics = read_topics(topics_file)
    jobs = load_jobs()
    with naming_log_options():
        analysis = jobs.analyze(
            patterns,
            quotas,
            jobs.LogSettings(timezone=timezone, cluster=cluster, keep_requests=keep_requests, topics=topics),
            jobs.JobOptions(out=Path(out), overwrite=overwrite, broker_config=config, **spark),
            broker_id=broker_id,
            metrics=jobs.metric_inputs(**metrics),
            max_rejected=jobs.RejectLimit.parse(max_rejected),
            report=report,
        )
    print_analysis(analysis)
