"""Lines to rows: a bad line costs itself, wherever it stands in its block."""

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.dataset.tables import ALL_TABLES
from kquota.pipeline.dataset.writing import TableWriter, new_id
from kquota.pipeline.ingest.chunks import ChunkManifest
from kquota.pipeline.ingest.request_log.log_files import InputSplit
from kquota.pipeline.ingest.request_log.split_reader import ReadOptions, SplitReader
from kquota.pipeline.storage.files import StoredFile
from kquota.pipeline.storage.opening import open_storage

GOLDEN = Path("tests/data/golden/4.3.0/kafka-request.log").read_bytes().split(b"\n")[:-1]
PIECE = InputSplit(file=0, stored=StoredFile.of("a.log"), broker_id=1, start=0, end=1, compressed=False, weight=1)
BAD = [
    b"[2026-01-02 03:04:05,678] INFO Started (kafka.server)",
    GOLDEN[0][:300],
    b"[2026-99-02 03:04:05,678" + GOLDEN[0][24:],
    b"[2026-01-02 03:04:05,6x8" + GOLDEN[0][24:],
    GOLDEN[0].replace(b"User:", b"Useless", 1),
    GOLDEN[0].replace(b'"sendTimeMs":', b'"sendTimeMs":9e15', 1),
    b"\xff\xfe",
]


def read(folder: str, blocks: list[list[bytes]], *, timezone: str = "UTC") -> ChunkManifest:
    tables = {
        kind: TableWriter(open_storage(folder), kind, new_id(), ALL_TABLES[kind]) for kind in ("usage", "requests")
    }
    others = ("edges", "mutations", "connections", "rejected")
    writers = tables | {kind: TableWriter(open_storage(folder), kind, new_id()) for kind in others}
    reader = SplitReader(ReadOptions(writers, "c", timezone, keep_requests=True, default_partitions=1))
    reader.enter(0, PIECE)
    for block in blocks:
        reader.read(b"".join(line + b"\n" for line in block))
    return reader.flush(has_more=False)


def written(folder: str, chunk: ChunkManifest, kind: str, column: str) -> list[object]:
    return [
        value
        for file in chunk.files.get(kind, ())
        for value in pq.read_table(Path(folder) / file.path, columns=[column])[column].to_pylist()
    ]


@given(
    st.lists(st.lists(st.sampled_from([*GOLDEN[:3], *GOLDEN[40:43], *BAD, b"", b" \r"]), max_size=9), max_size=4),
)
def test_a_bad_line_costs_only_itself(blocks: list[list[bytes]]) -> None:
    """Good, bad and blank lines in any order: each bad line is named by its number, each good one is counted."""
    lines = [line for block in blocks for line in block]
    bad = [number for number, line in enumerate(lines, 1) if line in BAD]
    blank = sum(not line.strip() for line in lines)
    with TemporaryDirectory() as folder:
        chunk = read(folder, blocks)
        assert (chunk.counts.lines, chunk.counts.rejected, chunk.counts.blank) == (len(lines), len(bad), blank)
        assert chunk.counts.good == len(lines) - len(bad) - blank
        assert written(folder, chunk, "rejected", "line") == bad
        assert sum(chunk.counts.versions.values()) == chunk.counts.good


def test_requests_keep_the_numbers_of_their_lines(tmp_path: Path) -> None:
    """Bad lines between them do not shift what is known of the good ones."""
    good = next(line for line in GOLDEN if b'"requestApiKey":0,' in line and b'"acks":-1' in line)
    chunk = read(str(tmp_path), [[good, BAD[0], good], [BAD[1]], [b"", good]])
    assert written(str(tmp_path), chunk, "requests", "seq") == [1, 1, 3, 3, 6, 6]


def test_the_hour_that_comes_twice_is_no_step_back(tmp_path: Path) -> None:
    """Also where a bad line has a block read in parts."""
    logged = [b"2026-10-25 02:59:59,000", b"2026-10-25 02:00:01,000", b"2026-10-25 02:00:02,000"]
    lines = [b"[" + time + GOLDEN[0][24:] for time in logged]
    times = read(str(tmp_path), [[*lines[:2], BAD[0]], lines[2:]], timezone="Europe/Berlin").times
    assert times is not None
    assert (times.latest_ms - times.earliest_ms, times.backwards_ms) == (3_000, 0)


@pytest.mark.parametrize(
    ("timezone", "logged", "expected"),
    [
        ("UTC", b"2026-01-02 03:04:05,678", datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)),
        ("Europe/Berlin", b"2026-07-02 03:04:05,678", datetime(2026, 7, 2, 1, 4, 5, 678_000, UTC)),
        ("Europe/Berlin", b"2026-07-02T03:04:05.5-03:30", datetime(2026, 7, 2, 6, 34, 5, 500_000, UTC)),
    ],
)
def test_times_are_read_in_their_zone(tmp_path: Path, timezone: str, logged: bytes, expected: datetime) -> None:
    """The zone that the broker logged in counts where the line has no offset."""
    line = b"[" + logged + GOLDEN[0][24:]
    chunk = read(str(tmp_path), [[line]], timezone=timezone)
    assert set(written(str(tmp_path), chunk, "requests", "end_ms")) == {expected.timestamp() * 1000}
