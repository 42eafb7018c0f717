"""``kquota pipeline``: the single steps of ``analyze``."""

from pathlib import Path

import click

from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.logs import LogOptions, naming_logs
from kquota.cli.options.metrics import MetricOptions
from kquota.cli.options.quotas_over_time import quotas_as_of_option, read_quota_timeline
from kquota.cli.options.spark import OutOptions, SparkOptions, dataset_option
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, target_options
from kquota.cli.pipeline.recommend import recommend
from kquota.cli.pipeline.showback import showback
from kquota.cli.pipeline.summary import print_analysis
from kquota.cli.pipeline.sweep import sweep
from kquota.cli.pipeline.what_if import whatif
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
@takes(logs=LogOptions, metrics=MetricOptions, to=OutOptions, broker=BrokerOptions, spark=SparkOptions)
def ingest(
    *, logs: LogOptions, metrics: MetricOptions, to: OutOptions, broker: BrokerOptions, spark: SparkOptions
) -> None:
    """Request logs to usage per second, client and key; brokers' metrics to usage per meter and step."""
    if not logs.patterns and not metrics:
        raise InputError("no log is given: --log FILE, or a quoted glob; or metrics: --prometheus FILE, --jmx FILE")
    config = broker.load()
    from kquota.pipeline import jobs

    with naming_logs():
        analysis = jobs.ingest(
            logs.patterns,
            logs.settings(),
            spark.job(to.out, config, overwrite=to.overwrite),
            broker_id=logs.broker_id,
            metrics=metrics.inputs(),
            max_rejected=logs.reject_limit(),
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
@takes(broker=BrokerOptions, spark=SparkOptions)
def resolve(
    *, dataset: str, target: Target, quotas_as_of: str | None, broker: BrokerOptions, spark: SparkOptions
) -> None:
    """Usage and quotas to clients: which limit binds each, by which rule.

    What was made in the dataset with other quotas is removed: utilisation, what-ifs, curves, recommendations and the
    report.
    """
    config = broker.load()
    quotas = read_quota_timeline(target, quotas_as_of)
    from kquota.pipeline import jobs

    found = jobs.resolve(quotas, spark.job(dataset, config))
    if found.removed:
        click.echo(f"removed, since made with other quotas: {', '.join(found.removed)}", err=True)
    click.echo(f"tables: {dataset}")


@pipeline.command(
    epilog="""\b
Example:
  kquota pipeline utilisation --dataset usage -D quota.window.num=31"""
)
@dataset_option
@takes(broker=BrokerOptions, spark=SparkOptions)
def utilisation(*, dataset: str, broker: BrokerOptions, spark: SparkOptions) -> None:
    """Usage and clients to utilisation and throttled: how close, who was throttled, and by what."""
    config = broker.load()
    from kquota.pipeline import jobs

    print_analysis(jobs.utilisation(spark.job(dataset, config)))


@pipeline.command(
    epilog="""\b
Example:
  kquota pipeline report --dataset usage"""
)
@dataset_option
@takes(spark=SparkOptions)
def report(*, dataset: str, spark: SparkOptions) -> None:
    """The tables to report.html."""
    from kquota.pipeline import jobs

    path = jobs.report(spark.job(dataset))
    click.echo(f"report: {path}")


@pipeline.command()
def entrypoint() -> None:
    """Print the path of the script for spark-submit, which takes these steps, and analyze."""
    click.echo(Path(__file__).with_name("entrypoint.py"))


for _command in (whatif, sweep, recommend, showback):
    pipeline.add_command(_command)
