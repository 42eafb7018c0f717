"""A listener with clients, whose connections give back what they get, on either event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from kquota.config import ConnectionLimits
from kquota.net.listener import ConnectionCount, Listener, Peer

__all__ = ["Echo", "Harness", "Run", "echoed", "listening", "run"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Loops = Callable[[], asyncio.AbstractEventLoop]
Run = Callable[[Coroutine[Any, Any, None]], None]


class Echo(asyncio.Protocol):
    """Gives back what comes."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.peer = Peer("", "")
        self.last_active = listener.now()
        self.incomplete_since: float | None = None
        self.transport: asyncio.Transport | None = None
        self.has_ended = False
        self.reason: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.listener.add(self)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.listener.remove(self, self.reason or exc)

    def end(self) -> None:
        assert self.transport is not None
        self.has_ended = True
        self.transport.close()

    def abort(self, reason: Exception | None = None) -> None:
        assert self.transport is not None
        self.reason = reason
        self.transport.abort()


class Harness:
    """A listener, its clients, and why connections ended."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[tuple[Peer, BaseException | None]] = asyncio.Queue()
        self.connections: list[Echo] = []
        self.trouble: list[dict[str, Any]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.sockets: list[socket.socket] = []
        self.listener = cast("Listener", None)

    def make(self, listener: Listener) -> Echo:
        self.connections.append(Echo(listener))
        return self.connections[-1]

    async def connect(self, tls: ssl.SSLContext | None = None) -> Streams:
        name = "localhost" if tls is not None else None
        streams = await asyncio.open_connection(*self.listener.address, ssl=tls, server_hostname=name)
        self.writers.append(streams[1])
        return streams

    def connect_silently(self) -> socket.socket:
        """As a client that never says anything."""
        self.sockets.append(socket.create_connection(self.listener.address))
        return self.sockets[-1]

    async def end(self) -> BaseException | None:
        return (await self.ends.get())[1]


@contextlib.asynccontextmanager
async def listening(
    *,
    tls: ssl.SSLContext | None = None,
    admit: Callable[[str], float | None] | None = None,
    sockets: list[socket.socket] | None = None,
    shared_count: ConnectionCount | None = None,
    **limits: int,
) -> AsyncIterator[Harness]:
    harness = Harness()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: harness.trouble.append(context))
    harness.listener = await Listener.open(
        harness.make,
        "127.0.0.1",
        0,
        limits=ConnectionLimits(**limits),
        closed=lambda peer, error: harness.ends.put_nowait((peer, error)),
        admit=admit,
        tls=tls,
        sockets=sockets,
        shared_count=shared_count,
    )
    try:
        yield harness
    finally:
        await harness.listener.close(within_s=0)
        for writer in harness.writers:
            writer.transport.abort()
        for one in harness.sockets:
            one.close()
        assert harness.listener.count == 0
        assert harness.listener._by_host == {}
        assert harness.listener._unmade == {}


async def echoed(streams: Streams, text: bytes) -> bytes:
    streams[1].write(text)
    return await streams[0].readexactly(len(text))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Run:
    """Run a scenario on an event loop of either kind; what asyncio logs of connections itself is a failure."""

    def of_loop(scenario: Coroutine[Any, Any, None]) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(60):
                await scenario

        with asyncio.Runner(loop_factory=cast("Loops", request.param)) as runner:
            runner.run(in_time())
        gc.collect()
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []

    return of_loop
