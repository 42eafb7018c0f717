"""Splits that begin within an hour that came twice, as at the end of summer time: which of the two hours it is.

Only the lines before say it, which another worker may read. So where a log covers such an hour, the times of that part
are read first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from msgspec import Struct, field

from kquota.pipeline.ingest.decompression import BrokenFileError
from kquota.pipeline.ingest.request_log.clock import IN_ORDER_MS, LogClock
from kquota.pipeline.ingest.request_log.line import logged_time
from kquota.pipeline.ingest.request_log.log_files import InputSplit, LogFile, last_time, read_blocks

__all__ = ["Search", "SplitStarts", "split_starts", "with_split_starts"]

_STEP: Final = timedelta(minutes=30)
"""No zone puts its clocks back by less, or at other minutes."""


class Search(Struct, frozen=True):
    """The splits of one file, in order."""

    splits: list[InputSplit]
    timezone: str


class SplitStarts(Struct, frozen=True):
    """What is known of the splits of one file."""

    before_ms: dict[int, float] = field(default_factory=dict)
    """By place of a split that begins with a time that came twice: when the line before was completed (epoch ms)."""
    is_unknown: bool = False
    """The file begins with such a time, and its lines do not say which of the two hours it is: the first is taken."""


def with_split_starts(
    files: Sequence[LogFile],
    splits: Sequence[InputSplit],
    timezone: str,
    searched: Callable[[Sequence[Search]], Sequence[SplitStarts]],
) -> tuple[list[InputSplit], list[LogFile]]:
    """Splits with their `before_ms`, and the files that begin in one of two such hours, unknown which.

    :param files: splits name them by index.
    :param splits: by broker, in order of time.
    :param searched: runs :func:`split_starts` for each; only files that may cover such an hour are searched.
    """
    of_file = [list(group) for _, group in groupby(splits, key=lambda split: split.file)]
    clock = LogClock(ZoneInfo(timezone))
    searches: dict[int, Search] = {}
    for place, those in enumerate(of_file):
        file = files[those[0].file]
        after = files[of_file[place + 1][0].file] if place + 1 < len(of_file) else None
        ends = after.first_time if after is not None and after.broker_id == file.broker_id else b""
        if _is_repeated(clock, file.first_time) or (
            len(those) > 1 and _covers_repeated(clock, file.first_time, ends or last_time(file))
        ):
            searches[those[0].file] = Search(those, timezone)
    if not searches:
        return list(splits), []
    found = dict(zip(searches, searched(list(searches.values())), strict=True))
    started = [
        replace(split, before_ms=found[split.file].before_ms.get(place)) if split.file in found else split
        for those in of_file
        for place, split in enumerate(those)
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
    """Read the times of a file as far as needed."""
    clock = LogClock(ZoneInfo(search.timezone))
    begins = [_begins_repeated(clock, split) for split in search.splits]
    if True not in begins:
        return SplitStarts()
    found: dict[int, float] = {}
    before_ms, is_unknown = None, False
    if begins[0]:
        second_ms = _in_second(clock, chain.from_iterable(map(_times, search.splits)))
        is_unknown = second_ms is None
        if second_ms:
            before_ms = second_ms
    last = len(begins) - 1 - begins[::-1].index(True)
    for place in range(max(begins.index(True) - 1, 0), last + 1):
        if begins[place] and before_ms is not None:
            found[place] = before_ms
        if place < last:
            for times in _times(search.splits[place]):
                before_ms = float(clock.epoch_ms(times, before_ms)[-1])
    return SplitStarts(found, is_unknown)


def _begins_repeated(clock: LogClock, split: InputSplit) -> bool:
    times = next(_times(split), None)
    return times is not None and clock.later_by_ms(times[0]) > 0


def _in_second(clock: LogClock, blocks: Iterator[Sequence[bytes]]) -> float | None:
    """In which of the two hours a file begins: 0 for the first, the time of its first line (epoch ms) for the second,
    None where it is not known.

    After the first of the two hours, logged times go back; after the second they continue into the next hour.
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


def _times(split: InputSplit) -> Iterator[Sequence[bytes]]:
    """The times of the lines of a split, in blocks, as far as they can be read."""
    clock = LogClock(UTC)
    try:
        for block in read_blocks(split):
            times = [time for line in block.split(b"\n") if (time := logged_time(line)) is not None]
            if good := clock.only_times(times):
                yield good
    except BrokenFileError:
        return
