"""One file, wherever it is; workers get it from the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kquota.pipeline.storage.opening import open_storage
from kquota.pipeline.storage.port import Storage

__all__ = ["StoredFile"]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a storage."""

    storage: Storage
    name: str
    """Its path below the storage's URL."""

    @classmethod
    def of(cls, url: str) -> StoredFile:
        """The file at a path or URL; it need not be there.

        :raises UnsupportedStorageError: the URL is of no storage.
        """
        folder, _, name = url.rpartition("/")
        if not folder:
            folder = "/" if url.startswith("/") else "."
        return cls(open_storage(folder), name)

    @property
    def path(self) -> str:
        """Its path, or URL."""
        return f"{self.storage.url.rstrip('/')}/{self.name}"

    def size(self) -> int:
        """How many bytes it has. :raises FileNotFoundError: there is none."""
        return self.storage.size(self.name)

    def read_range(self, start: int, length: int) -> bytes:
        """Bytes that it has to have."""
        return self.storage.read_range(self.name, start, length)

    def stream(self, start: int = 0, end: int | None = None, *, piece_bytes: int) -> Iterator[bytes]:
        """The bytes [start, end), by default to the file's end, in pieces; the next ones are read ahead."""
        return self.storage.stream(self.name, start, end, piece_bytes=piece_bytes)
