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
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kquota.errors import FrameSizeError, MalformedMessageError, ProtocolError, UnsupportedVersionError
from kquota.gateway.actions import ACTIONS, Action, Kind
from kquota.gateway.broker_connection import BrokerConnection, keep_alive
from kquota.gateway.principals import PrincipalRefusedError
from kquota.gateway.request_fields import fetch_max_bytes_at, produce_acks
from kquota.metering.meters import Throttle
from kquota.net.listener import Listener, Peer

if TYPE_CHECKING:
    from kquota.gateway.enforcement import Client, Enforcement
    from kquota.gateway.relay import Relay

__all__ = ["ClientConnection", "Expected"]

_HEADER: Final = Struct(">iIih")  # size, API key and version, correlation id, length of the client id
_INT32: Final = Struct(">i")
_SMALLEST_REQUEST: Final = 10
_NEAR_BYTES: Final = 64
"""After the header of a produce request: what holds its acks, but for the longest of transactional ids."""

_PRODUCE: Final = Kind.PRODUCE
_FETCH: Final = Kind.FETCH
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

MOST_UNANSWERED: Final = 10_000
"""Requests of one connection under way; librdkafka sends up to a million before it waits for an answer."""
MOST_HEADER_BYTES: Final = 128 * 1024
"""Of a request, waited for before it is passed on: a client id and a transactional id of 32 KiB each, and tags."""
UNSENT_BYTES: Final = 1024 * 1024
"""When so much waits for one side to take it, nothing more is read from the other."""


class Expected(NamedTuple):
    """A request under way, and what its answer will need."""

    correlation_id: int
    action: Action
    sent_ms: int
    client: Client | None
    throttle: Throttle | None
    """What its quota makes the client wait for, from `sent_ms` on."""


class ClientConnection(asyncio.Protocol):
    """One client of the gateway. Made for a :class:`~kquota.net.listener.Listener`.

    :param node_id: the broker whose port this is; None for the bootstrap port, where any will do.
    """

    def __init__(self, relay: Relay, listener: Listener, node_id: int | None) -> None:
        self._relay = relay
        self._listener = listener
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._broker: BrokerConnection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self.peer = Peer("", "", "")
        self.last_active = 0.0
        self.incomplete_since: float | None = None
        """Since when the client has not logged in, or not sent a first request."""

        self.expected: deque[Expected] = deque()
        """The requests under way, in the order in which their answers will come."""
        self.identity = relay.new_identity()
        self.enforcement: Enforcement | None = None
        self._client: Client | None = None
        self._client_id: bytes = b""

        self._stopped = _CONNECTING
        self._left = 0  # of the request that is being passed on
        self._rest = b""  # what has arrived and cannot be passed on yet
        self._whole: bytearray | None = None  # a request that is read whole
        self._whole_bytes = 0
        self._whole_action: Action | None = None
        self._whole_task: asyncio.Task[None] | None = None
        self._muted_until_ms = 0
        self._unmute: asyncio.TimerHandle | None = None
        self._is_broker_full = False
        self._has_ended = False

    # The client's side of the connection: asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        keep_alive(transport)
        self.last_active = self.incomplete_since = self._loop.time()
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
        self._stopped |= _ENDING
        self._transport = None
        self._rest = b""
        for waiting in (self._dialling, self._whole_task):
            if waiting is not None:
                waiting.cancel()
        if self._unmute is not None:
            self._unmute.cancel()
        if self._broker is not None:
            self._broker.close()
        self._listener.remove(self, self._failure or exc)

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        self._relay.stats.bytes_from_clients += len(data)
        if self._rest:
            data = self._rest + data
            self._rest = b""
        self._pass_on(data)

    def eof_received(self) -> bool:
        # A client may close its side after its last request, which without acks nothing answers.
        self._has_ended = True
        if self._left and self._transport is not None:
            self._transport.close()  # nor is the rest of a request to come, which the broker would answer
        self._end_if_done()
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is None

    def pause_writing(self) -> None:
        if self._broker is not None:
            self._broker.pause_reading()

    def resume_writing(self) -> None:
        self.last_active = self._loop.time()
        if self._broker is not None:
            self._broker.resume_reading()

    # The listener calls these.

    def end(self) -> None:
        """Pass on no further request, and close once those under way are answered."""
        self._stopped |= _ENDING
        self._has_ended = True
        self._end_if_done()

    def abort(self, reason: BaseException | None = None) -> None:
        """Close now."""
        self._failure = self._failure or reason
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: BaseException) -> None:
        """Close because of an error; answers that are there are sent before."""
        self._failure = self._failure or error
        self._stopped |= _ENDING
        self._rest = b""
        if isinstance(error, PrincipalRefusedError) and error.answer is not None:
            self.send(error.answer)
        if self._transport is not None:
            self._transport.close()

    # The broker's side calls these.

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send the client what the broker answered."""
        if self._transport is not None:
            self._relay.stats.bytes_to_clients += len(data)
            self._transport.write(data)

    def answered(self) -> None:
        """Some requests are not under way any more."""
        if self._stopped & _UNANSWERED and len(self.expected) <= MOST_UNANSWERED // 2:
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
        self._stopped |= _MUTED
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
    def now_ms(self) -> int:
        """Milliseconds of the event loop's clock."""
        return int(self._loop.time() * 1000)

    # Requests on their way.

    def _pass_on(self, data: bytes) -> None:
        if self._whole is not None and self._stopped & _WHOLE == 0:
            data = self._collect(data)
        if not data:
            return
        try:
            at = self._walk(data)
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self.fail(error)
            return
        if at < len(data) and self._transport is not None:
            self._rest = self._rest or bytes(memoryview(data)[at:])
            if not self._stopped and len(self._rest) > MOST_HEADER_BYTES:
                self.fail(MalformedMessageError(f"a request whose header has more than {MOST_HEADER_BYTES} bytes"))
                return
        self._control_reading()
        if self._has_ended:
            self._end_if_done()

    def _walk(self, data: bytes) -> int:
        """Pass on what can be; gives how much of it was taken."""
        at = start = 0
        end = len(data)
        left = self._left
        now_ms = self.now_ms
        expected = self.expected
        enforcement = self.enforcement
        expects_tokens = self.identity.expects_raw_tokens
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
                if at == end or self._stopped:
                    break
                if expects_tokens:
                    if end - at < 4:
                        break
                    self._left = 0
                    self._send_on(data, start, at)
                    start = at
                    return at + self._begin_whole(None, _INT32.unpack_from(data, at)[0], data, at)
                if end - at < _HEADER.size:
                    break
                size, api, correlation_id, id_bytes = _HEADER.unpack_from(data, at)
                action = ACTIONS.get(api) or self._other_action(api, size, data[at : at + 16])
                if not _SMALLEST_REQUEST <= size <= self._relay.max_request_bytes:
                    raise FrameSizeError(size, self._relay.max_request_bytes, bytes(data[at : at + 16]))
                kind = action.kind
                if kind in _MAYBE_WHOLE and self._relay.is_read_whole(action):
                    self._left = 0
                    self._send_on(patched or data, start, at)
                    start = at
                    return at + self._begin_whole(action, size, data, at)
                body = at + _HEADER.size + (max(0, id_bytes))
                if body > end:
                    self._check_header(size, id_bytes)
                    break
                client = self._client
                raw_id = data[at + 12 : body]
                if raw_id != self._client_id or client is None:
                    client = self._identify(raw_id, size)
                throttle = None
                has_answer = True
                if kind is _PRODUCE:
                    acks = produce_acks(data[at : body + _NEAR_BYTES], action)
                    if acks is None:
                        acks = produce_acks(data[at : at + 4 + size], action)
                    if acks is None:
                        if end - at >= size + 4:
                            raise MalformedMessageError("a produce request ends before its acks")
                        break
                    has_answer = acks != 0
                    if enforcement is not None and client is not None:
                        throttle = enforcement.produce(self, client, size, now_ms, has_answer=has_answer)
                elif kind is _FETCH and enforcement is not None and client is not None:
                    most = enforcement.max_fetch_bytes(client)
                    if most is not None:
                        try:
                            where = fetch_max_bytes_at(data[at : at + 4 + size], action)
                        except MalformedMessageError:
                            if end - at >= size + 4:
                                raise
                            break  # its beginning is not there yet
                        if where is not None and _INT32.unpack_from(data, at + where)[0] > most:
                            patched = patched or bytearray(data)
                            _INT32.pack_into(patched, at + where, most)
                if has_answer:
                    expected.append(Expected(correlation_id, action, now_ms, client, throttle))
                    if len(expected) >= MOST_UNANSWERED:
                        self._stopped |= _UNANSWERED
                if throttle is not None:
                    self.mute(throttle.throttle_ms, now_ms)
                left = size + 4
        except BaseException:
            self._send_on(patched or data, start, at)  # what came before is not to suffer, wherever it is cut
            raise
        self._left = left
        self._send_on(patched or data, start, at)
        return at

    def _send_on(self, data: bytes | bytearray, start: int, end: int) -> None:
        if end > start:
            assert self._broker is not None
            self._broker.send(data if start == 0 and end == len(data) else memoryview(data)[start:end])

    def _other_action(self, api: int, size: int, begin: bytes) -> Action:
        """What is not in the table: a later version of ApiVersions, which every broker answers, or nothing of Kafka's.

        :raises UnsupportedVersionError: an API, or a version of it, that ApiVersions did not offer.
        :raises FrameSizeError: these bytes are no request at all.
        """
        key, version = api >> 16, api & 0xFFFF
        if key == _API_VERSIONS_KEY:
            return ACTIONS[_API_VERSIONS_KEY << 16]
        if not _SMALLEST_REQUEST <= size <= self._relay.max_request_bytes:
            raise FrameSizeError(size, self._relay.max_request_bytes, bytes(begin))
        raise UnsupportedVersionError(key, version, 0)

    def _check_header(self, size: int, id_bytes: int) -> None:
        if _SMALLEST_REQUEST + max(id_bytes, 0) > size:
            raise MalformedMessageError("the client id ends after the request")

    def _identify(self, raw_id: bytes, size: int) -> Client | None:
        """Whom a request is charged to; a null client id counts as an empty one.

        :raises ProtocolError: the client has not logged in, or its id ends after the request.
        """
        self._check_header(size, len(raw_id) - 2)
        principal = self.identity.principal
        if principal is None:
            raise ProtocolError("a request before the login")
        self._client_id = bytes(raw_id)
        self._client = self._relay.client(principal, raw_id[2:].decode("utf-8", "replace"))
        self.incomplete_since = None
        return self._client

    # Requests that are read whole.

    def _begin_whole(self, action: Action | None, size: int, data: bytes, at: int) -> int:
        """Begin to collect one; gives how many bytes of the data belong to it."""
        most = self._relay.max_whole_bytes(action)
        if not 0 <= size <= most:
            raise FrameSizeError(size, most, bytes(data[at : at + 16]))
        if action is not None and action.kind not in _BEFORE_LOGIN and self.identity.principal is None:
            raise ProtocolError("a request before the login")
        self._whole = bytearray()
        self._whole_bytes = size + 4
        self._whole_action = action
        return len(data) - at - len(self._collect(data[at:]))

    def _collect(self, data: bytes) -> bytes:
        """Take what belongs to the request that is being collected; gives what comes after it."""
        assert self._whole is not None
        missing = self._whole_bytes - len(self._whole)
        self._whole += data[:missing]
        if len(self._whole) == self._whole_bytes:
            self._stopped |= _WHOLE
            self._answer_whole()
        return data[missing:]

    def _answer_whole(self) -> None:
        """Answer the request that was collected, once nothing else is under way and no wait is left."""
        if self._transport is None or self._transport.is_closing():
            return
        is_ready = self._stopped & _WHOLE and not self._stopped & (_CONNECTING | _MUTED)
        if is_ready and self._whole_task is None and not self.expected and self._whole is not None:
            frame = bytes(memoryview(self._whole)[4:])
            self._whole_task = self._loop.create_task(self._answer(frame))

    async def _answer(self, frame: bytes) -> None:
        assert self._broker is not None
        try:
            await self._relay.answer_whole(self, self._broker, self._whole_action, frame)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            self.fail(error)
            return
        finally:
            self._whole = self._whole_task = self._whole_action = None
        if self.identity.principal is not None:
            self._client = None  # the principal may be another one now
            self.incomplete_since = None
        self._go_on(_WHOLE)
        self._end_if_done()

    # Going on.

    def _go_on(self, reason: int) -> None:
        """One reason to wait is over."""
        self._stopped &= ~reason
        if self._rest and not self._stopped:
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
        is_within_request = self._left or (self._whole is not None and not self._stopped & _WHOLE)
        if self._is_broker_full or (self._stopped and not is_within_request):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end_if_done(self) -> None:
        """Close both sides, if the client has ended and nothing is left to do for it."""
        if not self._has_ended or self.expected or self._whole_task is not None or self._transport is None:
            return
        if self._broker is not None and self._broker.is_within_answer:
            return
        if self._stopped & _ENDING:
            if not self._left:
                self._transport.close()
        elif not self._stopped:  # otherwise complete requests may wait in `_rest`
            self._transport.close()

    # The connection to the broker.

    async def _dial(self) -> None:
        try:
            self._broker = await self._relay.dial(self, self._node_id)
        except Exception as error:  # noqa: BLE001 (nobody else would end the connection)
            self._relay.stats.failed_dials += 1
            self.abort(error)
            return
        finally:
            self._dialling = None
        self._go_on(_CONNECTING)
        self._answer_whole()
        self._end_if_done()
