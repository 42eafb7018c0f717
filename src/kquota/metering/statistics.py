"""What a limit is compared with: Kafka's rate over sampled windows, and the token bucket of KIP-599.

Sources: ``Rate``, ``SampledStat``, ``WindowedSum``, ``TokenBucket``. Times are milliseconds since the Unix epoch: a
bucket is full at first only because the epoch is long ago.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from enum import Enum
from math import isnan
from typing import Final, Self

from kquota.errors import IllegalArgumentError

__all__ = ["UNLIMITED", "SampledRate", "SampledTotal", "SpreadRate", "TimeUnit", "TokenBucket", "Windows"]

UNLIMITED: Final = 9.223372036854775807e18
"""Long.MAX_VALUE as a double: what Kafka compares with where there is no limit."""


class TimeUnit(Enum):
    """What a rate is per, as ``java.util.concurrent.TimeUnit`` names it."""

    NANOSECONDS = 1e-6
    MICROSECONDS = 1e-3
    MILLISECONDS = 1.0
    SECONDS = 1_000.0
    MINUTES = 60_000.0
    HOURS = 3_600_000.0
    DAYS = 86_400_000.0

    def __init__(self, ms: float) -> None:
        self.ms = ms


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a broker looks back: ``quota.window.num`` windows of some seconds, the current one among them."""

    samples: int = 11
    size_ms: int = 1_000

    def __post_init__(self) -> None:
        if self.samples < 1 or self.size_ms < 1:
            raise IllegalArgumentError(f"{self.samples} windows of {self.size_ms} ms: at least one of each is needed")

    @property
    def span_ms(self) -> int:
        """After so long without an event a sample is forgotten."""
        return self.samples * self.size_ms

    def max_value(self, limit: float) -> float:
        """``ClientQuotaManager.maxValueInQuotaWindow``: the most that one request can use without being over a limit of
        so much per second for ever.
        """
        return limit * (self.samples - 1) * (self.size_ms // 1000)


class SampledTotal:
    """A sum over a ring of samples, each as long as a window from its first event.

    There is one sample more than there are windows, because the oldest still counts in part. Three windows of 1,000 ms
    after 600 units at 0 ms, 300 at 900 ms and 300 at 1,000 ms::

        slot            0          1          2          3
                   +----------+----------+----------+----------+
        value      |      900 |      300 |          |          |
        first event|     0 ms | 1,000 ms |  unused  |  unused  |
        last event |   900 ms | 1,000 ms |          |          |
                   +----------+----------+----------+----------+
        forgotten    3,900 ms   4,000 ms     3 windows after the last event
                                ^ the current sample: an event at 2,000 ms or later begins the next, in slot 2

    The values of the slots left of the current one are added up once (`_before`); those right of it (`_behind`, older
    ones) are added each time, because doubles give another sum in another order, and this is to be Kafka's to the last
    bit.
    """

    __slots__ = (
        "_before",
        "_behind",
        "_cursor",
        "_expire_ms",
        "_last_ms",
        "_lasts",
        "_oldest_ms",
        "_size_ms",
        "_span_ms",
        "_start_ms",
        "_starts",
        "_value",
        "_values",
        "windows",
    )

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._size_ms = windows.size_ms
        self._span_ms = windows.span_ms
        slots = windows.samples + 1
        self._values = [0.0] * slots
        self._starts = [_NEVER] * slots
        self._lasts = [_NEVER] * slots
        self._cursor = -1
        # Of the current sample; the lists have its value and last event once another begins.
        self._value = 0.0
        self._start_ms = -_NEVER
        self._last_ms = _NEVER
        # Of the others: the sum of those before it, those behind it, and the earliest that one can be forgotten.
        self._before = 0.0
        self._behind: list[float] = []
        self._expire_ms = _NEVER
        self._oldest_ms = _NEVER

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`, which may be negative: something taken back."""
        if now_ms - self._start_ms >= self._size_ms:
            self._begin_sample(now_ms)
        self._value += value
        self._last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """The sum of what is not forgotten."""
        if now_ms >= self._expire_ms or now_ms - self._last_ms >= self._span_ms:
            self._purge(now_ms)
        total = self._before + self._value
        for value in self._behind:
            total += value
        return total

    def copy(self) -> Self:
        """One that goes on from the same samples."""
        other = copy(self)
        for name in ("_values", "_starts", "_lasts", "_behind"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def edges_ms(self) -> tuple[int, int]:
        """From when on an event begins a sample, and from when on one of the others is forgotten."""
        return self._start_ms + self._size_ms, min(self._lasts) + self._span_ms

    def state(self) -> tuple[object, ...]:
        """All that counts from now on: two with the same give the same answers."""
        samples = (tuple(self._values), tuple(self._starts), tuple(self._lasts))
        return *samples, self._cursor, self._value, self._start_ms, self._last_ms

    def _begin_sample(self, now_ms: int) -> None:
        """The next slot of the ring is the current sample, empty, and begins now."""
        values, starts, cursor = self._values, self._starts, self._cursor
        if cursor >= 0:
            values[cursor] = self._value
            self._lasts[cursor] = self._last_ms
            if self._last_ms + self._span_ms < self._expire_ms:
                self._expire_ms = self._last_ms + self._span_ms
        cursor += 1
        if cursor == len(values):
            cursor = 0
            self._before = 0.0
            self._behind = values[1:]
        else:
            self._before += self._value
            del self._behind[:1]
        self._cursor = cursor
        self._value = 0.0
        was_oldest = starts[cursor] == self._oldest_ms
        starts[cursor] = self._start_ms = self._last_ms = now_ms
        values[cursor], self._lasts[cursor] = 0.0, _NEVER  # as long as it is the current one
        if was_oldest:
            self._oldest_ms = min(starts)
        elif now_ms < self._oldest_ms:
            self._oldest_ms = now_ms

    def _purge(self, now_ms: int) -> None:
        """Forget each sample whose last event is too long ago: it is empty from now on."""
        values, starts, lasts, cursor = self._values, self._starts, self._lasts, self._cursor
        forgotten_ms = now_ms - self._span_ms
        if self._last_ms <= forgotten_ms:
            self._value = 0.0
            starts[cursor] = self._start_ms = self._last_ms = now_ms
        is_before = False
        for slot, last_ms in enumerate(lasts):
            if last_ms <= forgotten_ms:
                values[slot] = 0.0
                starts[slot] = lasts[slot] = now_ms
                is_before |= slot < cursor
        if is_before:
            self._before = 0.0
            for value in values[:cursor]:
                self._before += value
        self._behind = values[cursor + 1 :]
        self._expire_ms = min(lasts) + self._span_ms
        self._oldest_ms = min(starts)


class SampledRate(SampledTotal):
    """Kafka's ``Rate``: the sum over the windows, divided by the time that they cover.

    That is at least all windows but one, so that a first event is not taken for a rate of its own millisecond. Until
    so much time has passed, the divisor is that plus the part of a window that has passed: it falls back by a window
    whenever one is full. The events of the drawing above:

    >>> rate = SampledRate(Windows(samples=3, size_ms=1_000))
    >>> for value, now_ms in (600, 0), (300, 900), (300, 1_000), (0, 2_500), (0, 3_899), (0, 3_900):
    ...     per_second = rate.add(value, now_ms)
    ...     print(f"{now_ms:5} ms: {rate.total(now_ms):5.0f} in {rate.added_over_ms} ms: {per_second:3.0f} a second")
        0 ms:   600 in 2000 ms: 300 a second
      900 ms:   900 in 2900 ms: 310 a second
     1000 ms:  1200 in 2000 ms: 600 a second
     2500 ms:  1200 in 2500 ms: 480 a second
     3899 ms:  1200 in 3899 ms: 308 a second
     3900 ms:   300 in 2900 ms: 103 a second
    """

    __slots__ = ("_least_ms", "_unit_ms", "added_over_ms")

    added_over_ms: int
    """What the sum was divided by in the last :meth:`add`."""

    def __init__(self, windows: Windows, unit: TimeUnit = TimeUnit.SECONDS) -> None:
        super().__init__(windows)
        self._least_ms = (windows.samples - 1) * windows.size_ms
        self._unit_ms = unit.ms
        self.added_over_ms = 1

    def add(self, value: float, now_ms: int) -> float:
        """Count `value`, and measure: what :meth:`record` and :meth:`measure` do one after the other, in one go."""
        if now_ms - self._start_ms >= self._size_ms:
            self._begin_sample(now_ms)
        self._value += value
        self._last_ms = now_ms
        if now_ms >= self._expire_ms:
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        if elapsed_ms >= self._least_ms:
            over_ms = elapsed_ms or 1
        elif elapsed_ms >= 0:
            over_ms = self._least_ms + elapsed_ms % self._size_ms
        else:
            over_ms = self._covered_ms(elapsed_ms)
        self.added_over_ms = over_ms
        total = self._before + self._value
        for other in self._behind:
            total += other
        return total / (over_ms / self._unit_ms)

    def measure(self, now_ms: int) -> float:
        """How much there is in a unit of time."""
        return self.total(now_ms) / (self.covered_ms(now_ms) / self._unit_ms)

    def covered_ms(self, now_ms: int) -> int:
        """What the sum is divided by: ``Rate.windowSize``."""
        self.total(now_ms)
        if self._cursor < 0:
            self._begin_sample(now_ms)
        return self._covered_ms(now_ms - self._oldest_ms)

    def _covered_ms(self, elapsed_ms: int) -> int:
        # Java divides towards zero; before the oldest sample there is only a clock that went back.
        missing_ms = self._least_ms - int(elapsed_ms / self._size_ms) * self._size_ms
        return max(elapsed_ms + max(missing_ms, 0), 1)


class TokenBucket:
    """KIP-599's bucket: it fills at the limit, up to all windows' worth, and may go below zero without bound.

    A limit is so much in a `unit` of time, and None is none: then nothing is taken, and there is always enough. With
    three windows of a second and a limit of 2 a second it holds 6; a request for 10 is done, and 4 are missing then:

    >>> bucket = TokenBucket(Windows(samples=3, size_ms=1_000))
    >>> bucket.record(10, 60_000, limit=2.0)
    >>> [bucket.measure(now_ms, limit=2.0) for now_ms in (60_000, 62_000, 64_000, 70_000)]
    [-4.0, 0.0, 4.0, 6.0]

    Kafka's ``record(config, value, timeMs)`` and ``measure(config, timeMs)`` are given windows and limit together, in
    the first argument. Here the windows are the bucket's own, a broker's if none are given, and the limit comes last.
    """

    __slots__ = ("_unit_ms", "_updated_ms", "tokens", "windows")

    def __init__(self, windows: Windows = Windows(), unit: TimeUnit = TimeUnit.SECONDS) -> None:
        """Empty at first.

        :raises IllegalArgumentError: the first argument is a unit, as in KIP-599's ``TokenBucket(TimeUnit)``.
        """
        if not isinstance(windows, Windows):
            raise IllegalArgumentError(f"windows must be Windows, not {windows!r}; a unit is TokenBucket(unit=...)")
        self.windows = windows
        self._unit_ms = unit.ms
        self.tokens = 0.0
        """Those that were there at the last look, or are left since the last record."""
        self._updated_ms = 0

    def record(self, value: float, now_ms: int, limit: float | None) -> None:
        """Take `value` tokens, or give back where it is negative."""
        if limit is not None:
            burst = self._refill(now_ms, limit)
            left = self.tokens - value
            if left > burst:
                left = burst
            self.tokens = left

    def measure(self, now_ms: int, limit: float | None) -> float:
        """The tokens that are there."""
        if limit is None:
            return UNLIMITED
        self._refill(now_ms, limit)
        return self.tokens

    def _refill(self, now_ms: int, limit: float) -> float:
        burst = self.windows.samples * (self.windows.size_ms / self._unit_ms) * limit
        filled = self.tokens + limit * ((now_ms - self._updated_ms) / self._unit_ms)
        if filled > burst:  # `min` would not be Java's where one of them is not a number
            filled = burst
        self.tokens = filled
        self._updated_ms = now_ms
        return burst


class SpreadRate:
    """The rate that KIP-599's page proposed before the bucket: a burst fills the windows before it up to the limit.

    So the average falls from window to window, and not all at once when the burst is forgotten. Windows are aligned
    to the clock; a `limit` of NaN spreads nothing. 10 at once under a limit of 2 a second, in three windows of a
    second: 2 go into each of the two windows before, and 6 stay in the current one.

    >>> spread = SpreadRate(Windows(samples=3, size_ms=1_000))
    >>> spread.record(10, 60_000, limit=2.0)
    >>> [round(spread.measure(now_ms), 2) for now_ms in (60_000, 61_000, 62_000, 63_000)]
    [3.33, 2.67, 2.0, 0.0]
    """

    __slots__ = ("_values", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._values: dict[int, float] = {}

    def record(self, value: float, now_ms: int, limit: float) -> None:
        """Put `value` into the windows that have room under the `limit` per second, oldest first; the rest is now's."""
        self._forget(now_ms)
        current = now_ms // self.windows.size_ms
        if not isnan(limit):
            room = limit * self.windows.size_ms / 1000.0
            for window in range(current - self.windows.samples + 1, current):
                filled = self._values.get(window, 0.0)
                part = min(value, room - filled)
                if part > 0:
                    self._values[window] = filled + part
                    value -= part
        self._values[current] = self._values.get(current, 0.0) + value

    def measure(self, now_ms: int) -> float:
        """Units per second over all windows."""
        self._forget(now_ms)
        return sum(self._values.values()) / (self.windows.span_ms / 1000.0)

    def _forget(self, now_ms: int) -> None:
        first = now_ms // self.windows.size_ms - self.windows.samples + 1
        if any(window < first for window in self._values):
            self._values = {window: value for window, value in self._values.items() if window >= first}


_NEVER: Final = 2**63  # later than any time
