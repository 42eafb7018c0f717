"""What a limit is compared with: Kafka's rate over sampled windows, and the token bucket of KIP-599.

Sources: ``Rate``, ``SampledStat``, ``WindowedSum``, ``TokenBucket``. Times are milliseconds since the Unix epoch: a
bucket is full at first only because the epoch is long ago.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import isnan
from typing import Final, Self

from kquota.errors import IllegalArgumentError

__all__ = ["SampledRate", "SampledTotal", "SpreadRate", "TokenBucket", "Windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a broker looks back: ``quota.window.num`` windows, the current one among them, of so many seconds."""

    samples: int = 11
    size_ms: int = 1_000

    def __post_init__(self) -> None:
        if self.samples < 1 or self.size_ms < 1:
            raise IllegalArgumentError(f"{self.samples} windows of {self.size_ms} ms: at least one of each is needed")

    @property
    def span_ms(self) -> int:
        """After so long without an event a sample is forgotten."""
        return self.samples * self.size_ms


class SampledTotal:
    """A sum over a ring of samples, each as long as a window from its first event.

    One sample more than there are windows is kept, because the oldest still counts in part. The sum is not counted
    anew each time: only when a sample begins or is forgotten are the others added up.
    """

    __slots__ = (
        "_closed",
        "_closed_expire_ms",
        "_cursor",
        "_last_ms",
        "_lasts",
        "_oldest_ms",
        "_size_ms",
        "_slots",
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
        self._slots = windows.samples + 1
        self._values: list[float] = []
        self._starts: list[int] = []
        self._lasts: list[float] = []
        self._cursor = 0
        # Of the current sample; the lists have them once it is closed.
        self._value = 0.0
        self._start_ms = 0
        self._last_ms: float = 0
        # Of the others: their sum, and when the first of them is forgotten.
        self._closed = 0.0
        self._closed_expire_ms: float = _NEVER
        self._oldest_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`, which may be negative: something taken back."""
        if now_ms - self._start_ms >= self._size_ms or not self._values:
            self._begin_sample(now_ms)
        self._value += value
        self._last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """The sum of what is not forgotten."""
        if now_ms >= self._closed_expire_ms or now_ms - self._last_ms >= self._span_ms:
            self._purge(now_ms)
        return self._closed + self._value

    def copy(self) -> Self:
        """One that goes on from the same samples."""
        other = copy(self)
        for name in ("_values", "_starts", "_lasts"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def edges_ms(self) -> tuple[float, float]:
        """From when on an event begins a sample, and from when on one of the others is forgotten."""
        return self._start_ms + self._size_ms, self._closed_expire_ms

    def state(self) -> tuple[object, ...]:
        """All that counts from now on: two with the same give the same answers."""
        samples = (tuple(self._values), tuple(self._starts), tuple(self._lasts))
        return *samples, self._cursor, self._value, self._start_ms, self._last_ms

    def _begin_sample(self, now_ms: int) -> None:
        """The next slot of the ring is the current sample, empty, and begins now."""
        if self._values:
            self._close()
            self._cursor = (self._cursor + 1) % self._slots
        if self._cursor >= len(self._values):
            self._values.append(0.0)
            self._starts.append(now_ms)
            self._lasts.append(now_ms)
        else:
            self._values[self._cursor] = 0.0
            self._starts[self._cursor] = self._lasts[self._cursor] = now_ms
        self._open()

    def _purge(self, now_ms: int) -> None:
        """Forget each sample whose last event is too long ago: it is empty from now on."""
        if not self._values:
            return
        self._close()
        for slot, last_ms in enumerate(self._lasts):
            if now_ms - last_ms >= self._span_ms:
                self._values[slot] = 0.0
                self._starts[slot] = now_ms
                self._lasts[slot] = now_ms
        self._open()

    def _close(self) -> None:
        self._values[self._cursor] = self._value
        self._lasts[self._cursor] = self._last_ms

    def _open(self) -> None:
        values, lasts, cursor = self._values, self._lasts, self._cursor
        self._value, self._start_ms, self._last_ms = values[cursor], self._starts[cursor], lasts[cursor]
        self._oldest_ms = min(self._starts)
        # The slot of the current sample takes no part until it is closed.
        values[cursor], lasts[cursor] = 0.0, _NEVER
        self._closed, self._closed_expire_ms = sum(values), min(lasts) + self._span_ms


class SampledRate(SampledTotal):
    """Kafka's ``Rate``: the sum over the windows, by the seconds that they cover.

    Those are at least all windows but one, so that a first event is not taken for a rate of its own millisecond.
    """

    __slots__ = ("_least_ms", "added_over_ms")

    added_over_ms: int
    """What the sum was divided by in the last :meth:`add`."""

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        self._least_ms = (windows.samples - 1) * windows.size_ms
        self.added_over_ms = 1

    def add(self, value: float, now_ms: int) -> float:
        """Count `value`, and measure: what :meth:`record` and :meth:`measure` do one after the other, in one go."""
        if now_ms - self._start_ms >= self._size_ms or not self._values:
            self._begin_sample(now_ms)
        self._value += value
        self._last_ms = now_ms
        if now_ms >= self._closed_expire_ms:
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        if 0 <= elapsed_ms < self._least_ms:
            over_ms = self._least_ms + elapsed_ms % self._size_ms
        else:
            over_ms = self._covered_ms(elapsed_ms)
        self.added_over_ms = over_ms
        return (self._closed + self._value) / (over_ms / 1000.0)

    def measure(self, now_ms: int) -> float:
        """Units per second."""
        return self.total(now_ms) / (self.covered_ms(now_ms) / 1000.0)

    def covered_ms(self, now_ms: int) -> int:
        """What the sum is divided by: ``Rate.windowSize``."""
        self.total(now_ms)
        if not self._values:
            self._begin_sample(now_ms)
        return self._covered_ms(now_ms - self._oldest_ms)

    def _covered_ms(self, elapsed_ms: int) -> int:
        # Java divides towards zero; before the oldest sample there is only a clock that went back.
        missing_ms = self._least_ms - int(elapsed_ms / self._size_ms) * self._size_ms
        return max(elapsed_ms + max(missing_ms, 0), 1)


class TokenBucket:
    """KIP-599's bucket: it fills at the limit, up to all windows' worth, and may go below zero without bound."""

    __slots__ = ("_tokens", "_updated_ms", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._tokens = 0.0
        self._updated_ms = 0

    def record(self, value: float, now_ms: int, limit: float) -> None:
        """Take `value` tokens, or give back where it is negative, at a `limit` of tokens per second."""
        burst = self._refill(now_ms, limit)
        self._tokens = min(burst, self._tokens - value)

    def measure(self, now_ms: int, limit: float) -> float:
        """The tokens that are there."""
        self._refill(now_ms, limit)
        return self._tokens

    def _refill(self, now_ms: int, limit: float) -> float:
        burst = self.windows.samples * (self.windows.size_ms / 1000.0) * limit
        self._tokens = min(burst, self._tokens + limit * ((now_ms - self._updated_ms) / 1000.0))
        self._updated_ms = now_ms
        return burst


class SpreadRate:
    """The rate that KIP-599's page proposed before the bucket: a burst fills the windows before it up to the limit.

    So the average falls from window to window, and not all at once when the burst is forgotten. Windows are aligned
    to the clock; a `limit` of NaN spreads nothing.
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


_NEVER: Final = float("inf")
