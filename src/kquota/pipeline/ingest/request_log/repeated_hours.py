"""Ranges of a log that begin within an hour that came twice, as at the end of summer time: which of the two it is.

A worker sees that only from the lines before, which another one may read. So where a log covers such an hour, the times
of that part are looked through first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from msgspec import Struct, field

from kquota.pipeline.ingest.request_log.clock import IN_ORDER_MS, LogClock
from kquota.pipeline.ingest.request_log.line import logged_time
from kquota.pipeline.ingest.request_log.log_files import InputSplit, LogFile, last_time, read_blocks

__all__ = ["Search", "SplitStarts", "split_starts", "with_split_starts"]

_STEP: Final = timedelta(minutes=30)
"""No zone puts its clocks back by less, or at other minutes."""


class Search(Struct, frozen=True):
    """The ranges of one file, in their order."""

    ranges: list[InputSplit]
    timezone: str


class SplitStarts(Struct, frozen=True):
    """By place among the ranges of a file when the line before was completed, in epoch milliseconds: of those whose
    first line has a time that came twice.

    `is_unknown` where the file begins so, and its lines do not say which of the two it is: the first is taken.
    """

    before_ms: dict[int, float] = field(default_factory=dict)
    is_unknown: bool = False


def with_split_starts(
    files: Sequence[LogFile],
    ranges: Sequence[InputSplit],
    timezone: str,
    searched: Callable[[Sequence[Search]], Sequence[SplitStarts]],
) -> tuple[list[InputSplit], list[LogFile]]:
    """The ranges with what :func:`split_starts` finds, and the files of which it is not known.

    :param files: those that ranges name by place.
    :param ranges: of each broker in order of time.
    :param searched: :func:`split_starts` for each: asked only about files that may cover such an hour.
    """
    of_file = [list(group) for _, group in groupby(ranges, key=lambda piece: piece.file)]
    clock = LogClock(ZoneInfo(timezone))
    searches: dict[int, Search] = {}
    for place, those in enumerate(of_file):
        file = files[those[0].file]
        after = files[of_file[place + 1][0].file] if place + 1 < len(of_file) else None
        ends = after.first_time if after is not None and after.broker_id == file.broker_id else b""
        if _is_repeated(clock, file.first_time) or (
            len(those) > 1 and _covers_repeated(clock, file.first_time, ends or last_time(file.path))
        ):
            searches[those[0].file] = Search(those, timezone)
    if not searches:
        return list(ranges), []
    found = dict(zip(searches, searched(list(searches.values())), strict=True))
    started = [
        replace(piece, before_ms=found[piece.file].before_ms.get(place)) if piece.file in found else piece
        for those in of_file
        for place, piece in enumerate(those)
    ]
    return started, [files[place] for place, starts in found.items() if starts.is_unknown]


def _is_repeated(clock: LogClock, time: bytes) -> bool:
    return any(clock.later_by_ms(one) for one in clock.only_times([time + b",000"]))


def _covers_repeated(clock: LogClock, first: bytes, last: bytes) -> bool:
    """Whether a time that came twice lies between two times as logged, ``2026-01-02 03:04:05``."""
    try:
        at, end = (datetime.fromisoformat(time.decode()) for time in (first, last))
    except ValueError:
        return False
    at = at.replace(minute=at.minute // 30 * 30, second=0)
    while at <= end:
        if _is_repeated(clock, str(at).encode()):
            return True
        at += _STEP
    return False


def split_starts(search: Search) -> SplitStarts:
    """Look through the times of a file, where that is needed."""
    clock = LogClock(ZoneInfo(search.timezone))
    begins = [_begins_repeated(clock, piece) for piece in search.ranges]
    if True not in begins:
        return SplitStarts()
    found: dict[int, float] = {}
    before_ms, is_unknown = None, False
    if begins[0]:
        second_ms = _in_second(clock, chain.from_iterable(map(_times, search.ranges)))
        is_unknown = second_ms is None
        if second_ms:
            before_ms = second_ms
    last = len(begins) - 1 - begins[::-1].index(True)
    for place in range(max(begins.index(True) - 1, 0), last + 1):
        if begins[place] and before_ms is not None:
            found[place] = before_ms
        if place < last:
            for times in _times(search.ranges[place]):
                before_ms = float(clock.epoch_ms(times, before_ms)[-1])
    return SplitStarts(found, is_unknown)


def _begins_repeated(clock: LogClock, piece: InputSplit) -> bool:
    times = next(_times(piece), None)
    return times is not None and clock.later_by_ms(times[0]) > 0


def _in_second(clock: LogClock, blocks: Iterator[Sequence[bytes]]) -> float | None:
    """Of a file that begins with a time that came twice: 0 where that is the first of the two, otherwise when the
    second one was; None where it is not known.

    In the first of the two hours times go back at its end; from the second they go on into the next hour.
    """
    begin_ms = later_by_ms = latest_ms = before_ms = 0.0
    for times in blocks:
        first_ms = clock.first_ms(times)
        if not begin_ms:
            begin_ms = latest_ms = before_ms = float(first_ms[0])
            later_by_ms = clock.later_by_ms(times[0])
        at_ms = clock.epoch_ms(times, before_ms)
        goes_back = next(iter(np.flatnonzero(at_ms != first_ms)), len(times))
        leaves = next((line for line, time in enumerate(times) if not clock.later_by_ms(time)), len(times))
        if goes_back < leaves:
            return 0.0
        latest_ms = max(latest_ms, float(at_ms[:leaves].max(initial=latest_ms)))
        if leaves < len(times):
            # As if the lines before had been in the second.
            pause_ms = float(at_ms[leaves]) - (latest_ms + later_by_ms)
            if pause_ms < -later_by_ms:
                return 0.0
            return begin_ms + later_by_ms if -IN_ORDER_MS <= pause_ms <= later_by_ms / 2 else None
        before_ms = float(at_ms[-1])
    return None


def _times(piece: InputSplit) -> Iterator[Sequence[bytes]]:
    """Those of the lines of a range, as far as they can be read."""
    clock = LogClock(UTC)
    try:
        for block in read_blocks(piece):
            times = [time for line in block.split(b"\n") if (time := logged_time(line)) is not None]
            if good := clock.only_times(times):
                yield good
    except (EOFError, zlib.error):
        return
