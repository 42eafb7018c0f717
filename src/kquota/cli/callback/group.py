"""``kquota callback``: a quota callback on recorded traffic."""

from __future__ import annotations

import sys

import click

from kquota.cli.callback.outcome import print_json, print_text
from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.callback_settings import CallbackOptions, import_from_here
from kquota.cli.options.entity_types import leave_out_added
from kquota.cli.options.paths import as_path, as_url
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import QUOTA_FILE, Target, read_quotas, target_options
from kquota.clock import SystemClock
from kquota.files import dump_json
from kquota.metering.cluster_json import cluster_to_json

__all__ = ["callback"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def callback() -> None:
    """Quota callbacks (KIP-257): what they would do, and whether they keep their contract."""


@callback.command(
    epilog="""\b
Examples:
  kquota callback test groups --dataset report --quotas quotas.yaml -C 'kquota.groups={"etl": {"client-ids": ["etl*"]}}'
  kquota callback test my_callbacks:ByPrefix --dataset report
  kquota callback test my_callbacks:ByPrefix --dataset report --callback-config callback.properties --budget-ms 0.5
  kquota callback test fair-share --dataset report --quotas quotas.yaml --format json
  kquota callback test partitions --dataset report --cluster-metadata cluster.json

\b
CALLBACK is a class, as package.module:Class (also of a module in this directory), or the name of one that is installed:
default, groups, partitions, fair-share and those of other packages.
It is asked whatever client.quota.callback.class says in --broker-config. Its limits are those of --quotas, otherwise
those that the dataset was analysed with.
Exit codes: 0 it keeps its contract, 1 it does not, 2 something given cannot be used."""
)
@click.argument("name", metavar="CALLBACK")
@click.option(
    "--dataset",
    callback=as_url,
    required=True,
    metavar="URL",
    help="A dataset that `kquota analyze --out` wrote. Its table `requests` is used where it has one "
    "(--keep-requests), otherwise the seconds of `usage`.",
)
@takes(given=CallbackOptions)
@click.option("--quotas", callback=as_path, metavar="FILE", help=f"{QUOTA_FILE}  [default: those of the dataset]")
@click.option(
    "--budget-ms",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="MS",
    help="How long a call may take. More than 1 of 100 calls of a method over it are a fault.",
)
@takes(broker=BrokerOptions)
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
def test(
    *,
    name: str,
    dataset: str,
    given: CallbackOptions,
    quotas: str | None,
    budget_ms: float,
    broker: BrokerOptions,
    format: str,
    quiet: bool,
) -> int:
    """Run a callback over recorded traffic: whether it keeps its contract, and what it would have done.

    It is asked what a broker asks, request by request; a new one is made for each broker, with its node.id. Tags
    must depend on the request alone, limits be above zero or None and change only when the callback says so, and
    answers come within the budget.

    Requests arrive as they were recorded: some would have been throttled, and the next ones would then have come later,
    which is not taken into account. For comparison the same requests go through Kafka's own rules, and the throttle
    times of the log are shown, too. A throttled fetch counts nothing in the log, because its answer was empty: so fewer
    fetches are throttled here than were.
    """
    from kquota.metering.callback_conformance import ConformanceCheck
    from kquota.metering.loading import load_callback

    config = broker.load(has_callback=True)
    cluster = given.cluster()
    import_from_here()
    load_callback(name)
    from kquota.pipeline.dataset.dataset import Dataset
    from kquota.pipeline.dataset.traffic import RecordedTraffic
    from kquota.pipeline.progress import Progress

    traffic = RecordedTraffic.of(Dataset.open(dataset))
    found = leave_out_added(read_quotas(quotas)) if quotas is not None else traffic.quotas()
    clock = SystemClock()
    check = ConformanceCheck(
        lambda: load_callback(name),
        given.load(broker),
        {} if found is None else found.snapshot(),
        config,
        cluster=cluster,
        monotonic_ms=clock.monotonic_ms,
        budget_ms=budget_ms,
    )
    progress = Progress(sys.stderr, clock, quiet=quiet)
    brokers = traffic.brokers()
    for broker_id in brokers:
        with progress.stage(f"broker {broker_id}", lambda: check.records, traffic.rows(), traffic.grain):
            check.broker(broker_id, traffic.of_broker(broker_id))
    findings = check.findings()
    if format == "json":
        print_json(name, dataset, traffic, check, findings)
    else:
        print_text(name, dataset, traffic, check, findings, has_quotas=found is not None)
    return 1 if findings else 0


@callback.command(
    epilog="""\b
Examples:
  kquota callback cluster --bootstrap-server localhost:9092 > cluster.json
  kquota callback test partitions --dataset report --cluster-metadata cluster.json

\b
With "op": "cluster" added, the object is a line of a trace (kquota engine replay)."""
)
@target_options(stores=False, required=False)
def cluster(*, target: Target) -> None:
    """Write who leads which partition of a cluster, for callbacks whose limits depend on it.

    Topics that are being deleted are left out, and those that this client may not see.
    """
    store = target.cluster()
    if store is None:
        raise click.UsageError("Give the cluster: --bootstrap-server HOST:PORT.")
    with store:
        found = store.admin.cluster()
    sys.stdout.write(dump_json(cluster_to_json(found)) + "\n")
