"""The requests of many meters, one meter after the other, through the replay that each key needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from kquota.config import BrokerConfig
from kquota.metering.meters import RateMeter
from kquota.metering.requests import is_strict
from kquota.metering.statistics import Windows
from kquota.pipeline.calibration.broker_replay import BucketReplay, LoggedRequest, RateReplay, SettledThrottle
from kquota.quotas import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE

__all__ = ["MeterRequest", "ReplayedThrottle", "replay_meters"]

SHARE_LOGGED: Final = (0.9, 0.7, 0.5)
"""The part of the time on a broker's threads that its log has: the most, the middle and the least that was seen."""


class MeterRequest(NamedTuple):
    """A request on a meter, in the order of `at_ms` within the meter. See :class:`LoggedRequest`."""

    cluster: str
    meter: str
    key: str
    home: int
    """The broker that counts it, -1 for the controller."""
    broker_id: int
    limit: float
    """The one in force at its time."""
    is_throttled: bool
    """Whether any client of the meter was told to wait."""
    is_ambiguous: bool
    """Whether another limit may have told the wait: the client's request time is limited, too, or this is that."""
    connection: str
    api_key: int
    api_version: int
    at_ms: float
    jitter_ms: float
    amount: float
    told_ms: int
    is_refunded: bool
    remote_ms: float


class ReplayedThrottle(NamedTuple):
    """A wait that was told or predicted, in the columns of `to_replayed_throttles`."""

    cluster: str
    meter: str
    key: str
    broker_id: int
    at_ms: float
    told_ms: int
    predicted_ms: int
    unguided_ms: int
    low_ms: int
    high_ms: int
    is_compared: bool


def replay_meters(
    rows: Iterable[tuple[object, ...]], broker_config: BrokerConfig, first_ms: Mapping[tuple[str, int], float]
) -> Iterator[ReplayedThrottle]:
    """The waits of meters that come one after the other, as rows of :class:`MeterRequest`.

    :param first_ms: when the log of each cluster and broker begins.
    """
    windows = Windows(broker_config.quota_window_num, broker_config.quota_window_size_seconds * 1000)
    controller = Windows(
        broker_config.controller_quota_window_num, broker_config.controller_quota_window_size_seconds * 1000
    )
    requests = map(MeterRequest._make, rows)
    for (cluster, _, key, home), group in groupby(
        requests, key=lambda one: (one.cluster, one.meter, one.key, one.home)
    ):
        if key == CONTROLLER_MUTATION_RATE:
            yield from _mutations(group, controller)
        elif key == REQUEST_PERCENTAGE:
            yield from _time(group, windows)
        else:
            # What was counted before shows for one round of windows, and when that was forgotten for another.
            yield from _bytes(group, windows, known_from_ms=first_ms[cluster, home] + 2 * windows.span_ms)


def _bytes(requests: Iterator[MeterRequest], windows: Windows, *, known_from_ms: float) -> Iterator[ReplayedThrottle]:
    replay: RateReplay | None = None
    for one in requests:
        if replay is None:
            replay = RateReplay(one.limit, windows, follow=one.is_throttled)
        request = LoggedRequest(
            at_ms=one.at_ms,
            jitter_ms=one.jitter_ms,
            amount=one.amount,
            told_ms=one.told_ms,
            is_refunded=one.is_refunded,
            connection=one.connection,
            broker_id=one.broker_id,
            # The longer of two waits is told, and one for request time is a window long at most.
            is_upper_bound=one.is_ambiguous and one.told_ms <= windows.size_ms,
            is_known=one.at_ms >= known_from_ms,
            limit=one.limit,
        )
        yield from (_wait(one, wait) for wait in replay.feed(request))
    if replay is not None:
        yield from (_wait(one, wait) for wait in replay.finish())


def _wait(request: MeterRequest, wait: SettledThrottle) -> ReplayedThrottle:
    """The wait of this request, or of one before it on the same meter."""
    return ReplayedThrottle(
        request.cluster,
        request.meter,
        request.key,
        wait.broker_id,
        wait.at_ms,
        wait.told_ms,
        wait.predicted_ms,
        wait.unguided_ms,
        wait.predicted_ms,
        wait.predicted_ms,
        wait.is_compared,
    )


def _mutations(requests: Iterator[MeterRequest], windows: Windows) -> Iterator[ReplayedThrottle]:
    replay: BucketReplay | None = None
    for one in requests:
        if replay is None:
            replay = BucketReplay(one.limit, windows)
        request = LoggedRequest(
            at_ms=one.at_ms,
            jitter_ms=0.0,
            amount=one.amount,
            told_ms=one.told_ms,
            broker_id=one.broker_id,
            limit=one.limit,
        )
        waits = replay.feed(request, strict=is_strict(one.api_key, one.api_version), controller_ms=one.remote_ms)
        yield from (_wait(one, wait) for wait in waits)
    if replay is not None:
        yield from (_wait(one, wait) for wait in replay.finish())


def _time(requests: Iterator[MeterRequest], windows: Windows) -> Iterator[ReplayedThrottle]:
    """An estimate: the log has only a part of the time that is counted."""
    meters: list[RateMeter] = []
    for one in requests:
        if not meters:
            meters = [RateMeter({}, one.limit, windows, windows.size_ms) for _ in SHARE_LOGGED]
        for meter in meters:
            meter.limit = one.limit
        low_ms, middle_ms, high_ms = (
            0 if (throttle := meter.record(one.amount / share, int(one.at_ms))) is None else throttle.throttle_ms
            for meter, share in zip(meters, SHARE_LOGGED, strict=True)
        )
        is_times = one.told_ms <= windows.size_ms and not one.is_ambiguous
        if high_ms > 0 or one.told_ms > 0:
            yield ReplayedThrottle(
                one.cluster, one.meter, one.key, one.broker_id,
                one.at_ms, one.told_ms, middle_ms, middle_ms, low_ms, high_ms, is_times,
            )  # fmt: skip
