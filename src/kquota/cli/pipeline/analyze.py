"""``kquota analyze``: the main job."""

import click

from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.logs import LogOptions, naming_logs
from kquota.cli.options.metrics import MetricOptions
from kquota.cli.options.quotas_over_time import quotas_as_of_option, read_quota_timeline
from kquota.cli.options.spark import OutOptions, SparkOptions
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, target_options
from kquota.cli.pipeline.summary import print_analysis
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
Metrics say less (docs/usage-sources.md); where a log covers the same broker and time, the log is taken.
Limits that changed while the log ran: --quotas DIR holds a quota file for each time at which they did, called by it
(2026-01-02T03:04:05Z.yaml); a --store knows its own history. Each second is judged by what was in force then.
--out gets the tables (Parquet), summary.json, the quotas and report.html.
Exit codes: 0 done, 1 failed or too many lines rejected, 2 something given cannot be used."""
)
@takes(logs=LogOptions, metrics=MetricOptions)
@target_options(files=True, folders=True)
@quotas_as_of_option
@takes(to=OutOptions)
@click.option("--report/--no-report", default=True, help="Write report.html.  [default: report]")
@takes(broker=BrokerOptions, spark=SparkOptions)
def analyze(
    *,
    logs: LogOptions,
    metrics: MetricOptions,
    target: Target,
    quotas_as_of: str | None,
    to: OutOptions,
    report: bool,
    broker: BrokerOptions,
    spark: SparkOptions,
) -> None:
    """Say who is limited by what, how close, and who was throttled, from brokers' request logs or metrics."""
    if not logs.patterns and not metrics:
        raise InputError(
            "no log is given: --log FILE, or a quoted glob such as --log '/var/log/kafka/kafka-request.log*'; or a "
            "broker's metrics: --prometheus FILE, --jmx FILE"
        )
    config = broker.load()
    quotas = read_quota_timeline(target, quotas_as_of)
    from kquota.pipeline import jobs

    with naming_logs():
        analysis = jobs.analyze(
            logs.patterns,
            quotas,
            logs.settings(),
            spark.job(to.out, config, overwrite=to.overwrite),
            broker_id=logs.broker_id,
            metrics=metrics.inputs(),
            max_rejected=logs.reject_limit(),
            report=report,
        )
    print_analysis(analysis)
