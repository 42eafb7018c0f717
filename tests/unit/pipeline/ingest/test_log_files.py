"""Finding logs, cutting them into splits, and reading every line exactly once."""

import gzip
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from random import randbytes

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError
from kquota.pipeline.ingest.decompression import BrokenFileError
from kquota.pipeline.ingest.from_logs import estimate_lines
from kquota.pipeline.ingest.request_log.log_files import (
    MAX_SPLIT_BYTES,
    InputSplit,
    LogFile,
    find_log_files,
    group_splits,
    read_blocks,
    to_splits,
)
from kquota.pipeline.storage.files import StoredFile

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda content: pa.Codec("zstd").compress(content, asbytes=True),
}
each_packer = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)

lines_of_bytes = st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"~")), max_size=12)


def plain(path: Path, start: int, end: int) -> InputSplit:
    return InputSplit(0, StoredFile.of(str(path)), 0, start, end, compressed=False, weight=1)


def compressed(path: Path) -> InputSplit:
    return InputSplit(0, StoredFile.of(str(path)), 0, 0, path.stat().st_size, compressed=True, weight=1)


def flat(blocks: Iterable[bytes]) -> list[bytes]:
    """Lines of blocks that do not cut any."""
    return [line for block in blocks if block for line in block.removesuffix(b"\n").split(b"\n")]


@given(lines=lines_of_bytes, ends=st.booleans(), step=st.integers(1, 50), chunk=st.integers(1, 9))
def test_ranges_give_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool, step: int, chunk: int
) -> None:
    """However a file is cut, its lines come out once, whole and in order."""
    path = tmp_path_factory.mktemp("log") / "a.log"
    text = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    path.write_bytes(text)
    expected = text.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    read = [
        line
        for start in range(0, len(text), step)
        for line in flat(read_blocks(plain(path, start, min(start + step, len(text))), chunk_bytes=chunk))
    ]
    assert read == expected


@given(
    members=st.lists(lines_of_bytes, min_size=1, max_size=3),
    chunk=st.integers(1, 9),
    packer=st.sampled_from([*PACKERS]),
)
def test_compressed_files_of_several_members(
    tmp_path_factory: pytest.TempPathFactory, members: list[list[bytes]], chunk: int, packer: str
) -> None:
    """Members follow each other as if they were one, those of gzip with or without padding."""
    path = tmp_path_factory.mktemp("log") / "a.gz"
    text = b"".join(b"\n".join(lines) + b"\n" for lines in members)
    padding = b"\0\0" if packer == "gzip" else b""
    path.write_bytes(padding.join(PACKERS[packer](b"\n".join(lines) + b"\n") for lines in members))
    assert flat(read_blocks(compressed(path), chunk_bytes=chunk)) == text.split(b"\n")[:-1]


@each_packer
@pytest.mark.parametrize("cut", [1, 9, 40, 1000])
def test_a_cut_off_compressed_file_gives_what_is_there(
    tmp_path: Path, cut: int, pack: Callable[[bytes], bytes]
) -> None:
    """All whole lines before the end are handed out, then it is an error."""
    path = tmp_path / "a.gz"
    lines = [b"%06d %s" % (number, randbytes(50).hex().encode()) for number in range(8000)]
    path.write_bytes(pack(b"\n".join(lines) + b"\n")[:-cut])
    read: list[bytes] = []
    blocks = read_blocks(compressed(path))
    with pytest.raises(BrokenFileError):
        read.extend(line for block in blocks for line in flat([block]))
    assert read == lines[: len(read)]
    assert len(read) > 0


@each_packer
def test_a_damaged_compressed_file_is_an_error(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Damage in the middle does not go unseen."""
    path = tmp_path / "a.gz"
    packed = bytearray(pack(b"".join(b"line %d\n" % number for number in range(5000))))
    for at in range(len(packed) // 2, len(packed)):  # zstd looks for less than gzip
        packed[at] ^= 0xFF
    path.write_bytes(bytes(packed))
    with pytest.raises(BrokenFileError):
        flat(read_blocks(compressed(path)))


@each_packer
def test_an_empty_file_has_no_lines(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Empty files, named gz or not, are no error."""
    path = tmp_path / "a.gz"
    path.touch()
    [file] = find_log_files([str(path)])
    assert to_splits([file], parallelism=2) == []
    packed = tmp_path / "b.gz"
    packed.write_bytes(pack(b""))
    assert flat(read_blocks(compressed(packed))) == []


def test_globs_brokers_and_duplicates(tmp_path: Path) -> None:
    """N=GLOB names the broker; a file that two patterns match is read once."""
    for name in ("kafka-request.log", "kafka-request.log.2026-01-01-00", "other.txt"):
        (tmp_path / name).write_bytes(b"x\n")
    found = find_log_files([f"7={tmp_path}/kafka-request.log*", f"7={tmp_path}/kafka-request.log"], broker_id=1)
    assert [(Path(file.path).name, file.broker_id) for file in found] == [
        ("kafka-request.log", 7),
        ("kafka-request.log.2026-01-01-00", 7),
    ]
    [single] = find_log_files([str(tmp_path / "other.txt")], broker_id=3)
    assert single.broker_id == 3


def test_a_path_that_looks_like_a_glob_is_a_path(tmp_path: Path) -> None:
    """A file whose name has brackets is found by its name."""
    path = tmp_path / "a[1].log"
    path.write_bytes(b"x\n")
    assert [file.path for file in find_log_files([str(path)])] == [str(path)]


@pytest.mark.parametrize(
    ("content", "match"),
    [(b"BZh9....", "bunzip2"), (b"\xfd7zXZ\0..", "unxz")],
)
def test_other_compression_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    """What cannot be read says how to make it readable."""
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(InputError, match=match):
        find_log_files([str(path)])


def test_no_such_log(tmp_path: Path) -> None:
    """A pattern without files is an error, even beside one that has some."""
    (tmp_path / "a.log").write_bytes(b"x\n")
    with pytest.raises(InputError, match="no such log"):
        find_log_files([f"{tmp_path}/a.log", f"{tmp_path}/b*.log"])


def test_one_file_cannot_be_of_two_brokers(tmp_path: Path) -> None:
    """The same file under two brokers is a mistake."""
    path = tmp_path / "a.log"
    path.write_bytes(b"x\n")
    with pytest.raises(InputError, match="broker 1 and of broker 2"):
        find_log_files([f"1={path}", f"2={path}"])


@given(
    sizes=st.lists(st.integers(0, 5 * MAX_SPLIT_BYTES), max_size=20),
    packed=st.booleans(),
    parallelism=st.integers(1, 16),
)
def test_splits_and_tasks_cover_everything_once(sizes: list[int], packed: bool, parallelism: int) -> None:
    """Splits tile each file, tasks have each split once, and no plain split is too large."""
    files = [LogFile(StoredFile.of(f"f{index}"), 0, size, packed) for index, size in enumerate(sizes)]
    splits = to_splits(files, parallelism=parallelism)
    for index, file in enumerate(files):
        of_file = [split for split in splits if split.file == index]
        assert sum(split.end - split.start for split in of_file) == file.size_bytes
        assert all(earlier.end == later.start for earlier, later in pairwise(of_file))
        assert packed or all(split.end - split.start <= MAX_SPLIT_BYTES for split in of_file)
    tasks = group_splits(splits, parallelism=parallelism)
    assert sorted(index for task in tasks for index in task) == list(range(len(splits)))
    assert all(task == list(range(task[0], task[-1] + 1)) for task in tasks)


def test_files_are_read_in_the_order_of_their_first_times(tmp_path: Path) -> None:
    """Names do not tell the order in which a log was rotated; what the files say first does."""
    names = {"kafka-request.log": 5, "kafka-request.log.1": 4, "kafka-request.log.10": 2, "kafka-request.log.2": 3}
    for name, hour in names.items():
        (tmp_path / name).write_bytes(b"not a line\n[2026-01-02 %02d:04:05,678] DEBUG ...\n" % hour)
    (tmp_path / "kafka-request.log.11.gz").write_bytes(gzip.compress(b"[2026-01-02 01:04:05,678] DEBUG ...\n" * 9999))
    splits = to_splits(find_log_files([f"{tmp_path}/*"]), parallelism=1)
    assert [Path(split.path).name for split in splits] == [
        "kafka-request.log.11.gz",
        "kafka-request.log.10",
        "kafka-request.log.2",
        "kafka-request.log.1",
        "kafka-request.log",
    ]


def test_the_number_of_lines_is_estimated(tmp_path: Path) -> None:
    """The estimate is close for even lines, whatever their length."""
    path = tmp_path / "a.log"
    path.write_bytes((b"x" * 99 + b"\n") * 10_000)
    assert estimate_lines(find_log_files([str(path)])) == pytest.approx(10_000, rel=0.01)
