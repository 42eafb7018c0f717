"""What limits would have done to recorded requests: each is charged by a limiter, one by one.

What follows from that is here: a throttled client's connection is muted (KIP-219), and a client sends a fetch that was
answered empty, or a mutation that was refused, again. Times are milliseconds since the epoch.

Requests of a connection, under a limit of 100 B/s in windows of 10 s (a test runs it,
``test_requests.test_a_request_over_the_limit_mutes_its_connection_and_the_next_waits``)::

    recorded    0 s: 2000 B   1 s: 50 B
                |             |
    simulated   2000 B        waits . . . . . . . . . 50 B
                |<------- muted for 10 s ------------>|<------- muted for 10.5 s ------>
                2000 B in 10 s are 200 B/s,           the 2000 B still count: 205 B/s
                100 B/s too much: 10 s to wait
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from math import floor, inf
from typing import NamedTuple

import numpy as np

from kquota.pipeline.simulation.arrivals import ANSWER_IN_HAND_MS, NO_THROTTLING, Outcome, peak_backlog
from kquota.pipeline.simulation.limiters import Connection, Limiter

__all__ = ["ChargedRequest", "SimulatedMeter", "charged_requests", "simulate_requests"]


class ChargedRequest(NamedTuple):
    """A request at the moment when it was charged, or what a connection still waits with at the end."""

    at_ms: float
    connection: int
    amount: float
    """What was accepted, 0 where it was refused."""
    throttle_ms: int
    arrived_ms: Sequence[float]
    """When the recorded requests arrived that it consists of; none where it was refused, or is not the last part."""
    utilisation: float


class SimulatedMeter(NamedTuple):
    """What came of the requests that were charged to one meter."""

    name: str
    """'' for what no meter counts."""
    limit: float | None
    """The last one; None where there is none."""
    connections: Sequence[int]
    """Places of those that were charged to it; or would be, and have nothing to charge."""
    outcome: Outcome


def simulate_requests(
    connections: Sequence[Connection], limiter: Limiter, *, in_flight: int, end_ms: float
) -> Iterator[SimulatedMeter]:
    """What a limiter does to requests up to `end_ms`, meter by meter in the order of their first requests.

    :param limiter: a new one; all requests count on its key.
    :param in_flight: how many requests a connection has in flight; with 0 they arrive as they were recorded.
    """
    if connections and limiter.is_out_of_reach(connections):
        outcome = NO_THROTTLING._replace(amount=sum(sum(one.amounts) for one in connections))
        yield SimulatedMeter(*limiter.meter_of(connections[0]), range(len(connections)), outcome)
        return
    requests: dict[str, list[ChargedRequest]] = {}
    members: dict[str, set[int]] = {}
    limits: dict[str, float | None] = {}
    for request in charged_requests(connections, limiter, in_flight=in_flight, end_ms=end_ms):
        name, limits[name] = limiter.meter_of(connections[request.connection])
        requests.setdefault(name, []).append(request)
        members.setdefault(name, set()).add(request.connection)
    for number, connection in enumerate(connections):
        if not len(connection.at_ms):
            name, limits[name] = limiter.meter_of(connection)
            members.setdefault(name, set()).add(number)
    for name, numbers in members.items():
        outcome = _outcome_of(connections, requests.get(name, []), end_ms=end_ms)
        yield SimulatedMeter(name, limits[name], sorted(numbers), outcome)


def charged_requests(
    connections: Sequence[Connection], limiter: Limiter, *, in_flight: int, end_ms: float
) -> Iterator[ChargedRequest]:
    """Each request that is charged up to `end_ms`, in the order of times, and last what still waits then.

    Parameters as for :func:`simulate_requests`.
    """
    queues = [_ConnectionQueue(one, in_flight) for one in connections]
    due = [(queue.next_ms(), number) for number, queue in enumerate(queues) if not queue.is_empty()]
    heapify(due)
    while due and due[0][0] <= end_ms:
        now_ms, number = due[0]
        queue, connection = queues[number], connections[number]
        amount, requests, charged = queue.head(now_ms, limiter.envelope, limiter.largest_request(connection))
        throttle_ms, accepted, utilisation = limiter.charge(connection, charged, floor(now_ms))
        queue.muted_until_ms = now_ms + throttle_ms
        arrived_ms = queue.remove(now_ms, amount, requests) if accepted else ()
        yield ChargedRequest(now_ms, number, amount if accepted else 0.0, throttle_ms, arrived_ms, utilisation)
        if queue.is_empty():
            heappop(due)
        else:
            heapreplace(due, (queue.next_ms(), number))
    for _, number in due:
        yield ChargedRequest(end_ms, number, 0.0, 0, queues[number].waiting_at(end_ms), 0.0)


def _outcome_of(connections: Sequence[Connection], requests: Sequence[ChargedRequest], *, end_ms: float) -> Outcome:
    """What came of a meter's requests, which may be some of each connection's."""
    amount = throttled_ms = muted_ms = peak = 0.0
    throttled_requests = 0
    muted_until_ms = -inf
    done = [0] * len(connections)
    # Of the recorded requests that waited.
    arrived: list[float] = []
    charged: list[float] = []
    amounts: list[float] = []
    for one in requests:
        amount += one.amount
        peak = max(peak, one.utilisation)
        if one.throttle_ms > 0:
            throttled_requests += 1
            throttled_ms += one.throttle_ms
            until_ms = min(one.at_ms + one.throttle_ms, end_ms)
            muted_ms += max(0.0, until_ms - max(one.at_ms, muted_until_ms))
            muted_until_ms = max(muted_until_ms, until_ms)
        for arrived_ms in one.arrived_ms:
            if one.at_ms > arrived_ms:
                arrived.append(arrived_ms)
                charged.append(one.at_ms)
                amounts.append(connections[one.connection].amounts[done[one.connection]])
            done[one.connection] += 1
    delays_ms = np.subtract(charged, arrived)
    return Outcome(
        amount,
        throttled_requests,
        throttled_ms,
        muted_ms,
        float(delays_ms.max(initial=0.0)),
        float(delays_ms.sum()),
        peak_backlog(np.array(arrived), np.array(charged), np.array(amounts)),
        peak,
    )


class _ConnectionQueue:
    """The requests of a connection that are not charged yet; its head is the one that is charged next."""

    __slots__ = (
        "_amounts",
        "_arrived_ms",
        "_at_ms",
        "_charged_ms",
        "_first",
        "_in_flight",
        "_joined_max",
        "_remaining",
        "muted_until_ms",
    )

    def __init__(self, connection: Connection, in_flight: int) -> None:
        self.muted_until_ms = -inf
        self._at_ms = connection.at_ms
        self._amounts = connection.amounts
        self._joined_max = max(connection.amounts, default=0.0) if connection.largest is None else connection.largest
        self._in_flight = in_flight
        self._charged_ms: list[float] = []  # those before the head, where arrivals depend on it
        self._first = 0  # the head's place
        # Of the head: what is left of its amount, and when it arrived.
        self._remaining = connection.amounts[0] if len(connection.amounts) else 0.0
        self._arrived_ms = self._arrival(0, -inf) if len(self._at_ms) else inf

    def next_ms(self) -> float:
        """When the head is charged next."""
        return max(self._arrived_ms, self.muted_until_ms)

    def is_empty(self) -> bool:
        return self._first == len(self._at_ms)

    def head(self, now_ms: float, envelope: float | None, largest: float) -> tuple[float, int, float]:
        """The next request: its amount, how many recorded ones it completes, and what it is charged.

        :param envelope: see :class:`~kquota.pipeline.simulation.limiters.Limiter`.
        :param largest: the most that goes into it.
        """
        if envelope is not None:
            largest = min(self._joined_max, largest)
        amount = min(self._remaining, largest)
        if self._in_flight or envelope is None or amount < self._remaining:
            return amount, int(amount == self._remaining), amount
        last = self._first + 1
        while last < len(self._at_ms) and self._at_ms[last] <= now_ms and amount + self._amounts[last] <= largest:
            amount += self._amounts[last]
            last += 1
        joined = last - self._first
        return amount, joined, max(amount - (joined - 1) * envelope, self._remaining)

    def remove(self, now_ms: float, amount: float, requests: int) -> Sequence[float]:
        """Take what was accepted, as :meth:`head` gave it; gives when the recorded requests arrived that are done."""
        if not requests:
            self._remaining -= amount
            return ()
        first, self._first = self._first, self._first + requests
        arrived_ms = [self._arrived_ms] if self._in_flight else self._at_ms[first : self._first]
        if self._in_flight:
            self._charged_ms.append(now_ms)
        if not self.is_empty():
            self._remaining = self._amounts[self._first]
            self._arrived_ms = self._arrival(self._first, self._arrived_ms)
        return arrived_ms

    def waiting_at(self, end_ms: float) -> Sequence[float]:
        """When those requests arrived that still wait."""
        arrived_ms, arrived = [], self._arrived_ms
        last = min(self._first + self._in_flight, len(self._at_ms)) if self._in_flight else len(self._at_ms)
        for number in range(self._first, last):
            arrived = arrived if number == self._first else self._arrival(number, arrived)
            if arrived > end_ms:
                break
            arrived_ms.append(arrived)
        return arrived_ms

    def _arrival(self, number: int, before_ms: float) -> float:
        """When a request arrives, if the one before it did at `before_ms`; infinite where that is not known yet."""
        at_ms = self._at_ms[number]
        if not self._in_flight:
            return at_ms
        # Its client had the answer to the last request that arrived well before it.
        answered = number - 1
        while (
            answered >= 0 and answered > number - self._in_flight and self._at_ms[answered] > at_ms - ANSWER_IN_HAND_MS
        ):
            answered -= 1
        if answered < 0:
            return max(before_ms, at_ms)
        if answered >= len(self._charged_ms):
            return inf
        return max(before_ms, at_ms + (self._charged_ms[answered] - self._at_ms[answered]))
