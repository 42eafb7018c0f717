"""What a limit would have done to recorded requests: each goes through the metering classes, one by one.

What a request is charged and when it is refused is for :func:`kquota.metering.requests.charge` to say; here is what
follows for its client: its channel is muted (KIP-219), and a fetch that was answered empty and a mutation that was
refused come again. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from math import floor, inf, isinf
from typing import Final, NamedTuple

import numpy as np

from kquota.metering.callback import ClientQuotaType
from kquota.metering.meters import BucketMeter, Meter, RateMeter
from kquota.metering.requests import charge
from kquota.metering.statistics import Windows
from kquota.pipeline.simulation.arrivals import ANSWER_IN_HAND_MS, ENVELOPE_BYTES, NO_THROTTLING, Outcome, peak_backlog

__all__ = [
    "Charged",
    "Connection",
    "Limiter",
    "QueueTurn",
    "limiters_for",
    "outcome_of",
    "queue_turns",
    "simulate_requests",
]


class Connection(NamedTuple):
    """The requests of one connection that count on one key, in the order of their times."""

    at_ms: Sequence[float]
    amounts: Sequence[float]
    is_strict: bool = True
    """Whether its mutations are refused, or done and made to wait for: the version of its requests."""
    largest: float | None = None
    """The largest of its requests, to which what has queued up is joined; None: the largest of `amounts`."""


class Charged(NamedTuple):
    """What comes of counting a request."""

    throttle_ms: int
    is_let_through: bool
    level: float
    """What the limit was compared with, by the limit."""


class Limiter:
    """The meter that the requests of a connection are counted on; other connections may share it."""

    def __init__(self, key: str, meter: Meter | None, *, is_strict: bool, largest: float = inf) -> None:
        """Take a meter of this key; None where nothing is limited."""
        self.meter = meter
        self.envelope = None if meter is None else ENVELOPE_BYTES.get(key)
        """What requests need once that go out joined, as those with records do; None: they do not."""
        self._quota_type = ClientQuotaType.of_key(key)
        self._is_strict = is_strict
        self._largest = largest

    @property
    def largest(self) -> float:
        """More than this much does not go into one request, whatever its client asks for."""
        return self._largest

    def count(self, amount: float, now_ms: int) -> Charged:
        """Count a request, by the one rule of charge."""
        meter = self.meter
        if meter is None:
            return _NOT_COUNTED
        throttle, accepted = charge(meter, self._quota_type, amount, now_ms, strict=self._is_strict)
        if throttle is None:
            return Charged(0, True, _level(meter))
        # Who is refused for no time at all comes again after a millisecond.
        return Charged(max(throttle.throttle_ms, 0 if accepted else 1), accepted, _level(meter))


_NOT_COUNTED: Final = Charged(0, is_let_through=True, level=0.0)


class QueueTurn(NamedTuple):
    """A moment at which it was a connection's turn."""

    at_ms: float
    connection: int
    amount: float
    """What was let through, 0 where nothing was."""
    throttle_ms: int
    arrived_ms: Sequence[float]
    """When those requests came that were let through, joined."""
    level: float


def limiters_for(
    key: str, limit: float | None, windows: Windows, connections: Sequence[Connection]
) -> Sequence[Limiter]:
    """What Kafka counts the requests of these connections on, all on one meter.

    :param windows: of byte rates and request time, or of mutations, by the key.
    """
    quota_type = ClientQuotaType.of_key(key)
    meter: Meter | None = None
    largest = inf
    if limit is not None and not isinf(limit):
        if quota_type is ClientQuotaType.CONTROLLER_MUTATION:
            meter = BucketMeter({}, limit, windows)
        else:
            meter = RateMeter({}, limit, windows, windows.size_ms if quota_type is ClientQuotaType.REQUEST else None)
        if quota_type is ClientQuotaType.FETCH:
            largest = windows.max_value(limit) or inf  # no answer is larger than what a whole window lets pass
    return [Limiter(key, meter, is_strict=one.is_strict, largest=largest) for one in connections]


def simulate_requests(
    connections: Sequence[Connection],
    key: str,
    limit: float | None,
    windows: Windows,
    *,
    in_flight: int,
    end_ms: float,
) -> Outcome:
    """What a limit does to the requests of a meter up to `end_ms`; None is no limit.

    :param windows: of byte rates and request time, or of mutations, by the key.
    :param in_flight: how many requests a connection has in flight; with 0 they come as they were recorded.
    """
    if limit is None or _is_far_below(connections, limit, windows):
        return NO_THROTTLING._replace(amount=sum(sum(one.amounts) for one in connections))
    turns = queue_turns(connections, limiters_for(key, limit, windows, connections), in_flight=in_flight, end_ms=end_ms)
    return outcome_of(connections, turns, end_ms=end_ms)


_NEAR: Final = 0.95


def _is_far_below(connections: Sequence[Connection], limit: float, windows: Windows) -> bool:
    """Whether no sum over all windows and one more, which is all that a sample can be part of, is near the limit."""
    at_ms = np.concatenate([one.at_ms for one in connections])
    order = np.argsort(at_ms, kind="stable")
    at_ms = at_ms[order]
    so_far = np.concatenate([[0.0], np.cumsum(np.concatenate([one.amounts for one in connections])[order])])
    first = np.searchsorted(at_ms, at_ms - (windows.span_ms + windows.size_ms), side="left")
    most = float((so_far[1:] - so_far[first]).max(initial=0.0))
    return most <= limit * (windows.samples - 1) * windows.size_ms / 1000 * _NEAR


def queue_turns(
    connections: Sequence[Connection], counters: Sequence[Limiter], *, in_flight: int, end_ms: float
) -> Iterator[QueueTurn]:
    """Each turn of a connection up to `end_ms`, in the order of their times, and last what still waits then.

    :param counters: one for each connection.
    :param in_flight: how many requests a connection has in flight; with 0 they come as they were recorded.
    """
    waiting = [_ConnectionQueue(one, in_flight) for one in connections]
    turns = [(one.next_ms(), number) for number, one in enumerate(waiting) if len(one.at_ms)]
    heapify(turns)
    while turns and turns[0][0] <= end_ms:
        now_ms, number = turns[0]
        one = waiting[number]
        counter = counters[number]
        amount, requests = one.head(now_ms, counter)
        charged = amount if requests < 2 else one.charged(amount, requests, counter)
        counted = counter.count(charged, floor(now_ms))
        one.muted_until_ms = now_ms + counted.throttle_ms
        arrived_ms = one.let_through(now_ms, amount, requests) if counted.is_let_through else ()
        yield QueueTurn(
            now_ms, number, amount if counted.is_let_through else 0.0, counted.throttle_ms, arrived_ms, counted.level
        )
        if one.is_done():
            heappop(turns)
        else:
            heapreplace(turns, (one.next_ms(), number))
    for _, number in turns:
        yield QueueTurn(end_ms, number, 0.0, 0, waiting[number].left_at(end_ms), 0.0)


def outcome_of(connections: Sequence[Connection], turns: Iterable[QueueTurn], *, end_ms: float) -> Outcome:
    """What came of the turns of a meter's connections, all of them or some."""
    amount = throttled_ms = muted_ms = peak = 0.0
    throttled_requests = 0
    muted_until_ms = -inf
    passed = [0] * len(connections)
    came: list[float] = []
    left: list[float] = []
    amounts: list[float] = []
    for turn in turns:
        amount += turn.amount
        peak = max(peak, turn.level)
        if turn.throttle_ms > 0:
            throttled_requests += 1
            throttled_ms += turn.throttle_ms
            until_ms = min(turn.at_ms + turn.throttle_ms, end_ms)
            muted_ms += max(0.0, until_ms - max(turn.at_ms, muted_until_ms))
            muted_until_ms = max(muted_until_ms, until_ms)
        for arrived_ms in turn.arrived_ms:
            if turn.at_ms > arrived_ms:
                came.append(arrived_ms)
                left.append(turn.at_ms)
                amounts.append(connections[turn.connection].amounts[passed[turn.connection]])
            passed[turn.connection] += 1
    waited_ms = np.subtract(left, came)
    return Outcome(
        amount,
        throttled_requests,
        throttled_ms,
        muted_ms,
        float(waited_ms.max(initial=0.0)),
        float(waited_ms.sum()),
        peak_backlog(np.array(came), np.array(left), np.array(amounts)),
        peak,
    )


class _ConnectionQueue:
    """A connection whose requests wait for their turn."""

    __slots__ = (
        "_amounts",
        "_came_ms",
        "_first",
        "_in_flight",
        "_joined",
        "_left",
        "_passed_ms",
        "at_ms",
        "muted_until_ms",
    )

    def __init__(self, connection: Connection, in_flight: int) -> None:
        self.at_ms = connection.at_ms
        self.muted_until_ms = -inf
        self._amounts = connection.amounts
        self._joined = max(connection.amounts, default=0.0) if connection.largest is None else connection.largest
        self._in_flight = in_flight
        self._first = 0
        self._left = connection.amounts[0] if len(connection.amounts) else 0.0
        self._passed_ms: list[float] = []
        self._came_ms = self._came(0, -inf) if len(self.at_ms) else inf

    def next_ms(self) -> float:
        """When its next turn is."""
        return max(self._came_ms, self.muted_until_ms)

    def is_done(self) -> bool:
        return self._first == len(self.at_ms)

    def head(self, now_ms: float, counter: Limiter) -> tuple[float, int]:
        """How much goes into its next request, and how many of the recorded ones that is."""
        joins, most = counter.envelope is not None, counter.largest
        if joins:
            most = min(self._joined, most)
        amount = min(self._left, most)
        if self._in_flight or not joins or amount < self._left:
            return amount, int(amount == self._left)
        last = self._first + 1
        while last < len(self.at_ms) and self.at_ms[last] <= now_ms and amount + self._amounts[last] <= most:
            amount += self._amounts[last]
            last += 1
        return amount, last - self._first

    def charged(self, amount: float, requests: int, counter: Limiter) -> float:
        """What a request of so much counts for, into which so many were joined, two at least."""
        return max(amount - (requests - 1) * (counter.envelope or 0.0), self._left)

    def let_through(self, now_ms: float, amount: float, requests: int) -> Sequence[float]:
        """Go on to what is behind; gives when these requests had come."""
        if not requests:
            self._left -= amount
            return ()
        first, self._first = self._first, self._first + requests
        arrived_ms = [self._came_ms] if self._in_flight else self.at_ms[first : self._first]
        if self._in_flight:
            self._passed_ms.append(now_ms)
        if not self.is_done():
            self._left = self._amounts[self._first]
            self._came_ms = self._came(self._first, self._came_ms)
        return arrived_ms

    def left_at(self, end_ms: float) -> Sequence[float]:
        """When those requests came that still wait."""
        arrived_ms, came = [], self._came_ms
        last = min(self._first + self._in_flight, len(self.at_ms)) if self._in_flight else len(self.at_ms)
        for number in range(self._first, last):
            came = came if number == self._first else self._came(number, came)
            if came > end_ms:
                break
            arrived_ms.append(came)
        return arrived_ms

    def _came(self, number: int, before_ms: float) -> float:
        """When a request came, the one before it having come at `before_ms`; infinite where that is not known yet."""
        at_ms = self.at_ms[number]
        if not self._in_flight:
            return at_ms
        # It was sent with the answer in hand to the last one that had come well before it.
        answered = number - 1
        while (
            answered >= 0 and answered > number - self._in_flight and self.at_ms[answered] > at_ms - ANSWER_IN_HAND_MS
        ):
            answered -= 1
        if answered < 0:
            return max(before_ms, at_ms)
        if answered >= len(self._passed_ms):
            return inf
        return max(before_ms, at_ms + (self._passed_ms[answered] - self.at_ms[answered]))


def _level(meter: Meter) -> float:
    """What the limit was compared with, by the limit; of mutations the tokens used, by those of a full bucket."""
    limit = meter.limit
    if isinstance(meter, RateMeter):
        used = meter.compared
    else:
        limit *= meter.bucket.windows.span_ms / 1000
        used = limit - meter.bucket.tokens
    return used / limit if limit else inf * used if used else 0.0
