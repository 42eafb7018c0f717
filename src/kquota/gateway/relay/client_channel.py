"""A client's connection, but for what passes through it: when nothing is read from it, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from kquota.errors import ProtocolError
from kquota.gateway.identity.principals import PrincipalRefusedError

if TYPE_CHECKING:
    from kquota.gateway.relay.broker_connection import BrokerConnection
    from kquota.gateway.relay.request_head import Expected

__all__ = [
    "CLOSE_AFTER_S",
    "CONNECTING",
    "ENDING",
    "LINGERING",
    "LINGER_S",
    "MOST_UNANSWERED",
    "MUTED",
    "UNANSWERED",
    "UNSENT_BYTES",
    "WHOLE",
    "ClientChannel",
    "nowhere",
]

# Why no further request is passed on. Bits, as there may be several reasons at a time.
CONNECTING: Final = 1
MUTED: Final = 2
WHOLE: Final = 4
UNANSWERED: Final = 8
ENDING: Final = 16
LINGERING: Final = 32

MOST_UNANSWERED: Final = 10_000
"""Requests of one connection under way; librdkafka sends up to a million before it waits for an answer."""
CLOSE_AFTER_S: Final = 0.1
"""From the last answer to the end of this side: kafka-python throws answers away that it reads along with the end."""
LINGER_S: Final = 1.0
"""How long a client may take to close its side, once it was answered everything."""
UNSENT_BYTES: Final = 1024 * 1024
"""When so much waits for one side to take it, nothing more is read from the other."""
_RESET: Final = Struct("ii").pack(1, 0)  # l_onoff, l_linger


def nowhere(data: bytes | bytearray | memoryview) -> None:
    """Who is gone, or not there yet, is sent nothing."""


class ClientChannel(asyncio.Protocol):
    """What a broker's ``KafkaChannel`` is: it can be muted, and closes when all is answered."""

    __slots__ = (
        "_broker",
        "_failure",
        "_has_moved",
        "_is_broker_full",
        "_is_paused",
        "_last_active",
        "_left",
        "_loop",
        "_muted_until_ms",
        "_rest",
        "_taken",
        "_transport",
        "_unmute",
        "_whole",
        "_whole_task",
        "expected",
        "has_ended",
        "stopped",
        "write",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._broker: BrokerConnection | None = None
        self._failure: BaseException | None = None
        self._has_moved = False
        self._last_active = 0.0
        self.write: Callable[[bytes | bytearray | memoryview], None] = nowhere
        """Send the client something."""
        self.expected: list[Expected] = []  # 700 bytes less than an empty deque takes
        """The requests under way, in the order in which their answers will come."""
        self.stopped = CONNECTING
        """Why no further request is passed on; 0 for no reason."""
        self.has_ended = False
        """Whether it is to be closed as soon as nothing is left to do for it."""
        self._is_paused = False
        self._left = 0  # of the request that is being passed on
        self._rest = b""  # what has arrived and cannot be passed on yet
        self._whole: bytearray | None = None  # a request that is read whole
        self._whole_task: asyncio.Task[None] | None = None
        self._taken: asyncio.Future[None] | None = None  # while the client does not take its answers
        self._muted_until_ms = 0
        self._unmute: asyncio.TimerHandle | None = None
        self._is_broker_full = False

    def _pass_on(self, data: bytes) -> None:
        """Pass on what can be of what has arrived."""
        raise NotImplementedError

    def _answer_whole(self) -> None:
        """Answer the request that is read whole, if nothing else is left to be done before."""
        raise NotImplementedError

    # asyncio calls these.

    def eof_received(self) -> bool:
        """The client sends nothing more; it may still read."""
        transport = self._transport
        if transport is None or transport.is_closing() or self.stopped & LINGERING:
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
        self.stopped |= ENDING
        self.has_ended = True
        self._end_if_done()

    def abort(self, reason: BaseException | None = None) -> None:
        """Close now."""
        self.stopped |= ENDING
        if self._transport is not None:
            self._failure = self._failure or reason
            self._transport.abort()

    def fail(self, error: BaseException) -> None:
        """Close because of an error; answers that are there are sent before."""
        if self._transport is None or self._transport.is_closing():
            return  # also as asyncio's TLS cannot be written to any more once it is closed twice
        self._failure = self._failure or error
        self.stopped |= ENDING
        self._rest = b""
        if isinstance(error, PrincipalRefusedError) and error.answer is not None:
            self.write(error.answer)
        self._transport.close()

    # The broker's side calls these.

    def answered(self) -> None:
        """Some requests are not under way any more. To be called where `stopped` or `has_ended` say that it matters."""
        if self.stopped & UNANSWERED and len(self.expected) <= MOST_UNANSWERED // 2:
            self._go_on(UNANSWERED)
        if not self.expected:
            self._answer_whole()
            self._end_if_done()

    def mute(self, throttle_ms: int, now_ms: int) -> None:
        """Read no further request for so long. Several waits at a time are the longest of them (KIP-219)."""
        until_ms = now_ms + throttle_ms
        if until_ms <= self._muted_until_ms or self._transport is None:
            return
        self._muted_until_ms = until_ms
        self.stopped |= MUTED
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

    @property
    def now_ms(self) -> int:
        """Milliseconds of the event loop's clock."""
        return int(self._loop.time() * 1000)

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
        self._go_on(MUTED)
        self._answer_whole()
        self._end_if_done()

    def _control_reading(self) -> None:
        """Read from the client unless there is a reason not to, and never stop within a request."""
        if self._transport is None or self._transport.is_closing():
            return
        is_within_request = self._left or (self._whole is not None and not self.stopped & WHOLE)
        is_waiting = self.stopped != 0 and not self.stopped & LINGERING
        is_paused = self._is_broker_full or (is_waiting and not is_within_request)
        if is_paused is not self._is_paused:
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # The end.

    def _end_if_done(self) -> None:
        """Close both sides, if the client has ended and nothing is left to do for it."""
        if not self.has_ended or self.expected or self._whole_task is not None:
            return
        if self._transport is None or self._transport.is_closing():
            return
        if self._broker is not None and self._broker.is_within_answer:
            return
        if self.stopped & ENDING:
            if not self._left:
                self._linger()
        elif not self.stopped:  # otherwise complete requests may wait in `_rest`
            self._transport.close()

    def _linger(self) -> None:
        """Close this side, and wait for the client to close its own; what it still sends is thrown away.

        A socket that is closed with something unread, or is sent something afterwards, resets the connection, and the
        client loses the answers that it has not read yet: it would send again what a broker has appended already.
        """
        if self.stopped & LINGERING:
            return
        self.stopped |= LINGERING
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

    def _reset_when_closed(self) -> None:
        """Let the client see a broken connection, as where the broker is gone, and not an orderly end.

        franz-go takes an end before the first answer for a wrong security protocol, and gives its records up.
        """
        own = None if self._transport is None else self._transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
