"""HDFS, by the client hdfs-native (extra ``hdfs``), which needs no Java and no Hadoop."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa

from kquota.clock import SystemClock
from kquota.pipeline.storage.errors import (
    MissingPackageError,
    StorageFailedError,
    StorageRefusedError,
    UnsupportedStorageError,
)
from kquota.pipeline.storage.port import PARTIAL, PARTIAL_S, FileInfo
from kquota.pipeline.storage.ranges import file_of_ranges, read_ahead

if TYPE_CHECKING:
    from hdfs_native import Client

__all__ = ["HdfsStorage"]

_CONNECT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class HdfsStorage:
    """A folder of HDFS. A file is written under a hidden name and then renamed, which is one step on the name node."""

    url: str
    """``hdfs://host:port/path``, without a slash at its end; the host may be a name service of Hadoop's settings."""

    @classmethod
    def open(cls, url: str) -> HdfsStorage:
        """The storage of a URL.

        :raises UnsupportedStorageError: it names no name node.
        :raises MissingPackageError: hdfs-native is not installed.
        """
        if not urlsplit(url).netloc:
            raise UnsupportedStorageError(url, "this names no name node")
        if find_spec("hdfs_native") is None:
            raise MissingPackageError(url, "hdfs-native", "hdfs")
        return cls(url.rstrip("/"))

    @property
    def identity(self) -> str:
        """As :meth:`Storage.identity`."""
        return self.url

    def list(self, prefix: str = "") -> list[FileInfo]:
        """As :meth:`Storage.list`."""
        return sorted(
            FileInfo(path, size) for path, size, _ in self._walk(prefix) if not _name(path).startswith(PARTIAL)
        )

    def size(self, path: str) -> int:
        """As :meth:`Storage.size`."""
        with self._errors(path):
            return int(self._client.get_file_info(self._at(path)).length)

    def open_input(self, path: str) -> pa.NativeFile:
        """As :meth:`Storage.open_input`."""
        return file_of_ranges(partial(self.read_range, path), self.size(path))

    def read(self, path: str) -> bytes:
        """As :meth:`Storage.read`."""
        with self._errors(path), self._client.read(self._at(path)) as file:
            return bytes(file.read())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """As :meth:`Storage.read_range`."""
        with self._errors(path), self._client.read(self._at(path)) as file:
            return bytes(file.read_range(start, length))

    def stream(self, path: str, start: int = 0, end: int | None = None, *, piece_bytes: int) -> Iterator[bytes]:
        """As :meth:`Storage.stream`."""
        size = self.size(path)
        end = size if end is None else min(end, size)
        return read_ahead(partial(self.read_range, path), start, end, piece_bytes=piece_bytes)

    def put(self, path: str, content: bytes | pa.Buffer, *, durable: bool = False) -> None:  # noqa: ARG002 (the port's)
        """As :meth:`Storage.put`; data nodes decide when it is on their disks."""
        self._write(path, content, overwrite=True)

    def put_new(self, path: str, content: bytes) -> None:
        """As :meth:`Storage.put_new`: a rename that does not replace."""
        self._write(path, content, overwrite=False)

    def delete(self, paths: Iterable[str]) -> None:
        """As :meth:`Storage.delete`; folders that become empty go, too, at last the storage's own."""
        for path in paths:
            self._remove(path)
            for folder in PurePosixPath(path).parents:
                if not self._is_empty(str(folder)):
                    break
                with suppress(StorageFailedError):  # another has put a file there in this moment
                    self._remove(str(folder))

    def remove_partial(self, older_than_s: float = PARTIAL_S) -> None:
        """As :meth:`Storage.remove_partial`."""
        before_ms = SystemClock().now_ms() - older_than_s * 1000
        for path, _, modified_ms in self._walk():
            if _name(path).startswith(PARTIAL) and modified_ms <= before_ms:
                self._remove(path)

    def spark_url(self, path: str) -> str:
        """As :meth:`Storage.spark_url`: Spark has a client of its own."""
        return f"{self.url}/{path}"

    def _at(self, path: str) -> str:
        root = urlsplit(self.url).path
        return f"{root}/{path}" if path not in ("", ".") else root or "/"

    def _is_empty(self, folder: str) -> bool:
        """Whether a folder is there, and has nothing in it."""
        try:
            with self._errors(folder):
                return next(iter(self._client.list_status(self._at(folder))), None) is None
        except FileNotFoundError:
            return False

    def _walk(self, prefix: str = "") -> Iterator[tuple[str, int, int]]:
        """All files, also those that are being written: path, size, and when it was changed (epoch ms)."""
        root = self._at(prefix.rstrip("/"))
        with self._errors(prefix), suppress(FileNotFoundError):
            if not self._client.get_file_info(root).isdir:
                raise NotADirectoryError(self.url)
            for found in self._client.list_status(root, recursive=True):
                if not found.isdir:
                    yield found.path.removeprefix(self._at("")).lstrip("/"), found.length, found.modification_time

    def _write(self, path: str, content: bytes | pa.Buffer, *, overwrite: bool) -> None:
        folder, _, name = path.rpartition("/")
        hidden = f"{folder}/{PARTIAL}{uuid4().hex}-{name}".lstrip("/")
        try:
            with self._errors(path):
                with self._client.create(self._at(hidden)) as file:
                    file.write(memoryview(content).cast("B"))
                self._client.rename(self._at(hidden), self._at(path), overwrite=overwrite)
        except BaseException:
            with suppress(Exception):
                self._remove(hidden)
            raise

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError), self._errors(path):
            self._client.delete(self._at(path))

    @property
    def _client(self) -> Client:
        with self._errors():
            return _client("{0.scheme}://{0.netloc}".format(urlsplit(self.url)))

    @contextmanager
    def _errors(self, path: str = "") -> Iterator[None]:
        """What the name node refuses, or cannot do, as what a storage raises."""
        url = f"{self.url}/{path}" if path else self.url
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from None
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), url) from None
        except NotADirectoryError:
            raise
        except PermissionError as error:
            raise StorageRefusedError(url, f"permission denied: {_first_line(error)}") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise StorageFailedError(url, _first_line(error)) from error


@lru_cache(maxsize=16)
def _client(url: str) -> Client:
    """One for each process."""
    from hdfs_native import Client

    address = urlsplit(url)
    if address.port is not None:  # otherwise it is the name of several
        # The client would try for three minutes.
        try:
            socket.create_connection((address.hostname or "", address.port), _CONNECT_S).close()
        except OSError as error:
            raise StorageFailedError(url, f"the name node does not answer: {error}") from None
    return Client(url)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
