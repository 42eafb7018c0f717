"""The file of a store: what it refuses to touch, and what it survives."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kquota.errors import InputError, StoreError
from kquota.quotas import USER, ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from kquota.stores import open_store
from kquota.stores.local import LocalStore
from kquota.stores.sqlite import SqliteKeeper

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
