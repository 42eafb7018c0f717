"""The requests of many meters, one meter after the other: each key has the replay that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from kquota.config import BrokerConfig
from kquota.metering.meters import RateMeter
from kquota.metering.requests import is_strict
from kquota.metering.statistics import Windows
from kquota.pipeline.calibration.broker_replay import BucketReplay, ComparedThrottle, LoggedRequest, RateReplay
from kquota.quotas import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE

__all__ = ["MeterRequest", "ReplayedThrottle", "replay_meters"]

SHARE_LOGGED: Final = (0.9, 0.7, 0.5)
"""The part of the time on a broker's threads that its log has: the most that was seen, the middle, and the least."""


class MeterRequest(NamedTuple):
    """A request on a meter, in the order of `at_ms` within the meter. See :class:`LoggedRequest`."""

    cluster: str
    meter: str
    key: str
    counting_broker_id: int
    """The broker that counts it, -1 for the controller."""
    broker_id: int
    limit: float
    """The one in force at its time."""
    is_throttled: bool
    """Whether any client of the meter was throttled."""
    is_ambiguous: bool
    """Whether the throttle time may be another limit's: the client's request time is limited, too, or this is that."""
    connection: str
    api_key: int
    api_version: int
    at_ms: float
    jitter_ms: float
    amount: float
    logged_ms: int
    is_refunded: bool
    remote_ms: float


class ReplayedThrottle(NamedTuple):
    """A throttle time that was logged or predicted, in the columns of `to_replayed_throttles`."""

    cluster: str
    meter: str
    key: str
    broker_id: int
    at_ms: float
    logged_ms: int
    predicted_ms: int
    unguided_ms: int
    low_ms: int
    high_ms: int
    is_compared: bool


def replay_meters(
    rows: Iterable[tuple[object, ...]], broker_config: BrokerConfig, first_ms: Mapping[tuple[str, int], float]
) -> Iterator[ReplayedThrottle]:
    """The throttle times of meters that come one after the other, as rows of :class:`MeterRequest`.

    :param first_ms: when the log of each cluster and broker begins.
    """
    windows = Windows(broker_config.quota_window_num, broker_config.quota_window_size_seconds * 1000)
    controller = Windows(
        broker_config.controller_quota_window_num, broker_config.controller_quota_window_size_seconds * 1000
    )
    requests = map(MeterRequest._make, rows)
    for (cluster, _, key, broker_id), group in groupby(
        requests, key=lambda one: (one.cluster, one.meter, one.key, one.counting_broker_id)
    ):
        if key == CONTROLLER_MUTATION_RATE:
            yield from _mutations(group, controller)
        elif key == REQUEST_PERCENTAGE:
            yield from _time(group, windows)
        else:
            # What was counted before the log began counts for all windows, and shapes the samples for as long again.
            yield from _bytes(group, windows, known_from_ms=first_ms[cluster, broker_id] + 2 * windows.span_ms)


def _bytes(requests: Iterator[MeterRequest], windows: Windows, *, known_from_ms: float) -> Iterator[ReplayedThrottle]:
    replay: RateReplay | None = None
    for one in requests:
        if replay is None:
            replay = RateReplay(one.limit, windows, follow=one.is_throttled)
        request = LoggedRequest(
            at_ms=one.at_ms,
            jitter_ms=one.jitter_ms,
            amount=one.amount,
            logged_ms=one.logged_ms,
            is_refunded=one.is_refunded,
            connection=one.connection,
            broker_id=one.broker_id,
            # The broker returns the longer of two throttle times, and that of request time is at most a window.
            is_upper_bound=one.is_ambiguous and one.logged_ms <= windows.size_ms,
            is_known=one.at_ms >= known_from_ms,
            limit=one.limit,
        )
        yield from (_throttle(one, decided) for decided in replay.feed(request))
    if replay is not None:
        yield from (_throttle(one, decided) for decided in replay.finish())


def _throttle(request: MeterRequest, decided: ComparedThrottle) -> ReplayedThrottle:
    """The throttle time of this request, or of one before it on the same meter."""
    return ReplayedThrottle(
        request.cluster,
        request.meter,
        request.key,
        decided.broker_id,
        decided.at_ms,
        decided.logged_ms,
        decided.predicted_ms,
        decided.unguided_ms,
        decided.predicted_ms,
        decided.predicted_ms,
        decided.is_compared,
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
            logged_ms=one.logged_ms,
            broker_id=one.broker_id,
            limit=one.limit,
        )
        strict = is_strict(one.api_key, one.api_version)
        yield from (_throttle(one, each) for each in replay.feed(request, strict=strict, controller_ms=one.remote_ms))
    if replay is not None:
        yield from (_throttle(one, decided) for decided in replay.finish())


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
        is_times = one.logged_ms <= windows.size_ms and not one.is_ambiguous
        if high_ms > 0 or one.logged_ms > 0:
            yield ReplayedThrottle(
                one.cluster, one.meter, one.key, one.broker_id,
                one.at_ms, one.logged_ms, middle_ms, middle_ms, low_ms, high_ms, is_times,
            )  # fmt: skip
