"""Commands on stores and clusters that are not as they should be: what is said, the exit code, and what is kept."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota.cli import run
from kquota.quotas import ClientQuotaEntity, ClientQuotaFilter
from kquota.stores import open_store
from tests.kit.quota_server import running_server

QUOTAS = """\
- {entity: {user: alice}, values: {producer_byte_rate: 5}}
- {entity: {user: bob}, values: {producer_byte_rate: 6}}
"""
ALICE, BOB = ClientQuotaEntity({"user": "alice"}), ClientQuotaEntity({"user": "bob"})


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "quotas.yaml"
    path.write_text(QUOTAS)
    return str(path)


def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'quotas.db'}"


def test_a_store_is_changed_and_read_without_a_server(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same commands; more changes at once than a request could make; history says who."""
    store = ["--store", store_url(tmp_path)]
    assert run(["apply", "-f", file, *store]) == 0
    assert run(["alter", *store, "--name", "user=alice", "--add", "consumer_byte_rate=1KiB", "--format", "json"]) == 0
    many = tmp_path / "many.json"
    entries = [{"entity": {"user": f"u{n}"}, "values": {"producer_byte_rate": n + 1}} for n in range(10_001)]
    many.write_text(json.dumps(entries))
    assert run(["apply", "-f", str(many), *store]) == 0
    assert run(["apply", "-f", file, *store, "--prune"]) == 0
    capsys.readouterr()
    assert run(["describe", *store]) == 0
    assert capsys.readouterr().out == (
        "user=alice  producer_byte_rate  5  bytes/second\nuser=bob    producer_byte_rate  6  bytes/second\n"
    )
    assert run(["resolve", *store, "--name", "user=alice", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["quotas"]["producer_byte_rate"]["value"] == 5
    with open_store(store_url(tmp_path)) as opened:
        commits = list(opened.history())
    assert len(commits) == 4
    assert all(one.principal.startswith("local:") for one in commits)


def test_the_result_of_a_change_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Done, unchanged by a dry run or because it was so already, failed; with Kafka's error."""
    store = ["--store", store_url(tmp_path), "--format", "json"]

    def result(*arguments: str, code: int = 0) -> tuple[object, ...]:
        assert run(["alter", *store, "--name", "user=alice", *arguments]) == code
        [one] = json.loads(capsys.readouterr().out)
        assert one["entity"] == {"user": "alice"}
        return one["status"], one["error"], one["changes"]

    change = {"producer_byte_rate": {"before": None, "after": 5}}
    add = ("--add", "producer_byte_rate=5")
    assert result(*add, "--dry-run") == ("unchanged", None, change)
    assert result(*add) == ("done", None, change)
    assert result(*add) == ("unchanged", None, {})
    assert result("--delete", "consumer_byte_rate") == ("unchanged", None, {})
    not_a_number = {"request_percentage": {"before": None, "after": "NaN"}}
    assert result("--add", "request_percentage=NaN") == ("done", None, not_a_number)
    assert result("--add", "request_percentage=NaN") == ("unchanged", None, {})
    error = {"code": 42, "name": "INVALID_REQUEST", "message": "Quota producer_byte_rate must be greater than 0"}
    refused = {"producer_byte_rate": {"before": 5, "after": -1}}
    assert result("--add", "producer_byte_rate=-1", code=1) == ("failed", error, refused)


def test_reading_makes_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name mistyped is an error, not an empty store."""
    assert run(["describe", "--store", store_url(tmp_path)]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_locked_store_is_said(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a wait; what is in it stays."""
    monkeypatch.setattr("kquota.stores.local._WAIT_MS", 100)
    url = store_url(tmp_path)
    assert run(["apply", "-f", file, "--store", url]) == 0
    with sqlite3.connect(tmp_path / "quotas.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        capsys.readouterr()
        assert run(["alter", "--store", url, "--name", "user=alice", "--add", "producer_byte_rate=7"]) == 1
        assert "locked" in capsys.readouterr().err
        other.execute("ROLLBACK")
    other.close()
    with open_store(url) as opened:
        assert opened.describe(ClientQuotaFilter.all()) == {
            ALICE: {"producer_byte_rate": 5.0},
            BOB: {"producer_byte_rate": 6.0},
        }


@pytest.mark.parametrize(
    "content, reason",
    [
        (QUOTAS + QUOTAS, "user=alice"),
        ("- {entity: {user: alice}, values: {producer_byte_rate: -5}}", "greater than 0"),
        ("- {entity: {user: alice}, values: {producer_byterate: 5}}", "producer_byte_rate"),
        ("", "empty"),
    ],
    ids=["twice", "negative", "unknown-key", "empty"],
)
def test_a_file_that_cannot_be_used_changes_nothing(
    content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even the entries before the wrong one; nothing is opened for it."""
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    assert run(["apply", "-f", str(path), "--store", store_url(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, reason in err) == ("", True)
    assert not (tmp_path / "quotas.db").exists()


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["describe"], "Say where the quotas are: --bootstrap-server HOST:PORT, --store URL or --quotas FILE"),
        (["alter", "--name", "user=a", "--add", "k=1"], "--bootstrap-server HOST:PORT or --store URL"),
        (["describe", "--store", "memory:", "--bootstrap-server", "a:1"], "Give one of"),
        (["describe", "--store", "memory:", "--command-config", "x"], "go with --bootstrap-server"),
        (["describe", "--store", "mysql://x"], "not the URL of a store"),
        (["describe", "--bootstrap-server", "localhost"], "host:port"),
        (["alter", "--store", "memory:", "--add", "k=1"], "Say whose"),
        (["alter", "--store", "memory:", "--name", "user=a"], "what is to change"),
        (["alter", "--store", "memory:", "--name", "user=a", "--default", "user", "--add", "k=1"], "given twice"),
        (["alter", "--store", "memory:", "--name", "user=a", "--add", "k=1", "--delete", "k"], "given twice"),
        (["alter", "--store", "memory:", "--name", "user=a", "--add", "k"], "key=value"),
        (["alter", "--store", "memory:", "--name", "user=a", "--add", "k=many"], "is not a number"),
        (["alter", "--store", "memory:", "--name", "user=a", "--delete", "k=1"], "only the key"),
        (["apply", "-f", "missing.yaml", "--store", "memory:"], "missing.yaml"),
    ],
)
def test_wrong_use_is_told_what_to_write(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, reason in err) == ("", True), err


def test_the_command_line_goes_before_the_environment(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another place that is typed is meant instead, not as well."""
    monkeypatch.setenv("KQUOTA_BOOTSTRAP_SERVER", "nowhere:1")
    monkeypatch.setenv("KQUOTA_COMMAND_CONFIG", "nowhere.properties")
    assert run(["describe", "--quotas", file]) == 0
    assert capsys.readouterr().out.startswith("user=alice")


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a listener that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_cluster_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 5, and the address."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{closed.getsockname()[1]}"
        quick = ["-X", "default.api.timeout.ms=1500"]
        assert run(["describe", "--bootstrap-server", server, *quick]) == 5
        out, err = capsys.readouterr()
        assert (out, server in err) == ("", True)
        assert run(["resolve", "--bootstrap-server", server, *quick, "--name", "user=a"]) == 5
        assert capsys.readouterr().err.startswith("kquota: error: ")


def test_a_cluster_that_does_not_answer(silent: int, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was sent, so nothing is said to have been done."""
    server = ["--bootstrap-server", f"127.0.0.1:{silent}", "-X", "default.api.timeout.ms=1500"]
    assert run(["apply", "-f", file, *server]) == 5
    out, err = capsys.readouterr()
    assert (out, str(silent) in err) == ("", True)


def test_a_web_server_is_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(1000)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        assert run(["describe", "--bootstrap-server", f"127.0.0.1:{port}", "-X", "default.api.timeout.ms=3000"]) == 5
        assert str(port) in capsys.readouterr().err


def test_static_defaults_are_the_servers_or_those_given(capsys: pytest.CaptureFixture[str]) -> None:
    """A server knows its own; for any other cluster they are said."""
    asked = ["resolve", "--name", "client-id=etl", "--format", "jsonl"]
    with (
        open_store("memory:") as store,
        running_server(store, static_defaults=(("producer_byte_rate", 99.0),)) as address,
    ):
        for more, limit in (([], 99), (["-D", "quota.producer.default=77"], 77)):
            assert run([*asked, "--bootstrap-server", str(address), *more]) == 0
            answer = capsys.readouterr().out.splitlines()[-1]  # the server in this process logs, too
            found = json.loads(answer)["quotas"]["producer_byte_rate"]
            assert (found["value"], found["source"], found["level"]) == (limit, "static", 9)


def test_an_export_is_applied_elsewhere(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file into a store, from there over the wire into another server, and out again: the same text."""
    assert run(["apply", "-f", file, "--store", store_url(tmp_path)]) == 0
    capsys.readouterr()
    assert run(["export", "--store", store_url(tmp_path)]) == 0
    first = capsys.readouterr().out
    exported = tmp_path / "exported.yaml"
    exported.write_text(first)
    with open_store("memory:") as store, running_server(store) as address:
        assert run(["apply", "-f", str(exported), "--bootstrap-server", str(address)]) == 0
        capsys.readouterr()
        assert run(["export", "--bootstrap-server", str(address)]) == 0
        assert capsys.readouterr().out == first
