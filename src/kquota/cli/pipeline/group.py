"""``kquota pipeline``: the single steps of ``analyze``."""

from pathlib import Path
from typing import Any

import click

from kquota.cli.options.metrics import metric_options
from kquota.cli.options.paths import as_path
from kquota.cli.options.quotas_over_time import quotas_as_of_option, read_quota_timeline
from kquota.cli.options.targets import Target, broker_options, target_options
from kquota.cli.pipeline.jobs import (
    dataset_option,
    load_jobs,
    log_options,
    naming_log_options,
    print_analysis,
    read_topics,
    spark_options,
)
from kquota.cli.pipeline.recommend import recommend
from kquota.cli.pipeline.showback import showback
from kquota.cli.pipeline.sweep import sweep
from kquota.cli.pipeline.what_if import whatif
from kquota.config import load_broker_config
from kquota.errors import InputError

__all__ = ["pipeline"]


@click.group(
    epilog="""\b
Examples:
  kquota pipeline ingest --log 'logs/*' --out usage
  kquota pipeline resolve --dataset usage --quotas quotas.yaml
  kquota pipeline utilisation --dataset usage
  kquota pipeline whatif --dataset usage --quotas new.yaml
  kquota pipeline recommend --dataset usage --objective 'throttled_share<=1%'
  kquota pipeline report --dataset usage
  kquota pipeline showback --dataset usage --owners owners.csv
  spark-submit $(kquota pipeline entrypoint) ingest --log 'logs/*' --out /shared/usage"""
)
def pipeline() -> None:
    """The single steps of analyze."""


@pipeline.command(
    epilog="""\b
Examples:
  kquota pipeline ingest --log '1=broker1/kafka-request.log*' --cluster prod --out usage
  kquota pipeline ingest --log 'logs/broker-{broker}/*' --out usage
  kquota pipeline ingest --prometheus 'range-*.json.gz' --broker-label pod --out usage
  kquota pipeline ingest --prometheus '1=scrapes/broker1-*.prom' --prometheus '2=scrapes/broker2-*.prom' --out usage
  kquota pipeline ingest --jmx 1=jmx.csv --out usage"""
)
@log_options
@metric_options
@click.option(
    "--out",
    callback=as_path,
    required=True,
    metavar="URL",
    help="Where the tables go: missing, empty, or with --overwrite.",
)
@click.option("--overwrite", is_flag=True, help="Replace what kquota wrote to --out before.")
@broker_options
@spark_options
def ingest(
    *,
    logs: tuple[str, ...],
    more_logs: tuple[str, ...],
    out: str,
    overwrite: bool,
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
    """Request logs to usage per second, client and key; brokers' metrics to usage per meter and step."""
    patterns = [*logs, *more_logs]
    if not patterns and not metrics["prometheus"] and not metrics["jmx"]:
        raise InputError("no log is given: --log FILE, or a quoted glob; or metrics: --prometheus FILE, --jmx FILE")
    config = load_broker_config(broker_config, defines)
    topics = read_topics(topics_file)
    jobs = load_jobs()
    with naming_log_options():
        analysis = jobs.ingest(
            patterns,
            jobs.LogSettings(timezone=timezone, cluster=cluster, keep_requests=keep_requests, topics=topics),
            jobs.JobOptions(out=Path(out), overwrite=overwrite, broker_config=config, **spark),
            broker_id=broker_id,
            metrics=jobs.metric_inputs(**metrics),
            max_rejected=jobs.RejectLimit.parse(max_rejected),
        )
    print_analysis(analysis)


@pipeline.command(
    epilog="""\b
Examples:
  kquota pipeline resolve --dataset usage --quotas quotas.yaml -D quota.producer.default=1048576
  kquota pipeline resolve --dataset usage --quotas quotas-by-date
  kquota pipeline resolve --dataset usage --store sqlite:///kquota.db --quotas-as-of log"""
)
@dataset_option
@target_options(files=True, folders=True)
@quotas_as_of_option
@broker_options
@spark_options
def resolve(
    *,
    dataset: str,
    target: Target,
    quotas_as_of: str | None,
    broker_config: str | None,
    defines: tuple[str, ...],
    spark: dict[str, Any],
) -> None:
    """Usage and quotas to clients: which limit binds each, by which rule.

    What was made in the dataset with other quotas is removed: utilisation, what-ifs, curves, recommendations and the
    report.
    """
    config = load_broker_config(broker_config, defines)
    quotas = read_quota_timeline(target, quotas_as_of)
    jobs = load_jobs()
    found = jobs.resolve(quotas, jobs.JobOptions(out=Path(dataset), broker_config=config, **spark))
    if found.removed:
        click.echo(f"removed, since made with other quotas: {', '.join(found.removed)}", err=True)
    click.echo(f"tables: {dataset}")


@pipeline.command(
    epilog="""\b
Example:
  kquota pipeline utilisation --dataset usage -D quota.window.num=31"""
)
@dataset_option
@broker_options
@spark_options
def utilisation(*, dataset: str, broker_config: str | None, defines: tuple[str, ...], spark: dict[str, Any]) -> None:
    """Usage and clients to utilisation and throttled: how close, who was throttled, and by what."""
    config = load_broker_config(broker_config, defines)
    jobs = load_jobs()
    print_analysis(jobs.utilisation(jobs.JobOptions(out=Path(dataset), broker_config=config, **spark)))


@pipeline.command(
    epilog="""\b
Example:
  kquota pipeline report --dataset usage"""
)
@dataset_option
@spark_options
def report(*, dataset: str, spark: dict[str, Any]) -> None:
    """The tables to report.html."""
    jobs = load_jobs()
    path = jobs.report(jobs.JobOptions(out=Path(dataset), **spark))
    click.echo(f"report: {path}")


@pipeline.command()
def entrypoint() -> None:
    """Print the path of the script for spark-submit, which takes these steps, and analyze."""
    click.echo(Path(__file__).with_name("entrypoint.py"))


for _command in (whatif, sweep, recommend, showback):
    pipeline.add_command(_command)
