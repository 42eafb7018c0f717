"""What a broker told the clients of one meter, computed anew from its request log.

A broker counts a request at one moment of its clock. The log has that moment only about: a line is stamped in whole
milliseconds, some time after the answer was sent. Mostly that is of no account. Where it decides something (whether a
sample began, whether one was forgotten, which of two connections came first), one decision changes the waits of the
next eleven seconds. So all that the line allows is followed, and what the broker told later tells which it was.
`unguided_ms` is what comes out without that.
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

__all__ = ["CLOSE_MS", "CLOSE_SHARE", "BucketReplay", "LoggedRequest", "RateReplay", "SettledThrottle", "is_close"]

CLOSE_MS: Final = 5
CLOSE_SHARE: Final = 0.05
"""Two waits are close within the larger of these many milliseconds and this part of the one told."""

LOGGING_MS: Final = 0.4
"""From an answer that is sent to the stamp of its line, about: what the broker needs to write the JSON."""
TOGETHER_MS: Final = 1.2
"""Requests of different connections this close to each other may have been counted in another order."""
MOST_TOGETHER: Final = 3
MOST_PATHS: Final = 64
MOST_PENALTY: Final = 3.0
"""A path that fits worse than the best by this much is given up."""

WAIT_PARTS: Final = 16
"""Into so many parts the wait for a controller is divided."""
WAITS_AHEAD: Final = 20
"""So many waits of a meter are looked at before one of them is settled."""
_FAR_OFF_MS: Final = 100
_REMEMBERED: Final = 0.9


class LoggedRequest(NamedTuple):
    """One logged request on one meter."""

    at_ms: float
    """When it was counted, as far as the line says."""
    jitter_ms: float
    """By how much it may have been earlier."""
    amount: float
    told_ms: int
    is_refunded: bool = False
    """A throttled fetch: what was counted is taken off again."""
    connection: str = ""
    broker_id: int = 0
    """Which broker's log it is from."""
    is_upper_bound: bool = False
    """Another limit may have told it: this one's wait was at most that."""
    is_known: bool = True
    """Whether all that was counted before is in the log; otherwise nothing can be learned from its wait."""
    limit: float | None = None
    """The limit in force at its time; None: the one that the replay was begun with."""


class SettledThrottle(NamedTuple):
    """What the broker told, and what the replay says."""

    broker_id: int
    at_ms: float
    told_ms: int
    predicted_ms: int
    unguided_ms: int
    is_compared: bool


def is_close(predicted_ms: float, told_ms: float) -> bool:
    """Whether two waits are close."""
    return abs(predicted_ms - told_ms) <= max(CLOSE_MS, CLOSE_SHARE * told_ms)


class _Answers(NamedTuple):
    """Waits since the paths parted, the last first."""

    wait: SettledThrottle
    before: _Answers | None


class _Path:
    """One way in which it may have been."""

    __slots__ = ("answers", "parted_ms", "penalty", "rate")

    def __init__(self, rate: SampledRate, penalty: float, parted_ms: float, answers: _Answers | None) -> None:
        self.rate = rate
        self.penalty = penalty
        self.parted_ms = parted_ms
        self.answers = answers

    def copy(self) -> _Path:
        return _Path(self.rate.copy(), self.penalty, self.parted_ms, self.answers)


class RateReplay:
    """A meter of a byte rate, on one broker. Give it the requests in the order of their times."""

    def __init__(self, limit: float, windows: Windows, *, follow: bool = True) -> None:
        """Take the limit that was in force.

        :param follow: without it nothing is learned from what the broker told: `predicted_ms` is `unguided_ms`.
        """
        self._limit = limit
        self._follow = follow
        self._settled_after_ms = 2 * (windows.span_ms + windows.size_ms)
        self._plain = SampledRate(windows)
        self._paths = [_Path(SampledRate(windows), 0.0, 0.0, None)]
        self._held: list[tuple[LoggedRequest, int]] = []

    def feed(self, request: LoggedRequest) -> Iterator[SettledThrottle]:
        """Count a request; gives the waits that have become certain, of this one or of earlier ones.

        Requests that nobody made wait are left out.
        """
        at_ms = _likely_ms(request.at_ms)
        unguided_ms = self._count(self._plain, request, at_ms)
        if not self._follow:
            if unguided_ms > 0 or request.told_ms > 0:
                yield _waited(request, unguided_ms, unguided_ms)
            return
        held = self._held
        if held and (len(held) == MOST_TOGETHER or request.at_ms - held[0][0].at_ms >= TOGETHER_MS):
            yield from self._count_held()
        self._held.append((request, unguided_ms))

    def finish(self) -> Iterator[SettledThrottle]:
        """The waits that are left."""
        if self._held:
            yield from self._count_held()
        yield from self._settle(self._paths[0])

    def _count_held(self) -> Iterator[SettledThrottle]:
        held, self._held = self._held, []
        orders = _orders(held)
        last_ms = held[-1][0].at_ms
        paths = [
            continued
            for path in self._paths
            for order, requests in enumerate(orders)
            for continued in self._continued(path, requests, order, is_last=order == len(orders) - 1)
        ]
        if len(paths) > 1:
            paths = self._likely(paths)
            if last_ms - max(path.parted_ms for path in paths) > self._settled_after_ms:
                del paths[1:]
        if len(paths) == 1:
            yield from self._settle(paths[0])
        self._paths = paths

    def _continued(
        self, path: _Path, requests: list[tuple[LoggedRequest, int]], order: int, *, is_last: bool
    ) -> list[_Path]:
        """The path with these requests in this order, once for each way in which it can go on."""
        path = path if is_last else path.copy()
        if order or not is_last:
            path.parted_ms = requests[0][0].at_ms
            path.penalty += 0.02 * (order > 0)
        paths = [path]
        for request, unguided_ms in requests:
            paths = [continued for one in paths for continued in self._with(one, request, unguided_ms)]
        return paths

    def _with(self, path: _Path, request: LoggedRequest, unguided_ms: int) -> Iterator[_Path]:
        moments = _moments(path.rate, request)
        for number, at_ms in enumerate(moments):
            one = path if number == len(moments) - 1 else path.copy()
            if len(moments) > 1:
                one.parted_ms = at_ms
                one.penalty += (0.01 + 0.005 * abs(at_ms - moments[0])) * (number > 0)
            predicted_ms = self._count(one.rate, request, at_ms)
            if predicted_ms > 0 or request.told_ms > 0:
                one.penalty += _penalty(request, predicted_ms)
            if predicted_ms > 0 or request.told_ms > 0 or unguided_ms > 0:
                one.answers = _Answers(_waited(request, predicted_ms, unguided_ms), one.answers)
            yield one

    def _count(self, rate: SampledRate, request: LoggedRequest, at_ms: int) -> int:
        measured = rate.add(request.amount, at_ms)
        limit = self._limit if request.limit is None else request.limit
        wait_ms = rate_throttle_ms(measured, limit, rate.added_over_ms) if measured > limit else 0
        if request.is_refunded:
            rate.record(-request.amount, at_ms)
        return min(wait_ms, LONGEST_MS)

    def _likely(self, paths: list[_Path]) -> list[_Path]:
        """The paths that fit, best first; of those that have come to the same, the best."""
        paths.sort(key=lambda path: path.penalty)
        enough = paths[0].penalty + MOST_PENALTY
        found: dict[object, _Path] = {}
        for path in paths:
            if path.penalty <= enough and len(found) < MOST_PATHS:
                found.setdefault(path.rate.state(), path)
        return list(found.values())

    def _settle(self, path: _Path) -> Iterator[SettledThrottle]:
        waits = []
        answers, path.answers = path.answers, None
        while answers is not None:
            waits.append(answers.wait)
            answers = answers.before
        return reversed(waits)


class BucketReplay:
    """A meter of controller mutations. Give it the requests in the order of their times.

    What the broker waited for the controller is on a request's line, and not when in that time the tokens were taken.
    That only counts where the bucket was full: whatever ran over until then is lost. So there is a bucket for each part
    of the time, and what was told later tells which is right.
    """

    def __init__(self, limit: float, windows: Windows) -> None:
        self._limit = limit
        self._meters = [BucketMeter({}, limit, windows) for _ in range(WAIT_PARTS + 1)]
        self._penalties = [0.0 for _ in self._meters]
        self._held: deque[tuple[LoggedRequest, list[int]]] = deque()

    def feed(self, request: LoggedRequest, *, strict: bool, controller_ms: float) -> Iterator[SettledThrottle]:
        """Take the request's tokens; gives the waits that have become certain, of this one or of earlier ones.

        :param controller_ms: what its answer waited for the controller, after `at_ms`.
        """
        predicted = [
            self._count(meter, request, controller_ms * part / WAIT_PARTS, controller_ms, strict=strict)
            for part, meter in enumerate(self._meters)
        ]
        if request.told_ms > 0 or any(predicted):
            for part, predicted_ms in enumerate(predicted):
                off_ms = min(abs(predicted_ms - request.told_ms), _FAR_OFF_MS)
                self._penalties[part] = self._penalties[part] * _REMEMBERED + off_ms
            self._held.append((request, predicted))
        if len(self._held) > WAITS_AHEAD:
            yield self._oldest()

    def finish(self) -> Iterator[SettledThrottle]:
        """The waits that are left."""
        while self._held:
            yield self._oldest()

    def _oldest(self) -> SettledThrottle:
        request, predicted = self._held.popleft()
        return _waited(request, predicted[self._penalties.index(min(self._penalties))], predicted[0])

    def _count(
        self, meter: BucketMeter, request: LoggedRequest, part_ms: float, controller_ms: float, *, strict: bool
    ) -> int:
        # A refusal takes nothing and is told at once: half of the wait was the way there, half the way back. What is
        # written is told about when it is committed.
        at_ms = _likely_ms(request.at_ms + (part_ms if request.amount else 0.0))
        answered_after_ms = controller_ms - part_ms if request.amount else controller_ms / 2
        meter.limit = self._limit if request.limit is None else request.limit
        # Not by the rule of charge: the log says what was accepted, and that is counted.
        missing_ms = _missing_ms(meter, at_ms) if strict else 0
        meter.record_unchecked(request.amount, at_ms)
        # The rest of a strict request was refused after its first topics had taken what there was.
        if not missing_ms and (not strict or request.told_ms > 0):
            missing_ms = _missing_ms(meter, at_ms)
        return max(0, floor(missing_ms - answered_after_ms + 0.5))


def _missing_ms(meter: BucketMeter, at_ms: int) -> int:
    throttle = meter.check(at_ms)
    return 0 if throttle is None else throttle.throttle_ms


def _orders(held: list[tuple[LoggedRequest, int]]) -> list[list[tuple[LoggedRequest, int]]]:
    """The orders in which requests may have been counted: those of one connection never overlap."""
    connections = [request.connection for request, _ in held]
    if len(set(connections)) < 2 or not any(request.told_ms for request, _ in held):
        return [held]
    return [
        [held[place] for place in order]
        for order in permutations(range(len(held)))
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
    latest = floor(request.at_ms - LOGGING_MS) + 2  # an edge may itself stand a millisecond late
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
    off_ms = predicted_ms - request.told_ms
    if request.is_upper_bound and off_ms <= 0:
        return 0.0
    if abs(off_ms) <= 2:
        return 0.0
    return 0.3 if is_close(predicted_ms, request.told_ms) else 1.0


def _waited(request: LoggedRequest, predicted_ms: int, unguided_ms: int) -> SettledThrottle:
    is_other_limits = request.is_upper_bound and (
        predicted_ms <= 0 or (predicted_ms < request.told_ms and not is_close(predicted_ms, request.told_ms))
    )
    is_compared = request.is_known and not is_other_limits
    return SettledThrottle(
        request.broker_id, request.at_ms, request.told_ms, max(predicted_ms, 0), max(unguided_ms, 0), is_compared
    )
