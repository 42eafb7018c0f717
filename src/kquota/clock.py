"""The only wall clock. Everything else takes the time as an argument, in milliseconds since the Unix epoch."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where the time comes from; tests give one that they move by hand."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""

    def monotonic_ms(self) -> float:
        """Milliseconds on a clock that never goes back, for measuring how long something took."""


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary moment; never goes back."""
        return time.monotonic_ns() / 1e6
