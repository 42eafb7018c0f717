"""What limits would have done to recorded requests: each is charged by a limiter, one by one.

Here is what follows for its client: its channel is muted (KIP-219), and a fetch that was answered empty and a mutation
that was refused come again. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from math import floor, inf
from typing import NamedTuple

import numpy as np

from kquota.pipeline.simulation.arrivals import ANSWER_IN_HAND_MS, NO_THROTTLING, Outcome, peak_backlog
from kquota.pipeline.simulation.limiters import Connection, Limiter

__all__ = ["ChargedRequest", "SimulatedMeter", "charged_requests", "simulate_requests"]


class ChargedRequest(NamedTuple):
    """A request of a connection at the moment when it was charged, or what still waits at the end."""

    at_ms: float
    connection: int
    amount: float
    """What passed, 0 where it was refused."""
    throttle_ms: int
    arrived_ms: Sequence[float]
    """When those requests came that passed, joined; or that still wait at the end."""
    level: float


class SimulatedMeter(NamedTuple):
    """What came of one meter's requests."""

    name: str
    limit: float | None
    """The last one."""
    connections: Sequence[int]
    """Who was charged to it."""
    outcome: Outcome


def simulate_requests(
    connections: Sequence[Connection], limiter: Limiter, *, in_flight: int, end_ms: float
) -> Iterator[SimulatedMeter]:
    """What a limiter does to requests up to `end_ms`, meter by meter, in the order of the first request of each.

    :param in_flight: how many requests a connection has in flight; with 0 they come as they were recorded.
    """
    if limiter.is_far_above(connections):
        outcome = NO_THROTTLING._replace(amount=sum(sum(one.amounts) for one in connections))
        yield SimulatedMeter(*limiter.meter_of(connections[0]), range(len(connections)), outcome)
        return
    charged: dict[str, list[ChargedRequest]] = {}
    limits: dict[str, float | None] = {}
    for request in charged_requests(connections, limiter, in_flight=in_flight, end_ms=end_ms):
        name, limits[name] = limiter.meter_of(connections[request.connection])
        charged.setdefault(name, []).append(request)
    for name, requests in charged.items():
        members = sorted({request.connection for request in requests})
        yield SimulatedMeter(name, limits[name], members, _outcome_of(connections, requests, end_ms=end_ms))


def charged_requests(
    connections: Sequence[Connection], limiter: Limiter, *, in_flight: int, end_ms: float
) -> Iterator[ChargedRequest]:
    """Each request that is charged up to `end_ms`, in the order of times, and last what still waits then.

    :param in_flight: how many requests a connection has in flight; with 0 they come as they were recorded.
    """
    queues = [_ConnectionQueue(one, in_flight) for one in connections]
    turns = [(one.next_ms(), number) for number, one in enumerate(queues) if len(one.at_ms)]
    heapify(turns)
    while turns and turns[0][0] <= end_ms:
        now_ms, number = turns[0]
        queue, connection = queues[number], connections[number]
        amount, requests, counts_for = queue.head(now_ms, limiter.envelope, limiter.largest(connection))
        throttle_ms, accepted, level = limiter.charge(connection, counts_for, floor(now_ms))
        queue.muted_until_ms = now_ms + throttle_ms
        arrived_ms = queue.remove(now_ms, amount, requests) if accepted else ()
        yield ChargedRequest(now_ms, number, amount if accepted else 0.0, throttle_ms, arrived_ms, level)
        if queue.is_done():
            heappop(turns)
        else:
            heapreplace(turns, (queue.next_ms(), number))
    for _, number in turns:
        yield ChargedRequest(end_ms, number, 0.0, 0, queues[number].waiting_at(end_ms), 0.0)


def _outcome_of(connections: Sequence[Connection], requests: Iterable[ChargedRequest], *, end_ms: float) -> Outcome:
    """What came of a meter's requests, of all connections or some."""
    amount = throttled_ms = muted_ms = peak = 0.0
    throttled_requests = 0
    muted_until_ms = -inf
    passed = [0] * len(connections)
    came: list[float] = []
    left: list[float] = []
    amounts: list[float] = []
    for one in requests:
        amount += one.amount
        peak = max(peak, one.level)
        if one.throttle_ms > 0:
            throttled_requests += 1
            throttled_ms += one.throttle_ms
            until_ms = min(one.at_ms + one.throttle_ms, end_ms)
            muted_ms += max(0.0, until_ms - max(one.at_ms, muted_until_ms))
            muted_until_ms = max(muted_until_ms, until_ms)
        for arrived_ms in one.arrived_ms:
            if one.at_ms > arrived_ms:
                came.append(arrived_ms)
                left.append(one.at_ms)
                amounts.append(connections[one.connection].amounts[passed[one.connection]])
            passed[one.connection] += 1
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

    def head(self, now_ms: float, envelope: float | None, most: float) -> tuple[float, int, float]:
        """Its next request: how much goes into it, how many of the recorded ones that is, and what it counts for."""
        if envelope is not None:
            most = min(self._joined, most)
        amount = min(self._left, most)
        if self._in_flight or envelope is None or amount < self._left:
            return amount, int(amount == self._left), amount
        last = self._first + 1
        while last < len(self.at_ms) and self.at_ms[last] <= now_ms and amount + self._amounts[last] <= most:
            amount += self._amounts[last]
            last += 1
        joined = last - self._first
        return amount, joined, max(amount - (joined - 1) * envelope, self._left)

    def remove(self, now_ms: float, amount: float, requests: int) -> Sequence[float]:
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

    def waiting_at(self, end_ms: float) -> Sequence[float]:
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
