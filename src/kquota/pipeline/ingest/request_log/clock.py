"""Logged times as epoch milliseconds, and their order: a broker writes lines in order, unless its clock is set back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, Self

import numpy as np
from msgspec import Struct

from kquota.pipeline.ingest.request_log.cells import Floats
from kquota.pipeline.ingest.request_log.line import RejectedLineError

__all__ = ["IN_ORDER_MS", "LogClock", "LogTimes"]

IN_ORDER_MS: Final = 2_000
"""Lines of several threads may be out of order by this much."""

_IMPOSSIBLE_TIME: Final = "impossible time before `Completed request:`"
_MILLISECONDS: Final = {b"%03d" % number: number for number in range(1000)}


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


class LogClock:
    """Reads times as :func:`~kquota.pipeline.ingest.request_log.line.decode_lines` hands them out.

    Where clocks are put back, as at the end of summer time, an hour of times comes twice. Lines are in order: each such
    time is the one of the two that is nearer to the line before.
    """

    def __init__(self, zone: tzinfo) -> None:
        """Take the zone of times without an offset."""
        self._seconds = _Seconds(zone)

    def epoch_ms(self, times: Sequence[bytes], before_ms: float | None = None) -> Floats:
        """Epoch milliseconds by line.

        :param before_ms: of the line before the first; None where it is not known: a time that comes twice is then the
            first of the two.
        :raises RejectedLineError: one is not a time.
        """
        seconds, found = self._seconds, self.first_ms(times)
        if seconds.later_by_ms and len(found) and seconds.may_repeat(found):
            for line, first_ms in enumerate(found.tolist()):
                second_ms = first_ms + seconds.later_by_ms.get(first_ms // 1000 * 1000, 0.0)
                if before_ms is not None and abs(second_ms - before_ms) < abs(first_ms - before_ms):
                    found[line] = second_ms
                before_ms = float(found[line])
        return found

    def first_ms(self, times: Sequence[bytes]) -> Floats:
        """Epoch milliseconds by line, of a time that comes twice the first.

        :raises RejectedLineError: one is not a time.
        """
        seconds = self._seconds
        try:
            return np.array([seconds[time[:-4]] + _MILLISECONDS[time[-3:]] for time in times])
        except KeyError:
            raise RejectedLineError(_IMPOSSIBLE_TIME) from None

    def only_times(self, times: Sequence[bytes]) -> Sequence[bytes]:
        """The texts that can be read as times, in their order; the others are left out."""
        try:
            self.first_ms(times)
        except RejectedLineError:
            return [] if len(times) == 1 else [one for time in times for one in self.only_times([time])]
        return times

    def later_by_ms(self, time: bytes) -> float:
        """How much later the time came again; 0 where it did not.

        :raises RejectedLineError: it is not a time.
        """
        return self._seconds.later_by_ms.get(self._seconds[time[:-4]], 0.0)


class _Seconds(dict[bytes, float]):
    """Epoch milliseconds of a logged second, e.g. ``2026-01-02 03:04:05`` or the same with ``+01:00``."""

    def __init__(self, zone: tzinfo) -> None:
        super().__init__()
        self._zone = zone
        self.later_by_ms: dict[float, float] = {}
        """By epoch milliseconds of a second that came twice, the first time: until the second time."""
        self._first_ms, self._last_ms = np.inf, -np.inf

    def may_repeat(self, found: Floats) -> bool:
        """Whether any of some times may have come twice."""
        return bool(found.max() >= self._first_ms and found.min() < self._last_ms + 1000)

    def __missing__(self, logged: bytes) -> float:
        try:
            text = logged.decode("ascii")
            zone = self._zone if len(text) == 19 else _offset(text[19:])
            time = datetime.fromisoformat(text[:19]).replace(tzinfo=zone)
            epoch_ms, again_ms = time.timestamp() * 1000, time.replace(fold=1).timestamp() * 1000
        except (ValueError, OverflowError, OSError):
            raise RejectedLineError(_IMPOSSIBLE_TIME) from None
        # Of a time that was left out, as at the beginning of summer time, it is the other way round.
        if again_ms > epoch_ms:
            self.later_by_ms[epoch_ms] = again_ms - epoch_ms
            self._first_ms, self._last_ms = min(self._first_ms, epoch_ms), max(self._last_ms, epoch_ms)
        return self.setdefault(logged, epoch_ms)


def _offset(text: str) -> tzinfo:
    """A UTC offset as ISO 8601 writes it: ``Z``, ``+01:00`` or ``+0100``."""
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=hours, minutes=minutes))
