"""An event loop whose time passes only when nobody has anything to do: timers fire at once, in their order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["VirtualLoop", "run_virtually"]

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Waits for nothing: what it would wait, it adds to the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that will never come")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """For protocols with transports of the test's own: what goes through real sockets takes no time here."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6  # a nanosecond is lost among a year's seconds, and a timer would never be due

    def time(self) -> float:
        """Seconds, from 1,000 on."""
        return self._virtual.now


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
