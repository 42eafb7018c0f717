"""``kquota serve``: the quota server."""

import asyncio
import sys

import click

from kquota.cli.options.broker import BrokerOptions, broker_options
from kquota.cli.options.entity_types import current_model
from kquota.cli.options.taking import takes
from kquota.errors import KquotaError

__all__ = ["log_format_option", "serve"]

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="How events are written to standard error.",
)


@click.command(
    epilog="""\b
Examples:
  kquota serve
  kquota serve --listen 127.0.0.1:0 --store memory:
  kquota serve --store sqlite:////var/lib/kquota/quotas.db -D max.connections=100 -D socket.request.max.bytes=1048576
  kquota serve --listen 0.0.0.0:9092 --advertise quotas.example.com:9092 --insecure

\b
Then, with Kafka's own tool:
  kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type users --entity-name alice \\
    --add-config producer_byte_rate=1048576"""
)
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:9092", show_default=True, help="Port 0 is any free one."
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address that clients get to connect to. By default the listen address; needed for 0.0.0.0 and [::].",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Take connections from other machines: everybody who connects may then change all quotas.",
)
@click.option(
    "--store",
    metavar="URL",
    default="sqlite:///kquota.db",
    show_default=True,
    help="sqlite:///relative.db, sqlite:////absolute.db or memory:",
)
@log_format_option
@takes(broker=broker_options("static quota defaults, and what clients may use; docs/serve.md has the settings."))
def serve(
    listen: str,
    advertise: str | None,
    insecure: bool,  # noqa: FBT001 (a flag of the command line)
    store: str,
    log_format: str,
    broker: BrokerOptions,
) -> None:
    """Answer Kafka's quota APIs: describe, alter and resolve, for unmodified Kafka tools.

    It authenticates nobody, and no broker enforces what it keeps: it is for trials, for tests of clients and of quota
    files, and for stores with a history. docs/serve.md has its limits and their settings.

    The first line on standard output is "listening on HOST:PORT", once clients can connect. SIGTERM, SIGINT and SIGHUP
    stop it within five seconds, after what was asked for is answered.
    """
    try:
        import structlog

        from kquota.net.addresses import Address
        from kquota.net.event_log import configure_log
        from kquota.server.app import ServerSettings, run
    except ModuleNotFoundError as error:
        raise KquotaError(f"{error.name} is not installed: pip install 'kquota[server]'") from error
    from kquota.config import load_connection_limits
    from kquota.stores import open_store
    from kquota.stores.url import sqlite_path

    settings = ServerSettings(
        listen=Address.parse(listen, "--listen"),
        advertise=Address.parse(advertise, "--advertise") if advertise else None,
        insecure=insecure,
        limits=load_connection_limits(broker.broker_config, broker.defines),
        static_defaults=tuple(broker.load().static_defaults.items()),
    )
    writer = configure_log(sys.stderr, as_json=log_format == "json")
    log = structlog.get_logger("kquota.server")
    try:
        with open_store(store, model=current_model(), warn=log.warning) as opened:
            # Which file: a relative path is another one wherever the server is started.
            log.info("store", file=store if store == "memory:" else str(sqlite_path(store).absolute()))
            asyncio.run(run(opened, settings, ready=lambda address: print(f"listening on {address}", flush=True)))
    finally:
        writer.close()
