"""Backup and restore of a store, at rest and while a server has it open."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kquota.admin import QuotaAdmin
from kquota.cli import run
from kquota.quotas import IP, USER, ClientQuotaEntity, ClientQuotaFilter
from kquota.stores import open_store
from kquota.stores.local import LocalStore
from kquota.stores.sqlite import SqliteKeeper
from tests.kit.quota_server import running_server
from tests.kit.store_contract import ALICE, BOB, PRODUCE, everything, set_to

HOST = ClientQuotaEntity({IP: "gone.example"})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/quotas.db"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    """In use; alice has 1, and a host that was found then has 2."""
    with LocalStore(SqliteKeeper(tmp_path / "quotas.db")) as opened:
        opened.alter([set_to(ALICE, producer_byte_rate=1)], principal="User:admin")
        opened.alter([set_to(HOST, connection_creation_rate=2)], hosts={"gone.example": True})
        yield opened


def test_a_restore_is_a_change_that_a_running_server_sees(
    store: LocalStore, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that differs becomes as it was, in one commit; the history stays."""
    before = everything(store)
    backup = str(tmp_path / "backup.db")
    assert run(["backup", "--store", url, "--out", backup]) == 0
    assert "2 entities, after commit 2" in capsys.readouterr().err
    store.alter([set_to(ALICE, producer_byte_rate=5, consumer_byte_rate=6), set_to(BOB, producer_byte_rate=7)])
    store.alter([set_to(HOST, connection_creation_rate=None)], hosts={"gone.example": True})
    changed = everything(store)
    with running_server(store) as address, QuotaAdmin(str(address)) as admin:
        assert run(["restore", "--store", url, "--from", backup, "--dry-run"]) == 0
        printed = capsys.readouterr()
        assert "producer_byte_rate        5 -> 1  valid" in printed.out
        assert "3 entities would be restored, 0 unchanged" in printed.err
        assert everything(store) == changed
        assert run(["restore", "--store", url, "--from", backup]) == 0
        assert "3 entities restored, 0 unchanged" in capsys.readouterr().err
        assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities() == before
    assert [one.number for one in store.history()] == [1, 2, 3, 4, 5]
    assert run(["restore", "--store", url, "--from", backup]) == 0
    assert "0 entities restored, 2 unchanged" in capsys.readouterr().err
    assert len(list(store.history())) == 5


def test_a_backup_is_a_store(store: LocalStore, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file, for its owner alone, with the history, which is read like any other."""
    backup = tmp_path / "backup.db"
    assert run(["backup", "--store", url, "--out", str(backup)]) == 0
    assert sorted(one.name for one in tmp_path.glob("*backup*")) == ["backup.db"]
    assert backup.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert run(["history", "--store", f"sqlite:///{backup}", "--format", "csv"]) == 0
    assert "User:admin,user=alice,producer_byte_rate,,1" in capsys.readouterr().out
    with open_store(f"sqlite:///{backup}") as copied:
        assert copied.identity == store.identity
        assert everything(copied) == everything(store)


def test_a_backup_goes_over_no_other_file(store: LocalStore, url: str, tmp_path: Path) -> None:
    """And leaves nothing behind where it cannot be made."""
    assert store.identity
    taken = tmp_path / "taken"
    taken.write_text("mine")
    before = {one.name for one in tmp_path.iterdir()}
    for out in (taken, tmp_path, tmp_path / "none" / "backup.db"):
        assert run(["backup", "--store", url, "--out", str(out)]) == 2
    assert taken.read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} == before


def test_what_is_no_backup_is_not_restored(
    store: LocalStore, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing, a text, another database, an empty copy, a backup of another store."""
    text, database, empty, other = (tmp_path / name for name in ("text", "database", "empty", "other.db"))
    text.write_text("not a store" * 1000)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    empty.touch()
    SqliteKeeper(other).close()
    before = everything(store)
    for path, reason in (
        (tmp_path / "none", "there is no such file"),
        (text, "is not an SQLite file"),
        (database, "something else"),
        (empty, "has no tables"),
        (tmp_path, "is no file"),
        (other, "a backup of another store"),
    ):
        assert run(["restore", "--store", url, "--from", str(path)]) == 2
        assert reason in capsys.readouterr().err
    assert everything(store) == before


def test_only_a_store_with_a_file_has_backups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", "--store", "memory:", "--out", str(tmp_path / "backup.db")]) == 2
    assert "sqlite:///" in capsys.readouterr().err
    assert run(["backup", "--store", f"sqlite:///{tmp_path}/none.db", "--out", str(tmp_path / "backup.db")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_cannot_be_sent_is_shown_and_removed_by_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/backup.md says: exported, left out of the file, and pruned; or deleted by its name."""
    long = ClientQuotaEntity({USER: "x" * 40_000})
    url = f"sqlite:///{tmp_path}/quotas.db"
    with open_store(url) as store:
        store.alter([set_to(ALICE, producer_byte_rate=1)])
    with closing(sqlite3.connect(tmp_path / "quotas.db")) as connection, connection:
        for key in (PRODUCE, "consumer_byte_rate"):
            connection.execute("INSERT INTO quota VALUES (?, ?, x'3ff0000000000000')", (long.to_text(), key))
    assert run(["describe", "--store", url]) == 0
    assert long.to_text() in capsys.readouterr().out
    assert run(["alter", "--store", url, "--name", f"user={'x' * 40_000}", "--delete", "consumer_byte_rate"]) == 0
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("- {entity: {user: alice}, values: {producer_byte_rate: 1}}\n")
    assert run(["apply", "-f", str(quotas), "--prune", "--no-rollback-file", "--store", url]) == 0
    with open_store(url) as store:
        assert everything(store) == {ALICE: {PRODUCE: 1.0}}
