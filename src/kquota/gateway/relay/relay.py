"""What the connections of a gateway share: where to dial, whom to charge, what to count."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kquota.errors import KquotaError
from kquota.gateway.event_lines import EventLines
from kquota.gateway.identity.sasl import Progress
from kquota.gateway.identity.sasl_frames import MAX_SASL_FRAME_BYTES
from kquota.gateway.mutations.partition_counts import PartitionCounts
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.gateway.quotas.enforcement import Client
from kquota.gateway.relay.actions import Action, Kind
from kquota.gateway.relay.broker_connection import BrokerConnection
from kquota.gateway.topology import Node, Topology
from kquota.metering.callback import KafkaPrincipal, Principal
from kquota.net.addresses import Address
from kquota.net.listener import Peer

if TYPE_CHECKING:
    from kquota.gateway.identity.connection_identity import ConnectionIdentity
    from kquota.gateway.quotas.own_quotas import OwnQuotas
    from kquota.gateway.relay.client_connection import ClientConnection

__all__ = ["Relay"]

CONNECT_S: Final = 10.0
"""``socket.connection.setup.timeout.ms``, of Java's clients."""
MOST_HANGING: Final = 5
"""Brokers that do not answer, which one who may have any of them waits for in :data:`CONNECT_S`."""
REMEMBERED_CLIENTS: Final = 100_000
LONGEST_REMEMBERED_ID: Final = 256
"""Characters of a client id; clients choose them, and may send 32 KiB."""

_WHOLE_BYTES: Final[Mapping[Kind | None, int]] = {
    None: MAX_SASL_FRAME_BYTES,
    Kind.SASL_HANDSHAKE: 64 * 1024,
    Kind.SASL_AUTHENTICATE: MAX_SASL_FRAME_BYTES,
    Kind.API_VERSIONS: 64 * 1024,
    Kind.MUTATION: 16 * 1024 * 1024,
    Kind.QUOTAS: 4 * 1024 * 1024,
}


class Relay:
    """What the connections of one gateway share.

    :param identities: makes what finds out who a new connection's client is.
    :param upstream_tls: how brokers are connected to; None without TLS.
    """

    def __init__(
        self,
        topology: Topology,
        quotas: BrokerQuotas,
        *,
        identities: Callable[[], ConnectionIdentity],
        partition_counts: PartitionCounts,
        events: EventLines,
        upstream_tls: ssl.SSLContext | None = None,
        max_request_bytes: int,
        exempt: frozenset[KafkaPrincipal] = frozenset(),
        own_quotas: OwnQuotas | None = None,
        quotas_altered: Callable[[], None] = lambda: None,
    ) -> None:
        self.topology = topology
        self.quotas = quotas
        self._events = events
        self.stats = events.stats
        self.max_request_bytes = max_request_bytes
        self.partition_counts = partition_counts
        self.own_quotas = own_quotas
        self.own_versions: Mapping[int, tuple[int, int]] = {} if own_quotas is None else own_quotas.versions
        self.new_identity = identities
        self.address_of = topology.address_of
        self.quotas_altered = quotas_altered
        """To be called when the brokers have altered quotas for a client."""
        self.closing_brokers: set[BrokerConnection] = set()
        """Connections whose client is gone, while the broker has not taken all that was sent."""
        self._are_brokers_closed: asyncio.Event | None = None
        self._upstream_tls = upstream_tls
        self._exempt = exempt
        self._clients: dict[tuple[KafkaPrincipal, str], Client] = {}

    def client(self, principal: KafkaPrincipal, client_id: str) -> Client | None:
        """Whom requests are charged to, the same object each time as far as memory goes; None for an exempt one."""
        if principal in self._exempt:
            return None
        found = self._clients.get((principal, client_id))
        if found is None:
            # A plain name is hashed once, a principal with each request.
            user: Principal = principal.name if principal.principal_type == "User" else principal
            found = Client(user, client_id)
            if len(client_id) <= LONGEST_REMEMBERED_ID:
                if len(self._clients) >= REMEMBERED_CLIENTS:
                    self._clients.clear()
                self._clients[principal, client_id] = found
        return found

    def is_read_whole(self, action: Action) -> bool:
        """Whether a request has to be read whole; others are passed on as they come."""
        if action.kind is Kind.QUOTAS:
            return action.api_key in self.own_versions
        if action.kind is Kind.MUTATION:
            return self.quotas.controller.managers.controller_mutation.is_enabled()
        return True

    def max_whole_bytes(self, action: Action | None) -> int:
        """The largest request of a kind that is read whole."""
        return min(_WHOLE_BYTES[None if action is None else action.kind], self.max_request_bytes)

    def note_login(self, peer: Peer, mechanism: str, progress: Progress) -> None:
        """A broker answered a token of a login by this mechanism."""
        if progress is not Progress.CONTINUES:
            self.stats.logins[mechanism, progress is Progress.SUCCEEDED] += 1
        if progress is Progress.FAILED:
            self._events.login_failed(peer, mechanism)

    def broker_closed(self, broker: BrokerConnection) -> None:
        """A connection to a broker is not open any more."""
        self.closing_brokers.discard(broker)
        if self._are_brokers_closed is not None and not self.closing_brokers:
            self._are_brokers_closed.set()

    async def close(self, *, within_s: float) -> None:
        """Wait until the brokers have taken all that they were sent by clients that are gone; then close the rest."""
        if self.closing_brokers:
            self._are_brokers_closed = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._are_brokers_closed.wait(), within_s)
            for broker in list(self.closing_brokers):
                broker.abort()
            await asyncio.sleep(0)  # the event loop closes them in its next turn

    async def dial(self, client: ClientConnection, node_id: int | None) -> BrokerConnection:
        """Connect to a broker on behalf of a client, which from now on has that broker's quotas.

        :param node_id: None for any broker that can be reached, each in turn.
        :raises KquotaError: none can be reached, or none is known.
        """
        nodes = self.topology.in_turn() if node_id is None else [self.topology.node(node_id)]
        loop = asyncio.get_running_loop()
        until_s, each_s = loop.time() + CONNECT_S, CONNECT_S / min(len(nodes), MOST_HANGING)
        for node in nodes:
            try:
                return await self._dial(client, node, min(each_s, until_s - loop.time()))
            except KquotaError:
                if node is nodes[-1] or loop.time() + each_s / 2 > until_s:
                    raise
        raise AssertionError

    async def _dial(self, client: ClientConnection, node: Node, within_s: float) -> BrokerConnection:
        client.enforcement = self.quotas.of(node.id)
        address = Address(node.host, node.port)
        try:
            async with asyncio.timeout(within_s):
                _, broker = await asyncio.get_running_loop().create_connection(
                    lambda: BrokerConnection(self, client),
                    node.host,
                    node.port,
                    ssl=self._upstream_tls,
                    server_hostname=node.host if self._upstream_tls is not None else None,
                )
        except TimeoutError:
            self.stats.failed_dials[node.id] += 1
            raise KquotaError(f"broker {node.id} at {address} did not answer in {within_s:.2g} s") from None
        except OSError as error:
            self.stats.failed_dials[node.id] += 1
            raise KquotaError(f"broker {node.id} at {address} cannot be reached: {error}") from error
        return broker
