"""The quotas in an SQLite file, only read: nothing is written into the file or beside it, and no lock is taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Final

from kquota.errors import StoreError
from kquota.quotas import QuotaIndex
from kquota.stores import sqlite_file
from kquota.stores.port import Commit
from kquota.stores.sqlite_file import explained, transaction

__all__ = ["SqliteReader"]

_ATTEMPTS: Final = 5
_BUSY_MS: Final = 10_000

_Stamp = tuple[int, int, int, int, int]


class SqliteReader:
    """A :class:`~kquota.stores.local.StoreBackend` of what was in a file when it was opened, which keeps nothing.

    A file that has nothing in its log is read as one that nobody writes: otherwise SQLite would make a log and an index
    beside it, and could not read in a directory that may not be written to. Whether somebody began to write meanwhile
    shows afterwards, in the files' sizes and times; then it is read again.
    """

    is_live: Final = False

    def __init__(self, path: Path) -> None:
        """Read the file.

        :raises StoreError: it cannot be read, is no store, or was written by a later version of kquota.
        """
        sqlite_file.check_sqlite()
        self.path = path
        self._wal = sqlite_file.beside(path, "-wal")
        for _ in range(_ATTEMPTS):
            self._open()
            try:
                self._load()
                if self._is_unmoved():
                    return
            except BaseException:
                self._connection.close()
                # Half of what somebody has just written may be read as anything.
                if self._is_unmoved():
                    raise
            self._connection.close()
        raise StoreError(f"{path} was changed each time that it was about to be read: try again")

    def _open(self) -> None:
        self._stamp = self._stamp_now()
        has_log = self._stamp[-1] > 0
        with explained(self.path):
            self._connection = sqlite_file.connect(
                self.path, mode="ro" if has_log else "ro&immutable=1", timeout_ms=_BUSY_MS
            )

    def _load(self) -> None:
        try:
            with explained(self.path), transaction(self._connection, "DEFERRED"):
                sqlite_file.check_ours(self._connection, self.path)
                self.identity = sqlite_file.identity(self._connection)
                self._last = sqlite_file.last_revision(self._connection)
                self._index = QuotaIndex(sqlite_file.load(self._connection))
        except StoreError as error:
            is_unopened = getattr(error.__cause__, "sqlite_errorname", "").startswith("SQLITE_CANTOPEN")
            if is_unopened and self._stamp[-1] > 0:
                raise StoreError(
                    f"{self.path} cannot be read as it is: a part of it is in {self._wal.name}, for which SQLite has "
                    "to write beside it. Read it as a user who may, or a copy that kquota backup makes"
                ) from error
            raise

    @property
    def last_commit(self) -> int:
        """The number of the last commit; 0 where there is none."""
        return self._last.number

    def read(self) -> QuotaIndex:
        """The quotas as they were."""
        return self._index

    def commit(self, made: Callable[[QuotaIndex, int], Commit | None], *, wait_ms: int = 0) -> None:  # noqa: ARG002
        """Refuse.

        :raises StoreError: always.
        """
        raise StoreError(f"{self.path} was opened to be read: nothing was changed")

    def history(self, *, since: int) -> Iterator[Commit]:
        """The commits after number `since`, oldest first, read as they are asked for."""
        for first in range(since, self._last.number, sqlite_file.COMMITS_AT_ONCE):
            with explained(self.path):
                commits = sqlite_file.history(self._connection, since=first)
            if not self._is_unmoved():
                raise StoreError(f"{self.path} was changed while it was read: try again")
            yield from commits

    def maintain(self) -> None:
        """Nothing is to be done."""

    def backup(self, copy: sqlite3.Connection) -> None:
        """Make `copy` what the file is.

        :raises StoreError: it cannot be read, or was changed meanwhile.
        """
        with explained(self.path):
            self._connection.backup(copy)
        if not self._is_unmoved():
            raise StoreError(f"{self.path} was changed while it was read: try again")

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _is_unmoved(self) -> bool:
        """Whether what is read without locks is whole; what has a log is read with SQLite's own."""
        return self._stamp[-1] > 0 or self._stamp_now() == self._stamp

    def _stamp_now(self) -> _Stamp:
        """What changes when somebody writes; the size of the log comes last."""
        with explained(self.path):
            file = self.path.stat()
        if not S_ISREG(file.st_mode):
            raise StoreError(f"{self.path} is no file: give the file of a store")
        try:
            log_bytes = self._wal.stat().st_size
        except OSError:
            log_bytes = 0
        return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, log_bytes
