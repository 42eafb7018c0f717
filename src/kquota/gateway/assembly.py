"""A gateway from what a command line says: files, URLs and addresses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from kquota.admin import QuotaAdmin
from kquota.admin.client import AsyncQuotaAdmin
from kquota.admin.properties import ClientProperties, load_client_properties
from kquota.config import ConnectionLimits, load_broker_config, load_connection_limits
from kquota.gateway.app import Gateway, within_open_files
from kquota.gateway.broker_quotas import BrokerQuotas, Change
from kquota.gateway.connection_identity import Identities
from kquota.gateway.operations import serve_operations
from kquota.gateway.request_time import RequestTimes
from kquota.gateway.settings import load_gateway_settings
from kquota.gateway.topology import NodePorts
from kquota.gateway.upstream import ClusterUpstream
from kquota.server.app import Address
from kquota.stores.cluster import ClusterStore
from kquota.stores.feed import QuotaFeed
from kquota.stores.url import open_watchable

__all__ = ["DEFAULT_LIMITS", "GatewayOptions", "assembled"]

_log = structlog.get_logger("kquota.gateway")

DEFAULT_LIMITS: Final = ConnectionLimits(
    socket_request_max_bytes=100 * 1024 * 1024,  # a broker's
    socket_request_max_ms=31_000,
    max_connections=100_000,
    max_connections_per_ip=100_000,
    connections_max_idle_ms=660_000,  # a minute longer than brokers, who close idle connections themselves
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The options of ``kquota gateway``, as they are given there."""

    upstream: str
    command_config: str | None = None
    listen: str = "127.0.0.1:9192"
    node_ports: str | None = None
    advertise: str | None = None
    listener_config: str | None = None
    quotas: str = "cluster"
    is_shadow: bool = False
    metrics: str | None = None
    insecure: bool = False
    broker_config: str | None = None
    defines: tuple[str, ...] = ()


@asynccontextmanager
async def assembled(options: GatewayOptions) -> AsyncIterator[Gateway]:
    """A gateway with all that belongs to it, not yet listening; what belongs to it is closed afterwards.

    :raises InputError: an option cannot be used.
    :raises KquotaError: the quotas cannot be read.
    """
    settings = load_gateway_settings(options.broker_config, options.defines)
    quotas = BrokerQuotas(
        load_broker_config(options.broker_config, options.defines, has_callback=True),
        request_times=RequestTimes() if settings.request_time else None,
        is_shadow=options.is_shadow,
    )
    limits = load_connection_limits(options.broker_config, options.defines, defaults=DEFAULT_LIMITS)
    client = load_client_properties(options.command_config)
    async with AsyncExitStack() as opened:
        admin = AsyncQuotaAdmin(options.upstream, **_admin_settings(client))
        await opened.enter_async_context(admin)
        feed = await opened.enter_async_context(_followed(options, client, quotas))
        gateway = Gateway(
            ClusterUpstream(admin),
            quotas,
            Identities(client.connection.get("security_protocol", "PLAINTEXT"), settings.identity),
            listen=Address.parse(options.listen, "--listen"),
            node_ports=None if options.node_ports is None else NodePorts.parse(options.node_ports),
            advertise=options.advertise,
            settings=settings,
            limits=within_open_files(limits),
            upstream_tls=client.connection.get("ssl_context"),
            insecure=options.insecure,
            quotas_altered=feed.look_now,
        )
        if options.metrics is not None:
            await opened.enter_async_context(
                serve_operations(gateway, feed, Address.parse(options.metrics, "--metrics"))
            )
        yield gateway


@asynccontextmanager
async def _followed(
    options: GatewayOptions, client: ClientProperties, quotas: BrokerQuotas
) -> AsyncIterator[QuotaFeed]:
    """The feed that brings the quotas from where they are kept."""

    def open_cluster() -> ClusterStore:
        return ClusterStore(QuotaAdmin(options.upstream, **_admin_settings(client)))

    with open_watchable(options.quotas, cluster=open_cluster, warn=_log.warning) as store:
        feed = QuotaFeed(store, warn=_log.warning)
        await asyncio.to_thread(feed.start)
        try:
            feed.drive(_on_this_loop(_logged(quotas)))
            yield feed
        finally:
            await asyncio.to_thread(feed.close)


def _logged(quotas: BrokerQuotas) -> Callable[[list[Change]], None]:
    """Puts changes in force, and says so."""

    def apply(changes: list[Change]) -> None:
        quotas.apply(changes)
        _log.info("quotas changed", changes=len(changes), in_force=len(quotas.values))

    return apply


def _on_this_loop(apply: Callable[[list[Change]], None]) -> Callable[[list[Change]], None]:
    """The same for other threads, too: the loop does it as soon as it can."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def apply_there(changes: list[Change]) -> None:
        if threading.get_ident() == thread:
            apply(changes)
        else:
            loop.call_soon_threadsafe(apply, changes)

    return apply_there


def _admin_settings(client: ClientProperties) -> dict[str, Any]:
    settings = {"client_id": client.client_id or "kquota-gateway", **client.connection}
    return settings if client.timeout_ms is None else {"timeout_ms": client.timeout_ms, **settings}
