"""Steps back in the times of a log, however it is cut."""

from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.dataset.summary import BackwardClock
from kquota.pipeline.ingest.chunks import ChunkManifest
from kquota.pipeline.ingest.counts import LineCounts
from kquota.pipeline.ingest.from_logs import _clock_went_backwards, _logs_read
from kquota.pipeline.ingest.request_log.clock import LogTimes
from kquota.pipeline.ingest.request_log.log_files import InputSplit
from kquota.pipeline.storage.files import StoredFile

START_MS = 1_800_000_000_000

times_ms = st.lists(st.integers(0, 10_000).map(lambda ms: START_MS + ms), min_size=1, max_size=30)


@given(times_ms, st.lists(st.integers(0, 30), max_size=5))
def test_parts_together_are_the_whole(end_ms: list[float], cuts: list[int]) -> None:
    """The step back is what the times say one by one, and where lines are cut makes no difference."""
    places = sorted({0, len(end_ms), *(cut for cut in cuts if cut < len(end_ms))})
    parts = [LogTimes.of(np.array(end_ms[begin:end])) for begin, end in pairwise(places)]
    found = parts[0]
    assert found is not None
    for part in parts[1:]:
        assert part is not None
        found = found.merged_with(part)
    steps = [latest - at for latest, at in zip(accumulate(end_ms, max), end_ms, strict=True)]
    assert (found.earliest_ms, found.latest_ms, found.backwards_ms) == (min(end_ms), max(end_ms), max(steps))
    assert found.backwards_from_ms - found.backwards_ms in end_ms
    assert found == LogTimes.of(np.array(end_ms))
    assert LogTimes.of(np.empty(0)) is None


def chunk(split: int, broker_id: int, *seconds: float) -> ChunkManifest:
    times = LogTimes.of(START_MS + np.array(seconds) * 1000)
    return ChunkManifest(split, broker_id, LineCounts(lines=len(seconds), good=len(seconds)), times=times)


def test_a_clock_that_was_set_back_is_noted_by_broker() -> None:
    """Within a file, in whatever order its chunks come. Files may overlap, and lines be a bit out of order."""
    files = [(0, 1), (0, 1), (0, 1), (1, 1), (2, 2), (3, 3)]
    splits = [
        InputSplit(file, StoredFile.of(f"{file}.log"), broker, 0, 1, compressed=False, weight=1)
        for file, broker in files
    ]
    logs = _logs_read(
        [
            chunk(2, 1, 25, 30),
            chunk(0, 1, 0, 10),
            chunk(0, 1, 11, 40),
            chunk(1, 1),
            chunk(3, 1, 5, 20, 19),
            chunk(4, 2, 0, 50, 48.5, 60),
            chunk(5, 3, 3600, 7199, 3601, 3602),
        ],
        splits,
    )
    assert [(Path(log.path).name, log.broker_id) for log in logs] == [
        ("0.log", 1),
        ("1.log", 1),
        ("2.log", 2),
        ("3.log", 3),
    ]
    assert _clock_went_backwards(logs) == [
        BackwardClock(1, START_MS + 40_000, by_ms=15_000),
        BackwardClock(3, START_MS + 7_199_000, by_ms=3_598_000),
    ]
