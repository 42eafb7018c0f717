"""The connection to a broker on behalf of one client: the answers, on their way to it.

As the other way, chunks are passed on as they come, and only what has to be is read: the size and correlation id of
each answer, ``throttle_time_ms`` where the client has to wait, and the addresses of brokers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from kquota.errors import FrameSizeError, ProtocolError
from kquota.gateway.relay.actions import Action, Kind
from kquota.gateway.relay.answers import answer_with_brokers, throttled, whole_answer
from kquota.gateway.relay.broker_addresses import NO_NODE_ENDPOINTS
from kquota.gateway.relay.client_channel import UNSENT_BYTES
from kquota.gateway.relay.request_head import BYTES_OUT
from kquota.gateway.relay.throttle_field import write_throttle
from kquota.wire.apis import ALTER_CLIENT_QUOTAS

if TYPE_CHECKING:
    from kquota.gateway.relay.client_connection import ClientConnection
    from kquota.gateway.relay.relay import Relay

__all__ = ["CLOSING_S", "MAX_WHOLE_ANSWER_BYTES", "BrokerConnection"]

_HEADER: Final = Struct(">ii")  # size, correlation id
_HEADER_BYTES: Final = _HEADER.size
_unpack_header: Final = _HEADER.unpack_from
_INT32: Final = Struct(">i")
_PRODUCE: Final = Kind.PRODUCE
_FETCH: Final = Kind.FETCH
_BROKERS: Final = Kind.BROKERS
_COORDINATOR: Final = Kind.COORDINATOR
_QUOTAS: Final = Kind.QUOTAS

MAX_WHOLE_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The largest answer that is collected before it is passed on. Those with records never are."""
CLOSING_S: Final = 30.0
"""How long a broker may take for what it was sent, once its client is gone (``request.timeout.ms``)."""


def _keep_alive(transport: asyncio.Transport) -> None:
    """Have TCP find out that the other end is gone, as brokers do (``SocketServer``): it may never say so."""
    its_socket = transport.get_extra_info("socket")
    if its_socket is not None:
        its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class BrokerConnection(asyncio.Protocol):
    """Made by :meth:`~kquota.gateway.relay.relay.Relay.dial`."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_asked_id",
        "_client",
        "_fetch_quotas",
        "_is_between",
        "_left",
        "_relay",
        "_rest",
        "_stats",
        "_transport",
        "_try_again_bytes",
        "_whole",
        "_whole_bytes",
    )

    def __init__(self, relay: Relay, client: ClientConnection) -> None:
        self._relay = relay
        self._stats = relay.stats
        self._client = client
        self._fetch_quotas = client.enforcement.managers.fetch
        self._transport: asyncio.Transport | None = None
        self._left = 0  # of the answer that is being passed on
        self._is_between = False  # whether the next data begin with an answer
        self._rest = b""
        self._try_again_bytes = 0  # not before so much of a broker list is there
        self._whole: bytearray | None = None  # an answer that is read whole
        self._whole_bytes = 0
        self._asked: asyncio.Future[bytes] | None = None
        self._asked_id = b""  # its correlation id; empty where it has none

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        _keep_alive(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker is gone, or let go."""
        self._transport = None
        self._relay.broker_closed(self)
        asked, self._asked = self._asked, None  # the traceback of its error would refer to this connection
        if asked is not None and not asked.done():
            asked.set_exception(ConnectionResetError("the broker closed it"))
        self._client.broker_lost(exc)

    def pause_writing(self) -> None:
        """The broker does not take requests as fast as they come."""
        self._client.broker_is_full(True)

    def resume_writing(self) -> None:
        """The broker takes requests again."""
        self._client.broker_is_full(False)

    def pause_reading(self) -> None:
        """The client does not take its answers."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """The client takes its answers again."""
        if self._transport is not None:
            self._transport.resume_reading()

    @property
    def write(self) -> Callable[[bytes | bytearray | memoryview], None]:
        """What sends the broker something."""
        assert self._transport is not None
        return self._transport.write

    @property
    def is_within_answer(self) -> bool:
        """Whether only the beginning of an answer was passed on so far."""
        return self._left > 0

    def ask(self, frame: bytes, *, is_token: bool = False) -> asyncio.Future[bytes]:
        """Send a request, and wait for its whole answer, without its size. Nothing else may be under way.

        :param is_token: it is a bare token of a login: neither it nor its answer has a header.
        :raises ConnectionResetError: by the future, where the broker closes the connection instead.
        """
        self._asked = asyncio.get_running_loop().create_future()
        self._asked_id = b"" if is_token else frame[8:12]
        if self._transport is None:
            self._asked.set_exception(ConnectionResetError("the broker closed it"))
        else:
            self._transport.write(frame)
        return self._asked

    def close(self) -> None:
        """Close, after what was sent has gone out, if that is soon: a client without acks relies on it."""
        if self._transport is None or self._transport.is_closing():
            return
        self._relay.closing_brokers.add(self)
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSING_S, self.abort)
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """The broker sent something."""
        end = len(data)
        self._stats.bytes_from_brokers += end
        client = self._client
        try:
            if self._is_between and not client.stopped and self._passed_at_once(data, end, client):
                return
            if self._rest or self._whole is not None:
                self._take(data)
            else:
                at = self._walk(data)
                if at != len(data):
                    self._take(data[at:] if at else data, is_walked=True)
            self._is_between = not (
                self._left or self._rest or self._whole is not None or client.enforcement.estimates_time
            )
        except Exception as error:  # noqa: BLE001 (also a mistake of ours costs only this connection)
            client.fail(error)
            self.close()
            return
        if client.stopped or client.has_ended:
            client.answered()

    def _passed_at_once(self, data: bytes, end: int, client: ClientConnection) -> bool:
        """Pass on data if they are one whole answer with which nothing is to be done but to count it, as they mostly
        are: the shortest way that there is.
        """
        expected = client.expected
        if not expected or end < _HEADER_BYTES:
            return False
        next_id, head, sent_ms, throttle = expected[0]
        size, correlation_id = _unpack_header(data)
        if size + 4 != end or correlation_id != next_id or throttle is not None:
            return False
        answer: bytes | bytearray = data
        passes = head.passes
        if passes is None:
            if data[-4:] != NO_NODE_ENDPOINTS:
                return False
        elif head.counts == BYTES_OUT:
            if head.since != self._fetch_quotas.changes:
                return False
            if head.meter is not None:
                amount, now_ms = size - head.action.has_tagged_header, client.now_ms
                own = head.meter.record(amount, now_ms)
                if own is not None:
                    throttle_ms = client.enforcement.fetch(head, own, amount, now_ms - sent_ms, now_ms)
                    if throttle_ms > 0:
                        client.mute(throttle_ms, now_ms)
                        answer = bytearray(data)
                        write_throttle(answer, head.action, throttle_ms)
        elif not passes:
            return False
        del expected[0]
        client.write(answer)
        if client.has_ended:
            client.answered()
        return True

    def _take(self, data: bytes, *, is_walked: bool = False) -> None:
        """Take what cannot simply be passed on, or has to be joined to what is here already."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        while data:
            if self._whole is not None:
                data = self._collect(data)
            elif is_walked:
                self._rest = data
                break
            else:
                data = data[self._walk(data) :]
                is_walked = True
                continue
            is_walked = False

    def _walk(self, data: bytes) -> int:  # noqa: C901, PLR0912, PLR0915 (a call costs more than what it would do)
        """Pass on what can be; gives how much of it was taken. An answer that is to be read whole ends it.

        Every answer to every client goes through this: what it does for each of them is counted in nanoseconds.
        """
        client = self._client
        expected = client.expected
        enforcement = client.enforcement
        estimates_time = enforcement.estimates_time
        at = start = 0
        end = len(data)
        left = self._left
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
                if at == end:
                    break
                if end - at < _HEADER_BYTES or not expected:
                    self._begin_other(data, at, end)
                    break
                size, correlation_id = _unpack_header(data, at)
                one = expected[0]
                next_id, head, sent_ms, throttle = one
                action = head.action
                if next_id != correlation_id or size < 4:
                    raise ProtocolError(
                        f"the broker answered request {correlation_id} with {size} bytes where {next_id} "
                        f"({action.name}) is next"
                    )
                kind = action.kind
                total = size + 4
                throttle_ms = 0
                if (
                    kind is _PRODUCE
                    or kind is _COORDINATOR
                    or (estimates_time and action.throttle_at is None and action.has_throttle)
                ):
                    passes = False if throttle is not None or estimates_time else head.passes
                    if not passes:
                        tail = at + total
                        if tail > end:
                            self._begin_whole(size, data, at)
                            break
                        if passes is False or data[tail - 4 : tail] != NO_NODE_ENDPOINTS:
                            self._send_on(patched or data, start, at)
                            start = at
                            del expected[0]
                            answer = bytearray(memoryview(data)[at:tail])
                            client.write(whole_answer(client, one, answer, self._relay.address_of))
                            at = start = tail
                            continue
                elif kind is _FETCH:
                    if end - at < min(total, action.body_at + 4):
                        break
                    if head.since != self._fetch_quotas.changes:
                        head.look_up(enforcement)
                    meter = head.meter
                    if meter is not None or estimates_time:
                        now_ms = client.now_ms
                        amount = size - action.has_tagged_header
                        own = None if meter is None else meter.record(amount, now_ms)
                        if own is not None or estimates_time:
                            throttle_ms = enforcement.fetch(head, own, amount, now_ms - sent_ms, now_ms)
                elif kind is _BROKERS:
                    found = self._with_brokers(action, data, at, total)
                    if found is None:
                        break
                    rewritten, replaced = found
                    self._send_on(patched or data, start, at)
                    start = at
                    del expected[0]
                    client.write(throttled(client, one, bytearray(rewritten)))
                    at = start = at + replaced
                    left = total - replaced
                    continue
                elif kind is _QUOTAS and action.api_key == ALTER_CLIENT_QUOTAS.key:
                    self._relay.quotas_altered()
                if estimates_time and kind is not _FETCH and head.client is not None:
                    if action.throttle_at is not None and end - at < min(total, action.throttle_at + 4):
                        break
                    throttle_ms = enforcement.complete(one, client.now_ms)
                if throttle_ms > 0:
                    client.mute(throttle_ms, client.now_ms)
                    where = action.throttle_at
                    if where is not None and total >= where + 4 and (where == 8 or data[at + where - 1] == 0):
                        patched = patched or bytearray(data)
                        if _INT32.unpack_from(patched, at + where)[0] < throttle_ms:
                            _INT32.pack_into(patched, at + where, throttle_ms)
                del expected[0]
                left = total
        except BaseException:
            self._send_on(patched or data, start, at)  # what came before is not to suffer, wherever it is cut
            raise
        self._left = left
        if at > start:
            if start == 0 and at == end:
                client.write(patched or data)
            else:
                self._send_on(patched or data, start, at)
        return at

    def _begin_other(self, data: bytes, at: int, end: int) -> None:
        """Begin with an answer that :meth:`ask` waits for, if enough of it is there."""
        if self._client.expected or end - at < _INT32.size:
            return
        if self._asked is None:
            raise ProtocolError("the broker sent an answer that nobody asked for")
        self._begin_whole(_INT32.unpack_from(data, at)[0], data, at)

    def _send_on(self, data: bytes | bytearray, start: int, end: int) -> None:
        if end > start:
            self._client.write(memoryview(data)[start:end])

    def _with_brokers(self, action: Action, data: bytes, at: int, total: int) -> tuple[bytes, int] | None:
        """As :func:`answer_with_brokers`, which is not asked again for every byte that comes."""
        there = len(data) - at
        if there < self._try_again_bytes and there < total:
            return None
        found = answer_with_brokers(action, data, at, total, self._relay.address_of)
        self._try_again_bytes = 2 * there if found is None else 0
        return found

    def _begin_whole(self, size: int, data: bytes, at: int) -> None:
        if not 0 <= size <= MAX_WHOLE_ANSWER_BYTES:
            raise FrameSizeError(size, MAX_WHOLE_ANSWER_BYTES, bytes(data[at : at + 16]))
        self._whole = bytearray()
        self._whole_bytes = size + 4

    def _collect(self, data: bytes) -> bytes:
        """Take what belongs to the answer that is being collected; gives what comes after it."""
        assert self._whole is not None
        missing = self._whole_bytes - len(self._whole)
        self._whole += data[:missing]
        if len(self._whole) == self._whole_bytes:
            frame, self._whole = self._whole, None
            if self._client.expected:
                one = self._client.expected.pop(0)
                self._client.write(whole_answer(self._client, one, frame, self._relay.address_of))
            elif not frame.startswith(self._asked_id, 4):
                raise ProtocolError("the broker answered another request than the one it was asked")
            elif self._asked is not None and not self._asked.done():
                self._asked.set_result(bytes(memoryview(frame)[4:]))
                self._asked = None
        return data[missing:]
