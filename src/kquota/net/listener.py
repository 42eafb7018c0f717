"""A listener for Kafka clients, and what a connection to it does.

Requests of one connection are answered in their order, one at a time, as a broker does. What a client can make this
process keep is bounded: a frame up to its limit, the bytes of one read, and about 1 MiB of answers that it does not
take; while there is more, nothing is read from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

from kquota.errors import ProtocolError
from kquota.wire.frames import MAX_FRAME_BYTES, FrameSplitter

__all__ = ["Answer", "FrameHandler", "Limits", "Listener", "Peer"]

UNSENT_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is connected, and to which of our addresses."""

    address: str
    listener: str


Answer = bytes | None
"""A whole frame; None where a request has no answer."""

FrameHandler = Callable[[bytes, Peer], Answer | Awaitable[Answer]]
"""Answers a frame (given without its size), at once or later.

A :class:`~kquota.errors.ProtocolError` closes the connection without an answer.
"""

Closed = Callable[[Peer, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may use. Names and defaults are Kafka's."""

    request_max_bytes: int = MAX_FRAME_BYTES
    max_idle_ms: int = 600_000


class _Connection(asyncio.Protocol):
    """One client. Frames wait in `_waiting` while an answer is being made or the client does not take its answers."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._splitter = FrameSplitter(max_frame_bytes=listener.limits.request_max_bytes)
        self._waiting: deque[bytes] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._is_full = False
        self._is_ending = False
        self._failure: BaseException | None = None
        self._transport: asyncio.Transport | None = None
        self._peer = Peer("", "")
        self.last_active = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops have transports of their own classes.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._peer = Peer(
            _address(transport.get_extra_info("peername")), _address(transport.get_extra_info("sockname"))
        )
        self.last_active = self._listener.now()
        self._listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        if self._answering is not None:
            self._answering.cancel()
        self._listener.forget(self)
        self._listener.closed(self._peer, self._failure or exc)

    def data_received(self, data: bytes) -> None:
        self.last_active = self._listener.now()
        try:
            self._waiting.extend(self._splitter.feed(data))
        except ProtocolError as error:
            # What came before it is answered first.
            self._failure = error
            self._is_ending = True
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
        """Answer what waits, as far as that can be done now."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        answers: list[bytes] = []
        size = 0
        while self._waiting and self._answering is None and not self._is_full and size < UNSENT_BYTES:
            try:
                answer = self._listener.handler(self._waiting.popleft(), self._peer)
            except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
                self._fail(error)
                break
            if answer is None:
                continue
            if isinstance(answer, bytes):
                answers.append(answer)
                size += len(answer)
            else:
                self._answering = asyncio.ensure_future(self._answer_later(answer))
        if answers:
            transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if size >= UNSENT_BYTES and self._waiting and not self._is_full:
            # Sent at once after all: come back when others had their turn.
            asyncio.get_running_loop().call_soon(self._go_on)
        if self._waiting or self._answering is not None:
            transport.pause_reading()
        elif self._is_ending:
            transport.close()
        else:
            transport.resume_reading()

    async def _answer_later(self, answer: Awaitable[Answer]) -> None:
        try:
            frame = await answer
            if frame is not None and self._transport is not None:
                self._transport.write(frame)
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self._fail(error)
        finally:
            self._answering = None
        self._go_on()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._waiting.clear()
        self._is_ending = True

    def end(self) -> None:
        """Close when all that was asked for is answered."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.pause_reading()
        self._go_on()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()


class Listener:
    """Listens on one address. Made by :meth:`open`."""

    def __init__(self, handler: FrameHandler, limits: Limits, closed: Closed) -> None:
        self.handler = handler
        self.limits = limits
        self.closed = closed
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._is_empty: asyncio.Event | None = None
        self.now = asyncio.get_running_loop().time

    @classmethod
    async def open(
        cls, handler: FrameHandler, host: str, port: int, *, limits: Limits | None = None, closed: Closed | None = None
    ) -> Listener:
        """Listen on an address; port 0 is any free one.

        :param closed: is told of every connection that ended, and why if not because the client closed it.
        :raises OSError: the address cannot be listened on.
        """
        listener = cls(handler, limits or Limits(), closed or (lambda _peer, _error: None))
        loop = asyncio.get_running_loop()
        listener._server = await loop.create_server(lambda: _Connection(listener), host, port, backlog=1024)
        listener._sweep_later()
        return listener

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def close(self, *, within_s: float = 5.0) -> None:
        """Take no more connections, answer what was asked for, and close the rest after `within_s` seconds."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.end()
        if self.connections:
            self._is_empty = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), within_s)
        for connection in list(self.connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    def forget(self, connection: _Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        if self._is_empty is not None and not self.connections:
            self._is_empty.set()

    def _sweep_later(self) -> None:
        wait_s = self.limits.max_idle_ms / 1000 / 4
        self._sweep = asyncio.get_running_loop().call_later(wait_s, self._sweep_now)

    def _sweep_now(self) -> None:
        """Close the connections that were idle for too long, also those whose client does not take its answers."""
        oldest = self.now() - self.limits.max_idle_ms / 1000
        for connection in list(self.connections):
            if connection.last_active < oldest:
                connection.abort()
        self._sweep_later()


def _address(name: object) -> str:
    """``host:port`` as people write it, IPv6 in brackets."""
    if not isinstance(name, tuple) or len(name) < 2:
        return str(name)
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
