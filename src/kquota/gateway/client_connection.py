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
import socket
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kquota.errors import FrameSizeError, MalformedMessageError, ProtocolError, UnsupportedVersionError
from kquota.gateway.actions import ACTIONS, Action, Kind
from kquota.gateway.broker_connection import BrokerConnection
from kquota.gateway.identity import check_first_frame
from kquota.gateway.principals import PrincipalRefusedError
from kquota.gateway.request_head import BYTES_IN, BYTES_OUT, HEAD_AT, HEADER_BYTES, RequestHead, read_head
from kquota.net.listener import Listener, Peer

if TYPE_CHECKING:
    from kquota.gateway.enforcement import Client, Enforcement
    from kquota.gateway.relay import Relay
    from kquota.metering.meters import Throttle

__all__ = ["ClientConnection", "Expected"]

_HEADER: Final = Struct(">iIih")  # size, API key and version, correlation id, length of the client id
_unpack_header: Final = _HEADER.unpack_from
_ACTIONS: Final = dict(ACTIONS)
_INT32: Final = Struct(">i")
_unpack_int32: Final = _INT32.unpack_from
_RESET: Final = Struct("ii").pack(1, 0)  # l_onoff, l_linger
_SMALLEST_REQUEST: Final = 10

_MAYBE_WHOLE: Final = frozenset(
    {Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE, Kind.API_VERSIONS, Kind.MUTATION, Kind.QUOTAS}
)
_BEFORE_LOGIN: Final = frozenset({Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE, Kind.API_VERSIONS})
_API_VERSIONS_KEY: Final = 18

# Why no further request is passed on. Bits, as there may be several reasons at a time.
_CONNECTING: Final = 1
_MUTED: Final = 2
_WHOLE: Final = 4
_UNANSWERED: Final = 8
_ENDING: Final = 16
_LINGERING: Final = 32

MOST_UNANSWERED: Final = 10_000
"""Requests of one connection under way; librdkafka sends up to a million before it waits for an answer."""
CLOSE_AFTER_S: Final = 0.1
"""From the last answer to the end of this side: kafka-python throws answers away that it reads along with the end."""
LINGER_S: Final = 1.0
"""How long a client may take to close its side, once it was answered everything."""
MOST_HEADER_BYTES: Final = 128 * 1024
"""Of a request, waited for before it is passed on: a client id and a transactional id of 32 KiB each, and tags."""
UNSENT_BYTES: Final = 1024 * 1024
"""When so much waits for one side to take it, nothing more is read from the other."""


def _nowhere(data: bytes | bytearray | memoryview) -> None:
    """Who is gone, or not there yet, is sent nothing."""


Expected: TypeAlias = "tuple[int, RequestHead, int, Throttle | None]"
"""A request under way, and what its answer will need: its correlation id, its head, when it was sent (milliseconds of
the event loop's clock, where that matters), and what a quota makes it wait for from then on.
"""


class ClientConnection(asyncio.Protocol):
    """One client of the gateway. Made for a :class:`~kquota.net.listener.Listener`.

    :param node_id: the broker whose port this is; None for the bootstrap port, where any will do.
    """

    # Most of what an idle connection takes.
    __slots__ = (
        "_broker",
        "_dialling",
        "_estimates_time",
        "_expects_tokens",
        "_failure",
        "_fetch_quotas",
        "_has_moved",
        "_head",
        "_is_broker_full",
        "_is_paused",
        "_last_active",
        "_left",
        "_listener",
        "_loop",
        "_max_frame_bytes",
        "_muted_until_ms",
        "_next",
        "_node_id",
        "_produce_quotas",
        "_relay",
        "_rest",
        "_stats",
        "_taken",
        "_transport",
        "_unmute",
        "_whole",
        "_whole_action",
        "_whole_bytes",
        "_whole_task",
        "_write_on",
        "enforcement",
        "expected",
        "has_ended",
        "identity",
        "incomplete_since",
        "peer",
        "stopped",
        "write",
    )

    def __init__(self, relay: Relay, listener: Listener, node_id: int | None) -> None:
        self._relay = relay
        self._max_frame_bytes = relay.max_request_bytes + 4
        self._listener = listener
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._broker: BrokerConnection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._stats = relay.stats
        self.peer = Peer("", "")
        self._has_moved = False
        self._last_active = 0.0
        self.incomplete_since: float | None = None
        """Since when the client has not logged in, or not sent a first request."""

        self.expected: list[Expected] = []  # 700 bytes less than an empty deque takes
        """The requests under way, in the order in which their answers will come."""
        self.identity = relay.new_identity()
        self.enforcement: Enforcement = relay.quotas.controller  # until it is known which broker's
        self.write: Callable[[bytes | bytearray | memoryview], None] = _nowhere
        """Send the client something."""
        self._write_on: Callable[[bytes | bytearray | memoryview], None] = _nowhere
        """Send the broker something."""
        self._head: RequestHead | None = None  # of the last request
        self._next: RequestHead | None = None  # the same, where the next data begin with a request
        self._produce_quotas = self.enforcement.managers.produce
        self._fetch_quotas = self.enforcement.managers.fetch
        self._estimates_time = self.enforcement.estimates_time

        self.stopped = _CONNECTING
        self._is_paused = False
        self._expects_tokens = False
        self._left = 0  # of the request that is being passed on
        self._rest = b""  # what has arrived and cannot be passed on yet
        self._whole: bytearray | None = None  # a request that is read whole
        self._whole_bytes = 0
        self._whole_action: Action | None = None
        self._whole_task: asyncio.Task[None] | None = None
        self._taken: asyncio.Future[None] | None = None  # while the client does not take its answers
        self._muted_until_ms = 0
        self._unmute: asyncio.TimerHandle | None = None
        self._is_broker_full = False
        self.has_ended = False
        """Whether it is to be closed as soon as nothing is left to do for it."""

    # The client's side of the connection: asyncio calls these.

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
        if self._rest and exc is None and self._broker is not None and not self.stopped & ~(_MUTED | _UNANSWERED):
            self._pass_on_the_rest()
        self.stopped |= _ENDING
        self.count_requests()
        self.write = self._write_on = _nowhere
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

    def eof_received(self) -> bool:
        """The client sends nothing more; it may still read."""
        transport = self._transport
        if transport is None or transport.is_closing() or self.stopped & _LINGERING:
            return False
        stays_open = transport.get_extra_info("ssl_object") is None
        # A client may close its side after its last request, which without acks nothing answers.
        self.has_ended = True
        if self._left:
            transport.close()  # nor is the rest of a request to come, which the broker would answer
        else:
            self._end_if_done()
        return stays_open

    def pause_writing(self) -> None:
        """The client does not take its answers as fast as they come."""
        if self._broker is not None:
            self._broker.pause_reading()
        self._taken = self._loop.create_future()

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        self._has_moved = True
        if self._broker is not None:
            self._broker.resume_reading()
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        self._taken = None

    # The listener calls these.

    @property
    def last_active(self) -> float:
        """When the client last sent something, or took something, by the event loop's clock: as far as anybody asks,
        since to look at the clock for every request is more work than to remember that there was one.
        """
        if self._has_moved:
            self._has_moved, self._last_active = False, self._loop.time()
        return self._last_active

    def end(self) -> None:
        """Pass on no further request, and close once those under way are answered."""
        self.stopped |= _ENDING
        self.has_ended = True
        self._end_if_done()

    def abort(self, reason: BaseException | None = None) -> None:
        """Close now."""
        self.stopped |= _ENDING
        if self._transport is not None:
            self._failure = self._failure or reason
            self._transport.abort()

    def fail(self, error: BaseException) -> None:
        """Close because of an error; answers that are there are sent before."""
        if self._transport is None or self._transport.is_closing():
            return  # also as asyncio's TLS cannot be written to any more once it is closed twice
        self._failure = self._failure or error
        self.stopped |= _ENDING
        self._rest = b""
        if isinstance(error, PrincipalRefusedError) and error.answer is not None:
            self.write(error.answer)
        self._transport.close()

    # The broker's side calls these.

    def answered(self) -> None:
        """Some requests are not under way any more. To be called where `stopped` or `has_ended` say that it matters."""
        if self.stopped & _UNANSWERED and len(self.expected) <= MOST_UNANSWERED // 2:
            self._go_on(_UNANSWERED)
        if not self.expected:
            self._answer_whole()
            self._end_if_done()

    def mute(self, throttle_ms: int, now_ms: int) -> None:
        """Read no further request for so long. Several waits at a time are the longest of them (KIP-219)."""
        until_ms = now_ms + throttle_ms
        if until_ms <= self._muted_until_ms or self._transport is None:
            return
        self._muted_until_ms = until_ms
        self.stopped |= _MUTED
        if self._unmute is not None:
            self._unmute.cancel()
        self._unmute = self._loop.call_later((until_ms - now_ms) / 1000, self._wait_is_over)
        self._control_reading()

    def broker_lost(self, error: Exception | None) -> None:
        """The broker closed the connection, after the answers that were passed on."""
        self.fail(error if isinstance(error, ProtocolError) else ConnectionResetError("the broker closed it"))

    def broker_is_full(self, is_full: bool) -> None:  # noqa: FBT001 (a state)
        """The broker does not take as much as the client sends, or does again."""
        self._is_broker_full = is_full
        self._control_reading()

    @property
    def is_muted(self) -> bool:
        """Whether the client is throttled now."""
        return self._unmute is not None

    def count_requests(self) -> None:
        """Add what was passed on since the last time to what the gateway counts."""
        head = self._head
        if head is not None:
            self._stats.requests[head.action.api_key] += head.used
            head.used = 0

    @property
    def now_ms(self) -> int:
        """Milliseconds of the event loop's clock."""
        return int(self._loop.time() * 1000)

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
                    throttle = self.enforcement.produce(self, head, throttle, sent_ms)
        elif counts == BYTES_OUT and (head.most is not None or head.since != self._fetch_quotas.changes):
            return False
        head.used += 1
        self.expected.append((correlation_id, head, sent_ms, throttle))
        self._write_on(data)
        if throttle is not None:
            self.mute(throttle.throttle_ms, sent_ms)
        return True

    def _pass_on(self, data: bytes) -> None:
        if self._whole is not None and not self.stopped & _WHOLE:
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
            if self.stopped & _LINGERING:
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
                size, api, correlation_id, id_bytes = _unpack_header(data, at)
                if (
                    head is None
                    or head.is_whole is not None
                    or api != head.api
                    or data[at + HEAD_AT : at + head.end] != head.raw
                    or not head.end <= size + 4 <= self._max_frame_bytes
                ):
                    head = self._read_head(data, at, size, api, id_bytes)
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
                            throttle = self.enforcement.produce(self, head, throttle, sent_ms)
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
                        self.stopped |= _UNANSWERED
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

    def _read_head(self, data: bytes, at: int, size: int, api: int, id_bytes: int) -> RequestHead | None:
        """Read the beginning of a request; None while there is too little of it.

        :raises ProtocolError: it is none that the gateway passes on, or nobody knows whose it is.
        """
        action = _ACTIONS.get(api) or self._other_action(api, size, data[at : at + 16])
        if not _SMALLEST_REQUEST <= size <= self._max_frame_bytes - 4:
            raise FrameSizeError(size, self._max_frame_bytes - 4, bytes(data[at : at + 16]))
        body = at + HEADER_BYTES + max(0, id_bytes)
        if body > at + 4 + size:
            raise MalformedMessageError("the client id ends after the request")
        if body > len(data):
            return None
        is_login = action.kind in _BEFORE_LOGIN
        client = None if is_login else self._identified(data[at + HEADER_BYTES : body])
        head = read_head(data[at : at + 4 + size], api, action, client)
        if head is None:
            return None
        self.count_requests()
        if not is_login:
            self.incomplete_since = None
        if action.kind in _MAYBE_WHOLE:
            head.is_whole = self._relay.is_read_whole(action)
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

    def _other_action(self, api: int, size: int, begin: bytes) -> Action:
        """What is not in the table: a later version of ApiVersions, which every broker answers, or nothing of Kafka's.

        :raises UnsupportedVersionError: an API, or a version of it, that ApiVersions did not offer.
        :raises ProtocolError: these bytes are no request at all.
        """
        check_first_frame(begin[4:])
        key, version = api >> 16, api & 0xFFFF
        if key == _API_VERSIONS_KEY:
            return ACTIONS[_API_VERSIONS_KEY << 16]
        if not _SMALLEST_REQUEST <= size <= self._relay.max_request_bytes:
            raise FrameSizeError(size, self._relay.max_request_bytes, bytes(begin))
        raise UnsupportedVersionError(key, version, 0)

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
            self.stopped |= _WHOLE
            self._answer_whole()
        return data[missing:]

    def _answer_whole(self) -> None:
        """Answer the request that was collected, once nothing else is under way and no wait is left."""
        if self._transport is None or self._transport.is_closing():
            return
        is_ready = self.stopped & _WHOLE and not self.stopped & (_CONNECTING | _MUTED)
        if is_ready and self._whole_task is None and not self.expected and self._whole is not None:
            frame = bytes(memoryview(self._whole)[4:])
            self._whole_task = self._loop.create_task(self._answer(frame))

    async def _answer(self, frame: bytes) -> None:
        assert self._broker is not None
        try:
            await self._relay.answer_whole(self, self._broker, self._whole_action, frame)
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
        self._go_on(_WHOLE)
        self._end_if_done()

    def _pass_on_the_rest(self) -> None:
        """Pass on what waited behind a wait, and charge it, as its client has closed TLS: nothing but a wait after each
        request was left to do, and there is nobody any more who could wait.
        """
        self.stopped = 0
        try:
            self._walk(self._rest)
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self._failure = self._failure or error

    # Going on.

    def _go_on(self, reason: int) -> None:
        """One reason to wait is over."""
        self.stopped &= ~reason
        if self._rest and not self.stopped:
            data, self._rest = self._rest, b""
            self._pass_on(data)
        self._control_reading()

    def _wait_is_over(self) -> None:
        self._unmute = None
        self._go_on(_MUTED)
        self._answer_whole()
        self._end_if_done()

    def _control_reading(self) -> None:
        """Read from the client unless there is a reason not to, and never stop within a request."""
        if self._transport is None or self._transport.is_closing():
            return
        is_within_request = self._left or (self._whole is not None and not self.stopped & _WHOLE)
        is_waiting = self.stopped != 0 and not self.stopped & _LINGERING
        is_paused = self._is_broker_full or (is_waiting and not is_within_request)
        if is_paused is not self._is_paused:
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _end_if_done(self) -> None:
        """Close both sides, if the client has ended and nothing is left to do for it."""
        if not self.has_ended or self.expected or self._whole_task is not None or self._transport is None:
            return
        if self._broker is not None and self._broker.is_within_answer:
            return
        if self.stopped & _ENDING:
            if not self._left:
                self._linger()
        elif not self.stopped:  # otherwise complete requests may wait in `_rest`
            self._transport.close()

    def _linger(self) -> None:
        """Close this side, and wait for the client to close its own; what it still sends is thrown away.

        A socket that is closed with something unread, or is sent something afterwards, resets the connection, and the
        client loses the answers that it has not read yet: it would send again what a broker has appended already.
        """
        if self.stopped & _LINGERING:
            return
        self.stopped |= _LINGERING
        self._rest = b""
        self._whole = None
        self._is_broker_full = False
        self._loop.call_later(CLOSE_AFTER_S, self._close_own_side)
        self._loop.call_later(LINGER_S, self._stop_lingering)
        self._control_reading()

    def _stop_lingering(self) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._loop.call_later(LINGER_S, self._stop_lingering)  # the client still takes its answers
        else:
            self.abort()

    def _close_own_side(self) -> None:
        if self._transport is None:
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()  # TLS waits for the client's close by itself

    # The connection to the broker.

    def _reset_when_closed(self) -> None:
        """Let the client see a broken connection, as where the broker is gone, and not an orderly end.

        franz-go takes an end before the first answer for a wrong security protocol, and gives its records up.
        """
        own = None if self._transport is None else self._transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

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
        self._go_on(_CONNECTING)
        self._answer_whole()
        self._end_if_done()
