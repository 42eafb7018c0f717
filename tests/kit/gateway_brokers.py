"""A broker on the event loop of the test, for a gateway in front of it, and clients that speak in frames."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from kquota.config import BrokerConfig, ConnectionLimits
from kquota.errors import UnreachableError
from kquota.gateway.app import Gateway
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.gateway.settings import GatewaySettings
from kquota.gateway.topology import NodePorts
from kquota.metering.cluster import Cluster
from kquota.net.addresses import Address
from kquota.wire.apis import API_VERSIONS, METADATA, write_response
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kquota.wire.messages.metadata import MetadataBroker, MetadataRequestTopic, MetadataResponse, MetadataTopic
from tests.kit.relayed import answer

__all__ = ["GatewayBroker", "Upstream", "gateway_of", "memory_mb", "read_frame"]


class GatewayBroker:
    """Answers Produce version 9, ApiVersions and Metadata, and Fetch version 12 with as much as it is asked for."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.port = 0
        self.produced: list[int] = []
        """The correlation ids of produce requests."""
        self.connections = 0
        self.brokers: list[tuple[int, str, int]] = []
        """What it says of the cluster; by default only itself."""
        self.reads = asyncio.Event()
        self.reads.set()
        self.received = 0
        self.fetch_bytes = 0
        self.delay_s = 0.0
        self.acknowledges = True
        """It answers Produce, as long as requests ask for acks."""
        self.cuts_answers = False
        """It closes the connection in the middle of the next answer."""
        self._server: asyncio.Server | None = None
        self.open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen; on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As when it is killed."""
        assert self._server is not None
        self._server.close()
        for writer in list(self.open):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self.reads.wait()
                size = int.from_bytes(await reader.readexactly(4), "big")
                head = await reader.readexactly(min(size, 200))
                left = size - len(head)
                while left:
                    await self.reads.wait()
                    taken = len(await reader.read(min(left, 2**20)))
                    if not taken:
                        raise ConnectionResetError
                    left -= taken
                self.received += size + 4
                await self._answer(head, writer)
        self.open.discard(writer)
        writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        key, version, correlation_id = struct.unpack_from(">hhi", head)
        match key:
            case 0:
                self.produced.append(correlation_id)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if not self.acknowledges:
                    return
                found = answer(correlation_id, b"\0\1" + bytes(5))
            case 1:
                writer.write(struct.pack(">iiBi", self.fetch_bytes, correlation_id, 0, 0))
                for at in range(9, self.fetch_bytes, 2**20):
                    writer.write(bytes(min(2**20, self.fetch_bytes - at)))
                    await writer.drain()
                return
            case API_VERSIONS.key:
                apis = [ApiVersion(key, 0, 9) for key in (0, 1)]
                apis += [ApiVersion(api.key, api.min_version, api.max_version) for api in (METADATA, API_VERSIONS)]
                version = min(version, API_VERSIONS.max_version)
                found = write_response(API_VERSIONS, version, correlation_id, ApiVersionsResponse(0, apis))
            case _:
                own = [(self.node_id, "127.0.0.1", self.port)]
                brokers = [MetadataBroker(*one) for one in self.brokers or own]
                metadata = MetadataResponse(0, brokers, "scripted", 1, [])
                found = write_response(METADATA, version, correlation_id, metadata)
        if self.cuts_answers:
            self.cuts_answers = False
            writer.write(found[: len(found) // 2])
            await writer.drain()
            writer.transport.abort()
            return
        writer.write(found)
        await writer.drain()


class Upstream:
    """What a gateway asks of the cluster for itself, answered at once."""

    def __init__(self, brokers: Sequence[tuple[int, str, int]]) -> None:
        self.found = list(brokers)
        self.error: Exception | None = None
        self.asked = 0

    async def brokers(self) -> list[tuple[int, str, int]]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.found

    async def cluster(self) -> Cluster:
        raise UnreachableError("not asked for here")

    async def topics(self, asked: Sequence[MetadataRequestTopic]) -> list[MetadataTopic]:
        return []


@contextlib.asynccontextmanager
async def gateway_of(upstream: Upstream, **options: Any) -> AsyncIterator[Gateway]:
    """A gateway on any free ports."""
    settings = options.pop("settings", None) or GatewaySettings(drain_ms=5_000, metadata_max_age_ms=50)
    ports: NodePorts | None = options.pop("node_ports", None)
    quotas = options.pop("quotas", None) or BrokerQuotas(BrokerConfig())
    listen = options.pop("listen", Address("127.0.0.1", 0))
    limits = options.pop("limits", None) or ConnectionLimits(
        socket_request_max_bytes=2**30, max_connections=20_000, max_connections_per_ip=20_000
    )
    async with Gateway(
        upstream, quotas, Identities(), listen=listen, node_ports=ports, settings=settings, limits=limits, **options
    ) as gateway:
        yield gateway


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next one, with its size.

    :raises IncompleteReadError: the connection ended.
    """
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def memory_mb(pid: int | str = "self") -> float:
    """What a process has in memory now, in MiB (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    [kib] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(kib) / 1024
