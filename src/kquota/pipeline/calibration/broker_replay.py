"""The throttle times that a broker returned to the clients of one meter, calculated again from its request log.

A broker counts a request at one moment of its clock. The log has that moment only approximately: a line is stamped in
whole milliseconds, some time after the answer was sent. Mostly that makes no difference. Where it decides something
(whether a sample began, whether one was forgotten, which of two connections came first), one decision changes the
throttle times of the next eleven seconds. So each possibility is followed as a hypothesis, with a rate of its own, and
the throttle times that the broker logged decide between them. Those that are too unlikely are given up, and of those
that have come to the same samples the best goes on. Under a limit of 1,000 B/s, the requests b and c came together::

    log            a: 9,500 B        b: 3,000 B, throttled for 2,880 ms     c: 400 B, not throttled
                   0 ms              20 ms                                  20.3 ms
    hypotheses     --- a ------+---- b: 2,480 ms ---- c: 2,880 ms           as logged: wrong twice, given up later
                               |
                               +---- c: 0 ms -------- b: 2,880 ms           the other order: fits

>>> replay = RateReplay(limit=1_000, windows=Windows())
>>> log = [
...     LoggedRequest(at_ms=60_000.4, jitter_ms=0.0, amount=9_500, logged_ms=0, connection="a"),
...     LoggedRequest(at_ms=60_020.4, jitter_ms=0.0, amount=3_000, logged_ms=2_880, connection="b"),
...     LoggedRequest(at_ms=60_020.7, jitter_ms=0.0, amount=400, logged_ms=0, connection="c"),
... ]
>>> throttles = [throttle for request in log for throttle in replay.feed(request)] + list(replay.finish())
>>> [(one.logged_ms, one.predicted_ms) for one in throttles]
[(0, 0), (2880, 2880)]
>>> [one.unguided_ms for one in throttles]  # without learning from what was logged
[2880, 2480]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import permutations
from math import floor
from typing import Final, NamedTuple

from kquota.metering.meters import BucketMeter
from kquota.metering.statistics import SampledRate, Windows
from kquota.metering.throttling import LONGEST_MS, rate_throttle_ms

__all__ = ["CLOSE_MS", "CLOSE_SHARE", "BucketReplay", "ComparedThrottle", "LoggedRequest", "RateReplay", "is_close"]

CLOSE_MS: Final = 5
CLOSE_SHARE: Final = 0.05
"""A predicted throttle time is close to the logged one within the larger of 5 ms and 5 % of the logged one."""

LOGGING_MS: Final = 0.4
"""Between sending an answer and the stamp of its line, approximately: the broker writes the JSON."""
TOGETHER_MS: Final = 1.2
"""Requests of different connections this close to each other may have been counted in another order."""
MOST_TOGETHER: Final = 3
MOST_HYPOTHESES: Final = 64
MOST_PENALTY: Final = 3.0
"""A hypothesis that fits worse than the best by this much is given up."""

WAIT_PARTS: Final = 16
"""The time that a request waited for the controller is divided into this many parts."""
THROTTLES_AHEAD: Final = 20
"""This many throttle times of a meter are read before the first of them is decided."""
_FAR_OFF_MS: Final = 100
_REMEMBERED: Final = 0.9


class LoggedRequest(NamedTuple):
    """One logged request on one meter."""

    at_ms: float
    """When it was counted, by its line; ms since the epoch."""
    jitter_ms: float
    """By how much it may have been earlier."""
    amount: float
    logged_ms: int
    """Its throttle time; 0 for none."""
    is_refunded: bool = False
    """A throttled fetch: its bytes are subtracted again."""
    connection: str = ""
    broker_id: int = 0
    """Which broker's log it is from."""
    is_upper_bound: bool = False
    """The throttle time may be another limit's: this one's was at most that."""
    is_known: bool = True
    """Whether the log has all requests before it that still count; otherwise its throttle time decides nothing."""
    limit: float | None = None
    """The limit in force at its time; None: that of the replay."""


class ComparedThrottle(NamedTuple):
    """The throttle time that the broker logged for a request, and those that the replay calculates."""

    broker_id: int
    at_ms: float
    logged_ms: int
    predicted_ms: int
    unguided_ms: int
    """Predicted without learning from logged throttle times."""
    is_compared: bool
    """Whether it is known to be this limit's, and all that it depends on is in the log."""


def is_close(predicted_ms: float, logged_ms: float) -> bool:
    """Whether a prediction is close to the logged throttle time."""
    return abs(predicted_ms - logged_ms) <= max(CLOSE_MS, CLOSE_SHARE * logged_ms)


class _Throttles(NamedTuple):
    """Throttle times of a hypothesis that are not decided yet, the last first; what is before a fork is shared."""

    last: ComparedThrottle
    before: _Throttles | None


class _Hypothesis:
    """One way in which the requests may have been counted."""

    __slots__ = ("forked_ms", "penalty", "rate", "throttles")

    def __init__(self, rate: SampledRate, penalty: float, forked_ms: float, throttles: _Throttles | None) -> None:
        self.rate = rate
        self.penalty = penalty
        self.forked_ms = forked_ms
        self.throttles = throttles

    def copy(self) -> _Hypothesis:
        return _Hypothesis(self.rate.copy(), self.penalty, self.forked_ms, self.throttles)


class RateReplay:
    """A meter of a byte rate on one broker: :meth:`feed` takes its requests in the order of their times."""

    def __init__(self, limit: float, windows: Windows, *, follow: bool = True) -> None:
        """Take the limit that was in force.

        :param follow: False: nothing is learned from logged throttle times, and `predicted_ms` is `unguided_ms`.
        """
        self._limit = limit
        self._follow = follow
        self._decided_after_ms = 2 * (windows.span_ms + windows.size_ms)
        self._plain = SampledRate(windows)
        self._hypotheses = [_Hypothesis(SampledRate(windows), 0.0, 0.0, None)]
        self._buffered: list[tuple[LoggedRequest, int]] = []

    def feed(self, request: LoggedRequest) -> Iterator[ComparedThrottle]:
        """Count a request; gives the throttle times that are decided by it, of this request or of earlier ones.

        Requests without a throttle time, logged or predicted, are left out.
        """
        at_ms = _likely_ms(request.at_ms)
        unguided_ms = self._count(self._plain, request, at_ms)
        if not self._follow:
            if unguided_ms > 0 or request.logged_ms > 0:
                yield _throttle(request, unguided_ms, unguided_ms)
            return
        buffered = self._buffered
        if buffered and (len(buffered) == MOST_TOGETHER or request.at_ms - buffered[0][0].at_ms >= TOGETHER_MS):
            yield from self._count_buffered()
        self._buffered.append((request, unguided_ms))

    def finish(self) -> Iterator[ComparedThrottle]:
        """The throttle times that are not decided yet."""
        if self._buffered:
            yield from self._count_buffered()
        yield from self._decide(self._hypotheses[0])

    def _count_buffered(self) -> Iterator[ComparedThrottle]:
        buffered, self._buffered = self._buffered, []
        orders = _orders(buffered)
        last_ms = buffered[-1][0].at_ms
        hypotheses = [
            continued
            for hypothesis in self._hypotheses
            for order, requests in enumerate(orders)
            for continued in self._continued(hypothesis, requests, order, is_last=order == len(orders) - 1)
        ]
        if len(hypotheses) > 1:
            hypotheses = self._likely(hypotheses)
            if last_ms - max(hypothesis.forked_ms for hypothesis in hypotheses) > self._decided_after_ms:
                del hypotheses[1:]
        if len(hypotheses) == 1:
            yield from self._decide(hypotheses[0])
        self._hypotheses = hypotheses

    def _continued(
        self, hypothesis: _Hypothesis, requests: list[tuple[LoggedRequest, int]], order: int, *, is_last: bool
    ) -> list[_Hypothesis]:
        """The hypothesis with these requests in this order, once for each moment that they may have been counted at."""
        hypothesis = hypothesis if is_last else hypothesis.copy()
        if order or not is_last:
            hypothesis.forked_ms = requests[0][0].at_ms
            hypothesis.penalty += 0.02 * (order > 0)
        hypotheses = [hypothesis]
        for request, unguided_ms in requests:
            hypotheses = [continued for one in hypotheses for continued in self._with(one, request, unguided_ms)]
        return hypotheses

    def _with(self, hypothesis: _Hypothesis, request: LoggedRequest, unguided_ms: int) -> Iterator[_Hypothesis]:
        moments = _moments(hypothesis.rate, request)
        for number, at_ms in enumerate(moments):
            one = hypothesis if number == len(moments) - 1 else hypothesis.copy()
            if len(moments) > 1:
                one.forked_ms = at_ms
                one.penalty += (0.01 + 0.005 * abs(at_ms - moments[0])) * (number > 0)
            predicted_ms = self._count(one.rate, request, at_ms)
            if predicted_ms > 0 or request.logged_ms > 0:
                one.penalty += _penalty(request, predicted_ms)
            if predicted_ms > 0 or request.logged_ms > 0 or unguided_ms > 0:
                one.throttles = _Throttles(_throttle(request, predicted_ms, unguided_ms), one.throttles)
            yield one

    def _count(self, rate: SampledRate, request: LoggedRequest, at_ms: int) -> int:
        measured = rate.add(request.amount, at_ms)
        limit = self._limit if request.limit is None else request.limit
        throttle_ms = rate_throttle_ms(measured, limit, rate.added_over_ms) if measured > limit else 0
        if request.is_refunded:
            rate.record(-request.amount, at_ms)
        return min(throttle_ms, LONGEST_MS)

    def _likely(self, hypotheses: list[_Hypothesis]) -> list[_Hypothesis]:
        """The hypotheses that fit, best first; of those with the same samples, the best."""
        hypotheses.sort(key=lambda hypothesis: hypothesis.penalty)
        enough = hypotheses[0].penalty + MOST_PENALTY
        found: dict[object, _Hypothesis] = {}
        for hypothesis in hypotheses:
            if hypothesis.penalty <= enough and len(found) < MOST_HYPOTHESES:
                found.setdefault(hypothesis.rate.state(), hypothesis)
        return list(found.values())

    def _decide(self, hypothesis: _Hypothesis) -> Iterator[ComparedThrottle]:
        decided = []
        throttles, hypothesis.throttles = hypothesis.throttles, None
        while throttles is not None:
            decided.append(throttles.last)
            throttles = throttles.before
        return reversed(decided)


class BucketReplay:
    """A meter of controller mutations: :meth:`feed` takes its requests in the order of their times.

    A request's line says for how long the broker waited for the controller, but not when in that time the tokens were
    taken. That matters only where the bucket was full: the tokens that it gained until then are lost. So there is a
    bucket for each part of that time, and the throttle times that were logged later decide which is right.
    """

    def __init__(self, limit: float, windows: Windows) -> None:
        self._limit = limit
        self._meters = [BucketMeter({}, limit, windows) for _ in range(WAIT_PARTS + 1)]
        self._penalties = [0.0 for _ in self._meters]
        self._buffered: deque[tuple[LoggedRequest, list[int]]] = deque()

    def feed(self, request: LoggedRequest, *, strict: bool, controller_ms: float) -> Iterator[ComparedThrottle]:
        """Take the request's tokens; gives the throttle times that are decided by it.

        :param controller_ms: for how long it waited for the controller, after `at_ms`.
        """
        predicted = [
            self._count(meter, request, controller_ms * part / WAIT_PARTS, controller_ms, strict=strict)
            for part, meter in enumerate(self._meters)
        ]
        if request.logged_ms > 0 or any(predicted):
            for part, predicted_ms in enumerate(predicted):
                off_ms = min(abs(predicted_ms - request.logged_ms), _FAR_OFF_MS)
                self._penalties[part] = self._penalties[part] * _REMEMBERED + off_ms
            self._buffered.append((request, predicted))
        if len(self._buffered) > THROTTLES_AHEAD:
            yield self._oldest()

    def finish(self) -> Iterator[ComparedThrottle]:
        """The throttle times that are not decided yet."""
        while self._buffered:
            yield self._oldest()

    def _oldest(self) -> ComparedThrottle:
        request, predicted = self._buffered.popleft()
        return _throttle(request, predicted[self._penalties.index(min(self._penalties))], predicted[0])

    def _count(
        self, meter: BucketMeter, request: LoggedRequest, part_ms: float, controller_ms: float, *, strict: bool
    ) -> int:
        # A refusal takes nothing and is answered at once: half of the wait was the way there, half the way back. A
        # request that is done is answered when it is committed.
        at_ms = _likely_ms(request.at_ms + (part_ms if request.amount else 0.0))
        answered_after_ms = controller_ms - part_ms if request.amount else controller_ms / 2
        meter.limit = self._limit if request.limit is None else request.limit
        # Not by the rule of charge: the log says what was accepted, and that is recorded.
        missing_ms = _missing_ms(meter, at_ms) if strict else 0
        meter.record_unchecked(request.amount, at_ms)
        # The rest of a strict request was refused after its first topics had taken what there was.
        if not missing_ms and (not strict or request.logged_ms > 0):
            missing_ms = _missing_ms(meter, at_ms)
        return max(0, floor(missing_ms - answered_after_ms + 0.5))


def _missing_ms(meter: BucketMeter, at_ms: int) -> int:
    throttle = meter.check(at_ms)
    return 0 if throttle is None else throttle.throttle_ms


def _orders(buffered: list[tuple[LoggedRequest, int]]) -> list[list[tuple[LoggedRequest, int]]]:
    """The orders in which requests may have been counted: those of one connection never overlap."""
    connections = [request.connection for request, _ in buffered]
    if len(set(connections)) < 2 or not any(request.logged_ms for request, _ in buffered):
        return [buffered]
    return [
        [buffered[place] for place in order]
        for order in permutations(range(len(buffered)))
        if all(
            first < second or connections[first] != connections[second]
            for at, first in enumerate(order)
            for second in order[at + 1 :]
        )
    ]


def _likely_ms(at_ms: float) -> int:
    """The broker's millisecond that a time of the log most likely stands for."""
    return floor(at_ms - LOGGING_MS + 0.5)


def _moments(rate: SampledRate, request: LoggedRequest) -> list[int]:
    """When it may have been counted, the most likely first: one moment for each thing that it may decide."""
    likely = _likely_ms(request.at_ms)
    earliest = floor(request.at_ms - LOGGING_MS - request.jitter_ms)
    latest = floor(request.at_ms - LOGGING_MS) + 2  # an edge itself may be a millisecond too late
    moments = [likely]
    for edge_ms in rate.edges_ms():
        if earliest < edge_ms <= latest:
            other = int(edge_ms) if likely < edge_ms else int(edge_ms) - 1
            if other not in moments:
                moments.append(other)
    return moments


def _penalty(request: LoggedRequest, predicted_ms: int) -> float:
    """How badly a prediction fits."""
    if not request.is_known:
        return 0.0
    off_ms = predicted_ms - request.logged_ms
    if request.is_upper_bound and off_ms <= 0:
        return 0.0
    if abs(off_ms) <= 2:
        return 0.0
    return 0.3 if is_close(predicted_ms, request.logged_ms) else 1.0


def _throttle(request: LoggedRequest, predicted_ms: int, unguided_ms: int) -> ComparedThrottle:
    is_other_limits = request.is_upper_bound and (
        predicted_ms <= 0 or (predicted_ms < request.logged_ms and not is_close(predicted_ms, request.logged_ms))
    )
    is_compared = request.is_known and not is_other_limits
    return ComparedThrottle(
        request.broker_id, request.at_ms, request.logged_ms, max(predicted_ms, 0), max(unguided_ms, 0), is_compared
    )
