"""What connections may use of a server of frames, and who waits for whom."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kquota.config import ConnectionLimits
from kquota.errors import ConnectionLimitError
from kquota.net.frame_server import UNSENT_BYTES, Answer, _Connection, open_frame_server
from kquota.net.listener import Listener, Peer
from kquota.net.tls import TlsFiles, server_context
from tests.kit.tls import Authority

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[bytes, Peer], Answer | Awaitable[Answer]]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(frame: bytes, _peer: Peer) -> Answer:
    return framed(frame)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(in_time())


class Harness:
    """A listener, its clients, and why connections ended."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[BaseException | None] = asyncio.Queue()
        self.listener: Listener | None = None
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Streams:
        assert self.listener is not None
        streams = await asyncio.open_connection(*self.listener.address)
        self.writers.append(streams[1])
        return streams


@contextlib.asynccontextmanager
async def listening(handler: Handler, **limits: int) -> AsyncIterator[Harness]:
    harness = Harness()
    harness.listener = await open_frame_server(
        handler,
        "127.0.0.1",
        0,
        limits=ConnectionLimits(**limits),
        closed=lambda _peer, error: harness.ends.put_nowait(error),
    )
    try:
        yield harness
    finally:
        for writer in harness.writers:
            writer.close()
        await harness.listener.close(within_s=0)


async def answer_of(streams: Streams) -> bytes:
    [size] = struct.unpack(">i", await streams[0].readexactly(4))
    return await streams[0].readexactly(size)


async def ask(streams: Streams, payload: bytes) -> bytes:
    streams[1].write(framed(payload))
    return await answer_of(streams)


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_ip"])
def test_connections_beyond_the_limit_are_closed(setting: str) -> None:
    """Those that are there are served, and a place that is left can be taken."""

    async def scenario() -> None:
        async with listening(echo, **{setting: 2}) as harness:
            first, second = await harness.connect(), await harness.connect()
            assert await ask(first, b"1") == b"1"
            assert await ask(second, b"2") == b"2"
            third = await harness.connect()
            with contextlib.suppress(ConnectionError):
                assert await third[0].read() == b""
            error = await harness.ends.get()
            assert isinstance(error, ConnectionLimitError)
            assert (error.setting, error.limit) == (setting.replace("_", "."), 2)
            first[1].close()
            assert await harness.ends.get() is None
            assert await ask(await harness.connect(), b"4") == b"4"
            assert await ask(second, b"2") == b"2"

    run(scenario())


def test_a_request_that_does_not_end_costs_its_connection() -> None:
    """However steadily its bytes drip in; one that is idle between requests may stay."""

    async def scenario() -> None:
        async with listening(echo, socket_request_max_ms=200) as harness:
            dripping, idle = await harness.connect(), await harness.connect()
            assert await ask(idle, b"x") == b"x"
            dripping[1].write(struct.pack(">i", 1000))

            async def drip() -> None:
                while True:
                    dripping[1].write(b"x")
                    await asyncio.sleep(0.01)

            dripper = asyncio.create_task(drip())
            error = await harness.ends.get()
            dripper.cancel()
            assert isinstance(error, ConnectionLimitError)
            assert error.setting == "socket.request.max.ms"
            assert await ask(idle, b"y") == b"y"

    run(scenario())


def test_large_requests_wait_for_room_and_small_ones_do_not() -> None:
    """A large request that does not end holds back the next large one until its time is over, and nothing else."""

    async def scenario() -> None:
        limits = {"queued_max_request_bytes": 200_000, "socket_request_max_ms": 300}
        async with listening(echo, **limits) as harness:
            unfinished, large, small = [await harness.connect() for _ in range(3)]
            unfinished[1].write(framed(b"x" * 150_000)[:-1])
            await unfinished[1].drain()
            assert await ask(small, b"before") == b"before"
            large[1].write(framed(b"y" * 150_000))
            for number in range(20):
                assert await ask(small, b"%d" % number) == b"%d" % number
            error = await harness.ends.get()
            assert isinstance(error, ConnectionLimitError)
            assert await answer_of(large) == b"y" * 150_000
            assert await ask(await harness.connect(), b"z" * 150_000) == b"z" * 150_000

    run(scenario())


def test_room_is_given_back_once_a_request_is_answered() -> None:
    """One connection after the other, with answers that take their time."""

    async def later(frame: bytes, _peer: Peer) -> Answer:
        await asyncio.sleep(0)
        return framed(frame[:3])

    async def scenario() -> None:
        async with listening(later, queued_max_request_bytes=100_000) as harness:
            clients = [await harness.connect() for _ in range(5)]
            for number, client in enumerate(clients):
                client[1].write(framed(b"%03d" % number + b"x" * 80_000))
            assert [await answer_of(client) for client in clients] == [b"%03d" % number for number in range(5)]

    run(scenario())


def test_who_sends_many_requests_at_once_does_not_hold_up_others() -> None:
    """Connections take turns: the other one's answer comes long before the last of them is answered."""
    answered = 0

    def slow(frame: bytes, _peer: Peer) -> Answer:
        nonlocal answered
        answered += 1
        if frame == b"count":
            return framed(b"%d" % answered)
        until = asyncio.get_running_loop().time() + 0.001
        while asyncio.get_running_loop().time() < until:
            pass
        return framed(b"")

    async def scenario() -> None:
        async with listening(slow) as harness:
            greedy, other = await harness.connect(), await harness.connect()
            greedy[1].write(framed(b"") * 500)
            await answer_of(greedy)
            assert int(await ask(other, b"count")) < 250

    run(scenario())


def test_parts_of_an_answer_come_in_order_with_those_around_it() -> None:
    """A large answer is sent in parts; small answers before and after it are where they belong."""
    parts = [b"%08d" % number for number in range(40_000)]
    whole = b"".join(parts)

    def handler(frame: bytes, _peer: Peer) -> Answer:
        return [struct.pack(">i", len(whole)), *parts] if frame == b"large" else framed(frame)

    async def scenario() -> None:
        async with listening(handler) as harness:
            client = await harness.connect()
            client[1].write(framed(b"a") + framed(b"large") + framed(b"b") + framed(b"large") + framed(b"c"))
            client[1].write_eof()
            assert [await answer_of(client) for _ in range(5)] == [b"a", whole, b"b", whole, b"c"]
            assert await client[0].read() == b""

    assert len(whole) > UNSENT_BYTES
    run(scenario())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_frames_are_answered_over_tls(loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """Those that came before the client's end are answered, and who does not speak TLS is named."""
    authority = Authority()
    own = authority.issue("broker", hosts=("localhost",)).write_pem(tmp_path / "own.pem")
    ends: asyncio.Queue[BaseException | None] = asyncio.Queue()
    parts = [b"%08d" % number for number in range(40_000)]

    def handler(frame: bytes, _peer: Peer) -> Answer:
        return [struct.pack(">i", 8 * len(parts)), *parts] if frame == b"large" else framed(frame)

    def ended(_peer: Peer, error: BaseException | None) -> None:
        ends.put_nowait(error)

    async def scenario() -> None:
        tls = server_context(TlsFiles(keystore=str(own)))
        context = ssl.create_default_context(cadata=authority.certificate_pem())
        with_tls = await open_frame_server(handler, "127.0.0.1", 0, tls=tls, closed=ended)
        plain = await open_frame_server(handler, "127.0.0.1", 0, closed=ended)
        name: dict[str, Any] = {"ssl": context, "server_hostname": "localhost"}
        client = await asyncio.open_connection(*with_tls.address, **name)
        client[1].write(framed(b"a") + framed(b"large") + framed(b"b"))
        assert [await answer_of(client) for _ in range(3)] == [b"a", b"".join(parts), b"b"]
        client[1].close()
        assert await ends.get() is None
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection(*plain.address, **name)
        assert str(await ends.get()).endswith("this is the beginning of TLS, on a plaintext port")
        other = await asyncio.open_connection(*with_tls.address)
        other[1].write(framed(b"a"))
        assert str(await ends.get()) == "plaintext on a TLS port"
        other[1].close()
        await with_tls.close()
        await plain.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 60))


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Nagle's algorithm is off: several answers in a row would wait 40 ms for each other."""

    async def scenario() -> None:
        async with listening(echo) as harness:
            assert await ask(await harness.connect(), b"x") == b"x"
            assert harness.listener is not None
            [connection] = harness.listener._connections
            assert isinstance(connection, _Connection)
            assert connection._transport is not None
            its_socket = connection._transport.get_extra_info("socket")
            assert its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(scenario())


def test_nobody_connects_before_the_addresses_are_allowed() -> None:
    """What `allow` raises comes out, and nothing listens."""
    ports: list[int] = []

    def refuse(addresses: list[tuple[str, int]]) -> None:
        ports.extend(port for _, port in addresses)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(addresses[0])
        raise PermissionError("not here")

    async def scenario() -> None:
        with pytest.raises(PermissionError, match="not here"):
            await open_frame_server(echo, "127.0.0.1", 0, allow=refuse)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[0]))

    run(scenario())
