"""A gateway from what a command line says: files, URLs and addresses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from kquota.admin import QuotaAdmin
from kquota.admin.client import AsyncQuotaAdmin
from kquota.admin.properties import ClientProperties, load_client_properties
from kquota.clock import SystemClock
from kquota.config import CALLBACK_SETTING, ConnectionLimits, load_broker_config, load_connection_limits
from kquota.errors import InputError
from kquota.files.local_paths import local_path
from kquota.gateway.app import Gateway, within_open_files
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.metrics.operations import serve_operations
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.gateway.quotas.own_quotas import OwnQuotas
from kquota.gateway.quotas.request_time import RequestTimes
from kquota.gateway.settings import load_gateway_settings
from kquota.gateway.topology import NodePorts
from kquota.gateway.upstream import ClusterUpstream
from kquota.metering.callback import DefaultQuotaCallback
from kquota.metering.engine import Change, QuotaManagers
from kquota.metering.guard import CallbackGuard
from kquota.metering.loading import load_callback
from kquota.net.addresses import Address
from kquota.net.listener_config import ListenerConfig, load_listener_config
from kquota.net.principals import principal_of_certificate
from kquota.stores.cluster import ClusterStore
from kquota.stores.feed import QuotaFeed
from kquota.stores.port import Servable
from kquota.stores.url import CLUSTER, Access, WatchableStore, open_watchable, sqlite_path

__all__ = ["DEFAULT_LIMITS", "GatewayOptions", "assembled"]

_log = structlog.get_logger("kquota.gateway")

IN_FORCE_WITHIN_MS: Final = 2_000
"""Who alters quotas through the gateway is answered once they are in force here, or after this time."""

LOOK_AGAIN_S: Final = 0.001

RECONNECT_BACKOFF_MAX_MS: Final = 1_000
"""After how long at most the gateway tries again to reach a broker: quotas and brokers should not be older for long.
An ordinary client waits for up to 30 s."""

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
    settings: Mapping[str, str] = field(default_factory=dict)
    """All of both, which a callback is given."""


@asynccontextmanager
async def assembled(options: GatewayOptions) -> AsyncIterator[Gateway]:
    """A gateway with all that belongs to it, not yet listening; what belongs to it is closed afterwards.

    :raises InputError: an option cannot be used.
    :raises KquotaError: the quotas cannot be read.
    """
    settings = load_gateway_settings(options.settings)
    broker_config = load_broker_config(options.broker_config, options.defines, has_callback=True)
    set_callback = _callback_setter(options.settings)
    quotas = BrokerQuotas(
        broker_config,
        set_callback=set_callback,
        request_times=RequestTimes() if settings.request_time else None,
        is_shadow=options.is_shadow,
    )
    limits = load_connection_limits(options.broker_config, options.defines, defaults=DEFAULT_LIMITS)
    client = load_client_properties(options.command_config)
    upstream_protocol = client.connection.get("security_protocol", "PLAINTEXT")
    listener = (
        ListenerConfig("SASL_PLAINTEXT" if upstream_protocol.startswith("SASL") else "PLAINTEXT")
        if options.listener_config is None
        else load_listener_config(options.listener_config)
    )
    _check_protocols(listener, upstream_protocol, client, uses_one_certificate=settings.use_certificate_for_all)
    # All that may be wrong with the options themselves is said before anybody is connected to.
    listen = Address.parse(options.listen, "--listen")
    metrics = None if options.metrics is None else Address.parse(options.metrics, "--metrics")
    node_ports = None if options.node_ports is None else NodePorts.parse(options.node_ports)
    listener_tls = listener.tls_context()
    async with AsyncExitStack() as opened:
        admin = AsyncQuotaAdmin(options.upstream, **_admin_settings(client))
        await opened.enter_async_context(admin)
        store, feed = await opened.enter_async_context(_followed(options, client, quotas))
        own_quotas = None
        if options.quotas != CLUSTER:
            own_quotas = _own_quotas(store, feed, quotas, broker_config.static_defaults, limits)
            opened.callback(own_quotas.close)
        gateway = Gateway(
            ClusterUpstream(admin),
            quotas,
            Identities(
                listener.security_protocol,
                replace(settings.identity, mechanisms=listener.sasl_mechanisms),
                partial(principal_of_certificate, rules=listener.principal_rules),
            ),
            listen=listen,
            node_ports=node_ports,
            advertise=options.advertise,
            settings=settings,
            limits=within_open_files(limits),
            listener_tls=listener_tls,
            upstream_tls=client.connection.get("ssl_context"),
            authenticates=listener.has_sasl or (listener.has_tls and listener.client_auth == "required"),
            insecure=options.insecure,
            quotas_altered=feed.look_now,
            follows_partitions=set_callback is not None,
            own_quotas=own_quotas,
        )
        if metrics is not None:
            await opened.enter_async_context(serve_operations(gateway, feed, metrics))
        yield gateway


def _callback_setter(settings: Mapping[str, str]) -> Callable[[int, QuotaManagers], None] | None:
    """What gives a broker's managers the callback that is set; None for Kafka's own.

    :raises InputError: there is no such callback.
    """
    name = settings.get(CALLBACK_SETTING)
    if name is None or type(load_callback(name)) is DefaultQuotaCallback:
        return None

    def set_callback(node_id: int, managers: QuotaManagers) -> None:
        callback = CallbackGuard(
            load_callback(name),
            monotonic_ms=SystemClock().monotonic_ms,
            report=lambda fault: _log.warning("quota callback", broker=node_id, fault=fault),
        )
        managers.swap_callback(callback, {**settings, "broker.id": str(node_id), "node.id": str(node_id)})

    return set_callback


def _check_protocols(
    listener: ListenerConfig, upstream_protocol: str, client: ClientProperties, *, uses_one_certificate: bool
) -> None:
    """Refuse what would let clients in as somebody that they are not.

    :raises InputError: clients would log in, and the brokers not ask for it, or the other way round; or all clients
        would have the rights of the gateway's own certificate.
    """
    if listener.has_sasl != upstream_protocol.startswith("SASL"):
        raise InputError(
            f"`listener_config` has security.protocol={listener.security_protocol}, and `command_config` "
            f"{upstream_protocol}: logins pass through to the brokers, so both must be with SASL or both without"
        )
    shows_certificate = client.has_certificate and upstream_protocol == "SSL"
    if shows_certificate and not uses_one_certificate:
        raise InputError(
            "`command_config` has a certificate (ssl.keystore) that the gateway would show the brokers for every "
            "client: all of them would have its rights. Use SASL, or allow exactly that with -D "
            "gateway.use.certificate.for.all=true"
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
            feed.drive(_on_this_loop(_by_turns(quotas)))
            _log.info("quotas", source=_absolute(place), entities=len(feed.quotas))
            yield store, feed
        finally:
            await asyncio.to_thread(feed.close)


def _own_quotas(
    store: WatchableStore,
    feed: QuotaFeed,
    quotas: BrokerQuotas,
    static_defaults: Mapping[str, float],
    limits: ConnectionLimits,
) -> OwnQuotas:
    assert isinstance(store, Servable)

    return OwnQuotas(
        store,
        max_elements=limits.request_max_elements,
        static_defaults=static_defaults,
        in_force=partial(_in_force, feed, quotas, IN_FORCE_WITHIN_MS),
    )


class _Feed(Protocol):
    def catch_up(self, timeout_ms: float) -> bool: ...


async def _in_force(feed: _Feed, quotas: BrokerQuotas, within_ms: float) -> bool:
    """Wait until what the store has now is in force at every broker; whether it is, after this time at most."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_ms / 1000
    # The feed gives what changed to this loop before its thread says so: it is queued first.
    is_caught_up = await asyncio.to_thread(feed.catch_up, within_ms)
    while quotas.is_behind and loop.time() < until_s:  # noqa: ASYNC110 (they know of no events)
        await asyncio.sleep(LOOK_AGAIN_S)
    return is_caught_up and not quotas.is_behind


def _absolute(place: str) -> str:
    """Which file: a relative path is another one wherever the gateway is started."""
    if place in (CLUSTER, "memory:"):
        return place
    return str(sqlite_path(place).absolute() if place.startswith("sqlite:") else Path(local_path(place)).absolute())


def _by_turns(quotas: BrokerQuotas) -> Callable[[list[Change]], None]:
    """Puts changes in force, some in each turn of the loop, so that connections do not wait for all; and says so."""
    loop = asyncio.get_running_loop()

    def go_on() -> None:
        try:
            quotas.apply_next()
        finally:
            if quotas.is_behind:
                loop.call_soon(go_on)

    def apply(changes: list[Change]) -> None:
        is_under_way = quotas.is_behind
        quotas.queue(changes)
        _log.info("quotas changed", changes=len(changes), in_force=len(quotas.values))
        if not is_under_way:
            go_on()

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
    settings = {
        "client_id": client.client_id or "kquota-gateway",
        "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS,
        **client.connection,
    }
    return settings if client.timeout_ms is None else {"timeout_ms": client.timeout_ms, **settings}
