"""Quotas in an SQLite file, with every change that was ever made to them.

Several processes may use one file: it is in WAL mode, a commit is decided while nobody else can commit, and every read
looks whether the file changed. ``synchronous=FULL``: what was answered survives a power cut.

Reads have a connection of their own, which never waits for a commit: in WAL mode a reader does not wait for a writer,
whichever process it is in.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, RLock
from typing import Final

from kquota.clock import Clock, SystemClock
from kquota.errors import StoreError
from kquota.quotas import QuotaIndex, QuotaSnapshot
from kquota.stores import sqlite_file
from kquota.stores.local import are_same_values
from kquota.stores.port import Commit
from kquota.stores.sqlite_file import Revision, UnreadableRowError, explained, transaction

__all__ = ["SqliteKeeper", "has_reset_fault"]

_OPENING_MS: Final = 10_000  # another process may be recovering the file
_READ_MS: Final = 100  # a reader waits for nothing but another process that recovers the file
_RETRY_S: Final = 0.01
_CLOSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _State:
    """The quotas after a commit."""

    index: QuotaIndex
    revision: Revision


class SqliteKeeper:
    """A :class:`~kquota.stores.local.StoreBackend` in a file."""

    is_live: Final = True

    def __init__(
        self,
        path: Path,
        *,
        may_create: bool = True,
        clock: Clock | None = None,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Open the file.

        :param may_create: make it where there is none.
        :param warn: called with what the operator should know, and does not hinder anything.
        :raises StoreError: it cannot be opened or made, is not ours, or was written by a later version of kquota.
        """
        sqlite_file.check_sqlite()
        self._path = path
        self._clock = clock or SystemClock()
        self._warn = warn
        self._read_lock = RLock()  # of the reader, and of what it read
        self._write_lock = Lock()  # of the writer
        self._closed = Event()
        self._state: _State | None = None
        self._next: _State | None = None
        self._data_version = -1
        self._unreadable = ""
        self._checkpointed = -1
        with explained(path):
            if may_create and not path.exists():
                sqlite_file.create(path)
            self._writer = sqlite_file.connect(path, mode="rw", timeout_ms=0)
            try:
                self._reader = sqlite_file.connect(path, mode="rw", timeout_ms=_OPENING_MS)
                try:
                    self._prepare()
                except BaseException:
                    self._reader.close()
                    raise
            except BaseException:
                self._writer.close()
                raise

    def _prepare(self) -> None:
        sqlite_file.check_ours(self._reader, self._path)
        [mode] = self._reader.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"{self._path} cannot be in WAL mode: is it on a network file system?")
        self._reader.execute("PRAGMA query_only = ON")
        self._writer.execute("PRAGMA synchronous = FULL")
        self._writer.execute("PRAGMA foreign_keys = ON")
        self.identity = sqlite_file.identity(self._reader)
        self._wal = sqlite_file.beside(self._path, "-wal")
        self._files = self._files_now()
        self._data_version, self._state = self._caught_up()
        self._reader.execute(f"PRAGMA busy_timeout = {_READ_MS}")
        self.maintain()
        if has_reset_fault(sqlite3.sqlite_version_info) and _is_open_elsewhere(self._path):
            self._warn(
                f"another process has {self._path} open, and SQLite {sqlite3.sqlite_version} has a fault that can, "
                "rarely, damage a file that two processes write at once: use 3.51.3 or later, or one process at a time"
            )

    def read(self) -> QuotaIndex:
        """The quotas as they are now. Never waits for a commit.

        :raises StoreError: the file is not the one that was opened, or cannot be read.
        """
        return self._now().index

    def commit(self, made: Callable[[QuotaIndex, int], Commit | None], *, wait_ms: int) -> None:
        """Keep what is made of the quotas and the next number, with nobody able to come between.

        :raises StoreError: nothing was changed, or it is unknown whether something was.
        """
        with self._writing(wait_ms):
            before = self._now()
            commit = made(before.index, before.revision.number + 1)
            if commit is None:
                return
            sqlite_file.write(self._writer, commit)
            revision = Revision(commit.number, commit.at_ms, commit.principal)
            # From when it is in the file readers take it from here, and need not read it back.
            self._next = _State(before.index.with_changes(commit.changes), revision)
            try:
                self._end()
            finally:
                self._next = None

    def history(self, *, since: int) -> Iterator[Commit]:
        """The commits after number `since`, oldest first, read as they are asked for."""
        while since < self._now().revision.number:
            with self._read_lock, explained(self._path):
                commits = sqlite_file.history(self._reader, since=since)
            yield from commits
            since += sqlite_file.COMMITS_AT_ONCE

    def maintain(self) -> None:
        """Look at the file, and write what is only in its log into it: then a plain copy of it is whole.

        :raises StoreError: as :meth:`read`.
        """
        number = self._now().revision.number
        if number == self._checkpointed or not self._write_lock.acquire(blocking=False):
            return
        try:
            # A passive one waits for nobody, and changes nothing that readers look at.
            with explained(self._path):
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._checkpointed = number
        finally:
            self._write_lock.release()

    def close(self) -> None:
        """Close the file. Safe to call twice. A commit that is under way and does not end is left to itself."""
        self._closed.set()
        with suppress(sqlite3.Error), self._read_lock:
            self._reader.close()
        if self._write_lock.acquire(timeout=_CLOSE_S):
            try:
                with suppress(sqlite3.Error):
                    self._writer.close()
            finally:
                self._write_lock.release()

    def _now(self) -> _State:
        """What is in the file now.

        :raises StoreError: as :meth:`read`.
        """
        with self._read_lock, explained(self._path):
            self._check_files()
            if _data_version(self._reader) != self._data_version:
                self._data_version, self._state = self._caught_up()
            if self._state is None:
                raise UnreadableRowError(self._unreadable)
            return self._state

    def _caught_up(self) -> tuple[int, _State | None]:
        """The version of what is in the file, and that; None where a row cannot be read, and stays so until it changes.

        :raises StoreError: it is another store.
        """
        with transaction(self._reader, "DEFERRED"):
            version = _data_version(self._reader)
            try:
                return version, self._current()
            except UnreadableRowError as error:
                self._unreadable = str(error)
                return version, None

    def _current(self) -> _State:
        """What is in the file, by the shortest way: this process put it there, others went on, or all is read anew.

        A restored backup goes back, or has another commit of the same number; what was changed by hand has no commit.
        """
        sqlite_file.check_ours(self._reader, self._path)
        identity = sqlite_file.identity(self._reader)
        if identity != self.identity:
            raise StoreError(
                f"{self._path} is another store now (its id is {identity}, and was {self.identity}): start again to "
                "use that one"
            )
        known, made, last = self._state, self._next, sqlite_file.last_revision(self._reader)
        if made is not None and made.revision == last:
            return made
        if known is not None and known.revision.number < last.number:
            number = known.revision.number
            if sqlite_file.last_revision(self._reader, until=number) == known.revision:
                with suppress(UnreadableRowError):  # of the history; the quotas may be readable all the same
                    return self._followed(known, last)
        index = QuotaIndex(sqlite_file.load(self._reader))
        if known is not None:
            if _is_same(known.index.snapshot, index.snapshot):
                index = known.index
            else:
                self._warn(
                    f"the quotas in {self._path} were restored, or changed without a commit: read anew, after commit "
                    f"{last.number} instead of {known.revision.number}"
                )
        return _State(index, last)

    def _followed(self, known: _State, last: Revision) -> _State:
        """The quotas after the commits of others."""
        index = known.index
        for since in range(known.revision.number, last.number, sqlite_file.COMMITS_AT_ONCE):
            for commit in sqlite_file.history(self._reader, since=since):
                index = index.with_changes(commit.changes)
        return _State(index, last)

    @contextmanager
    def _writing(self, wait_ms: int) -> Iterator[None]:
        """Nobody else can commit meanwhile; what was not committed is rolled back."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        with explained(self._path):
            if not self._write_lock.acquire(timeout=wait_ms / 1000):
                raise StoreError(f"the store {self._path} is busy with other changes; nothing was changed; try again")
            try:
                self._begin(until_ms)
                try:
                    yield
                finally:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
            finally:
                self._write_lock.release()

    def _begin(self, until_ms: float) -> None:
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
                # A busy timeout of SQLite's own would not hear of the end.
                if not is_busy or self._clock.monotonic_ms() >= until_ms or self._closed.wait(_RETRY_S):
                    raise
            else:
                return

    def _end(self) -> None:
        """Commit.

        :raises StoreError: it is unknown whether that was kept.
        """
        try:
            self._writer.execute("COMMIT")
        except sqlite3.OperationalError as error:
            # What was written may be found after a crash, although it could not be made sure of.
            if error.sqlite_errorname.startswith("SQLITE_IOERR"):
                raise _unknown(f"the store {self._path}: {error}") from error
            raise
        try:
            self._now()
        except StoreError as error:
            raise _unknown(str(error)) from error

    def _files_now(self) -> list[tuple[int, int]]:
        """Which files the names lead to. Others' changes to them are SQLite's to see, other files are not."""
        found = [path.stat() for path in (self._path, self._wal)]
        return [(one.st_dev, one.st_ino) for one in found]

    def _check_files(self) -> None:
        """Refuse to go on with a file that nobody would find: what is put into it would be lost.

        Another file in its place is not opened: its log may still be the old one's, which would spoil it.

        :raises StoreError: with what to do.
        """
        try:
            is_there = self._files_now() == self._files
        except OSError:
            is_there = False
        if not is_there and not self._closed.is_set():
            raise StoreError(
                f"{self._path} or {self._wal.name} was removed, moved or replaced while it was open: nothing is read "
                "from it or kept any more. Put both back; or end every program that has it open, remove "
                f"{self._wal.name} and {self._path.name}-shm, put the file there that is to be used, and start again"
            )


def has_reset_fault(version: tuple[int, ...]) -> bool:
    """Whether an SQLite of this version has the fault that https://sqlite.org/wal.html#walresetbug describes."""
    if version >= (3, 51, 3):
        return False
    return not any((3, minor, patch) <= version < (3, minor + 1) for minor, patch in ((44, 6), (50, 7)))


def _is_open_elsewhere(path: Path) -> bool:
    """Whether another process has a lock on the index of the log, as each has that has the file open.

    Linux lists the locks; elsewhere this is not known. (To open the index and ask would drop SQLite's own locks.)
    """
    with suppress(OSError):
        inode = sqlite_file.beside(path, "-shm").stat().st_ino
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.replace("->", "").split()
            if len(fields) > 5 and fields[5].endswith(f":{inode}") and fields[4] != str(os.getpid()):
                return True
    return False


def _data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has changed the file."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def _unknown(reason: str) -> StoreError:
    text = "it is unknown whether the change was kept"
    return StoreError(f"{reason}; {text}", for_clients=f"the store of the quotas failed: {text}", is_unknown=True)


def _is_same(one: QuotaSnapshot, other: QuotaSnapshot) -> bool:
    return one.keys() == other.keys() and all(are_same_values(values, other[entity]) for entity, values in one.items())
