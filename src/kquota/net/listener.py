"""A listener for Kafka clients, and what a connection to it does.

Requests of one connection are answered in their order, one at a time, as a broker does. What clients can make this
process keep is bounded (:class:`~kquota.config.ConnectionLimits`): connections in all and from one address; for each
the bytes of one read, the answer that is being sent and 64 KiB more; and large requests in all. While a connection has
an answer made, has one that it does not take, or waits for room, nothing is read from it.

Connections take turns: who sends many requests at once has a millisecond, then the others have theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

from kquota.config import ConnectionLimits
from kquota.errors import ConnectionLimitError
from kquota.net.addresses import bind, host_and_port
from kquota.net.request_memory import LARGE_REQUEST_BYTES, RequestMemory
from kquota.wire.frames import FrameSplitter

__all__ = ["BACKLOG", "UNSENT_BYTES", "Answer", "FrameHandler", "Listener", "Peer"]

UNSENT_BYTES: Final = 64 * 1024
TURN_S: Final = 0.001
READ_BYTES: Final = 64 * 1024
ABORT_S: Final = 0.5
BACKLOG: Final = 50
"""``socket.listen.backlog.size``."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is connected, and to which of our addresses; both as ``host:port``, IPv6 in brackets."""

    address: str
    listener: str
    host: str


Answer = bytes | list[bytes] | None
"""A whole frame, a large one in parts, which are sent without joining them; None where a request has no answer."""

FrameHandler = Callable[[bytes, Peer], Answer | Awaitable[Answer]]
"""Answers a frame (given without its size), at once or later.

A :class:`~kquota.errors.ProtocolError` closes the connection without an answer.
"""

Closed = Callable[[Peer, BaseException | None], None]


class _Connection(asyncio.BufferedProtocol):
    """One client.

    ::

        bytes -> splitter -> frame -> handler -> answer -> transport
                    |                    |                    |
              waits for room      is being answered     is full: the client
              if it is large      (_answering)          does not take it
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._splitter = FrameSplitter(max_frame_bytes=listener.limits.socket_request_max_bytes)
        self._answering: asyncio.Task[None] | None = None
        self._is_full = False
        self._is_ending = False
        self._failure: BaseException | None = None
        self._transport: asyncio.Transport | None = None
        self.peer = Peer("", "", "")
        self.last_active = 0.0
        self.incomplete_since: float | None = None
        """Since when the rest of a request is waited for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops have transports of their own classes.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        host, port = host_and_port(transport.get_extra_info("peername"))
        listener = host_and_port(transport.get_extra_info("sockname"))
        self.peer = Peer(_text(host, port), _text(*listener), host)
        self.last_active = self._listener.now()
        refused = self._listener.add(self)
        if refused is not None or self._listener.is_closing:
            self.abort(refused)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()
        self._listener.remove(self)
        self._listener.closed(self.peer, self._failure or exc)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 (asyncio's own)
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._splitter.feed(self._listener.buffer[:nbytes])
        self._go_on()

    def eof_received(self) -> bool:
        # Clients may close their side at once after the last request; that one is answered all the same.
        self._is_ending = True
        self._go_on()
        return True

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.last_active = self._listener.now()
        self._go_on()

    def _go_on(self) -> None:
        """Answer the requests that are there, as far as that can be done in this turn."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        answers: list[bytes] = []
        size, started = 0, self._listener.now()
        is_turn_over = has_no_room = False
        while self._answering is None and not (self._is_full or is_turn_over):
            try:
                has_no_room = not self._has_room()
                frame = None if has_no_room else self._splitter.next_frame()
                if frame is None:
                    break
                answer = self._listener.handler(frame, self.peer)
            except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
                self._fail(error)
                break
            self.incomplete_since = None
            if isinstance(answer, (bytes, list)):
                self._listener.memory.release(self)
                answers += [answer] if isinstance(answer, bytes) else answer
                size += len(answers[-1])
                is_turn_over = (
                    isinstance(answer, list) or size >= UNSENT_BYTES or self._listener.now() - started >= TURN_S
                )
            elif answer is not None:
                self._answering = asyncio.ensure_future(self._answer_later(answer))
        if answers:
            self.last_active = started
            _write(transport, answers)
        if is_turn_over and not self._is_full:
            asyncio.get_running_loop().call_soon(self._go_on)
        if self._answering is not None or self._is_full or is_turn_over or has_no_room:
            transport.pause_reading()
        elif self._is_ending:
            transport.close()
        else:
            if self._splitter.buffered_bytes and self.incomplete_since is None:
                self.incomplete_since = self._listener.now()
            transport.resume_reading()

    def _has_room(self) -> bool:
        """Whether the next request may take the memory that it needs; if not, the connection goes on once it may."""
        size = self._splitter.frame_bytes
        if size is None or size <= LARGE_REQUEST_BYTES:
            return True
        # What has arrived, and what the next read may bring.
        size = min(size, self._splitter.buffered_bytes + READ_BYTES)
        has_room = self._listener.memory.reserve(self, size, self._go_on)
        if not has_room:
            self.incomplete_since = None  # it is not the client that is waited for
        return has_room

    async def _answer_later(self, answer: Awaitable[Answer]) -> None:
        try:
            frame = await answer
            if frame is not None and self._transport is not None:
                _write(self._transport, [frame] if isinstance(frame, bytes) else frame)
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self._fail(error)
        finally:
            self._answering = None
            self._listener.memory.release(self)
        self.last_active = self._listener.now()
        self._go_on()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._splitter = FrameSplitter(max_frame_bytes=0)
        self._is_ending = True

    def end(self) -> None:
        """Close when all that was asked for is answered."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.pause_reading()
        self._go_on()

    def abort(self, reason: Exception | None = None) -> None:
        """Close now."""
        self._failure = self._failure or reason
        if self._transport is not None:
            self._transport.abort()


class Listener:
    """Listens on the addresses of one host. Made by :meth:`open`."""

    def __init__(self, handler: FrameHandler, limits: ConnectionLimits, closed: Closed) -> None:
        self.handler = handler
        self.limits = limits
        self.closed = closed
        self.memory = RequestMemory(limits.queued_max_request_bytes)
        self.buffer = bytearray(READ_BYTES)
        """What is read on any connection comes through here; each takes it out at once."""
        self._connections: set[_Connection] = set()
        self._by_host: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self._addresses: list[tuple[str, int]] = []
        self._sweep: asyncio.TimerHandle | None = None
        self.is_closing = False
        self._is_empty: asyncio.Event | None = None
        self.now = asyncio.get_running_loop().time

    @classmethod
    async def open(
        cls,
        handler: FrameHandler,
        host: str,
        port: int,
        *,
        limits: ConnectionLimits | None = None,
        closed: Closed | None = None,
        allow: Callable[[list[tuple[str, int]]], None] | None = None,
    ) -> Listener:
        """Listen on a host; port 0 is any free one.

        :param closed: is called for every connection that ended, with the reason if that was not the client's.
        :param allow: is called with the addresses that are bound, before anybody can connect, and may raise.
        :raises OSError: an address cannot be listened on.
        """
        listener = cls(handler, limits or ConnectionLimits(), closed or (lambda _peer, _error: None))
        loop = asyncio.get_running_loop()
        sockets = bind(host, port)
        try:
            listener._addresses = [host_and_port(one.getsockname()) for one in sockets]
            if allow is not None:
                allow(listener._addresses)
            for one in sockets:
                server = await loop.create_server(lambda: _Connection(listener), sock=one, backlog=BACKLOG)
                listener._servers.append(server)
        except BaseException:
            for server in listener._servers:
                server.close()
            for one in sockets:
                one.close()
            raise
        listener._sweep_later()
        return listener

    @property
    def address(self) -> tuple[str, int]:
        """The first address that it listens on; all have the same port."""
        return self._addresses[0]

    async def close(self, *, within_s: float = 4.0) -> None:
        """Take no more connections, answer what was asked for, and close the rest after `within_s` seconds."""
        # A connection may have been accepted already, and be made only later.
        self.is_closing = True
        if self._sweep is not None:
            self._sweep.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.end()
        if self._connections:
            self._is_empty = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), within_s)
        for connection in list(self._connections):
            connection.abort()
        for server in self._servers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), ABORT_S)
        self._servers = []

    def add(self, connection: _Connection) -> ConnectionLimitError | None:
        """Count a connection in; or why it is one too many."""
        host = connection.peer.host
        self._connections.add(connection)
        self._by_host[host] += 1
        if self._by_host[host] > self.limits.max_connections_per_ip:
            return ConnectionLimitError("max.connections.per.ip", self.limits.max_connections_per_ip)
        if len(self._connections) > self.limits.max_connections:
            return ConnectionLimitError("max.connections", self.limits.max_connections)
        return None

    def remove(self, connection: _Connection) -> None:
        """A connection is gone."""
        self.memory.release(connection)
        self._connections.discard(connection)
        host = connection.peer.host
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        if self._is_empty is not None and not self._connections:
            self._is_empty.set()

    def _sweep_later(self) -> None:
        wait_s = min(self.limits.connections_max_idle_ms, self.limits.socket_request_max_ms) / 4000
        self._sweep = asyncio.get_running_loop().call_later(wait_s, self._sweep_now, self.now() + wait_s)

    def _sweep_now(self, due: float) -> None:
        """Close connections that are idle, whose client does not take its answers, or whose request does not end.

        What came while this process did something else is not read yet: that time does not count.
        """
        now = due
        idle_ms, request_ms = self.limits.connections_max_idle_ms, self.limits.socket_request_max_ms
        for connection in list(self._connections):
            since = connection.incomplete_since
            if since is not None and (now - since) * 1000 > request_ms:
                connection.abort(ConnectionLimitError("socket.request.max.ms", request_ms))
            elif (now - connection.last_active) * 1000 > idle_ms:
                connection.abort()
        self._sweep_later()


def _write(transport: asyncio.Transport, parts: list[bytes]) -> None:
    """Hand on parts, some at a time; the list is empty afterwards, so that what is handed on is not kept twice."""
    parts.reverse()
    while parts:
        together, size = [], 0
        while parts and size < UNSENT_BYTES:
            together.append(parts.pop())
            size += len(together[-1])
        transport.write(b"".join(together))


def _text(host: str, port: int) -> str:
    """``host:port`` as people write it, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
