"""The one door to files: where a dataset is kept. Nobody else opens, lists or deletes a file of one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa

from kquota.clock import SystemClock
from kquota.errors import InputError
from kquota.files.local_paths import local_path
from kquota.pipeline.dataset.errors import UnsupportedStorageError

__all__ = ["FileInfo", "LocalStorage", "Storage", "open_storage"]

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP)
"""How a file system says that it has no hard links."""
_PARTIAL: Final = "_partial"
_PARTIAL_S: Final = 3600.0


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
        """Write a file that survives a crash of the machine. Of any number who do it for one path, one succeeds.

        :raises FileExistsError: there is one.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; it is no error if one is not there."""

    def remove_partial(self, older_than_s: float = _PARTIAL_S) -> None:
        """Remove what writers that were killed in the middle of a file left, where the storage does not itself."""

    def spark_url(self, path: str) -> str:
        """The file's name for Spark."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder of this machine, or of a file system that it and all workers have mounted under the same path.

    A new file is written under a name of its own in a folder beside the others, and then gets its path at once: by a
    replacing rename, or by a hard link, which fails where the path is taken.
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
        for folder, _, names in os.walk(Path(self.root, prefix)):
            below = Path(folder).relative_to(self.root)
            if below.name != _PARTIAL:
                for name in names:
                    with suppress(FileNotFoundError):  # it was deleted meanwhile
                        found.append(FileInfo((below / name).as_posix(), Path(folder, name).lstat().st_size))
        return sorted(found)

    def open_input(self, path: str) -> pa.NativeFile:
        """As :meth:`Storage.open_input`."""
        return pa.OSFile(str(self._at(path)), "rb")

    def read(self, path: str) -> bytes:
        """As :meth:`Storage.read`."""
        return self._at(path).read_bytes()

    def put(self, path: str, content: bytes | pa.Buffer) -> None:
        """As :meth:`Storage.put`."""
        partial = self._partial(content, sync=False)
        self._in_folder(path, partial.replace)

    def put_new(self, path: str, content: bytes) -> None:
        """As :meth:`Storage.put_new`."""
        partial = self._partial(content, sync=True)
        try:
            self._in_folder(path, lambda target: target.hardlink_to(partial))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with self._at(path).open("xb") as file:  # the content follows the name a moment later
                file.write(content)
        finally:
            partial.unlink()

    def delete(self, paths: Iterable[str]) -> None:
        """As :meth:`Storage.delete`; folders that become empty go, too."""
        for path in paths:
            self._at(path).unlink(missing_ok=True)
            with suppress(OSError):  # not empty, or another has removed it
                for folder in Path(path).parents[:-1]:
                    Path(self.root, folder).rmdir()

    def remove_partial(self, older_than_s: float = _PARTIAL_S) -> None:
        """As :meth:`Storage.remove_partial`."""
        before_s = SystemClock().now_ms() / 1000 - older_than_s
        for file in Path(self.root, _PARTIAL).glob("*"):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime <= before_s:
                    self.delete([f"{_PARTIAL}/{file.name}"])

    def spark_url(self, path: str) -> str:
        """As :meth:`Storage.spark_url`: on a cluster Spark takes a plain path for one of its default file system."""
        return f"file://{self._at(path)}"

    def _at(self, path: str) -> Path:
        return Path(self.root, path)

    def _partial(self, content: bytes | pa.Buffer, *, sync: bool) -> Path:
        partial = f"{_PARTIAL}/{uuid4().hex}"

        def write(target: Path) -> None:
            with target.open("xb") as file:
                file.write(content)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())

        self._in_folder(partial, write)
        return self._at(partial)

    def _in_folder(self, path: str, write: Callable[[Path], object]) -> None:
        """Make the file's folder, and write; again where one who deleted files has removed the empty folder."""
        target = self._at(path)
        while True:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                write(target)
                return
            except FileNotFoundError:
                if target.parent.is_dir():
                    raise


def open_storage(url: str | Path) -> Storage:
    """The storage of a path, or of ``file:///path``.

    :raises UnsupportedStorageError: it is a URL of another scheme, or of another host.
    """
    try:
        path = local_path(str(url))
    except InputError:
        raise UnsupportedStorageError(str(url)) from None
    return LocalStorage(str(Path(path).absolute()))
