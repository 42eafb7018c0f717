"""What a storage is: files below a URL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

__all__ = ["PARTIAL", "PARTIAL_S", "FileInfo", "Storage"]

PARTIAL: Final = ".partial-"
"""How names of files begin that are being written: Spark, DuckDB and `ls` pass over them."""
PARTIAL_S: Final = 3600.0
"""A file that has been partial for so long has no writer any more."""


class FileInfo(NamedTuple):
    """A file: its path below the storage's URL, with ``/``, and its size."""

    path: str
    bytes: int


class Storage(Protocol):
    """Files below a URL. It can be pickled: workers use the one of the driver. A file is seen whole or not at all.

    Each method raises a StorageError where the storage cannot be reached or refuses.
    """

    @property
    def url(self) -> str:
        """What it was opened with."""

    @property
    def identity(self) -> str:
        """The same for all URLs that name this place: links and other spellings of its path."""

    def list(self, prefix: str = "") -> list[FileInfo]:
        """The files with paths that begin with `prefix` (empty, or ending in ``/``), by path.

        :raises NotADirectoryError: the URL is that of a file.
        """

    def size(self, path: str) -> int:
        """How many bytes a file has. :raises FileNotFoundError: there is none."""

    def open_input(self, path: str) -> pa.NativeFile:
        """A file to read, with ranges. :raises FileNotFoundError: there is none."""

    def read(self, path: str) -> bytes:
        """A whole file. :raises FileNotFoundError: there is none."""

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Bytes of a file, which it has to have. :raises FileNotFoundError: there is none."""

    def stream(self, path: str, start: int = 0, end: int | None = None, *, piece_bytes: int) -> Iterator[bytes]:
        """The bytes [start, end) of a file, in pieces of at most so many bytes; the next ones are read ahead.

        :param end: None for the end of the file, which may also come before it.

        :raises FileNotFoundError: there is none.
        """

    def put(self, path: str, content: bytes | pa.Buffer, *, durable: bool = False) -> None:
        """Write a file, in place of one that is there.

        :param durable: it survives a crash of the machine from now on.
        """

    def put_new(self, path: str, content: bytes) -> None:
        """Create a durable file. Of any number of writers who do this for one path at the same time, one succeeds.

        Where the file system has no hard links, the others may find it empty for a moment.

        :raises FileExistsError: there is one, or another writer has begun it.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; it is no error if one is not there."""

    def remove_partial(self, older_than_s: float = PARTIAL_S) -> None:
        """Remove what writers that were killed in the middle of a file left, where the storage does not itself."""

    def spark_url(self, path: str) -> str | None:
        """The file's name for Spark, which may take a plain path for one of its cluster's file system.

        None where Spark needs packages of its own to read it: then workers read it in Python.
        """
