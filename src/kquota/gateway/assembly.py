"""A gateway from what a command line says: files, URLs and addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kquota.admin.client import AsyncQuotaAdmin
from kquota.admin.properties import load_client_properties
from kquota.config import ConnectionLimits, load_broker_config, load_connection_limits
from kquota.gateway.app import Gateway, within_open_files
from kquota.gateway.broker_quotas import BrokerQuotas
from kquota.gateway.connection_identity import Identities
from kquota.gateway.request_time import RequestTimes
from kquota.gateway.settings import load_gateway_settings
from kquota.gateway.topology import NodePorts
from kquota.gateway.upstream import ClusterUpstream
from kquota.server.app import Address

__all__ = ["GatewayOptions", "assembled"]


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
    """A gateway with all that belongs to it, not yet listening; that is closed afterwards.

    :raises InputError: an option cannot be used.
    :raises KquotaError: the quotas cannot be read.
    """
    settings = load_gateway_settings(options.broker_config, options.defines)
    config = load_broker_config(options.broker_config, options.defines, has_callback=True)
    limits = within_open_files(
        load_connection_limits(options.broker_config, options.defines, defaults=GATEWAY_LIMITS)
    )
    client = load_client_properties(options.command_config)
    async with AsyncExitStack() as opened:
        connection = {"timeout_ms": client.timeout_ms} if client.timeout_ms is not None else {}
        admin = AsyncQuotaAdmin(
            options.upstream, client_id=client.client_id or "kquota-gateway", **connection, **client.connection
        )
        await opened.enter_async_context(admin)
        quotas = BrokerQuotas(
            config,
            request_times=RequestTimes() if settings.request_time else None,
            is_shadow=options.is_shadow,
        )
        if options.quotas != "cluster":
            from pathlib import Path

            from kquota.files import read_quota_file

            file = read_quota_file(Path(options.quotas).read_bytes(), name=options.quotas)
            quotas.apply((key, one.entity, value) for one in file.entries for key, value in one.values.items())
        yield Gateway(
            ClusterUpstream(admin),
            quotas,
            Identities(),
            listen=Address.parse(options.listen, "--listen"),
            node_ports=None if options.node_ports is None else NodePorts.parse(options.node_ports),
            advertise=options.advertise,
            settings=settings,
            limits=limits,
            upstream_tls=client.connection.get("ssl_context"),
            insecure=options.insecure,
        )


GATEWAY_LIMITS = ConnectionLimits(
    socket_request_max_bytes=100 * 1024 * 1024,
    socket_request_max_ms=31_000,
    max_connections=100_000,
    max_connections_per_ip=100_000,
    connections_max_idle_ms=660_000,
)
