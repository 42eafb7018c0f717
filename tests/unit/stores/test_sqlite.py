"""The file of a store: what it refuses to touch, and what it survives."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kquota.errors import InputError, StoreError
from kquota.quotas import USER, ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from kquota.stores import open_store
from kquota.stores.local import LocalStore
from kquota.stores.sqlite import SqliteKeeper, has_reset_fault
from kquota.stores.sqlite_reader import SqliteReader

ALICE = ClientQuotaEntity({USER: "alice"})
LIMIT = ClientQuotaAlteration(ALICE, [ClientQuotaAlteration.Op("producer_byte_rate", 5.0)])


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes are relative, four absolute."""
    monkeypatch.chdir(tmp_path)
    for url, path in (("sqlite:///a.db", "a.db"), (f"sqlite:///{tmp_path}/b.db", "b.db")):
        with open_store(url) as store:
            store.alter([LIMIT])
        assert (tmp_path / path).is_file()
    with open_store("memory:") as store:
        assert store.describe(ClientQuotaFilter.all()) == {}


@pytest.mark.parametrize(
    "url", ["", "quotas.db", "sqlite:", "sqlite://", "sqlite:///", "sqlite://a.db", "postgres://x/y", "memory"]
)
def test_what_names_no_store(url: str) -> None:
    """The message has examples."""
    with pytest.raises(InputError, match=r"sqlite:///quotas\.db"):
        open_store(url)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Another program's database, and a file that is none."""
    database, text = tmp_path / "other.db", tmp_path / "notes.txt"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    text.write_text("not a database, but longer than one page would need to be told apart" * 100)
    for path, reason in ((database, "something else"), (text, "not an SQLite file")):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=reason):
            SqliteKeeper(path)
        assert path.read_bytes() == before


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    """Its schema is not known here."""
    path = tmp_path / "quotas.db"
    SqliteKeeper(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="later version of kquota"):
        SqliteKeeper(path)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """And a path that is a directory."""
    for path in (tmp_path / "none" / "quotas.db", tmp_path):
        with pytest.raises(StoreError, match="cannot be opened"):
            SqliteKeeper(path)


def test_a_locked_file_says_so(tmp_path: Path) -> None:
    """Another process in the middle of a long write; describing goes on meanwhile."""
    store = open_store(f"sqlite:///{tmp_path}/quotas.db")
    other = sqlite3.connect(tmp_path / "quotas.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another process"):
        store.alter([LIMIT], wait_ms=50)
    assert store.describe(ClientQuotaFilter.all()) == {}
    other.execute("ROLLBACK")
    other.close()
    assert store.alter([LIMIT]) == {ALICE: None}
    store.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """And may be closed twice."""
    store = open_store(f"sqlite:///{tmp_path}/quotas.db")
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.alter([LIMIT])


def test_a_file_that_may_not_be_written_to(tmp_path: Path) -> None:
    """Permissions are named, nothing is changed, and reading goes on. (Root may write anywhere, so SQLite is told.)"""
    keeper = SqliteKeeper(tmp_path / "quotas.db")
    keeper._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="permissions"):
        LocalStore(keeper).alter([LIMIT])
    assert LocalStore(keeper).describe(ClientQuotaFilter.all()) == {}
    keeper.close()


def test_what_was_answered_survives_a_crash(tmp_path: Path) -> None:
    """A process that ends in the middle of things leaves all that it said was done."""
    program = f"""
import os
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity
from kquota.stores import open_store
from kquota.stores.local import LocalStore
store = open_store("sqlite:///{tmp_path}/quotas.db")
for number in range(20):
    entity = ClientQuotaEntity({{"user": f"user-{{number}}"}})
    limit = ClientQuotaAlteration(entity, [ClientQuotaAlteration.Op("producer_byte_rate", 1.0)])
    assert store.alter([limit]) == {{entity: None}}
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    with open_store(f"sqlite:///{tmp_path}/quotas.db") as store:
        assert len(store.index().snapshot) == 20
        assert len(list(store.history())) == 20


def test_full_synchronous_write_ahead_log(tmp_path: Path) -> None:
    """What durability hangs on."""
    keeper = SqliteKeeper(tmp_path / "quotas.db")
    assert keeper._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert keeper._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    keeper.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask; the mode of a file that is there is its owner's choice."""
    before = os.umask(0)
    try:
        with open_store(f"sqlite:///{tmp_path}/quotas.db") as store:
            store.alter([LIMIT])
            modes = {one.name: oct(one.stat().st_mode & 0o777) for one in tmp_path.iterdir()}
        assert modes == {"quotas.db": "0o600", "quotas.db-wal": "0o600", "quotas.db-shm": "0o600"}
        (tmp_path / "quotas.db").chmod(0o640)
        with open_store(f"sqlite:///{tmp_path}/quotas.db") as store:
            store.alter([LIMIT])
            assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {0o640}
    finally:
        os.umask(before)


def test_many_make_the_same_file_at_once(tmp_path: Path) -> None:
    """One of them makes it, whole, and all have the same."""
    with ThreadPoolExecutor(8) as pool:
        keepers = list(pool.map(lambda _: SqliteKeeper(tmp_path / "quotas.db"), range(8)))
    assert len({keeper.identity for keeper in keepers}) == 1
    for keeper in keepers:
        keeper.close()
    assert [one.name for one in tmp_path.iterdir()] == ["quotas.db"]


def test_a_name_that_an_address_would_read_otherwise(tmp_path: Path) -> None:
    """SQLite is given the file as a URI."""
    path = tmp_path / "a?b#c%41 é.db"
    SqliteKeeper(path).close()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "version, has_fault",
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_versions_of_sqlite_with_the_fault_of_its_log(version: tuple[int, int, int], has_fault: bool) -> None:
    """https://sqlite.org/wal.html#walresetbug"""
    assert has_reset_fault(version) == has_fault


def test_an_sqlite_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not understand the schema."""
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))
    for opened in (SqliteKeeper, SqliteReader):
        with pytest.raises(StoreError, match=r"needs 3\.37\.0 or later"):
            opened(tmp_path / "quotas.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version, warned", [((3, 40, 1), True), ((3, 51, 3), False)])
def test_a_file_that_another_process_has_open_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], warned: bool
) -> None:
    """Where SQLite has the fault. Linux says which process has a lock; elsewhere there is no warning."""
    monkeypatch.setattr("sqlite3.sqlite_version_info", version)
    path, warnings = tmp_path / "quotas.db", list[str]()
    SqliteKeeper(path, warn=warnings.append).close()
    assert warnings == []
    program = f"""
from pathlib import Path
from kquota.stores.sqlite import SqliteKeeper, has_reset_fault
from kquota.stores.sqlite_reader import SqliteReader
keeper = SqliteKeeper(Path({str(path)!r}))
print("open", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        SqliteKeeper(path, warn=warnings.append).close()
        other.communicate("\n")
    has_locks = Path("/proc/locks").exists()
    assert ["another process has" in text for text in warnings] == ([True] if warned and has_locks else [])
