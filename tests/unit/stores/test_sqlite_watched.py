"""A store's file under a program that has it open: locked, restored, changed by hand, replaced, damaged."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from kquota.errors import StoreError
from kquota.quotas import USER, ClientQuotaEntity, QuotaChange, QuotaIndex
from kquota.stores import Commit, sqlite_file
from kquota.stores.local import LocalStore
from kquota.stores.sqlite import SqliteKeeper
from tests.kit.store_contract import ALICE, BOB, PRODUCE, everything, set_to


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quotas.db"


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(path: Path, warnings: list[str]) -> Iterator[LocalStore]:
    """Alice has 1, in the first commit."""
    with LocalStore(SqliteKeeper(path, warn=warnings.append)) as opened:
        warnings.clear()
        opened.alter([set_to(ALICE, producer_byte_rate=1)], principal="User:admin")
        yield opened


def by_hand(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def copied(source: Path, target: Path) -> None:
    """By SQLite's own means, as ``.backup`` and ``.restore`` of its shell do."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


class Paused:
    """A connection that stops before one statement until it may go on, or fails there."""

    def __init__(self, connection: sqlite3.Connection, at: str) -> None:
        self.connection = connection
        self.at = at
        self.reached, self.go = Event(), Event()
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.connection, name)

    def execute(self, statement: str, *arguments: Any) -> object:
        if statement == self.at:
            self.reached.set()
            assert self.go.wait(60)
            if self.error is not None:
                raise self.error
        return self.connection.execute(statement, *arguments)


@contextmanager
def paused(store: LocalStore, at: str) -> Iterator[Paused]:
    """The store with a writer that stops at a statement."""
    keeper = store._keeper
    assert isinstance(keeper, SqliteKeeper)
    writer = keeper._writer
    stopped = Paused(writer, at)
    keeper._writer = stopped  # type: ignore[assignment] # it does what is used of a connection
    try:
        yield stopped
    finally:
        stopped.go.set()
        keeper._writer = writer


@pytest.mark.parametrize("at", ["BEGIN IMMEDIATE", "COMMIT"])
def test_a_read_waits_for_no_commit(store: LocalStore, at: str) -> None:
    """Neither for its lock nor for the disk."""
    with paused(store, at) as writer:
        thread = Thread(target=store.alter, args=([set_to(ALICE, producer_byte_rate=2)],))
        thread.start()
        assert writer.reached.wait(60)
        assert everything(store) == {ALICE: {PRODUCE: 1.0}}
        assert [one.number for one in store.history()] == [1]
        writer.go.set()
        thread.join()
    assert everything(store) == {ALICE: {PRODUCE: 2.0}}


def test_what_this_process_commits_is_not_read_back(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a large commit the next read would be slow."""
    for name in ("load", "history"):
        monkeypatch.delattr(f"kquota.stores.sqlite_file.{name}")
    store.alter([set_to(BOB, producer_byte_rate=2)])
    assert everything(store) == {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 2.0}}


def test_closing_does_not_wait_for_a_commit_that_cannot_begin(store: LocalStore, path: Path) -> None:
    """What waits for another process's lock is answered, and nothing was changed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with paused(store, "BEGIN IMMEDIATE") as writer, ThreadPoolExecutor(1) as pool:
            result = pool.submit(store.alter, [set_to(ALICE, producer_byte_rate=2)], wait_ms=3_600_000)
            assert writer.reached.wait(60)
            writer.go.set()
            store.close()
            error = result.exception(60)
    assert isinstance(error, StoreError)
    assert not error.is_unknown


def test_a_restored_backup_is_served(store: LocalStore, path: Path, tmp_path: Path, warnings: list[str]) -> None:
    """And nothing is acknowledged that is not kept: the number of the last commit went back."""
    copied(path, tmp_path / "backup.db")
    store.alter([set_to(ALICE, producer_byte_rate=2), set_to(BOB, producer_byte_rate=6)])
    copied(tmp_path / "backup.db", path)
    store.maintain()
    assert len(warnings) == 1
    assert "were restored, or changed without a commit" in warnings[0]
    assert everything(store) == {ALICE: {PRODUCE: 1.0}}
    assert store.alter([set_to(ALICE, producer_byte_rate=2)]) == {ALICE: None}
    with LocalStore(SqliteKeeper(path)) as again:
        assert everything(again) == {ALICE: {PRODUCE: 2.0}}


def test_a_backup_that_others_went_on_from_is_served(store: LocalStore, path: Path, tmp_path: Path) -> None:
    """The number of the last commit is larger than the known one, and its predecessors are others."""
    copied(path, tmp_path / "backup.db")
    store.alter([set_to(ALICE, producer_byte_rate=2)], principal="User:here")
    copied(tmp_path / "backup.db", path)
    with LocalStore(SqliteKeeper(path)) as other:
        other.alter([set_to(BOB, producer_byte_rate=3)], principal="User:there")
        other.alter([set_to(BOB, producer_byte_rate=4)], principal="User:there")
    assert everything(store) == {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 4.0}}


def test_what_was_changed_by_hand_is_served(store: LocalStore, path: Path, warnings: list[str]) -> None:
    """And the next change begins there."""
    by_hand(path, "DELETE FROM quota")
    assert everything(store) == {}
    store.alter([set_to(BOB, producer_byte_rate=2)])
    assert everything(store) == {BOB: {PRODUCE: 2.0}}
    assert len(warnings) == 1


def test_another_program_that_empties_the_log_changes_nothing(
    store: LocalStore, path: Path, warnings: list[str]
) -> None:
    """The quotas stay the very same."""
    index = store.index()
    by_hand(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert store.index() is index
    assert warnings == []


def test_another_store_in_the_file_is_not_served(store: LocalStore, path: Path, tmp_path: Path) -> None:
    """Clients took it for the one with the other id."""
    SqliteKeeper(tmp_path / "other.db").close()
    copied(tmp_path / "other.db", path)
    with pytest.raises(StoreError, match="is another store now"):
        store.index()
    with pytest.raises(StoreError, match="is another store now"):
        store.alter([set_to(BOB, producer_byte_rate=2)])


def test_a_file_that_a_later_version_took_over_is_left_alone(store: LocalStore, path: Path) -> None:
    """What it keeps there is not known here."""
    by_hand(path, "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="later version of kquota"):
        store.index()
    with pytest.raises(StoreError, match="later version of kquota"):
        store.alter([set_to(BOB, producer_byte_rate=2)])


def removed(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def replaced(path: Path) -> None:
    SqliteKeeper(path.with_name("other.db")).close()
    path.with_name("other.db").replace(path)


def without_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


@pytest.mark.parametrize("happens", [removed, replaced, without_log])
def test_a_file_that_is_not_there_any_more(store: LocalStore, path: Path, happens: Callable[[Path], None]) -> None:
    """What would be put into it would be lost, so nothing is; and nothing stale is read."""
    happens(path)
    for act in (store.index, store.maintain, lambda: store.alter([set_to(BOB, producer_byte_rate=2)])):
        with pytest.raises(StoreError, match="was removed, moved or replaced") as caught:
            act()
        assert not caught.value.is_unknown
        assert str(path) not in caught.value.for_clients


def test_a_file_that_is_put_back_is_used_again(store: LocalStore, path: Path) -> None:
    """A directory that was moved by mistake."""
    moved = path.parent.with_name("moved")
    path.parent.rename(moved)
    with pytest.raises(StoreError):
        store.index()
    moved.rename(path.parent)
    assert store.alter([set_to(BOB, producer_byte_rate=2)]) == {BOB: None}


def test_a_file_that_goes_while_it_is_committed_to_makes_the_commit_unknown(store: LocalStore, path: Path) -> None:
    """It was written, and most likely nobody will find it."""
    with paused(store, "COMMIT") as writer, ThreadPoolExecutor(1) as pool:
        result = pool.submit(store.alter, [set_to(ALICE, producer_byte_rate=2)])
        assert writer.reached.wait(60)
        removed(path)
        writer.go.set()
        error = result.exception(60)
    assert isinstance(error, StoreError)
    assert error.is_unknown


def test_a_commit_that_the_disk_fails_is_unknown(store: LocalStore) -> None:
    """It is in the log, and may be found there after a crash."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    with paused(store, "COMMIT") as writer:
        writer.error = error
        writer.go.set()
        with pytest.raises(StoreError, match="unknown whether the change was kept") as caught:
            store.alter([set_to(ALICE, producer_byte_rate=2)])
    assert caught.value.is_unknown
    assert everything(store) == {ALICE: {PRODUCE: 1.0}}
    assert store.alter([set_to(ALICE, producer_byte_rate=3)]) == {ALICE: None}


UNREADABLE = [
    ("UPDATE quota SET value = x'010203'", "(quota, user=alice, producer_byte_rate) has 3 bytes"),
    ("UPDATE quota SET entity = 'nonsense'", "'nonsense' is not type=name"),
    ("UPDATE quota SET entity = 'user=%zz'", "'%zz' is not URL-encoded"),
    ("DELETE FROM store", "the table store has no row"),
]


@pytest.mark.parametrize("statement, reason", UNREADABLE)
def test_a_row_that_cannot_be_read_is_named(store: LocalStore, path: Path, statement: str, reason: str) -> None:
    """At run time and at the start; mended, it is read."""
    copied(path, path.with_name("backup.db"))
    by_hand(path, statement)
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.index()
        assert reason in str(caught.value)
        with pytest.raises(StoreError) as caught:
            store.alter([set_to(BOB, producer_byte_rate=2)])
        assert reason in str(caught.value)
    with pytest.raises(StoreError) as caught:
        SqliteKeeper(path)
    assert reason in str(caught.value)
    copied(path.with_name("backup.db"), path)
    assert everything(store) == {ALICE: {PRODUCE: 1.0}}


def test_a_commit_in_the_history_that_cannot_be_read_costs_the_history_alone(store: LocalStore, path: Path) -> None:
    """The quotas are kept beside it."""
    by_hand(
        path,
        "INSERT INTO revision VALUES (2, 1, 'x')",
        "INSERT INTO change VALUES (2, 0, 'user=z', 'producer_byte_rate', NULL, x'0102')",
        "INSERT INTO quota VALUES ('user=bob', 'producer_byte_rate', x'4000000000000000')",
    )
    assert everything(store) == {ALICE: {PRODUCE: 1.0}, BOB: {PRODUCE: 2.0}}
    assert store.alter([set_to(BOB, producer_byte_rate=3)]) == {BOB: None}
    with pytest.raises(StoreError, match=r"\(change, user=z, producer_byte_rate\) has 2 bytes"):
        list(store.history())


def test_a_long_history_is_read_in_parts(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only as much as is asked for; what comes while it is read is in it."""
    parts: list[int] = []
    read = sqlite_file.history

    def counted(connection: sqlite3.Connection, *, since: int) -> list[Commit]:
        found = read(connection, since=since)
        parts.append(len(found))
        return found

    monkeypatch.setattr("kquota.stores.sqlite_file.history", counted)
    monkeypatch.setattr("kquota.stores.sqlite_file.COMMITS_AT_ONCE", 10)
    for value in range(2, 26):
        store.alter([set_to(ALICE, producer_byte_rate=value)])
    numbers = (one.number for one in store.history())
    assert next(numbers) == 1
    assert parts == [10]
    store.alter([set_to(ALICE, producer_byte_rate=999)])
    assert list(numbers) == list(range(2, 27))
    assert parts == [10, 10, 6]


def test_a_plain_copy_of_a_file_at_rest_is_whole(store: LocalStore, path: Path, tmp_path: Path) -> None:
    """What is looked after has nothing in its log that is not in the file."""
    for number in range(50):
        store.alter([set_to(ClientQuotaEntity({USER: f"user-{number}"}), producer_byte_rate=1)])
    store.maintain()
    copy = tmp_path / "copy.db"
    # In a process of its own: to close the file here would take SQLite's locks away.
    assert os.spawnlp(os.P_WAIT, "cp", "cp", str(path), str(copy)) == 0
    with LocalStore(SqliteKeeper(copy)) as copied_store:
        assert everything(copied_store) == everything(store)


def test_a_commit_of_another_process_is_followed(path: Path, store: LocalStore) -> None:
    """By what it changed, not by reading all anew."""
    with LocalStore(SqliteKeeper(path)) as other:
        other.alter([set_to(ClientQuotaEntity({USER: f"user-{number}"}), producer_byte_rate=1) for number in range(9)])
        values = store.index().snapshot[ALICE]
        other.alter([set_to(BOB, producer_byte_rate=7)])
        assert store.index().snapshot[ALICE] is values
        assert everything(store) == everything(other)


def test_what_is_made_of_the_quotas_and_fails_changes_nothing(store: LocalStore) -> None:
    """The lock is given back."""

    def made(_index: QuotaIndex, number: int) -> Commit:
        change = QuotaChange(ALICE, PRODUCE, 1.0, 2.0)
        store._keeper.commit(lambda *_: None, wait_ms=0)
        return Commit(number, 0, "", (change,))

    with pytest.raises(StoreError, match="busy with other changes"):
        store._keeper.commit(made, wait_ms=60_000)
    assert everything(store) == {ALICE: {PRODUCE: 1.0}}
    assert store.alter([set_to(ALICE, producer_byte_rate=2)]) == {ALICE: None}
