"""``kquota serve``: the quota server."""

import asyncio
import logging
import sys

import click

from kquota.cli.entity_types import current_model
from kquota.cli.targets import static_default_options
from kquota.errors import KquotaError

__all__ = ["serve"]


@click.command(
    epilog="""\b
Examples:
  kquota serve
  kquota serve --listen 127.0.0.1:0 --store memory:
  kquota serve --listen 0.0.0.0:9092 --advertise quotas.example.com:9092 --store sqlite:////var/lib/kquota/quotas.db

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
    help="Where clients are told to connect to. By default the listen address; needed for 0.0.0.0 and [::].",
)
@click.option(
    "--store",
    metavar="URL",
    default="sqlite:///kquota.db",
    show_default=True,
    help="sqlite:///relative.db, sqlite:////absolute.db or memory:",
)
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="How events are written to standard error.",
)
@static_default_options
def serve(
    listen: str,
    advertise: str | None,
    store: str,
    log_format: str,
    broker_config: str | None,
    defines: tuple[str, ...],
) -> None:
    """Answer Kafka's quota APIs: describe, alter and resolve, for unmodified Kafka tools.

    The first line on standard output is "listening on HOST:PORT", once clients can connect. SIGTERM and SIGINT stop it
    after what was asked for is answered.
    """
    try:
        import structlog

        from kquota.server.app import Address, ServerSettings, run
    except ModuleNotFoundError as error:
        raise KquotaError(f"{error.name} is not installed: pip install 'kquota[server]'") from error
    from kquota.config import load_broker_config
    from kquota.stores import open_store

    settings = ServerSettings(
        listen=Address.parse(listen, "--listen"),
        advertise=Address.parse(advertise, "--advertise") if advertise else None,
        static_defaults=tuple(load_broker_config(broker_config, defines).static_defaults.items()),
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer()
            if log_format == "json"
            else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

    with open_store(store, model=current_model()) as opened:
        asyncio.run(run(opened, settings, ready=lambda address: print(f"listening on {address}", flush=True)))
