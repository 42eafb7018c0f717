"""The one door to files: where a dataset is kept. Nobody else opens, lists or deletes a file of one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa

from kquota.clock import SystemClock
from kquota.errors import InputError
from kquota.files.local_paths import check_local, local_path
from kquota.pipeline.dataset.errors import UnsupportedStorageError

__all__ = ["FileInfo", "LocalStorage", "Storage", "open_storage"]

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""How a file system says that it has no hard links."""
_PARTIAL: Final = ".partial-"
"""How names of files begin that are being written: Spark, DuckDB and `ls` pass over them."""
_PARTIAL_S: Final = 3600.0
_ATTEMPTS: Final = 100


class FileInfo(NamedTuple):
    """A file: its path below the storage's URL, with ``/``, and its size."""

    path: str
    bytes: int


class Storage(Protocol):
    """Files below a URL. It can be pickled: workers use the one of the driver. A file is seen whole or not at all."""

    @property
    def url(self) -> str:
        """What it was opened with."""

    def list(self, prefix: str = "") -> list[FileInfo]:
        """The files whose path begins with `prefix` (empty, or ending in ``/``), by path; none where there are none.

        :raises NotADirectoryError: the URL is that of a file.
        """

    def open_input(self, path: str) -> pa.NativeFile:
        """A file to read, with ranges. :raises FileNotFoundError: there is none."""

    def read(self, path: str) -> bytes:
        """A whole file. :raises FileNotFoundError: there is none."""

    def put(self, path: str, content: bytes | pa.Buffer) -> None:
        """Write a file, in place of one that is there."""

    def put_new(self, path: str, content: bytes) -> None:
        """Create a file. Of any number of writers who do this for one path at the same time, one succeeds.

        :raises FileExistsError: there is one.
        :raises UnsupportedStorageError: the storage cannot do this.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; it is no error if one is not there."""

    def remove_partial(self, older_than_s: float = _PARTIAL_S) -> None:
        """Remove what writers that were killed in the middle of a file left, where the storage does not itself."""

    def spark_url(self, path: str) -> str:
        """The file's name for Spark, which may take a plain path for one of its cluster's file system."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder of this machine, or of a file system that it and all workers have mounted under the same path.

    A new file is written beside its path under a hidden name, and then gets its path in one step: by a rename, which
    replaces, or by a hard link, which fails where the path is taken.
    """

    root: str
    """Absolute: workers have another current directory."""

    @property
    def url(self) -> str:
        """The folder."""
        return self.root

    def list(self, prefix: str = "") -> list[FileInfo]:
        """As :meth:`Storage.list`; links to folders are not followed."""
        if Path(self.root).is_file():
            raise NotADirectoryError(self.root)
        found = []
        for file in self._walk(prefix):
            if not file.name.startswith(_PARTIAL):
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    found.append(FileInfo(file.relative_to(self.root).as_posix(), file.lstat().st_size))
        return sorted(found)

    def open_input(self, path: str) -> pa.NativeFile:
        """As :meth:`Storage.open_input`."""
        return pa.OSFile(str(self._at(path)), "rb")

    def read(self, path: str) -> bytes:
        """As :meth:`Storage.read`."""
        return self._at(path).read_bytes()

    def put(self, path: str, content: bytes | pa.Buffer) -> None:
        """As :meth:`Storage.put`."""
        self._write_partial(path, content).replace(self._at(path))

    def put_new(self, path: str, content: bytes) -> None:
        """As :meth:`Storage.put_new`; the file survives a crash of the machine."""
        partial = self._write_partial(path, content, sync=True)
        try:
            self._at(path).hardlink_to(partial)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise UnsupportedStorageError(self.url, "its file system has no hard links") from None
        finally:
            self.delete([partial.relative_to(self.root).as_posix()])

    def delete(self, paths: Iterable[str]) -> None:
        """As :meth:`Storage.delete`; folders that become empty go, too, at last the storage's own."""
        for path in paths:
            self._at(path).unlink(missing_ok=True)
            with suppress(OSError):  # not empty, or another has removed it
                for folder in Path(path).parents:
                    Path(self.root, folder).rmdir()

    def remove_partial(self, older_than_s: float = _PARTIAL_S) -> None:
        """As :meth:`Storage.remove_partial`."""
        before_s = SystemClock().now_ms() / 1000 - older_than_s
        for file in self._walk():
            if file.name.startswith(_PARTIAL):
                with suppress(FileNotFoundError):
                    if file.stat().st_mtime <= before_s:
                        self.delete([file.relative_to(self.root).as_posix()])

    def spark_url(self, path: str) -> str:
        """As :meth:`Storage.spark_url`."""
        return f"file://{self._at(path)}"

    def _at(self, path: str) -> Path:
        return Path(self.root, path)

    def _walk(self, prefix: str = "") -> Iterator[Path]:
        """All files, also those that are being written. A folder that somebody removes meanwhile has none."""

        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        for folder, _, names in os.walk(Path(self.root, prefix), onerror=fail):
            for name in names:
                yield Path(folder, name)

    def _write_partial(self, path: str, content: bytes | pa.Buffer, *, sync: bool = False) -> Path:
        target = self._at(path)
        partial = target.with_name(f"{_PARTIAL}{uuid4().hex}")
        for attempt in count(1):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with partial.open("xb") as file:
                    file.write(content)
                    if sync:
                        file.flush()
                        os.fsync(file.fileno())
                break
            except (FileNotFoundError, FileExistsError):
                # Somebody deleted the last other file of the folder, and so the folder, in this moment.
                if attempt == _ATTEMPTS:
                    raise
        return partial


def open_storage(url: str | Path) -> Storage:
    """The storage of a path, or of ``file:///path``.

    :raises UnsupportedStorageError: it is a URL of another scheme, or of another host.
    """
    try:
        if isinstance(url, Path):
            check_local(url)
        path = local_path(str(url))
    except InputError:
        raise UnsupportedStorageError(str(url), "URLs of this kind are not served yet") from None
    return LocalStorage(str(Path(path).absolute()))
