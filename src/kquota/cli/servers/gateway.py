"""``kquota gateway``: the proxy that enforces quotas."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kquota.cli.options.broker import BrokerOptions, broker_options
from kquota.cli.options.callback_settings import import_from_here
from kquota.cli.options.paths import as_path
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import check_servers
from kquota.cli.servers.serve import log_format_option
from kquota.errors import KquotaError

if TYPE_CHECKING:
    from kquota.gateway.app import Gateway

__all__ = ["gateway"]


@click.command(
    epilog="""\b
Examples:
  kquota gateway --upstream localhost:9092
  kquota gateway --upstream b1:9093,b2:9093 --command-config client.properties --listen 0.0.0.0:9192 \\
    --advertise gateway.example.com --listener-config listener.properties --metrics 127.0.0.1:9404
  kquota gateway --upstream localhost:9092 --quotas quotas.yaml --shadow

\b
Then, with Kafka's own tools:
  kafka-producer-perf-test.sh --topic t --num-records 100000 --record-size 1000 --throughput -1 \\
    --producer-props bootstrap.servers=localhost:9192 client.id=etl"""
)
@click.option(
    "--upstream",
    metavar="HOST:PORT[,..]",
    required=True,
    help="The cluster: some of its brokers, as a client is given them.",
)
@click.option(
    "--command-config",
    callback=as_path,
    metavar="FILE",
    help="How the gateway connects to the cluster (Java properties): security.protocol, ssl.*, and sasl.* for its own "
    "connection. Clients log in at the brokers with their own credentials.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9192",
    show_default=True,
    help="The bootstrap address for clients. Port 0: any free ports, also for the brokers.",
)
@click.option(
    "--node-ports",
    metavar="FIRST-LAST",
    help="The ports of the brokers: broker N has FIRST + N modulo their number.  [default: the 100 after --listen]",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="The host that clients are given for every broker. By default that of --listen; needed for 0.0.0.0 and [::].",
)
@click.option(
    "--listener-config",
    callback=as_path,
    metavar="FILE",
    help="How clients connect (Java properties, Kafka's names): security.protocol, ssl.keystore.*, ssl.client.auth, "
    "ssl.principal.mapping.rules.  [default: as --command-config, without TLS]",
)
@click.option(
    "--quotas",
    metavar="cluster|URL|FILE",
    default="cluster",
    show_default=True,
    help="Where the quotas are: the cluster's own; a store such as sqlite:///quotas.db, made where there is none, or "
    "memory:; or a quota file, which only its editor changes. Unless they are the cluster's own, the gateway answers "
    "requests about quotas itself, to clients that the brokers let describe or alter configs of the cluster.",
)
@click.option("--shadow", is_flag=True, help="Compute and export everything, and throttle nobody.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics (Prometheus), /healthz and /readyz there.")
@click.option("--insecure", is_flag=True, help="Take connections from other machines although nobody has to log in.")
@log_format_option
@takes(
    broker=broker_options(
        "quota windows, static quota defaults, a quota callback, connection limits, gateway.* settings."
    )
)
def gateway(
    *,
    upstream: str,
    command_config: str | None,
    listen: str,
    node_ports: str | None,
    advertise: str | None,
    listener_config: str | None,
    quotas: str,
    shadow: bool,
    metrics: str | None,
    insecure: bool,
    log_format: str,
    broker: BrokerOptions,
) -> None:
    """Enforce Kafka's quotas in front of any Kafka cluster, for unmodified clients.

    Clients connect to the gateway instead of the brokers; it passes on what they send, charges it as a broker would,
    and throttles those who are over their quota (KIP-219). They log in at the brokers, through the gateway, which
    learns from that who they are. docs/gateway.md has the settings, and what a gateway cannot see.

    The first line on standard output is "listening on HOST:PORT", once clients can connect, then there is a line
    "broker N on HOST:PORT" for each broker. SIGTERM, SIGINT and SIGHUP end it, after requests under way are answered.
    """
    try:
        from kquota.gateway.assembly import GatewayOptions, assembled
        from kquota.net.event_log import configure_log
    except ModuleNotFoundError as error:
        raise KquotaError(f"{error.name} is not installed: pip install 'kquota[gateway]'") from error
    from kquota.gateway.app import run

    import_from_here()
    check_servers(upstream, "--upstream")
    options = GatewayOptions(
        upstream=upstream,
        command_config=command_config,
        listen=listen,
        node_ports=node_ports,
        advertise=advertise,
        listener_config=listener_config,
        quotas=quotas,
        is_shadow=shadow,
        metrics=metrics,
        insecure=insecure,
        broker_config=broker.broker_config,
        defines=broker.defines,
        settings=broker.for_callback(),
    )

    async def work() -> None:
        async with assembled(options) as made:
            await run(made, ready=_say)

    writer = configure_log(sys.stderr, as_json=log_format == "json")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # of the gateway's own connection its errors say more
    try:
        with asyncio.Runner(loop_factory=_event_loop()) as runner:
            runner.run(work())
    finally:
        writer.close()


def _say(made: Gateway) -> None:
    lines = [f"listening on {made.address}"]
    lines += [f"broker {node.id} on {replace(made.address, port=node.gateway_port)}" for node in made.nodes]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _event_loop() -> type[asyncio.AbstractEventLoop] | None:
    """Uvloop's where it is installed: three to five times as many requests."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.Loop
