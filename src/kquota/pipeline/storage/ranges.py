"""Files that are read by ranges of bytes over a network: as a file, and as a stream that is read ahead."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["file_of_ranges", "read_ahead"]

_RANGE_BYTES: Final = 8 * 1024**2
"""Larger ranges were no faster beside a local server (0.48 s for 512 MB); smaller ones wait more often."""
_AHEAD: Final = 2
"""Ranges that are under way while the one before them is used."""


class _RangeFile(io.RawIOBase):
    """A file whose every read asks for just that range: what a reader of Parquet wants."""

    def __init__(self, read_range: Callable[[int, int], bytes], size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size < 0 else min(size, left)
        content = self._read_range(self._position, length) if length else b""
        self._position += len(content)
        return content

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        content = self.read(len(view))
        view[: len(content)] = content
        return len(content)


def file_of_ranges(read_range: Callable[[int, int], bytes], size: int) -> pa.NativeFile:
    """A file of `size` bytes, by a function that reads a range: its first byte, and how many."""
    return pa.PythonFile(_RangeFile(read_range, size), mode="r")


def read_ahead(
    read_range: Callable[[int, int], bytes], start: int, end: int, *, piece_bytes: int, range_bytes: int = _RANGE_BYTES
) -> Iterator[bytes]:
    """The bytes [start, end) of a file, in pieces; ranges are read by threads while pieces are used.

    ::

        used:          |--range 1, in pieces--|--range 2 --| ...
        under way:          |-- range 2 --|-- range 3 --|
    """
    starts = iter(range(start, end, range_bytes))
    with ThreadPoolExecutor(_AHEAD, "read-ahead") as pool:
        under_way: deque[Future[bytes]] = deque()
        try:
            while True:
                while len(under_way) < _AHEAD and (at := next(starts, None)) is not None:
                    under_way.append(pool.submit(read_range, at, min(range_bytes, end - at)))
                if not under_way:
                    return
                content = memoryview(under_way.popleft().result())
                if (at := next(starts, None)) is not None:
                    under_way.append(pool.submit(read_range, at, min(range_bytes, end - at)))
                for first in range(0, len(content), piece_bytes):
                    yield bytes(content[first : first + piece_bytes])
        finally:
            for future in under_way:
                future.cancel()
