"""Meters: what usage was counted on some tags, under which limit, and when last.

Source: ``org.apache.kafka.common.metrics.Sensor``. A value is counted before it is compared, so one that is over the
limit counts too.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Final, NamedTuple

from kquota.metering.statistics import UNLIMITED, SampledRate, SampledTotal, SpreadRate, TokenBucket, Windows
from kquota.metering.throttling import LONGEST_MS, bucket_throttle_ms, rate_throttle_ms
from kquota.quotas import MeterKey

__all__ = [
    "INACTIVE_MS",
    "THROTTLE_TIME_WINDOWS",
    "UNLIMITED",
    "BucketMeter",
    "Meter",
    "RateMeter",
    "SpreadMeter",
    "Throttle",
    "ThrottleTimes",
]

INACTIVE_MS: Final = 3_600_000
"""A meter that nothing was recorded on for longer is dropped; the next record begins a new one."""

THROTTLE_TIME_WINDOWS: Final = Windows(samples=2, size_ms=30_000)
"""Of the metrics that have no windows of their own: ``metrics.num.samples``, ``metrics.sample.window.ms``."""


class Throttle(NamedTuple):
    """Over the limit, and what follows."""

    throttle_ms: int
    unbounded_ms: int
    """Without the manager's bound."""
    value: float
    """The statistic that is over the limit."""
    limit: float
    tags: Mapping[str, str]
    """What it is counted on, empty tags included."""


class ThrottleTimes:
    """The average of the throttle times of the last two half minutes: ``throttle-time``, NaN without any.

    On a broker it is a sensor of its own beside the meter's: made with the meter, dropped where there was none for an
    hour, and made anew for the next request. So it may be missing while there is a meter, and be there without one.
    """

    __slots__ = ("_count", "_sum", "_used_ms")

    def __init__(self) -> None:
        # Most meters are never throttled, so that there is nothing to add up.
        self._sum: SampledTotal | None = None
        self._count: SampledTotal | None = None
        self._used_ms: int | None = None

    def record(self, throttle_ms: int, now_ms: int) -> None:
        """Count one more throttle time, in milliseconds."""
        if self._sum is None or self._count is None:
            self._sum = SampledTotal(THROTTLE_TIME_WINDOWS)
            self._count = SampledTotal(THROTTLE_TIME_WINDOWS)
        self._sum.record(float(throttle_ms), now_ms)
        self._count.record(1.0, now_ms)
        self._used_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Milliseconds."""
        if self._sum is None or self._count is None:
            return float("nan")
        # Both are looked at, also where there is nothing: a look forgets old samples, and moves their beginnings.
        total, count = self._sum.total(now_ms), self._count.total(now_ms)
        return total / count if count else float("nan")

    def exists(self, last_ms: int, swept_ms: int) -> bool:
        """Whether a broker has the sensor: of a meter last used at `last_ms`, with a last look for idle ones at
        `swept_ms`.
        """
        return self._used_ms is not None or last_ms >= swept_ms

    def expire(self, last_ms: int, swept_ms: int, now_ms: int) -> None:
        """Drop the sensor if it is inactive, at a look for idle ones.

        When it was made need not be known better than by the last record before this look: any time between two looks
        leads to the same look that drops it.
        """
        if self._used_ms is None and last_ms >= swept_ms:
            self._used_ms = last_ms
        if self._used_ms is not None and now_ms - self._used_ms > INACTIVE_MS:
            self._sum = self._count = self._used_ms = None


class RateMeter:
    """Usage per second under a limit."""

    __slots__ = ("_bound_ms", "compared", "last_ms", "limit", "rate", "tags", "throttle_times", "throttled_until_ms")

    def __init__(self, tags: Mapping[str, str], limit: float, windows: Windows, bound_ms: int | None) -> None:
        self.tags = tags
        self.limit = limit
        self.rate = SampledRate(windows)
        self.compared = 0.0
        """The rate that the limit was compared with last, with the value in it that was recorded then."""
        self.throttle_times = ThrottleTimes()
        self.last_ms = 0
        self.throttled_until_ms = 0
        """The time at which the last throttle ends."""
        self._bound_ms = LONGEST_MS if bound_ms is None else min(bound_ms, LONGEST_MS)

    @property
    def key(self) -> MeterKey:
        """The tags that are not empty."""
        return MeterKey(self.tags)

    def record(self, value: float, now_ms: int) -> Throttle | None:
        """Count `value`; how long to wait, if it is too much."""
        self.last_ms = now_ms
        self.compared = measured = self.rate.add(value, now_ms)
        if measured <= self.limit:
            return None
        unbounded = rate_throttle_ms(measured, self.limit, self.rate.added_over_ms)
        throttle_ms = unbounded
        if throttle_ms > self._bound_ms:
            throttle_ms = self._bound_ms
        self.throttled_until_ms = now_ms + throttle_ms
        return Throttle(throttle_ms, unbounded, measured, self.limit, self.tags)

    def record_unchecked(self, value: float, now_ms: int) -> None:
        """Count `value` and look at no limit; a negative one takes back."""
        self.last_ms = now_ms
        self.rate.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """The usage now: what is recorded (bytes, per cent of a thread, mutations), per second."""
        return self.rate.measure(now_ms)


class BucketMeter:
    """Tokens, with a limit of tokens per second."""

    __slots__ = ("bucket", "last_ms", "limit", "rate", "tags", "throttle_times", "throttled_until_ms")

    def __init__(self, tags: Mapping[str, str], limit: float, windows: Windows) -> None:
        self.tags = tags
        self.limit = limit
        self.bucket = TokenBucket(windows)
        self.rate = SampledRate(THROTTLE_TIME_WINDOWS)
        self.throttle_times = ThrottleTimes()
        self.last_ms = 0
        self.throttled_until_ms = 0
        """The time at which the last throttle ends."""

    @property
    def key(self) -> MeterKey:
        """The tags that are not empty."""
        return MeterKey(self.tags)

    def check(self, now_ms: int) -> Throttle | None:
        """How long to wait, if tokens are missing. Looking is no use: an idle meter stays one."""
        tokens = self.bucket.measure(now_ms, self.limit)
        return self._throttle(bucket_throttle_ms(tokens, self.limit), tokens, now_ms) if tokens < 0 else None

    def record(self, value: float, now_ms: int) -> Throttle | None:
        """Take `value` tokens; how long to wait, if then some are missing."""
        self.record_unchecked(value, now_ms)
        return self.check(now_ms)

    def record_strict(self, value: float, now_ms: int) -> Throttle | None:
        """Take `value` tokens, however many, unless some are missing already: then none are taken, and this is how long
        to wait until they are back.
        """
        throttle = self.check(now_ms)
        if throttle is None:
            self.record_unchecked(value, now_ms)
        return throttle

    def record_unchecked(self, value: float, now_ms: int) -> None:
        """Take `value` tokens, below zero too; a negative one gives back."""
        self.last_ms = now_ms
        self.bucket.record(value, now_ms, self.limit)
        self.rate.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """Tokens that are there."""
        return self.bucket.measure(now_ms, self.limit)

    def _throttle(self, unbounded_ms: int, measured: float, now_ms: int) -> Throttle:
        throttle_ms = min(unbounded_ms, LONGEST_MS)
        self.throttled_until_ms = now_ms + throttle_ms
        return Throttle(throttle_ms, unbounded_ms, measured, self.limit, self.tags)


class SpreadMeter(BucketMeter):
    """Under the rate that KIP-599's page proposed before the bucket. Kafka has no such meter.

    A change is admitted while the rate is not above the limit; otherwise its client waits until the windows are
    forgotten that are too many.
    """

    __slots__ = ("spread",)

    def __init__(self, tags: Mapping[str, str], limit: float, windows: Windows) -> None:
        super().__init__(tags, limit, windows)
        self.spread = SpreadRate(windows)

    def check(self, now_ms: int) -> Throttle | None:
        """How long to wait, if the rate is above the limit."""
        measured = self.measure(now_ms)
        if measured <= self.limit:
            return None
        wait_ms = rate_throttle_ms(measured, self.limit, self.spread.windows.span_ms)
        return self._throttle(wait_ms, measured, now_ms)

    def record_unchecked(self, value: float, now_ms: int) -> None:
        """Count `value`, over the windows that have room; a negative one takes back."""
        self.last_ms = now_ms
        self.spread.record(value, now_ms, nan if self.limit == UNLIMITED else self.limit)
        self.rate.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """The usage now: what is recorded (bytes, per cent of a thread, mutations), per second."""
        return self.spread.measure(now_ms)


Meter = RateMeter | BucketMeter
