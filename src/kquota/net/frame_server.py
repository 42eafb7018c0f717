"""A server that answers whole frames: what a connection to it does.

Requests of one connection are answered in their order, one at a time, as a broker does. What clients can make this
process keep is bounded (:class:`~kquota.config.ConnectionLimits`): connections in all and from one address; for each
the bytes of one read, the answer that is being sent and 64 KiB more; and large requests in all. While a connection has
an answer made, has one that it does not take, or waits for room, nothing is read from it.

Connections take turns: who sends many requests at once has a millisecond, then the others have theirs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

from kquota.config import ConnectionLimits
from kquota.net.listener import Closed, Listener, Peer
from kquota.net.request_memory import LARGE_REQUEST_BYTES, RequestMemory
from kquota.wire.frames import FrameSplitter

__all__ = ["UNSENT_BYTES", "Answer", "FrameHandler", "open_frame_server"]

UNSENT_BYTES: Final = 64 * 1024
TURN_S: Final = 0.001
READ_BYTES: Final = 64 * 1024

Answer = bytes | list[bytes] | None
"""A whole frame, a large one in parts, which are sent without joining them; None where a request has no answer."""

FrameHandler = Callable[[bytes, Peer], Answer | Awaitable[Answer]]
"""Answers a frame (given without its size), at once or later.

A :class:`~kquota.errors.ProtocolError` closes the connection without an answer.
"""


class _Server:
    """What the connections share."""

    def __init__(self, handler: FrameHandler, limits: ConnectionLimits) -> None:
        self.handler = handler
        self.max_frame_bytes = limits.socket_request_max_bytes
        self.memory = RequestMemory(limits.queued_max_request_bytes)
        self.buffer = bytearray(READ_BYTES)
        """What is read on any connection comes through here; each takes it out at once."""


class _Connection(asyncio.BufferedProtocol):
    """One client.

    ::

        bytes -> splitter -> frame -> handler -> answer -> transport
                    |                    |                    |
              waits for room      is being answered     is full: the client
              if it is large      (_answering)          does not take it
    """

    def __init__(self, listener: Listener, server: _Server) -> None:
        self._listener = listener
        self._server = server
        self._splitter = FrameSplitter(max_frame_bytes=server.max_frame_bytes)
        self._answering: asyncio.Task[None] | None = None
        self._is_full = False
        self._is_ending = False
        self._failure: BaseException | None = None
        self._transport: asyncio.Transport | None = None
        self.peer = Peer("", "")
        self.last_active = 0.0
        self.incomplete_since: float | None = None
        """Since when the rest of a request is waited for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops have transports of their own classes.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self.last_active = self._listener.now()
        self._listener.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()
        self._server.memory.release(self)
        self._listener.remove(self, self._failure or exc)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 (asyncio's own)
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._splitter.feed(self._server.buffer[:nbytes])
        self._go_on()

    def eof_received(self) -> bool:
        # Clients may close their side at once after the last request; that one is answered all the same.
        self._is_ending = True
        self._go_on()
        # TLS has no half that is still open.
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

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
                answer = self._server.handler(frame, self.peer)
            except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
                self._fail(error)
                break
            self.incomplete_since = None
            if isinstance(answer, (bytes, list)):
                self._server.memory.release(self)
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
        has_room = self._server.memory.reserve(self, size, self._go_on)
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
            self._server.memory.release(self)
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


async def open_frame_server(
    handler: FrameHandler,
    host: str,
    port: int,
    *,
    limits: ConnectionLimits | None = None,
    closed: Closed | None = None,
    allow: Callable[[list[tuple[str, int]]], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Listener:
    """Listen on a host and answer the frames that come. Arguments and errors are those of :meth:`Listener.open`."""
    limits = limits or ConnectionLimits()
    server = _Server(handler, limits)
    return await Listener.open(
        lambda listener: _Connection(listener, server), host, port, limits=limits, closed=closed, allow=allow, tls=tls
    )


def _write(transport: asyncio.Transport, parts: list[bytes]) -> None:
    """Hand on parts, some at a time; the list is empty afterwards, so that what is handed on is not kept twice."""
    parts.reverse()
    while parts:
        together, size = [], 0
        while parts and size < UNSENT_BYTES:
            together.append(parts.pop())
            size += len(together[-1])
        transport.write(b"".join(together))
