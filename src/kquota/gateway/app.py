"""Running the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, Self

import structlog

from kquota.config import ConnectionLimits
from kquota.errors import InputError, KquotaError
from kquota.gateway.event_lines import EventLines
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.mutations.partition_counts import PartitionCounts
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.gateway.quotas.enforcement import Enforcement
from kquota.gateway.quotas.own_quotas import OwnQuotas
from kquota.gateway.relay.client_connection import ClientConnection
from kquota.gateway.relay.relay import Relay
from kquota.gateway.relay.stats import RelayStats
from kquota.gateway.settings import GatewaySettings
from kquota.gateway.topology import Node, NodePorts, Topology
from kquota.metering.cluster import Cluster
from kquota.net.addresses import Address, is_connectable, is_loopback, is_unspecified
from kquota.net.listener import ConnectionCount, Listener
from kquota.wire.messages.metadata import MetadataRequestTopic, MetadataTopic

__all__ = ["Gateway", "Upstream", "run"]

_log = structlog.get_logger("kquota.gateway")

BACKLOG: Final = 4096
OTHER_FILES: Final = 256
"""Open files that are not connections of clients or to brokers."""
PERIODIC_EVERY_S: Final = 1.0
GC_OBJECTS: Final = 50_000
"""As many new objects before Python looks for cycles; none come with requests."""


class Upstream(Protocol):
    """What the gateway asks of the cluster for itself."""

    async def brokers(self) -> Iterable[tuple[int, str, int]]:
        """Id, host and port of each broker.

        :raises KquotaError: the cluster could not be asked.
        """

    async def cluster(self) -> Cluster:
        """The brokers and all partitions. Raises as :meth:`brokers`."""

    async def topics(self, asked: Sequence[MetadataRequestTopic]) -> Iterable[MetadataTopic]:
        """Topics by name or id, with their partitions. Raises as :meth:`brokers`."""


class Gateway:
    """A gateway that is listening; an async context manager, which drains and stops it when left."""

    def __init__(  # noqa: PLR0913 (its parts)
        self,
        upstream: Upstream,
        quotas: BrokerQuotas,
        identities: Identities,
        *,
        listen: Address,
        node_ports: NodePorts | None = None,
        advertise: str | None = None,
        settings: GatewaySettings | None = None,
        limits: ConnectionLimits,
        listener_tls: ssl.SSLContext | None = None,
        upstream_tls: ssl.SSLContext | None = None,
        authenticates: bool = False,
        insecure: bool = False,
        follows_partitions: bool = False,
        quotas_altered: Callable[[], None] = lambda: None,
        own_quotas: OwnQuotas | None = None,
    ) -> None:
        """Take what it is made of; nothing is opened yet.

        :param authenticates: the listeners let nobody in whom the brokers, or a certificate, do not vouch for.
        :param quotas_altered: called when brokers have altered quotas for a client.
        :param own_quotas: answers requests about quotas; None where the brokers do. It stays the caller's to close.
        :raises InputError: clients could not connect to the address to advertise.
        """
        if advertise is not None and not is_connectable(advertise):
            raise InputError(f"`advertise` {advertise}: not the address of one host, nor a host name")
        self.settings = settings or GatewaySettings()
        self.quotas = quotas
        self._upstream = upstream
        self._identities = identities
        self._listen = listen
        self._node_ports = node_ports
        self._advertise = advertise
        self._limits = limits
        self._listener_tls = listener_tls
        self._upstream_tls = upstream_tls
        self._authenticates = authenticates
        self._insecure = insecure
        self._follows_partitions = follows_partitions
        self._quotas_altered = quotas_altered
        self._own_quotas = own_quotas
        self._listeners: dict[int | None, Listener] = {}
        self._connections = ConnectionCount()
        """Of all ports: open files are the process's."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stats = RelayStats()
        self._lines = EventLines(self.stats)
        self.is_listening = False
        self.is_draining = False
        """It takes no more connections, and waits for those that are there."""
        self._topology: Topology | None = None
        self._relay: Relay | None = None
        self.topology_updated_s: float | None = None
        """When the brokers were last heard of, by the event loop's clock."""

    async def __aenter__(self) -> Self:
        """Learn the brokers, and listen for them and for those who do not know them yet.

        :raises InputError: it would take connections from other machines without leave.
        :raises KquotaError: the cluster cannot be asked, or an address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._lines.loop_trouble)
        brokers = list(await self._upstream.brokers())
        self.topology_updated_s = loop.time()
        try:
            bootstrap = await self._open_bootstrap()
            host, port = bootstrap.address
            self._topology = Topology(
                self._node_ports or NodePorts(port + 1 if self._listen.port else 0),
                self._listen.host,
                self._advertise or (self._listen.host if not is_unspecified(host) else host),
                backlog=BACKLOG,
                opened=self._open_node,
                trouble=lambda reason: _log.error("a broker has no port", reason=reason),
            )
            self._relay = Relay(
                self._topology,
                self.quotas,
                identities=self._identities.new,
                partition_counts=PartitionCounts(self._upstream.topics),
                quotas_altered=self._quotas_altered,
                own_quotas=self._own_quotas,
                events=self._lines,
                upstream_tls=self._upstream_tls,
                max_request_bytes=self._limits.socket_request_max_bytes,
                exempt=self.settings.exempt_principals,
            )
            self._topology.learn(brokers)
            for _, reason in self._topology.refused:
                raise KquotaError(reason)
            if self._follows_partitions:
                self.quotas.update_cluster_metadata(await self._upstream.cluster())
            await asyncio.gather(*self._tasks)
        except BaseException:
            await self._close()
            raise
        self._start(self._follow_topology())
        self._start(self._run_periodic_tasks())
        self.is_listening = True
        _log.info("listening", address=str(self.address), brokers=len(self.nodes))
        if self.quotas.is_shadow:
            _log.warning("shadow mode: everything is computed, and nobody is throttled")
        return self

    async def __aexit__(self, *exception: object) -> None:
        begun = self._connections.now
        _log.info("drain begun", connections=begun)
        closed = await self._close()
        _log.info("drain ended", connections=begun, closed_before_their_end=closed)

    @property
    def address(self) -> Address:
        """Where clients begin."""
        return Address(*self._listeners[None].address)

    @property
    def nodes(self) -> list[Node]:
        """The brokers, and their ports here."""
        return [] if self._topology is None else self._topology.nodes

    @property
    def current_brokers(self) -> frozenset[int]:
        """Those that the cluster named last."""
        return frozenset() if self._topology is None else self._topology.current

    @property
    def topology_age_s(self) -> float | None:
        """How long ago the brokers were last heard of; None where they never were."""
        if self.topology_updated_s is None:
            return None
        return max(0.0, asyncio.get_running_loop().time() - self.topology_updated_s)

    @property
    def listeners(self) -> Mapping[int | None, Listener]:
        """By the id of the broker whose port it is; None for where clients begin."""
        return self._listeners

    @property
    def closing_brokers(self) -> int:
        """How many connections to brokers still have something to send for a client that is gone."""
        return 0 if self._relay is None else len(self._relay.closing_brokers)

    @property
    def relay(self) -> Relay:
        """What the connections share."""
        assert self._relay is not None
        return self._relay

    async def _open_bootstrap(self) -> Listener:
        try:
            self._listeners[None] = await Listener.open(
                lambda listener: ClientConnection(self.relay, listener, None),
                self._listen.host,
                self._listen.port,
                limits=self._limits,
                closed=self._lines.connection_ended,
                allow=self._check_addresses,
                admit=self._admit_to(self.quotas.controller),
                tls=self._listener_tls,
                backlog=BACKLOG,
                shared_count=self._connections,
            )
        except OSError as error:
            raise KquotaError(
                f"cannot listen on {self._listen}: {error.strerror or error}; give another `listen` HOST:PORT"
            ) from error
        return self._listeners[None]

    def _open_node(self, node: Node, sockets: list[socket.socket]) -> None:
        def close_unless_open(_: object = None) -> None:
            if node.id not in self._listeners:  # clients would be connected, and wait for an answer for ever
                for one in sockets:
                    one.close()
                assert self._topology is not None
                self._topology.forget(node.id)

        if self.is_draining:
            close_unless_open()
        else:
            task = self._start(self._listen_for(node, sockets), f"broker {node.id} cannot be served")
            task.add_done_callback(close_unless_open)

    async def _listen_for(self, node: Node, sockets: list[socket.socket]) -> None:
        self._listeners[node.id] = await Listener.open(
            lambda listener: ClientConnection(self.relay, listener, node.id),
            sockets=sockets,
            limits=self._limits,
            closed=self._lines.connection_ended,
            admit=self._admit_to(self.quotas.of(node.id)),
            tls=self._listener_tls,
            shared_count=self._connections,
        )
        self._lines.broker_added(node)

    def _admit_to(self, enforcement: Enforcement) -> Callable[[str], float | None]:
        """What counts the connections of an address to a port (KIP-612). Each port counts for itself, as the brokers
        do, and so does that where clients begin.
        """
        loop = asyncio.get_running_loop()
        return lambda ip: enforcement.accept(self._identities.listener, ip, int(loop.time() * 1000))

    def _start(self, work: Any, failure: str = "a part of the gateway ended") -> asyncio.Task[Any]:
        """Begin work of the gateway's own; where it raises an error, the log has a line with these words."""
        loop = asyncio.get_running_loop()

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                self._lines.loop_trouble(loop, {"message": failure, "exception": task.exception()})

        task: asyncio.Task[Any] = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task

    async def _follow_topology(self) -> None:
        """Ask for the brokers, and where a callback wants them for the partitions, again and again."""
        assert self._topology is not None
        loop = asyncio.get_running_loop()
        is_lost = False
        while True:
            await asyncio.sleep(self.settings.metadata_max_age_ms / 1000)
            before, was_there = self.nodes, self._topology.current
            try:
                if self._follows_partitions:
                    cluster = await self._upstream.cluster()
                    self._topology.learn((node.id, node.host, node.port) for node in cluster.nodes)
                    self.quotas.update_cluster_metadata(cluster)
                else:
                    self._topology.learn(await self._upstream.brokers())
            except KquotaError as error:
                if not is_lost:
                    _log.warning("the cluster cannot be asked for its brokers", reason=str(error))
                is_lost = True
                continue
            except Exception as error:  # noqa: BLE001 (a callback is anybody's; the next time it may do)
                if not is_lost:
                    _log.error("the cluster's brokers cannot be followed", exc_info=error)
                is_lost = True
                continue
            if is_lost:
                _log.info("the cluster can be asked again")
            is_lost = False
            self.topology_updated_s = loop.time()
            self._lines.brokers_followed(before, was_there, self.nodes, self._topology.current)

    async def _run_periodic_tasks(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PERIODIC_EVERY_S)
            try:
                self.quotas.pass_time(int(loop.time() * 1000))
            except Exception as error:  # noqa: BLE001 (a callback is anybody's)
                self._lines.loop_trouble(loop, {"message": "quotas cannot be brought up to date", "exception": error})

    async def _close(self) -> int:
        """Drain, and stop; how many connections had to be closed before their requests were answered."""
        self.is_draining, self.is_listening = True, False
        for task in list(self._tasks):
            task.cancel()
        now = asyncio.get_running_loop().time
        drain_s = self.settings.drain_ms / 1000
        until = now() + drain_s
        closed = await asyncio.gather(*(one.close(within_s=drain_s) for one in self._listeners.values()))
        self._listeners.clear()
        if self._relay is not None:
            await self._relay.close(within_s=max(0.0, until - now()))
        return sum(closed)

    def _check_addresses(self, bound: list[tuple[str, int]]) -> None:
        if self._advertise is None and any(is_unspecified(host) for host, _ in bound):
            raise InputError(
                f"`listen` {self._listen} is every address of this machine: say with `advertise` HOST which of them "
                "clients are to connect to"
            )
        if not (self._insecure or self._authenticates) and not all(is_loopback(host) for host, _ in bound):
            raise InputError(
                f"`listen` {self._listen} takes connections from other machines, and nobody who connects is "
                "authenticated: listen on 127.0.0.1, have clients log in (a security.protocol with SASL in "
                "`command_config`, or ssl.client.auth=required in `listener_config`), or allow it with `insecure`"
            )


def within_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """The limits, with no more connections than this process may have open files; each takes two of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return limits
    most = max((soft - OTHER_FILES) // 2, 1)
    return limits if limits.max_connections <= most else replace(limits, max_connections=most)


async def run(gateway: Gateway, *, ready: Callable[[Gateway], None]) -> None:
    """Relay until SIGTERM, SIGINT or SIGHUP; requests under way are answered first, if that is soon.

    :param ready: called once clients can connect.
    :raises KquotaError: see :class:`Gateway`.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with gateway:
        # Before there is nothing to drain, and a signal ends the process at once.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        # What is there now stays: looking at it again and again would cost as much as relaying does.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_OBJECTS)
        ready(gateway)
        await stop.wait()
