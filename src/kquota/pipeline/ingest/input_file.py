"""A file to be read, plain or compressed by gzip or zstd, and its first bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kquota.errors import InputError
from kquota.pipeline.ingest.decompression import BrokenFileError, decompressed, is_compressed
from kquota.pipeline.storage.files import StoredFile

__all__ = ["HEAD_BYTES", "MIB", "InputFile", "plain_bytes", "read_head"]

MIB: Final = 1024 * 1024
HEAD_BYTES: Final = 64 * 1024

_RATIO: Final = 20
"""Lines of JSON shrink about 20 times. Used only to weigh and estimate, never to read."""
_OTHER_COMPRESSION: Final = {
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"PK\x03\x04": "unzip",
}


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of one broker; `broker_id` is None where only its content may say which."""

    stored: StoredFile
    broker_id: int | None
    size_bytes: int
    compressed: bool

    @property
    def path(self) -> str:
        """Its path, or URL."""
        return self.stored.path

    @property
    def plain_bytes(self) -> int:
        """Size when decompressed; an estimate for a compressed file."""
        return self.size_bytes * _RATIO if self.compressed else self.size_bytes


def plain_bytes(files: Iterable[InputFile]) -> int:
    """About how many bytes there are to read, decompressed."""
    return sum(file.plain_bytes for file in files)


def read_head(file: StoredFile) -> tuple[bytes, int, bool]:
    """The first bytes of a file, decompressed; its size; and whether it is compressed.

    :raises InputError: it cannot be read, or is compressed in a way other than gzip and zstd.
    """
    try:
        size = file.size()
        head = file.read_range(0, min(size, HEAD_BYTES))
    except OSError as error:
        raise InputError(f"cannot read {file.path}: {error.strerror}") from error
    for prefix, command in _OTHER_COMPRESSION.items():
        if head.startswith(prefix):
            raise InputError(f"{file.path} is compressed, but not by gzip or zstd: decompress it first ({command})")
    if not is_compressed(head):
        return head, size, False
    plain = b""
    try:
        for piece in decompressed(iter([head]), HEAD_BYTES):
            plain += piece
    except BrokenFileError:  # it goes on
        pass
    return plain, size, True
