"""A store that is only read: nothing is written into it or beside it, also while others have it open."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kquota.cli import run
from kquota.errors import InputError, StoreError
from kquota.quotas import QuotaSnapshot
from kquota.stores import Access, open_store, sqlite_file
from kquota.stores.local import LocalStore
from kquota.stores.sqlite import SqliteKeeper
from kquota.stores.sqlite_reader import SqliteReader
from tests.kit.store_contract import ALICE, BOB, PRODUCE, everything, set_to

LIMIT = 1_048_576.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store at rest: alice has a limit."""
    found = tmp_path / "store" / "quotas.db"
    found.parent.mkdir()
    with LocalStore(SqliteKeeper(found)) as store:
        store.alter([set_to(ALICE, producer_byte_rate=LIMIT)])
    return found


@contextmanager
def unchanged(directory: Path) -> Iterator[None]:
    """Not a file comes, goes or changes."""

    def files() -> dict[str, tuple[int, bytes]]:
        return {one.name: (one.stat().st_mtime_ns, one.read_bytes()) for one in directory.iterdir()}

    before = files()
    yield
    assert files() == before


def test_a_store_at_rest_is_read_and_left_as_it_is(path: Path) -> None:
    """No log and no index is made beside it, so it can be read where nothing may be written."""
    path.chmod(0o444)
    path.parent.chmod(0o555)
    with unchanged(path.parent), LocalStore(SqliteReader(path)) as store:
        assert everything(store) == {ALICE: {PRODUCE: LIMIT}}
        assert [one.number for one in store.history()] == [1]
        assert len(str(store.identity)) == 22
        assert store.alter([set_to(BOB, producer_byte_rate=1)], validate_only=True) == {BOB: None}
        with pytest.raises(StoreError, match="opened to be read"):
            store.alter([set_to(BOB, producer_byte_rate=1)])
    path.parent.chmod(0o755)


def test_a_store_that_is_locked_is_read(path: Path) -> None:
    """With what is only in its log: a reader takes no lock that a writer has."""
    with LocalStore(SqliteKeeper(path)) as server, closing(sqlite3.connect(path, isolation_level=None)) as other:
        server.alter([set_to(BOB, producer_byte_rate=2)])
        other.execute("BEGIN IMMEDIATE")
        with LocalStore(SqliteReader(path)) as store:
            assert everything(store) == {ALICE: {PRODUCE: LIMIT}, BOB: {PRODUCE: 2.0}}
            assert [one.number for one in store.history()] == [1, 2]


def test_what_begins_to_be_written_while_it_is_read_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read without a lock may be of two commits."""
    load, writers = sqlite_file.load, list[LocalStore]()

    def loaded_late(connection: sqlite3.Connection) -> QuotaSnapshot:
        monkeypatch.setattr("kquota.stores.sqlite_file.load", load)
        writers.append(LocalStore(SqliteKeeper(path)))
        writers[0].alter([set_to(BOB, producer_byte_rate=2)])
        return load(connection)

    monkeypatch.setattr("kquota.stores.sqlite_file.load", loaded_late)
    with LocalStore(SqliteReader(path)) as store:
        assert everything(store) == {ALICE: {PRODUCE: LIMIT}, BOB: {PRODUCE: 2.0}}
    writers[0].close()


def test_history_that_moves_while_it_is_read_is_an_error(path: Path) -> None:
    """Rather than half of one and half of another."""
    with LocalStore(SqliteReader(path)) as store, LocalStore(SqliteKeeper(path)) as writer:
        writer.alter([set_to(BOB, producer_byte_rate=2)])
        with pytest.raises(StoreError, match="was changed while it was read"):
            list(store.history())


def test_a_log_that_cannot_be_used_is_named(path: Path) -> None:
    """Without it the file would be read as it was some time ago."""
    copy = path.with_name("copy.db")
    with LocalStore(SqliteKeeper(path)) as store:
        store.alter([set_to(BOB, producer_byte_rate=2)])
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    shutil.copy(path, copy)
    Path(f"{copy}-shm").symlink_to(f"{copy}-shm")  # no user can open it, root included
    with pytest.raises(StoreError, match=r"a part of it is in copy\.db-wal"):
        SqliteReader(copy)


@pytest.mark.parametrize("access", list(Access))
@pytest.mark.parametrize("is_of_sqlite", [False, True])
def test_what_is_no_store_is_made_none(tmp_path: Path, access: Access, is_of_sqlite: bool) -> None:
    """An empty file, and a copy that was made before the first tables were in it: most likely something went wrong."""
    path = tmp_path / "quotas.db"
    path.touch()
    if is_of_sqlite:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    with unchanged(tmp_path), pytest.raises(StoreError, match="has no tables, so it is no store"):
        open_store(f"sqlite:///{path}", access=access)


@pytest.mark.parametrize("access", [Access.READ, Access.WRITE])
def test_what_must_be_there(tmp_path: Path, access: Access) -> None:
    with unchanged(tmp_path), pytest.raises(InputError, match="there is no file"):
        open_store(f"sqlite:///{tmp_path}/none.db", access=access)


def test_a_dry_run_on_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    """It says what making it would."""
    with unchanged(tmp_path), open_store(f"sqlite:///{tmp_path}/none.db", access=Access.DRY_RUN) as store:
        assert store.alter([set_to(ALICE, producer_byte_rate=1)], validate_only=True) == {ALICE: None}


@pytest.mark.parametrize(
    "command",
    [
        "describe",
        "history",
        "export",
        "lint",
        "resolve --name user=alice",
        "alter --name user=alice --add producer_byte_rate=5 --dry-run",
        "alter --name user=alice --delete producer_byte_rate --dry-run",
    ],
)
def test_commands_that_read_write_nothing(path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even beside the file."""
    with unchanged(path.parent):
        assert run([*command.split(), "--store", f"sqlite:///{path}"]) == 0
    assert capsys.readouterr() != ("", "")


@pytest.mark.parametrize("command", ["describe", "history", "alter --name user=alice --delete producer_byte_rate"])
def test_a_mistyped_name_makes_no_store(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with unchanged(tmp_path):
        assert run([*command.split(), "--store", f"sqlite:///{tmp_path}/none.db"]) == 2
    assert "there is no file" in capsys.readouterr().err
