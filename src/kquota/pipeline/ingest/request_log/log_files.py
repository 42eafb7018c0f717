"""The logs to read with their brokers, cut into splits that workers read independently.

A plain log is cut at bytes: a line belongs to the split that has its first byte, so no split needs to know another. A
compressed log cannot be read from its middle and is one split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from kquota.errors import InputError
from kquota.pipeline.ingest.decompression import decompressed
from kquota.pipeline.ingest.file_patterns import matching_files
from kquota.pipeline.ingest.input_file import HEAD_BYTES, MIB, InputFile, plain_bytes, read_head
from kquota.pipeline.ingest.request_log.envelope import check_envelope, unwrapped
from kquota.pipeline.spark.workers import balanced_tasks
from kquota.pipeline.storage.files import StoredFile

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
_PACKED_BYTES: Final = MIB // 4
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
    envelope: str = ""
    """The field that holds each line, where a shipper wrapped them in JSON."""


@dataclass(frozen=True, slots=True)
class InputSplit:
    """The lines of a file that begin in the bytes [start, end)."""

    file: int
    """Its index."""
    stored: StoredFile
    broker_id: int
    start: int
    end: int
    compressed: bool
    weight: int
    before_ms: float | None = None
    """When the line before was completed (epoch ms): only where `start` is in an hour of times that came twice."""
    envelope: str = ""
    """As :attr:`LogFile.envelope`."""

    @property
    def path(self) -> str:
        """The file's path, or URL."""
        return self.stored.path


def find_log_files(patterns: Sequence[str], *, broker_id: int = 0, envelope: str = "") -> list[LogFile]:
    """Expand patterns of :func:`~kquota.pipeline.ingest.file_patterns.matching_files`; `broker_id` is that of the
    files with a pattern that does not say it, `envelope` the field that holds each line where a shipper wrapped them.

    :raises InputError: a pattern cannot be used or matches no file, a file cannot be read, or is compressed in a way
        other than gzip and zstd.
    """
    check_envelope(envelope)
    found: dict[str, LogFile] = {}
    for pattern in patterns:
        files = matching_files(pattern)
        if not files:
            raise InputError(
                f"no such log: {pattern}: give a file, or a quoted glob such as '/var/log/kafka/*request.log*'"
            )
        for stored, given in files:
            path = stored.path
            broker = broker_id if given is None else given
            known = found.get(path)
            if known is not None and known.broker_id != broker:
                raise InputError(f"{path} is given as the log of broker {known.broker_id} and of broker {broker}")
            found[path] = _inspect(stored, broker, envelope)
    return list(found.values())


def last_time(file: LogFile) -> bytes:
    """The last time in a plain log, as logged; empty where its end has none."""
    length = min(file.size_bytes, HEAD_BYTES)
    times = _TIME.findall(unwrapped(file.stored.read_range(file.size_bytes - length, length), file.envelope))
    return times[-1].replace(b"T", b" ") if times else b""


def _inspect(stored: StoredFile, broker_id: int, envelope: str) -> LogFile:
    head, size, compressed = read_head(stored)
    time = _TIME.search(unwrapped(head, envelope))
    first_time = time[0].replace(b"T", b" ") if time else b""
    first_line = blake2b(head[:HEAD_BYTES].partition(b"\n")[0], digest_size=16).digest()
    return LogFile(stored, broker_id, size, compressed, first_time, first_line, envelope)


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
            splits.append(
                InputSplit(
                    index, file.stored, file.broker_id, start, end, file.compressed, weight, envelope=file.envelope
                )
            )
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

    :raises BrokenFileError: a compressed file is damaged, or ends too early; all lines before that were yielded.
    """
    if split.compressed:
        blocks = _read_compressed_blocks(split.stored, chunk_bytes)
    else:
        blocks = _read_plain_blocks(split, chunk_bytes)
    return (unwrapped(block, split.envelope) for block in blocks)


def read_chunks(source: StoredFile, *, compressed: bool, chunk_bytes: int = MIB) -> Iterator[bytes]:
    """The bytes of a log, decompressed.

    :raises BrokenFileError: a compressed file is damaged, or ends too early.
    """
    packed = source.stream(piece_bytes=chunk_bytes)
    return decompressed(packed, chunk_bytes) if compressed else packed


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
    # The line that has the byte before `start` belongs to the split before.
    position = max(split.start - 1, 0)
    is_within_line = split.start > 0
    for chunk in split.stored.stream(position, split.end, piece_bytes=chunk_bytes):
        cut = 0
        if is_within_line:
            cut = chunk.find(b"\n") + 1
            is_within_line = not cut
        if not is_within_line:
            yield splitter.feed(chunk[cut:])
    if splitter.pending:
        yield splitter.finish(_rest_of_line(split.stored, split.end))


def _rest_of_line(source: StoredFile, position: int) -> bytes:
    """What is between a byte and the next line ending: a line that begins in a split belongs to it up to its end."""
    size = source.size()
    rest = b""
    while position < size:
        head, ending, _ = source.read_range(position, min(HEAD_BYTES, size - position)).partition(b"\n")
        rest += head
        if ending:
            break
        position += len(head)
    return rest


def _read_compressed_blocks(source: StoredFile, chunk_bytes: int) -> Iterator[bytes]:
    splitter = _Splitter()
    for chunk in decompressed(source.stream(piece_bytes=_PACKED_BYTES), chunk_bytes):
        yield splitter.feed(chunk)
    # Not reached where the file is broken: half a line before the damage is not a line.
    yield splitter.finish()
