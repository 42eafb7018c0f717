"""A folder as a storage."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from kquota.clock import SystemClock
from kquota.pipeline.storage.port import PARTIAL, PARTIAL_S, FileInfo

__all__ = ["LocalStorage"]

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""How a file system says that it has no hard links."""
_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder of this machine, or of a file system that it and all workers have mounted under the same path.

    A file is written in the same folder under a hidden name, and then gets its path in one step: by a rename, which
    replaces, or by a hard link, which fails where the path is taken. Without hard links (FAT, some network mounts) an
    empty file reserves the path, which also fails where it is taken, and then the rename replaces that.
    """

    root: str
    """Absolute: workers have another current directory."""

    @property
    def url(self) -> str:
        """The folder."""
        return self.root

    @property
    def identity(self) -> str:
        """As :meth:`Storage.identity`: the folder's device and inode, its path without links while there is none."""
        try:
            found = Path(self.root).stat()
        except OSError:
            return os.path.realpath(self.root)
        return f"{found.st_dev}:{found.st_ino}"

    def list(self, prefix: str = "") -> list[FileInfo]:
        """As :meth:`Storage.list`; links to folders are not followed."""
        if Path(self.root).is_file():
            raise NotADirectoryError(self.root)
        found = []
        for file in self._walk(prefix):
            if not file.name.startswith(PARTIAL):
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    found.append(FileInfo(file.relative_to(self.root).as_posix(), file.lstat().st_size))
        return sorted(found)

    def open_input(self, path: str) -> pa.NativeFile:
        """As :meth:`Storage.open_input`."""
        return pa.OSFile(str(self._at(path)), "rb")

    def size(self, path: str) -> int:
        """As :meth:`Storage.size`."""
        return self._at(path).stat().st_size

    def read(self, path: str) -> bytes:
        """As :meth:`Storage.read`."""
        return self._at(path).read_bytes()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """As :meth:`Storage.read_range`."""
        with self._at(path).open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(length)

    def stream(self, path: str, start: int = 0, end: int | None = None, *, piece_bytes: int) -> Iterator[bytes]:
        """As :meth:`Storage.stream`; the system reads ahead."""
        with self._at(path).open("rb", buffering=0) as file:
            file.seek(start)
            while piece := file.read(piece_bytes if end is None else min(piece_bytes, end - start)):
                yield piece
                start += len(piece)

    def put(self, path: str, content: bytes | pa.Buffer, *, durable: bool = False) -> None:
        """As :meth:`Storage.put`."""
        self._write_partial(path, content, durable=durable).replace(self._at(path))
        if durable:
            self._sync_folders(path)

    def put_new(self, path: str, content: bytes) -> None:
        """As :meth:`Storage.put_new`."""
        partial = self._write_partial(path, content, durable=True)
        try:
            try:
                self._at(path).hardlink_to(partial)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._at(path).touch(exist_ok=False)
                partial.replace(self._at(path))
            self._sync_folders(path)
        finally:
            partial.unlink(missing_ok=True)

    def delete(self, paths: Iterable[str]) -> None:
        """As :meth:`Storage.delete`; folders that become empty go, too, at last the storage's own."""
        for path in paths:
            self._at(path).unlink(missing_ok=True)
            with suppress(OSError):  # not empty, or another has removed it
                for folder in Path(path).parents:
                    Path(self.root, folder).rmdir()

    def remove_partial(self, older_than_s: float = PARTIAL_S) -> None:
        """As :meth:`Storage.remove_partial`; so goes an empty file that such a writer reserved."""
        before_s = SystemClock().now_ms() / 1000 - older_than_s
        for file in self._walk():
            if file.name.startswith(PARTIAL) and _is_old(file, before_s):
                with suppress(FileNotFoundError):  # its writer lives after all, and has come to its end
                    file.unlink()
                    # Without it the writer cannot put content into what it reserved.
                    reserved = file.with_name(file.name.removeprefix(PARTIAL).partition("-")[2])
                    if _is_old(reserved, before_s) and not reserved.stat().st_size:
                        reserved.unlink()

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

    def _write_partial(self, path: str, content: bytes | pa.Buffer, *, durable: bool) -> Path:
        target = self._at(path)
        partial = target.with_name(f"{PARTIAL}{uuid4().hex}-{target.name}")
        for attempt in count(1):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with partial.open("xb") as file:
                    file.write(content)
                    if durable:
                        file.flush()
                        os.fsync(file.fileno())
                break
            except (FileNotFoundError, FileExistsError):
                # Somebody deleted the last other file of the folder, and so the folder, in this moment.
                if attempt == _ATTEMPTS:
                    raise
        return partial

    def _sync_folders(self, path: str) -> None:
        """Make names durable: that of a file, and those of folders that were made for it."""
        for folder in self._at(path).parents[: path.count("/") + 2]:
            with suppress(OSError):  # a file system that has no such call for folders
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def _is_old(file: Path, before_s: float) -> bool:
    try:
        return file.stat().st_mtime <= before_s
    except FileNotFoundError:
        return False
