"""The file of a store: its schema, how it is made and opened, its rows as values, and SQLite's errors as ours."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from struct import Struct
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

from kquota.errors import IllegalArgumentError, StoreError
from kquota.quotas import ClientQuotaEntity, QuotaChange, QuotaSnapshot
from kquota.stores.local import new_identity
from kquota.stores.port import Commit

__all__ = [
    "COMMITS_AT_ONCE",
    "MODE",
    "Revision",
    "UnreadableRowError",
    "beside",
    "check_ours",
    "check_sqlite",
    "connect",
    "create",
    "explained",
    "history",
    "identity",
    "last_revision",
    "load",
    "transaction",
    "write",
]

APPLICATION_ID: Final = 0x6B71756F  # "kquo"
MODE: Final = 0o600
"""Of a new file, whatever the umask; SQLite gives the files beside it the same. Of a file that is there it stays."""

_LEAST_SQLITE: Final = (3, 37, 0)  # the first that knows STRICT
COMMITS_AT_ONCE: Final = 100

_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
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
"""

_DOUBLE: Final = Struct(">d")


class UnreadableRowError(Exception):
    """A row that kquota did not write so. The message names it."""


class Revision(NamedTuple):
    """Which commit: its number, and what tells it from another one of that number."""

    number: int
    at_ms: int
    principal: str


def check_sqlite() -> None:
    """Refuse an SQLite that cannot read what is written here.

    :raises StoreError: it is too old.
    """
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        raise StoreError(
            f"this Python has SQLite {sqlite3.sqlite_version}, and a store needs {'.'.join(map(str, _LEAST_SQLITE))} "
            "or later: use another Python, or install a later SQLite"
        )


def beside(path: Path, suffix: Literal["-wal", "-shm"]) -> Path:
    """Where SQLite keeps what is not in the file yet, and its index; beside what a link leads to."""
    real = path.resolve()
    return real.with_name(real.name + suffix)


def connect(path: Path, *, mode: str, timeout_ms: int) -> sqlite3.Connection:
    """A connection that may be used by any thread, by one at a time. Makes no file.

    :param mode: of SQLite's URIs: ``rw``, ``ro``, or ``ro&immutable=1`` for a file that nobody else has open.
    """
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )


def create(path: Path) -> None:
    """Make an empty store, whole or not at all; nothing happens where a file is already.

    :raises sqlite3.Error: it could not be written.
    :raises OSError: likewise.
    """
    made = path.with_name(f".{path.name}.{new_identity()}")
    try:
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE))
        with closing(connect(made, mode="rw", timeout_ms=0)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with transaction(connection, "IMMEDIATE"):
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute("INSERT INTO store VALUES (?)", (new_identity(),))
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        try:
            os.link(made, path)
        except OSError:  # somebody else was faster, or the file system has no links
            if not path.exists():
                made.rename(path)
    finally:
        made.unlink(missing_ok=True)
    directory = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def check_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no store, or none of this version.

    :raises StoreError: with what it is instead.
    """
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        raise StoreError(
            f"{path} has no tables, so it is no store. Is it a copy of {path.name} without {path.name}-wal? "
            "kquota backup makes a whole one; to begin anew, remove the file"
        )
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite file of something else: give another file")
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version > _SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a later version of kquota (schema {version}, this one knows {_SCHEMA_VERSION}): "
            "upgrade kquota"
        )
    if version < _SCHEMA_VERSION:
        raise StoreError(f"{path} is damaged: its schema has version {version}; restore it from a backup")


def identity(connection: sqlite3.Connection) -> str:
    """The random name of the quotas."""
    row = connection.execute("SELECT identity FROM store").fetchone()
    if row is None:
        raise UnreadableRowError("the table store has no row, and should have one with the store's identity")
    name: str = row[0]
    return name


def last_revision(connection: sqlite3.Connection, *, until: int | None = None) -> Revision:
    """The last commit, or the last one up to a number; 0 where there is none."""
    row = connection.execute(
        "SELECT number, at_ms, principal FROM revision WHERE ? IS NULL OR number <= ? ORDER BY number DESC LIMIT 1",
        (until, until),
    ).fetchone()
    return Revision(0, 0, "") if row is None else Revision(*row)


def load(connection: sqlite3.Connection) -> QuotaSnapshot:
    """All quotas.

    :raises UnreadableRowError: a row is none of ours.
    """
    rows = connection.execute("SELECT entity, key, value FROM quota")
    return {
        _entity(text, "quota"): {key: _double(value, "quota", text, key) for _, key, value in of_entity}
        for text, of_entity in groupby(rows, key=lambda row: row[0])
    }


def history(connection: sqlite3.Connection, *, since: int) -> list[Commit]:
    """The commits after a number and up to :data:`COMMITS_AT_ONCE` later, oldest first.

    :raises UnreadableRowError: a row is none of ours.
    """
    rows = connection.execute(
        "SELECT number, at_ms, principal, entity, key, before, after FROM revision JOIN change"
        " ON change.revision = revision.number WHERE number > ? AND number <= ? ORDER BY number, place",
        (since, since + COMMITS_AT_ONCE),
    )
    return [
        Commit(number, at_ms, principal, tuple(_change(*row[3:]) for row in changes))
        for (number, at_ms, principal), changes in groupby(rows, key=lambda row: row[:3])
    ]


def write(connection: sqlite3.Connection, commit: Commit) -> None:
    """Put a commit into the history, and its changes into the quotas."""
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
def transaction(connection: sqlite3.Connection, mode: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[None]:
    """Commit at the end, or roll back."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite as ours, with what to do.

    :raises StoreError: instead of them.
    """
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        reason = next((text for known, text in _REASONS.items() if name.startswith(known)), str(error))
        is_locked = name.startswith("SQLITE_BUSY")
        raise (
            StoreError(f"the store {path}: {reason}", for_clients=f"the store of the quotas is {reason}")
            if is_locked
            else StoreError(f"the store {path}: {reason}")
        ) from error
    except UnreadableRowError as error:
        raise StoreError(
            f"the store {path} holds what kquota has not written: {error}; mend that row, or restore a backup"
        ) from error
    except OSError as error:
        raise StoreError(f"the store {path} cannot be opened: {error.strerror}") from error


_REASONS: Final[Mapping[str, str]] = {
    "SQLITE_BUSY": "locked by another process; nothing was changed; end that, or try again",
    "SQLITE_CANTOPEN": "cannot be opened: does its directory exist, and may it be written to?",
    "SQLITE_READONLY_DIRECTORY": "may not be written to: check the permissions of its directory",
    "SQLITE_READONLY": "may not be written to: check the permissions of the file and of its directory",
    "SQLITE_NOTADB": "is not an SQLite file: give another file",
    "SQLITE_FULL": "the disk is full; nothing was changed",
    "SQLITE_CORRUPT": "the file is damaged: restore it from a backup",
}
"""By the beginning of SQLite's name for the error; the first that fits."""


def _blob(value: float | None) -> bytes | None:
    return None if value is None else _DOUBLE.pack(value)


def _double(blob: bytes, *place: str) -> float:
    if len(blob) != _DOUBLE.size:
        raise UnreadableRowError(f"a value in the row ({', '.join(place)}) has {len(blob)} bytes, and should have 8")
    value: float = _DOUBLE.unpack(blob)[0]
    return value


def _entity(text: str, table: str) -> ClientQuotaEntity:
    try:
        return ClientQuotaEntity.from_text(text)
    except IllegalArgumentError as error:
        raise UnreadableRowError(f"an entity in the table {table}: {error}") from None


def _change(text: str, key: str, before: bytes | None, after: bytes | None) -> QuotaChange:
    return QuotaChange(
        _entity(text, "change"),
        key,
        None if before is None else _double(before, "change", text, key),
        None if after is None else _double(after, "change", text, key),
    )
