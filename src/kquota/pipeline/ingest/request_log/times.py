"""The times of a log's lines: a broker writes them in order, unless its clock is set back."""

from __future__ import annotations

from typing import Final, Self

import numpy as np
from msgspec import Struct

from kquota.pipeline.ingest.request_log.cells import Floats

__all__ = ["IN_ORDER_MS", "LogTimes"]

IN_ORDER_MS: Final = 2_000
"""Lines of several threads may stand so far out of order."""


class LogTimes(Struct, frozen=True):
    """Of consecutive lines, in epoch milliseconds: the earliest and the latest time, and the largest step back.

    A step back is how much earlier a line is than the latest one before it, which was `backwards_from_ms`.
    """

    earliest_ms: float
    latest_ms: float
    backwards_ms: float
    backwards_from_ms: float

    @classmethod
    def of(cls, end_ms: Floats) -> Self | None:
        """Those of lines in their order; None of no lines."""
        if not len(end_ms):
            return None
        latest = np.maximum.accumulate(end_ms)
        steps = latest - end_ms
        at = len(steps) - 1 - int(np.argmax(steps[::-1]))
        return cls(float(end_ms.min()), float(latest[-1]), float(latest[at] - end_ms[at]), float(latest[at]))

    def merged_with(self, later: LogTimes) -> LogTimes:
        """With those of the lines that follow."""
        between = (self.latest_ms - later.earliest_ms, self.latest_ms)
        backwards_ms, backwards_from_ms = max(
            (self.backwards_ms, self.backwards_from_ms), (later.backwards_ms, later.backwards_from_ms), between
        )
        return LogTimes(
            min(self.earliest_ms, later.earliest_ms),
            max(self.latest_ms, later.latest_ms),
            backwards_ms,
            backwards_from_ms,
        )
