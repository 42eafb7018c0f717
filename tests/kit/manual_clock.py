"""A clock that stands until it is moved."""


class ManualClock:
    """Both of its times move together."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms

    def advance(self, ms: int) -> None:
        """Move it."""
        self._now_ms += ms

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._now_ms

    def monotonic_ms(self) -> float:
        """The same."""
        return float(self._now_ms)
