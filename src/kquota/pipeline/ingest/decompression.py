"""Files that are compressed by gzip or zstd; the first bytes say which."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["BrokenFileError", "decompressed", "is_compressed"]

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class BrokenFileError(Exception):
    """A compressed file is damaged, or ends too early; everything before that was given."""


def is_compressed(head: bytes) -> bool:
    """Whether a file that begins so is compressed in a way that is read."""
    return head.startswith((_GZIP, _ZSTD))


def decompressed(pieces: Iterator[bytes], piece_bytes: int) -> Iterator[bytes]:
    """The content of a compressed file, in pieces of at most so many bytes. It may be of several parts, one by one.

    :raises BrokenFileError: it is damaged, or ends within its data.
    """
    first = next(pieces, b"")
    return (_of_zstd if first.startswith(_ZSTD) else _of_gzip)(first, pieces, piece_bytes)


def _of_gzip(data: bytes, pieces: Iterator[bytes], piece_bytes: int) -> Iterator[bytes]:
    member = None
    try:
        while data := data or next(pieces, b""):
            if member is None:
                data = data.lstrip(b"\0")  # padding between members is legal
                if not data:
                    continue
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield member.decompress(data, piece_bytes)
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data
                member = None
        if member is not None:
            yield member.flush()
    except zlib.error as error:
        raise BrokenFileError(str(error)) from None
    if member is not None and not member.eof:
        raise BrokenFileError("the compressed file ends too early")


def _of_zstd(data: bytes, pieces: Iterator[bytes], piece_bytes: int) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(_Pieces(data, pieces), mode="r"), "zstd") as stream:
        while True:
            try:
                piece = stream.read(piece_bytes)
            except OSError as error:
                raise BrokenFileError(str(error)) from None
            if not piece:
                return
            yield piece


class _Pieces(io.RawIOBase):
    """Pieces as a file, which is what Arrow reads."""

    def __init__(self, data: bytes, pieces: Iterator[bytes]) -> None:
        self._data = memoryview(data)
        self._pieces = pieces

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if not self._data:
            self._data = memoryview(next(self._pieces, b""))
        target = memoryview(buffer).cast("B")
        length = min(len(target), len(self._data))
        target[:length] = self._data[:length]
        self._data = self._data[length:]
        return length
