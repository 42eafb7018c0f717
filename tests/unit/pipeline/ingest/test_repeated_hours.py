"""An hour that comes twice, as at the end of summer time, is two hours, however a log is cut and wherever it begins."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kquota.pipeline.ingest.request_log import log_files
from kquota.pipeline.ingest.request_log.clock import LogClock
from kquota.pipeline.ingest.request_log.line import logged_time
from kquota.pipeline.ingest.request_log.log_files import find_log_files, read_blocks, to_splits
from kquota.pipeline.ingest.request_log.repeated_hours import Search, SplitStarts, split_starts, with_split_starts

ENDS = {
    "Europe/Berlin": (datetime(2026, 10, 25, 1, tzinfo=UTC), 60),
    "America/New_York": (datetime(2026, 11, 1, 6, tzinfo=UTC), 60),
    "Australia/Lord_Howe": (datetime(2026, 4, 4, 15, tzinfo=UTC), 30),
}
"""When clocks were put back, and by how many minutes."""


def lines_of(times_ms: Sequence[int], zone: str) -> list[bytes]:
    local = (datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)) for at_ms in times_ms)
    logged = (f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}" for at in local)
    return [f"[{text}] DEBUG Completed request:{{}} (kafka.request.logger)\n".encode() for text in logged]


def searched(searches: Sequence[Search]) -> list[SplitStarts]:
    return [split_starts(search) for search in searches]


def read(path: Path, zone: str, range_bytes: int) -> tuple[list[int], list[str]]:
    """Times as workers read them, each range by itself; and the files of which the hour is not known."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MIN_SPLIT_BYTES", "MAX_SPLIT_BYTES"):
            patch.setattr(log_files, name, range_bytes)
        files = find_log_files([str(path)])
        splits, unknown = with_split_starts(files, to_splits(files, parallelism=1), zone, searched)
    times_ms: list[float] = []
    for split in splits:
        clock, before_ms = LogClock(ZoneInfo(zone)), split.before_ms
        for block in read_blocks(split, chunk_bytes=300):
            times = [time for line in block.splitlines() if (time := logged_time(line)) is not None]
            if times:
                found = clock.epoch_ms(times, before_ms).tolist()
                before_ms = found[-1]
                times_ms += found
    return [round(at_ms) for at_ms in times_ms], [file.path for file in unknown]


@given(data=st.data(), zone=st.sampled_from(list(ENDS)), range_bytes=st.integers(80, 2000), packed=st.booleans())
def test_times_are_those_at_which_lines_were_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, zone: str, range_bytes: int, packed: bool
) -> None:
    """A log that is never silent for half of what clocks were put back by, and some lines of which are out of order."""
    ended, by_minutes = ENDS[zone]
    end_ms, by_ms = round(ended.timestamp() * 1000), by_minutes * 60_000
    begin_ms = end_ms + data.draw(st.integers(-2 * by_ms, 2 * by_ms))
    steps = data.draw(st.lists(st.integers(0, by_ms // 2 - 5000), min_size=1, max_size=30))
    late = data.draw(st.lists(st.integers(0, 1000), min_size=len(steps), max_size=len(steps)))
    written = [at_ms - late_ms for at_ms, late_ms in zip(accumulate(steps, initial=begin_ms), [0, *late], strict=True)]
    begins_within = end_ms - by_ms <= begin_ms < end_ms + by_ms
    if begins_within:  # with its earliest line, and goes on until that can be seen
        assume(min(written) == begin_ms)
        while written[-1] < end_ms + by_ms:
            written.append(written[-1] + by_ms // 2 - 5000)
    path = tmp_path_factory.mktemp("log") / "log"
    text = b"".join(lines_of(written, zone))
    path.write_bytes(gzip.compress(text) if packed else text)
    assert read(path, zone, range_bytes) == (written, [])


@pytest.mark.parametrize("zone", ENDS)
def test_a_log_that_does_not_say_which_of_the_hours_it_is_is_named(tmp_path: Path, zone: str) -> None:
    ended, by_minutes = ENDS[zone]
    second_ms = round(ended.timestamp() * 1000) + 60_000
    path = tmp_path / "log"
    path.write_bytes(b"".join(lines_of([second_ms, second_ms + 1000], zone)))
    first_ms = second_ms - by_minutes * 60_000
    assert read(path, zone, 1_000_000) == ([first_ms, first_ms + 1000], [str(path)])


def test_a_clock_that_is_set_back_a_little_is_not_summer_time(tmp_path: Path) -> None:
    """Minutes, not half an hour: the step stays, and is told elsewhere."""
    ended, _ = ENDS["Europe/Berlin"]
    first_ms = round(ended.timestamp() * 1000) - 3_600_000
    written = [first_ms + 60_000 * minute for minute in (-5, 20, 15, 16)]
    path = tmp_path / "log"
    path.write_bytes(b"".join(lines_of(written, "Europe/Berlin")))
    assert read(path, "Europe/Berlin", 1_000_000) == (written, [])


def test_nothing_is_looked_through_without_need(tmp_path: Path) -> None:
    """Not in UTC, nor on another day."""
    written = [round(datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp() * 1000) + 1000 * second for second in range(99)]
    path = tmp_path / "log"
    path.write_bytes(b"".join(lines_of(written, "Europe/Berlin")))

    def never(searches: Sequence[Search]) -> list[SplitStarts]:
        raise AssertionError(searches)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("MIN_SPLIT_BYTES", "MAX_SPLIT_BYTES"):
            patch.setattr(log_files, name, 500)
        files = find_log_files([str(path)])
        splits = to_splits(files, parallelism=1)
    assert len(splits) > 5
    for zone in ("UTC", "Europe/Berlin"):
        assert with_split_starts(files, splits, zone, never) == (splits, [])
