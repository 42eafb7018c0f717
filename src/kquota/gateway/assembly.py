"""A gateway from what a command line says: files, URLs and addresses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from kquota.admin import QuotaAdmin
from kquota.admin.client import AsyncQuotaAdmin
from kquota.admin.properties import ClientProperties, load_client_properties
from kquota.config import ConnectionLimits, load_broker_config, load_connection_limits
from kquota.files.local_paths import local_path
from kquota.gateway.app import Gateway, within_open_files
from kquota.gateway.broker_quotas import BrokerQuotas, Change
from kquota.gateway.connection_identity import Identities
from kquota.gateway.own_quotas import OwnQuotas
from kquota.gateway.request_time import RequestTimes
from kquota.gateway.settings import load_gateway_settings
from kquota.gateway.topology import NodePorts
from kquota.gateway.upstream import ClusterUpstream
from kquota.server.app import Address
from kquota.stores.cluster import ClusterStore
from kquota.stores.feed import QuotaFeed
from kquota.stores.port import Servable
from kquota.stores.url import CLUSTER, Access, WatchableStore, open_watchable, sqlite_path

__all__ = ["DEFAULT_LIMITS", "GatewayOptions", "assembled"]

_log = structlog.get_logger("kquota.gateway")

IN_FORCE_WITHIN_MS: Final = 2_000
"""Who alters quotas through the gateway is answered once they are in force here, or after this time."""

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
    broker_config = load_broker_config(options.broker_config, options.defines, has_callback=True)
    quotas = BrokerQuotas(
        broker_config,
        request_times=RequestTimes() if settings.request_time else None,
        is_shadow=options.is_shadow,
    )
    limits = load_connection_limits(options.broker_config, options.defines, defaults=DEFAULT_LIMITS)
    client = load_client_properties(options.command_config)
    async with AsyncExitStack() as opened:
        admin = AsyncQuotaAdmin(options.upstream, **_admin_settings(client))
        await opened.enter_async_context(admin)
        store, feed = await opened.enter_async_context(_followed(options, client, quotas))
        own_quotas = None
        if options.quotas != CLUSTER:
            own_quotas = _own_quotas(store, feed, broker_config.static_defaults, limits)
            opened.callback(own_quotas.close)
        yield Gateway(
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
            own_quotas=own_quotas,
        )


@asynccontextmanager
async def _followed(
    options: GatewayOptions, client: ClientProperties, quotas: BrokerQuotas
) -> AsyncIterator[tuple[WatchableStore, QuotaFeed]]:
    """Where the quotas are kept, and the feed that brings them from there."""
    place = options.quotas

    def open_cluster() -> ClusterStore:
        return ClusterStore(QuotaAdmin(options.upstream, **_admin_settings(client)))

    is_new = place.startswith("sqlite:") and not sqlite_path(place, option="--quotas").exists()
    # As the quota server does, which would make it, too.
    access = Access.CREATE
    with open_watchable(place, cluster=open_cluster, access=access, warn=_log.warning, option="--quotas") as store:
        if is_new:
            _log.warning("a new store was made for the quotas; there are none yet", file=_absolute(place))
        feed = QuotaFeed(store, warn=_log.warning)
        await asyncio.to_thread(feed.start)
        try:
            feed.drive(_on_this_loop(quotas.apply))
            _log.info("quotas", source=_absolute(place), entities=len(feed.quotas))
            yield store, feed
        finally:
            await asyncio.to_thread(feed.close)


def _own_quotas(
    store: WatchableStore, feed: QuotaFeed, static_defaults: Mapping[str, float], limits: ConnectionLimits
) -> OwnQuotas:
    assert isinstance(store, Servable)

    async def in_force() -> bool:
        # The feed gives what changed to this loop before its thread says so: it is applied first.
        return await asyncio.to_thread(feed.catch_up, IN_FORCE_WITHIN_MS)

    return OwnQuotas(
        store, max_elements=limits.request_max_elements, static_defaults=static_defaults, in_force=in_force
    )


def _absolute(place: str) -> str:
    """Which file: a relative path is another one wherever the gateway is started."""
    if place in (CLUSTER, "memory:"):
        return place
    return str(sqlite_path(place).absolute() if place.startswith("sqlite:") else Path(local_path(place)).absolute())


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
