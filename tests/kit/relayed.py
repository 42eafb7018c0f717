"""A connection of the gateway between two ends of the test's own, without sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from kquota.config import BrokerConfig, ConnectionLimits
from kquota.gateway.event_lines import EventLines
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.mutations.partition_counts import PartitionCounts
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.gateway.quotas.own_quotas import OwnQuotas
from kquota.gateway.quotas.request_time import RequestTimes
from kquota.gateway.relay.broker_connection import BrokerConnection
from kquota.gateway.relay.client_channel import CLOSE_AFTER_S, LINGER_S
from kquota.gateway.relay.client_connection import ClientConnection
from kquota.gateway.relay.relay import Relay
from kquota.gateway.relay.stats import RelayStats
from kquota.gateway.topology import Node, NodePorts, Topology
from kquota.net.listener import Peer
from kquota.quotas import ClientQuotaEntity
from kquota.wire.messages.metadata import MetadataTopic

__all__ = ["Relayed", "answer", "fetch_request", "frames", "produce_request", "request"]


class End(asyncio.Transport):
    """What the gateway writes is kept; what it reads the test gives to its protocol."""

    def __init__(self, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra or {})
        self.protocol: asyncio.Protocol | None = None
        """What hears of the end of the connection, if the event loop is to tell it as it does with real ones."""
        self.written = bytearray()
        self.is_paused = False
        self.has_sent_eof = False
        self.has_closed = False
        self.unsent_bytes = 0
        self.was_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.has_closed
        self.written += data

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = bytes(self.written)
        self.written.clear()
        return taken

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_sent_eof = True

    def is_closing(self) -> bool:
        return self.has_closed

    def close(self) -> None:
        if not self.has_closed:
            self.has_closed = True
            if self.protocol is not None:
                asyncio.get_running_loop().call_soon(self.lose)

    def abort(self) -> None:
        self.was_aborted = True
        self.close()

    def lose(self, error: Exception | None = None) -> None:
        """The connection is gone."""
        protocol, self.protocol = self.protocol, None
        self.has_closed = True
        if protocol is not None:
            protocol.connection_lost(error)


class _Listener:
    def __init__(self) -> None:
        self.failures: list[BaseException | None] = []

    def add(self, connection: ClientConnection) -> None:
        pass

    def remove(self, connection: ClientConnection, error: BaseException | None) -> None:
        self.failures.append(error)


class Relayed:
    """A client's connection to broker 1, dialled; what the client sends is given to :meth:`client_sends`, and so on."""

    topology: Topology
    quotas: BrokerQuotas
    relay: Relay

    def __init__(
        self,
        identities: Identities | None = None,
        *,
        is_shadow: bool = False,
        request_times: RequestTimes | None = None,
        own_quotas: OwnQuotas | None = None,
        beside: Relayed | None = None,
    ) -> None:
        """Of a gateway of its own, or of the one of another connection."""
        if beside is None:
            self._begin(
                identities or Identities(), is_shadow=is_shadow, request_times=request_times, own_quotas=own_quotas
            )
        else:
            self.topology, self.quotas, self.relay = beside.topology, beside.quotas, beside.relay
        self.listener = _Listener()
        self.client = ClientConnection(self.relay, self.listener, 1)  # type: ignore[arg-type]
        self.client.peer = Peer("127.0.0.1:50000", "127.0.0.1:9193")
        self.to_client = End()
        self.to_broker = End()
        self.broker: BrokerConnection | None = None

    def _begin(
        self,
        identities: Identities,
        *,
        is_shadow: bool,
        request_times: RequestTimes | None,
        own_quotas: OwnQuotas | None,
    ) -> None:
        self.topology = Topology(
            NodePorts(0), "127.0.0.1", "127.0.0.1", backlog=1, opened=_close_all, trouble=lambda _: None
        )
        self.quotas = BrokerQuotas(BrokerConfig(), is_shadow=is_shadow, request_times=request_times)
        self.relay = Relay(
            self.topology,
            self.quotas,
            identities=identities.new,
            partition_counts=PartitionCounts(_no_topics),
            events=EventLines(RelayStats()),
            max_request_bytes=ConnectionLimits().socket_request_max_bytes,
            own_quotas=own_quotas,
        )

    async def connect(self) -> None:
        """As a client does."""
        self.relay.dial = self._dial  # type: ignore[method-assign] # until it is dialled
        self.to_client.protocol = self.client
        self.client.connection_made(self.to_client)
        await self.settle()

    async def settle(self, turns: int = 10) -> None:
        """Let everybody do what they can do now."""
        for _ in range(turns):
            await asyncio.sleep(0)

    def limit(self, key: str, value: float | None, **entity: str) -> None:
        """Set a quota."""
        of = {name.replace("_", "-"): one for name, one in entity.items()}
        self.quotas.apply([(key, ClientQuotaEntity(of), value)])

    @property
    def has_ended(self) -> bool:
        """Whether both connections are closed."""
        return self.to_client.has_closed and (self.broker is None or self.to_broker.has_closed)

    async def ends(self) -> bool:
        """Whether both connections are closed soon: a client is left some time to read its last answers."""
        await asyncio.sleep(CLOSE_AFTER_S + LINGER_S)
        await self.settle()
        return self.has_ended

    @property
    def failure(self) -> BaseException | None:
        """Why the connection was closed; None at the client's wish."""
        [failure] = self.listener.failures
        return failure

    def client_sends(self, data: bytes, sizes: Callable[[], int] | None = None) -> None:
        """In pieces, whose sizes are asked for; without them at once."""
        _in_pieces(self.client.data_received, data, sizes)

    def broker_sends(self, data: bytes, sizes: Callable[[], int] | None = None) -> None:
        """As :meth:`client_sends`."""
        assert self.broker is not None
        _in_pieces(self.broker.data_received, data, sizes)

    def close(self) -> None:
        """End both connections, if they have not ended."""
        self.to_broker.lose()
        self.to_client.lose()

    async def _dial(self, client: ClientConnection, node_id: int | None) -> BrokerConnection:
        assert node_id is not None
        client.enforcement = self.quotas.of(node_id)
        self.broker = BrokerConnection(self.relay, client)
        self.to_broker.protocol = self.broker
        self.broker.connection_made(self.to_broker)
        return self.broker


def _close_all(_node: Node, sockets: list[Any]) -> None:
    for one in sockets:
        one.close()


async def _no_topics(_: object) -> list[MetadataTopic]:
    return []


def _in_pieces(take: Callable[[bytes], None], data: bytes, sizes: Callable[[], int] | None) -> None:
    at = 0
    while at < len(data):
        size = len(data) if sizes is None else sizes()
        take(data[at : at + size])
        at += size


def request(api_key: int, version: int, correlation_id: int, body: bytes, client_id: str | None = "c") -> bytes:
    """A frame with its size. The body begins with the header's tag section where the version is flexible."""
    name = b"" if client_id is None else client_id.encode()
    head = struct.pack(">hhih", api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_request(correlation_id: int, records: bytes, *, acks: int = -1, client_id: str = "c") -> bytes:
    """Produce version 9, with anything as its records."""
    return request(0, 9, correlation_id, b"\0\0" + struct.pack(">hi", acks, 30_000) + records, client_id)


def fetch_request(correlation_id: int, max_bytes: int, *, client_id: str = "c") -> bytes:
    """Fetch version 12 of no topics."""
    body = struct.pack(">iiiibii", -1, 500, 1, max_bytes, 0, 0, -1) + b"\1\1\1\0"
    return request(1, 12, correlation_id, b"\0" + body, client_id)


def answer(correlation_id: int, body: bytes) -> bytes:
    """A frame with its size."""
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def frames(data: bytes) -> list[bytes]:
    """Cut, with their sizes."""
    found = []
    at = 0
    while at < len(data):
        end = at + 4 + struct.unpack_from(">i", data, at)[0]
        found.append(data[at:end])
        at = end
    assert at == len(data)
    return found
