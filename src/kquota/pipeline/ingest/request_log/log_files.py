"""The logs to read with their brokers, cut into splits that workers read independently.

A plain log is cut at bytes: a line belongs to the split that has its first byte, so no split needs to know another. A
compressed log cannot be read from its middle and is one split.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from io import RawIOBase
from pathlib import Path
from typing import Final

from kquota.errors import InputError
from kquota.pipeline.ingest.file_patterns import matching_files
from kquota.pipeline.ingest.input_file import HEAD_BYTES, MIB, InputFile, plain_bytes, read_head
from kquota.pipeline.spark.workers import balanced_tasks

__all__ = [
    "InputSplit",
    "LogFile",
    "find_log_files",
    "group_splits",
    "last_time",
    "read_blocks",
    "read_chunks",
    "to_splits",
]

MAX_SPLIT_BYTES: Final = 128 * MIB
MAX_TASK_BYTES: Final = 1024 * MIB  # of log; what is lost when a task has to be repeated
TASKS_PER_CORE: Final = 6  # fewer leave a core idle at the end, more leave more seconds open between tasks
MIN_SPLIT_BYTES: Final = 4 * MIB
_CHUNK_BYTES: Final = MIB // 4  # lines and what they become stay in the processor's cache

_TIME: Final = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class LogFile(InputFile):
    """A request log of one broker."""

    broker_id: int
    first_time: bytes = b""
    """As logged; only to guess the order of files."""
    first_line: bytes = b""
    """A digest: files that begin alike may be copies."""


@dataclass(frozen=True, slots=True)
class InputSplit:
    """The lines of a file that begin in the bytes [start, end)."""

    file: int
    path: str
    broker_id: int
    start: int
    end: int
    compressed: bool
    weight: int
    before_ms: float | None = None
    """When the line before was completed (epoch ms): only where `start` is in an hour of times that came twice."""


def find_log_files(patterns: Sequence[str], *, broker_id: int = 0) -> list[LogFile]:
    """Expand patterns of :func:`~kquota.pipeline.ingest.file_patterns.matching_files`; `broker_id` is that of the
    files with a pattern that does not say it.

    :raises InputError: a pattern cannot be used or matches no file, a file cannot be read, or is compressed in a way
        other than gzip.
    """
    found: dict[str, LogFile] = {}
    for pattern in patterns:
        files = matching_files(pattern)
        if not files:
            raise InputError(
                f"no such log: {pattern}: give a file, or a quoted glob such as '/var/log/kafka/*request.log*'"
            )
        for path, given in files:
            broker = broker_id if given is None else given
            known = found.get(path)
            if known is not None and known.broker_id != broker:
                raise InputError(f"{path} is given as the log of broker {known.broker_id} and of broker {broker}")
            found[path] = _inspect(path, broker)
    return list(found.values())


def last_time(path: str) -> bytes:
    """The last time in a plain log, as logged; empty where its end has none."""
    with Path(path).open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - HEAD_BYTES))
        times = _TIME.findall(stream.read())
    return times[-1].replace(b"T", b" ") if times else b""


def _inspect(path: str, broker_id: int) -> LogFile:
    head, size, compressed = read_head(path)
    time = _TIME.search(head)
    first_time = time[0].replace(b"T", b" ") if time else b""
    first_line = blake2b(head[:HEAD_BYTES].partition(b"\n")[0], digest_size=16).digest()
    return LogFile(path, broker_id, size, compressed, first_time, first_line)


def to_splits(files: Sequence[LogFile], *, parallelism: int) -> list[InputSplit]:
    """Cut plain files so that every core has work and no split is larger than 128 MiB.

    :returns: splits by broker, in the order of the first times of their files.
    """
    ordered = sorted(enumerate(files), key=lambda item: (item[1].broker_id, item[1].first_time, item[0]))
    total = plain_bytes(files)
    size = max(MIN_SPLIT_BYTES, min(MAX_SPLIT_BYTES, -(-total // max(1, parallelism * TASKS_PER_CORE))))
    splits = []
    for index, file in ordered:
        step = size if not file.compressed else max(1, file.size_bytes)
        for start in range(0, file.size_bytes, step):
            end = min(start + step, file.size_bytes)
            weight = file.plain_bytes if file.compressed else end - start
            splits.append(InputSplit(index, file.path, file.broker_id, start, end, file.compressed, weight))
    return splits


def group_splits(splits: Sequence[InputSplit], *, parallelism: int) -> list[list[int]]:
    """Group splits (by index) into tasks, the largest first.

    Neighbours are read by the same task, because seconds that two tasks share must be merged afterwards.
    """
    return balanced_tasks(
        [split.weight for split in splits],
        parallelism,
        per_core=TASKS_PER_CORE,
        min_bytes=MIN_SPLIT_BYTES,
        max_bytes=MAX_TASK_BYTES,
    )


def read_blocks(split: InputSplit, *, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """The lines of a split in blocks of whole lines, line feeds included; the last line of a file may have none.

    :raises EOFError: a compressed file ends within its data; all lines before it were yielded.
    :raises zlib.error: a compressed file is damaged; all lines before it were yielded.
    """
    if split.compressed:
        yield from _read_compressed_blocks(split.path, chunk_bytes)
    else:
        yield from _read_plain_blocks(split, chunk_bytes)


def read_chunks(path: str, *, compressed: bool, chunk_bytes: int = MIB) -> Iterator[bytes]:
    """The bytes of a log, decompressed.

    :raises EOFError: a compressed file ends within its data.
    :raises zlib.error: a compressed file is damaged.
    """
    if compressed:
        yield from _decompress(path, chunk_bytes)
        return
    with Path(path).open("rb", buffering=0) as stream:
        while chunk := stream.read(chunk_bytes):
            yield chunk


class _Splitter:
    """Cuts chunks at line ends, and buffers the line that a chunk ends within."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> bytes:
        """The lines that end in `chunk`."""
        cut = chunk.rfind(b"\n") + 1
        block = b"".join((*self._rest, memoryview(chunk)[:cut])) if cut else b""
        if cut:
            self._rest.clear()
        if cut < len(chunk):
            self._rest.append(chunk[cut:])
        return block

    def finish(self, tail: bytes = b"") -> bytes:
        """The buffered line, completed by `tail`; empty where none was buffered."""
        return b"".join((*self._rest, tail)) if self._rest else b""

    @property
    def pending(self) -> bool:
        return bool(self._rest)


def _read_plain_blocks(split: InputSplit, chunk_bytes: int) -> Iterator[bytes]:
    splitter = _Splitter()
    with Path(split.path).open("rb", buffering=0) as stream:
        position = split.start
        if position > 0:
            # The line that has the byte before `start` belongs to the split before.
            stream.seek(position - 1)
            position += _skip_line(stream) - 1
        while position < split.end:
            chunk = stream.read(min(chunk_bytes, split.end - position))
            if not chunk:
                break
            position += len(chunk)
            yield splitter.feed(chunk)
        tail: list[bytes] = []
        # A line that begins in this split belongs to it up to its end.
        while splitter.pending and (chunk := stream.read(64 * 1024)):
            head, ending, _ = chunk.partition(b"\n")
            tail.append(head)
            if ending:
                break
        yield splitter.finish(b"".join(tail))


def _skip_line(stream: RawIOBase) -> int:
    """Move past the next line ending; returns the number of bytes skipped."""
    skipped = 0
    while chunk := stream.read(64 * 1024):
        cut = chunk.find(b"\n")
        if cut >= 0:
            stream.seek(cut + 1 - len(chunk), 1)
            return skipped + cut + 1
        skipped += len(chunk)
    return skipped


def _read_compressed_blocks(path: str, chunk_bytes: int) -> Iterator[bytes]:
    splitter = _Splitter()
    for chunk in _decompress(path, chunk_bytes):
        yield splitter.feed(chunk)
    # Not reached where the file is broken: half a line before the damage is not a line.
    yield splitter.finish()


def _decompress(path: str, chunk_bytes: int) -> Iterator[bytes]:
    """Decompressed chunks of a gzip file of one or more members.

    :raises EOFError: the file ends within a member.
    :raises zlib.error: the data is damaged.
    """
    with Path(path).open("rb") as stream:
        member = None
        data = b""
        while data := data or stream.read(256 * 1024):
            if member is None:
                data = data.lstrip(b"\0")  # padding between members is legal
                if not data:
                    continue
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield member.decompress(data, chunk_bytes)
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data
                member = None
        if member is not None:
            yield member.flush()
            if not member.eof:
                raise EOFError("the compressed file ends too early")
