"""A consistent copy of a store's file, also while other programs write it."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kquota.errors import InputError, StoreError
from kquota.stores import sqlite_file
from kquota.stores.local import new_identity
from kquota.stores.sqlite_file import explained
from kquota.stores.sqlite_reader import SqliteReader
from kquota.stores.url import sqlite_path

__all__ = ["Backup", "back_up", "read_backup"]


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds: how many entities, after which commit."""

    entities: int
    commit: int


def back_up(url: str, out: Path) -> Backup:
    """Copy the store into a new file, with SQLite's backup API; the file gets its name after it was checked and read.

    :raises InputError: the URL names no store that has a file, or `out` cannot be made or is there already.
    :raises StoreError: the store cannot be read.
    """
    if out.exists():
        raise InputError(f"{out}: there is such a file; name another one")
    made = out.with_name(f".{out.name}.{new_identity()}")
    try:
        with closing(SqliteReader(sqlite_path(url, must_exist=True))) as source:
            try:
                os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, sqlite_file.MODE))
            except OSError as error:
                raise InputError(f"{out}: cannot be written: {error.strerror}") from None
            with explained(out), closing(sqlite_file.connect(made, mode="rw", timeout_ms=0)) as copy:
                source.backup(copy)
                [found] = copy.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise StoreError(f"the store {source.path} is damaged, and so would be its backup: {found}")
        with closing(SqliteReader(made)) as copied:
            backup = Backup(len(copied.read().snapshot), copied.last_commit)
        with explained(out):
            sqlite_file.put_in_place(made, out)
    finally:
        made.unlink(missing_ok=True)
    return backup


def read_backup(path: Path) -> SqliteReader:
    """The store in a file that is to be restored.

    :raises InputError: it is none.
    """
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    try:
        return SqliteReader(path)
    except StoreError as error:
        raise InputError(f"{path} cannot be restored: {error}") from error
