"""Quotas in an SQLite file, with every change that was ever made to them.

Several processes may use one file: it is in WAL mode, a commit counts only if no other came between (its number is the
next one), and every read looks whether the file changed. ``synchronous=FULL``: what was answered survives a power cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from struct import Struct
from threading import RLock
from typing import Final

from kquota.errors import StoreError
from kquota.quotas import ClientQuotaEntity, QuotaChange, QuotaIndex
from kquota.stores.local import new_identity
from kquota.stores.port import Commit

__all__ = ["SqliteKeeper"]

APPLICATION_ID: Final = 0x6B71756F  # "kquo"
_BUSY_MS: Final = 10_000

_MIGRATIONS: Final = (
    """
    CREATE TABLE store (
        identity TEXT NOT NULL  -- one row
    ) STRICT;
    CREATE TABLE quota (
        entity TEXT NOT NULL,  -- canonical text: user=alice,client-id=<default>, names percent-encoded
        key    TEXT NOT NULL,
        value  BLOB NOT NULL,  -- a double, big-endian: as a REAL, NaN would become NULL
        PRIMARY KEY (entity, key)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE revision (
        number    INTEGER PRIMARY KEY,
        at_ms     INTEGER NOT NULL,
        principal TEXT NOT NULL
    ) STRICT;
    CREATE TABLE change (
        revision INTEGER NOT NULL REFERENCES revision (number),
        place    INTEGER NOT NULL,
        entity   TEXT NOT NULL,
        key      TEXT NOT NULL,
        before   BLOB,  -- NULL: was not set
        after    BLOB,  -- NULL: removed
        PRIMARY KEY (revision, place)
    ) STRICT, WITHOUT ROWID;
    """,
)
"""Statements that lead from each version of the schema to the next; ``PRAGMA user_version`` counts them."""

_DOUBLE: Final = Struct(">d")


class SqliteKeeper:
    """A :class:`~kquota.stores.local.Keeper` in a file."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        :raises StoreError: it cannot be opened or made, is not ours, or was written by a later version of kquota.
        """
        self._path = path
        self._lock = RLock()
        with self._explained():
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False
            )
        try:
            with self._explained():
                self._prepare()
                self._index, self._number, self._data_version = QuotaIndex({}), 0, -1
                self._load()
        except BaseException:
            self._connection.close()
            raise

    def read(self) -> tuple[QuotaIndex, int]:
        """The quotas, and the number of the last commit."""
        with self._lock, self._explained():
            if self._version() != self._data_version:
                self._catch_up()
            return self._index, self._number

    def commit(self, commit: Commit) -> bool:
        """Keep a commit if its number is the next one."""
        with self._lock, self._explained():
            with self._transaction():
                if self._last_number() != commit.number - 1:
                    return False
                self._write(commit)
            # Nobody else came between: no need to read it back.
            self._index, self._number = self._index.with_changes(commit.changes), commit.number
            return True

    def history(self, *, since: int) -> Iterator[Commit]:
        """The commits after number `since`, oldest first."""
        with self._lock, self._explained():
            rows = self._connection.execute(
                "SELECT number, at_ms, principal, entity, key, before, after FROM revision JOIN change"
                " ON change.revision = revision.number WHERE number > ? ORDER BY number, place",
                (since,),
            ).fetchall()
        for (number, at_ms, principal), changes in groupby(rows, key=lambda row: row[:3]):
            yield Commit(number, at_ms, principal, tuple(_change(*row[3:]) for row in changes))

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def _prepare(self) -> None:
        """Check that the file is ours, and bring its schema up to date."""
        connection = self._connection
        connection.execute("PRAGMA foreign_keys = ON")
        [application] = connection.execute("PRAGMA application_id").fetchone()
        [tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != APPLICATION_ID and (application or tables):
            raise StoreError(f"{self._path} is an SQLite file of something else: give another file")
        [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"{self._path} cannot be in WAL mode: is it on a network file system?")
        connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version > len(_MIGRATIONS):
                raise StoreError(
                    f"{self._path} was written by a later version of kquota (schema {version}, this one knows "
                    f"{len(_MIGRATIONS)}): upgrade kquota"
                )
            for statements in _MIGRATIONS[version:]:
                for statement in statements.split(";"):
                    connection.execute(statement)
            if version == 0:
                connection.execute("INSERT INTO store VALUES (?)", (new_identity(),))
            if version < len(_MIGRATIONS):
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")

    @property
    def identity(self) -> str:
        """A random name that the file has for as long as it lives."""
        with self._lock, self._explained():
            identity: str = self._connection.execute("SELECT identity FROM store").fetchone()[0]
        return identity

    def _version(self) -> int:
        """A number that changes when somebody else changes the file."""
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _last_number(self) -> int:
        number: int = self._connection.execute("SELECT coalesce(max(number), 0) FROM revision").fetchone()[0]
        return number

    def _load(self) -> None:
        with self._transaction(mode="DEFERRED"):
            self._data_version = self._version()
            self._number = self._last_number()
            rows = self._connection.execute("SELECT entity, key, value FROM quota").fetchall()
        snapshot: dict[ClientQuotaEntity, dict[str, float]] = {}
        for text, of_entity in groupby(rows, key=lambda row: row[0]):
            snapshot[ClientQuotaEntity.from_text(text)] = {key: _double(value) for _, key, value in of_entity}
        self._index = QuotaIndex(snapshot)

    def _catch_up(self) -> None:
        """Take in what others committed."""
        with self._transaction(mode="DEFERRED"):
            version = self._version()
            number = self._last_number()
            commits = list(self.history(since=self._number))
        for commit in commits:
            self._index = self._index.with_changes(commit.changes)
        self._number, self._data_version = number, version

    def _write(self, commit: Commit) -> None:
        connection = self._connection
        connection.execute("INSERT INTO revision VALUES (?, ?, ?)", (commit.number, commit.at_ms, commit.principal))
        texts = {entity: entity.to_text() for entity in {change.entity for change in commit.changes}}
        connection.executemany(
            "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?)",
            [
                (commit.number, place, texts[one.entity], one.key, _blob(one.before), _blob(one.after))
                for place, one in enumerate(commit.changes)
            ],
        )
        connection.executemany(
            "INSERT INTO quota VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            [(texts[one.entity], one.key, _blob(one.after)) for one in commit.changes if one.after is not None],
        )
        connection.executemany(
            "DELETE FROM quota WHERE entity = ? AND key = ?",
            [(texts[one.entity], one.key) for one in commit.changes if one.after is None],
        )

    @contextmanager
    def _transaction(self, *, mode: str = "IMMEDIATE") -> Iterator[None]:
        self._connection.execute(f"BEGIN {mode}")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of SQLite as ours, with what to do."""
        try:
            yield
        except sqlite3.Error as error:
            reason = _REASONS.get(getattr(error, "sqlite_errorname", ""), str(error))
            raise StoreError(f"the store {self._path}: {reason}") from error


_REASONS: Final[Mapping[str, str]] = {
    "SQLITE_BUSY": f"locked by another process for more than {_BUSY_MS // 1000} seconds; end that, or try again",
    "SQLITE_CANTOPEN": "cannot be opened: does its directory exist, and may it be written to?",
    "SQLITE_READONLY": "may not be written to: check the permissions of the file and of its directory",
    "SQLITE_READONLY_DIRECTORY": "may not be written to: check the permissions of its directory",
    "SQLITE_NOTADB": "is not an SQLite file: give another file",
    "SQLITE_FULL": "the disk is full; nothing was changed",
    "SQLITE_CORRUPT": "the file is damaged: restore it from a backup",
}


def _blob(value: float | None) -> bytes | None:
    return None if value is None else _DOUBLE.pack(value)


def _double(blob: bytes) -> float:
    value: float = _DOUBLE.unpack(blob)[0]
    return value


def _change(text: str, key: str, before: bytes | None, after: bytes | None) -> QuotaChange:
    return QuotaChange(
        ClientQuotaEntity.from_text(text),
        key,
        None if before is None else _double(before),
        None if after is None else _double(after),
    )
