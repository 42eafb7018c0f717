"""Which seconds of a broker's log are complete, so that their cells are final where a worker makes them.

A second is complete for a worker that has read an earlier and a later one of the same broker: no other worker has lines
of it. The last seconds of a chunk are buffered, because the lines that follow may add to them; where no more follow,
they stay open, for other workers may have more of them. Logs that overlap can break this:
:mod:`kquota.pipeline.ingest.merge` finds that out, and merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kquota.pipeline.ingest.request_log.cells import Charges, Floats

__all__ = ["ALLOWED_LATENESS_S", "SecondWatermark", "WatermarkedCharges"]

ALLOWED_LATENESS_S: Final = 2
"""How much earlier than its line a request may have been recorded (slow sends) and still be in a complete second."""


@dataclass(frozen=True, slots=True)
class WatermarkedCharges:
    """Charges of complete seconds, within `final_seconds`, and the others, within `open_seconds`, ends included."""

    final: Charges
    final_seconds: tuple[int, int] | None
    open: Charges
    open_seconds: tuple[int, int] | None


class SecondWatermark:
    """Separates final charges from open ones, chunk by chunk of one broker's log."""

    def __init__(self) -> None:
        self._watermark: int | None = None
        self._buffered = Charges.none()

    def advance(self, charges: Charges, end_ms: Floats, *, has_more: bool) -> WatermarkedCharges:
        """Separate the charges of a chunk, and those that were buffered before it.

        :param end_ms: when the requests of the chunk were completed.
        :param has_more: whether another chunk follows; otherwise nothing is buffered.
        """
        open_before = Charges.none()
        first = int(end_ms.min() // 1000) if len(end_ms) else None
        if first is not None and (self._watermark is None or first < self._watermark):
            # A beginning, or the clock was put back: other workers may have more of the first second.
            open_before, self._buffered = self._buffered, Charges.none()
            self._watermark = first
        if self._watermark is None:
            return WatermarkedCharges(Charges.none(), None, Charges.none(), None)
        final_from = final_to = self._watermark
        if first is not None:
            final_to = max(final_from, int(end_ms.max() // 1000) - 1 - ALLOWED_LATENESS_S)
        charges = self._buffered.merged_with(charges)
        is_final = (charges.second > final_from) & (charges.second <= final_to)
        is_buffered = (charges.second > final_to) & has_more
        final, still_open = charges.where(is_final), open_before.merged_with(charges.where(~is_final & ~is_buffered))
        self._buffered = charges.where(is_buffered)
        self._watermark = final_to
        return WatermarkedCharges(
            final=final,
            final_seconds=(final_from + 1, final_to) if len(final) else None,
            open=still_open,
            open_seconds=(int(still_open.second.min()), int(still_open.second.max())) if len(still_open) else None,
        )
