"""A client's connection: its requests, on their way to the broker.

What arrives is passed on chunk by chunk. The headers of the requests in it are read on the way, their bodies are not::

    client ->  [header|body..][header|body......]...  -> broker
                   |              |
               known API?     over a quota: this request is passed on whole, then nothing more is read
               charge it      until the wait is over (KIP-219); the rest of the chunk waits with it

A few APIs are not streamed but read whole, answered one at a time, with nothing else under way on the connection, as a
broker does with every request: logins, ApiVersions, changes of topics and, where the gateway keeps them, quotas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from kquota.errors import FrameSizeError, MalformedMessageError, ProtocolError
from kquota.gateway.relay.actions import Action
from kquota.gateway.relay.client_channel import (
    CONNECTING,
    ENDING,
    LINGERING,
    MOST_UNANSWERED,
    MUTED,
    UNANSWERED,
    UNSENT_BYTES,
    WHOLE,
    ClientChannel,
    nowhere,
)
from kquota.gateway.relay.request_head import (
    BEFORE_LOGIN,
    BYTES_IN,
    BYTES_OUT,
    HEAD_AT,
    HEADER,
    HEADER_BYTES,
    RequestHead,
    read_head,
)
from kquota.gateway.relay.whole_requests import answer_whole
from kquota.net.listener import Listener, Peer

if TYPE_CHECKING:
    from kquota.gateway.quotas.enforcement import Client, Enforcement
    from kquota.gateway.relay.relay import Relay

__all__ = ["ClientConnection"]

_unpack_header: Final = HEADER.unpack_from
_INT32: Final = Struct(">i")
_unpack_int32: Final = _INT32.unpack_from
MOST_HEADER_BYTES: Final = 128 * 1024
"""Of a request, waited for before it is passed on: a client id and a transactional id of 32 KiB each, and tags."""


class ClientConnection(ClientChannel):
    """One client of the gateway. Made for a :class:`~kquota.net.listener.Listener`.

    :param node_id: the broker whose port this is; None for the bootstrap port, where any will do.
    """

    # Most of what an idle connection takes.
    __slots__ = (
        "_dialling",
        "_estimates_time",
        "_expects_tokens",
        "_fetch_quotas",
        "_head",
        "_listener",
        "_max_frame_bytes",
        "_next",
        "_node_id",
        "_produce_quotas",
        "_relay",
        "_stats",
        "_whole_action",
        "_whole_bytes",
        "_write_on",
        "enforcement",
        "identity",
        "incomplete_since",
        "peer",
    )

    def __init__(self, relay: Relay, listener: Listener, node_id: int | None) -> None:
        super().__init__()
        self._relay = relay
        self._max_frame_bytes = relay.max_request_bytes + 4
        self._listener = listener
        self._node_id = node_id
        self._dialling: asyncio.Task[None] | None = None
        self._stats = relay.stats
        self.peer = Peer("", "")
        self.incomplete_since: float | None = None
        """Since when the client has not logged in, or not sent a first request."""
        self.identity = relay.new_identity()
        self.enforcement: Enforcement = relay.quotas.controller  # until it is known which broker's
        self._write_on: Callable[[bytes | bytearray | memoryview], None] = nowhere
        """Send the broker something."""
        self._head: RequestHead | None = None  # of the last request
        self._next: RequestHead | None = None  # the same, where the next data begin with a request
        self._produce_quotas = self.enforcement.managers.produce
        self._fetch_quotas = self.enforcement.managers.fetch
        self._estimates_time = self.enforcement.estimates_time
        self._expects_tokens = False
        self._whole_bytes = 0
        self._whole_action: Action | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is connected; with TLS the handshake is over."""
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self.write = transport.write
        self._has_moved = True
        self.incomplete_since = self._loop.time()
        self._listener.add(self)
        if transport.is_closing():
            return
        self._relay.stats.connections += 1
        try:
            self.identity.connected(self.peer, transport.get_extra_info("ssl_object"))
        except Exception as error:  # noqa: BLE001 (a principal builder is anybody's)
            self.abort(error)
            return
        self._dialling = self._loop.create_task(self._dial())

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone.

        Nothing is to refer to this connection by what it refers to itself, as the broker's side does, and the
        traceback of an error: it would stay until Python looks for cycles, which a running gateway has it do seldom.
        """
        self._transport = None
        if self._rest and exc is None and self._broker is not None and not self.stopped & ~(MUTED | UNANSWERED):
            self._pass_on_the_rest()
        self.stopped |= ENDING
        self.count_requests()
        self.write = self._write_on = nowhere
        self._rest = b""
        self._whole = None
        self.expected.clear()
        for waiting in (self._dialling, self._whole_task):
            if waiting is not None:
                waiting.cancel()
        if self._unmute is not None:
            self._unmute.cancel()
        broker, self._broker = self._broker, None
        failure, self._failure = self._failure, None
        if broker is not None:
            broker.close()
        self._listener.remove(self, failure or exc)

    def _pass_on_the_rest(self) -> None:
        """Pass on what waited behind a wait, and charge it, as its client has closed TLS: nothing but a wait after each
        request was left to do, and there is nobody any more who could wait.
        """
        self.stopped = 0
        try:
            self._walk(self._rest)
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self._failure = self._failure or error

    def data_received(self, data: bytes) -> None:
        """The client sent something."""
        self._has_moved = True
        end = len(data)
        self._stats.bytes_from_clients += end
        head = self._next
        if (
            head is not None
            and not self.stopped
            and head.end <= end <= self._max_frame_bytes
            and len(self.expected) < MOST_UNANSWERED
        ):
            try:
                if self._passed_at_once(data, end, head):
                    return
            except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
                self.fail(error)
                return
        if self._rest:
            data = self._rest + data
            self._rest = b""
        self._pass_on(data)

    def count_requests(self) -> None:
        """Add what was passed on since the last time to what the gateway counts."""
        head = self._head
        if head is not None:
            self._stats.requests[head.action.api_key] += head.used
            head.used = 0

    # Requests on their way.

    def _passed_at_once(self, data: bytes, end: int, head: RequestHead) -> bool:
        """Pass on data if they are one whole request that begins as the one before, as they mostly are, and nothing
        has to be changed in it: the shortest way that there is.
        """
        size, api, correlation_id, _ = _unpack_header(data)
        if size + 4 != end or api != head.api or data[HEAD_AT : head.end] != head.raw:
            return False
        sent_ms, throttle = 0, None
        counts = head.counts
        if counts == BYTES_IN:
            if not head.has_answer or head.since != self._produce_quotas.changes:
                return False
            meter = head.meter
            if meter is not None:
                sent_ms = int(self._loop.time() * 1000)
                throttle = meter.record(size, sent_ms)
                if throttle is not None:
                    throttle = self.enforcement.produce(head, throttle, sent_ms)
        elif counts == BYTES_OUT and (head.most is not None or head.since != self._fetch_quotas.changes):
            return False
        head.used += 1
        self.expected.append((correlation_id, head, sent_ms, throttle))
        self._write_on(data)
        if throttle is not None:
            self.mute(throttle.throttle_ms, sent_ms)
        return True

    def _pass_on(self, data: bytes) -> None:
        if self._whole is not None and not self.stopped & WHOLE:
            data = self._collect(data)
            if not data:
                return
        try:
            at = self._walk(data)
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self.fail(error)
            return
        if at != len(data) and self._transport is not None:
            self._rest = data[at:] if at else data
            if not self.stopped and len(self._rest) > MOST_HEADER_BYTES:
                self.fail(MalformedMessageError(f"a request whose header has more than {MOST_HEADER_BYTES} bytes"))
                return
        is_between = not (self._left or self._rest or self._whole or self._expects_tokens or self._estimates_time)
        self._next = self._head if is_between and self._head is not None and self._head.is_whole is None else None
        if self.stopped or self._is_paused:
            if self.stopped & LINGERING:
                self._rest = b""
            self._control_reading()
        if self.has_ended:
            self._end_if_done()

    def _walk(self, data: bytes) -> int:  # noqa: C901, PLR0912, PLR0915 (a call costs more than what it would do)
        """Pass on what can be; gives how much of it was taken.

        Every request of every client goes through this: what it does for each of them is counted in nanoseconds.
        """
        at = start = 0
        end = len(data)
        left = self._left
        head = self._head
        patched: bytearray | None = None
        try:
            while True:
                if left:
                    if left > end - at:
                        left -= end - at
                        at = end
                        break
                    at += left
                    left = 0
                if at == end or self.stopped:
                    break
                if end - at < HEADER_BYTES or self._expects_tokens:
                    self._left = 0
                    self._send_on(patched or data, start, at)
                    start = at
                    return at + self._begin_token(data, at)
                size, api, correlation_id, _ = _unpack_header(data, at)
                if (
                    head is None
                    or head.is_whole is not None
                    or api != head.api
                    or data[at + HEAD_AT : at + head.end] != head.raw
                    or not head.end <= size + 4 <= self._max_frame_bytes
                ):
                    head = self._read_head(data, at)
                    if head is None:
                        break
                    if head.is_whole:
                        self._left = 0
                        self._send_on(patched or data, start, at)
                        start = at
                        return at + self._begin_whole(head.action, size, data, at)
                sent_ms = 0
                throttle = None
                if head.counts == BYTES_IN:
                    if head.since != self._produce_quotas.changes:
                        head.look_up(self.enforcement)
                    if head.meter is not None:
                        sent_ms = int(self._loop.time() * 1000)
                        throttle = head.meter.record(size, sent_ms)
                        if throttle is not None:
                            throttle = self.enforcement.produce(head, throttle, sent_ms)
                elif head.counts == BYTES_OUT:
                    if head.since != self._fetch_quotas.changes:
                        head.look_up(self.enforcement)
                    if head.most is not None and head.max_bytes_at:
                        where = at + head.max_bytes_at
                        if head.max_bytes_at > size:
                            raise MalformedMessageError("a fetch request ends before its max_bytes")
                        if where + 4 > end:
                            break
                        if _unpack_int32(data, where)[0] > head.most:
                            patched = patched or bytearray(data)
                            _INT32.pack_into(patched, where, head.most)
                if head.has_answer:
                    if self._estimates_time:
                        sent_ms = sent_ms or self.now_ms
                    self.expected.append((correlation_id, head, sent_ms, throttle))
                    if len(self.expected) >= MOST_UNANSWERED:
                        self.stopped |= UNANSWERED
                if throttle is not None:
                    self.mute(throttle.throttle_ms, sent_ms)
                head.used += 1
                left = size + 4
        except BaseException:
            self._send_on(patched or data, start, at)  # what came before is not to suffer, wherever it is cut
            raise
        self._left = left
        if at == end:
            self._write_on(patched or data)
        else:
            self._send_on(patched or data, 0, at)
        return at

    def _read_head(self, data: bytes, at: int) -> RequestHead | None:
        """Read a request's head; None while there is too little of it. Raises as :func:`read_head`."""
        head = read_head(data, at, self._max_frame_bytes - 4, self._identified)
        if head is None:
            return None
        self.count_requests()
        if head.action.kind not in BEFORE_LOGIN:
            self.incomplete_since = None
        if head.is_whole is not None:
            head.is_whole = self._relay.is_read_whole(head.action)
        self._head = head
        return head

    def _begin_token(self, data: bytes, at: int) -> int:
        """Begin to collect a token of a login, if it is one and has begun; gives how many bytes belong to it."""
        if not self._expects_tokens or len(data) - at < _INT32.size:
            return 0
        return self._begin_whole(None, _unpack_int32(data, at)[0], data, at)

    def _send_on(self, data: bytes | bytearray, start: int, end: int) -> None:
        if end > start:
            self._write_on(memoryview(data)[start:end])

    def _identified(self, raw_id: bytes) -> Client | None:
        """Whom a request is charged to, None where nobody is; a null client id counts as an empty one.

        :raises ProtocolError: the client has not logged in.
        """
        principal = self.identity.principal
        if principal is None:
            raise ProtocolError("a request before the login")
        return self._relay.client(principal, raw_id.decode("utf-8", "replace"))

    # Requests that are read whole.

    def _begin_whole(self, action: Action | None, size: int, data: bytes, at: int) -> int:
        """Begin to collect one; gives how many bytes of the data belong to it."""
        most = self._relay.max_whole_bytes(action)
        if not 0 <= size <= most:
            raise FrameSizeError(size, most, bytes(data[at : at + 16]))
        self._whole = bytearray()
        self._next = None
        self._whole_bytes = size + 4
        self._whole_action = action
        return len(data) - at - len(self._collect(data[at:]))

    def _collect(self, data: bytes) -> bytes:
        """Take what belongs to the request that is being collected; gives what comes after it."""
        assert self._whole is not None
        missing = self._whole_bytes - len(self._whole)
        self._whole += data[:missing]
        if len(self._whole) == self._whole_bytes:
            self.stopped |= WHOLE
            self._answer_whole()
        return data[missing:]

    def _answer_whole(self) -> None:
        """Answer the request that was collected, once nothing else is under way and no wait is left."""
        if self._transport is None or self._transport.is_closing():
            return
        is_ready = self.stopped & WHOLE and not self.stopped & (CONNECTING | MUTED)
        if is_ready and self._whole_task is None and not self.expected and self._whole is not None:
            frame = bytes(memoryview(self._whole)[4:])
            self._whole_task = self._loop.create_task(self._answer(frame))

    async def _answer(self, frame: bytes) -> None:
        assert self._broker is not None
        try:
            await answer_whole(self._relay, self, self._broker, self._whole_action, frame)
            if self._taken is not None:
                # Otherwise a client that asks again and again, and takes no answer, would fill the memory.
                await self._taken
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self.fail(error)
            return
        finally:
            self._whole = self._whole_task = self._whole_action = None
        self._expects_tokens = self.identity.expects_raw_tokens
        self.count_requests()
        self._head = self._next = None  # the principal may be another one now
        if self.identity.principal is not None:
            self.incomplete_since = None
        self._go_on(WHOLE)
        self._end_if_done()

    # The connection to the broker.

    async def _dial(self) -> None:
        try:
            self._broker = await self._relay.dial(self, self._node_id)
        except Exception as error:  # noqa: BLE001 (nobody else would end the connection)
            self._reset_when_closed()
            self.abort(error)
            return
        finally:
            self._dialling = None
        self._write_on = self._broker.write
        self._produce_quotas = self.enforcement.managers.produce
        self._fetch_quotas = self.enforcement.managers.fetch
        self._go_on(CONNECTING)
        self._answer_whole()
        self._end_if_done()
