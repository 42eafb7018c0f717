"""How late the event loop is: what every request waits for, beside its own quota."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import Final

from kquota.clock import Clock, SystemClock
from kquota.gateway.metrics import families
from kquota.net.exposition import Exposition

__all__ = ["LoopLag"]

EVERY_S: Final = 1.0
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class LoopLag:
    """How late a timer fires that is due every second."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    async def watch(self) -> None:
        """Look, until cancelled."""
        while True:
            begun_ms = self._clock.monotonic_ms()
            await asyncio.sleep(EVERY_S)
            self.note((self._clock.monotonic_ms() - begun_ms) / 1000 - EVERY_S)

    def note(self, late_s: float) -> None:
        """One look; a loop that counts in milliseconds may be early."""
        late_s = max(late_s, 0.0)
        self._counts[bisect_left(BOUNDS_S, late_s)] += 1
        self._sum_s += late_s

    def write(self, page: Exposition) -> None:
        """As a histogram."""
        family = page.family(families.LOOP_LAG)
        total = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            total += count
            family.add(total, {"le": bound}, suffix="_bucket")
        family.add(total, suffix="_count")
        family.add(self._sum_s, suffix="_sum")
