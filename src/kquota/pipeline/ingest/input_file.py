"""A file to be read, plain or compressed by gzip, and its first bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kquota.errors import InputError

__all__ = ["HEAD_BYTES", "MIB", "InputFile", "plain_bytes", "read_head"]

MIB: Final = 1024 * 1024
HEAD_BYTES: Final = 64 * 1024

_GZIP_RATIO: Final = 20
"""Lines of JSON shrink about 20 times. Used only to weigh and estimate, never to read."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_OTHER_COMPRESSION: Final = {
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"PK\x03\x04": "unzip",
}


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of one broker; `broker_id` is None where only its content may say which."""

    path: str
    broker_id: int | None
    size_bytes: int
    compressed: bool

    @property
    def plain_bytes(self) -> int:
        """Size when decompressed; an estimate for a compressed file."""
        return self.size_bytes * _GZIP_RATIO if self.compressed else self.size_bytes


def plain_bytes(files: Iterable[InputFile]) -> int:
    """About how many bytes there are to read, decompressed."""
    return sum(file.plain_bytes for file in files)


def read_head(path: str) -> tuple[bytes, int, bool]:
    """The first bytes of a file, decompressed; its size; and whether it is compressed.

    :raises InputError: it cannot be read, or is compressed in a way other than gzip.
    """
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            size = stream.seek(0, 2)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    for prefix, command in _OTHER_COMPRESSION.items():
        if head.startswith(prefix):
            raise InputError(f"{path} is compressed, but not by gzip: decompress it first ({command})")
    compressed = head.startswith(_GZIP_MAGIC)
    if compressed:
        with suppress(zlib.error):
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head)
    return head, size, compressed
