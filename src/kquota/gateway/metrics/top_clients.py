"""Which clients of a quota have series of their own: there may be a hundred thousand, and each series costs."""

from __future__ import annotations

from heapq import heappush, heappushpop
from math import isnan, nan
from typing import NamedTuple

from kquota.metering.meters import THROTTLE_TIME_WINDOWS, BucketMeter, Meter
from kquota.metering.statistics import Windows

__all__ = ["ClientUsage", "TopClients"]


class ClientUsage(NamedTuple):
    """What is known of a client, or of those who share a meter."""

    meter: Meter
    usage: float
    """Bytes per second, per cent of a thread's time, or partitions per second."""
    throttle_ms: float
    """The average throttle time of the last minute; NaN where it was not throttled."""


class TopClients:
    """The clients of one quota at one broker, given one after the other, of whom at most so many are kept: half of them
    for those who were throttled the longest, the others for those who use the most. Idle ones have what is left.
    """

    def __init__(self, most: int, windows: Windows) -> None:
        self._most_throttled = (most + 1) // 2
        self._most = most
        self._windows = windows
        self._by_throttle: list[tuple[float, int, ClientUsage]] = []
        self._by_usage: list[tuple[float, int, ClientUsage]] = []
        self.count = 0
        self.throttled = 0
        """Those whose throttle time is not over."""
        self._usage = 0.0

    def add(self, meter: Meter, now_ms: int) -> float:
        """Look at a client; what it uses."""
        self.count += 1
        usage, throttle_ms = 0.0, nan
        if isinstance(meter, BucketMeter):
            if now_ms - meter.last_ms < THROTTLE_TIME_WINDOWS.span_ms:
                usage = meter.rate.measure(now_ms)
        elif now_ms - meter.last_ms < self._windows.span_ms:
            usage = meter.rate.measure(now_ms)
        if meter.throttled_until_ms > 0 and now_ms - meter.throttled_until_ms < 2 * THROTTLE_TIME_WINDOWS.span_ms:
            throttle_ms = meter.throttle_times.measure(now_ms)
            self.throttled += meter.throttled_until_ms > now_ms
        self._usage += usage
        by_usage, by_throttle = self._by_usage, self._by_throttle
        is_throttled = not isnan(throttle_ms)
        if is_throttled or len(by_usage) < self._most or usage > by_usage[0][0]:
            one = ClientUsage(meter, usage, throttle_ms)
            _keep(by_usage, (usage, self.count, one), self._most)
            if is_throttled:
                _keep(by_throttle, (throttle_ms, self.count, one), self._most_throttled)
        return usage

    def shown(self) -> list[ClientUsage]:
        """Those who have series of their own."""
        throttled = {number: one for _, number, one in self._by_throttle}
        for _, number, one in sorted(self._by_usage, reverse=True):
            if len(throttled) >= self._most:
                break
            throttled[number] = one
        return list(throttled.values())

    def other_usage(self) -> float | None:
        """What all others use together; None where there is nobody else."""
        shown = self.shown()
        return None if self.count <= len(shown) else max(0.0, self._usage - sum(one.usage for one in shown))


def _keep(heap: list[tuple[float, int, ClientUsage]], entry: tuple[float, int, ClientUsage], most: int) -> None:
    if len(heap) < most:
        heappush(heap, entry)
    elif entry[0] > heap[0][0]:
        heappushpop(heap, entry)
