"""Logged times as epoch milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

import numpy as np

from kquota.pipeline.sources.cells import Floats
from kquota.pipeline.sources.request_line import RejectedLineError

__all__ = ["LogClock"]

_IMPOSSIBLE_TIME: Final = "impossible time before `Completed request:`"
_MILLISECONDS: Final = {b"%03d" % number: number for number in range(1000)}


class LogClock:
    """Reads times as :func:`~kquota.pipeline.sources.request_line.decode_lines` hands them out."""

    def __init__(self, zone: tzinfo) -> None:
        """Take the zone of times without an offset."""
        self._seconds = _Seconds(zone)

    def epoch_ms(self, times: Sequence[bytes]) -> Floats:
        """Epoch milliseconds by line.

        :raises RejectedLineError: one is not a time.
        """
        seconds = self._seconds
        try:
            return np.array([seconds[time[:-4]] + _MILLISECONDS[time[-3:]] for time in times])
        except KeyError:
            raise RejectedLineError(_IMPOSSIBLE_TIME) from None


class _Seconds(dict[bytes, float]):
    """Epoch milliseconds of a logged second, e.g. ``2026-01-02 03:04:05`` or the same with ``+01:00``."""

    def __init__(self, zone: tzinfo) -> None:
        super().__init__()
        self._zone = zone

    def __missing__(self, logged: bytes) -> float:
        try:
            text = logged.decode("ascii")
            zone = self._zone if len(text) == 19 else _offset(text[19:])
            epoch_ms = datetime.fromisoformat(text[:19]).replace(tzinfo=zone).timestamp() * 1000
        except (ValueError, OverflowError, OSError):
            raise RejectedLineError(_IMPOSSIBLE_TIME) from None
        return self.setdefault(logged, epoch_ms)


def _offset(text: str) -> tzinfo:
    """A UTC offset as ISO 8601 writes it: ``Z``, ``+01:00`` or ``+0100``."""
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=hours, minutes=minutes))
