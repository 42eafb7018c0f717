"""Plans from the first look to the last undo: on stores and over the wire, ended midway, out of date, damaged."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest

from kquota.cli import run
from kquota.errors import ApiError, StoreError
from kquota.files import QuotaFile, write_yaml
from kquota.policy import alterations, difference, read_plan
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, QuotaSnapshot
from kquota.stores import open_store
from kquota.stores.local import LocalStore
from kquota.stores.memory import MemoryKeeper
from tests.kit.quota_server import running_server
from tests.kit.store_contract import everything

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
ALICE, BOB, CAROL = (ClientQuotaEntity({"user": name}) for name in ("alice", "bob", "carol"))
BEFORE: QuotaSnapshot = {
    ALICE: {PRODUCE: 1000.0, CONSUME: 500.0, "request_percentage": 12.5},
    BOB: {PRODUCE: 7.0},
    CAROL: {PRODUCE: 9.0},
}
WANTED = """\
- {entity: {user: alice}, values: {producer_byte_rate: 1500, consumer_byte_rate: 500}}
- {entity: {user: carol}, values: {producer_byte_rate: 9}}
- {entity: {user: dave, client-id: etl}, values: {producer_byte_rate: 10MiB}}
"""
PRUNED: QuotaSnapshot = {
    ALICE: {PRODUCE: 1500.0, CONSUME: 500.0},
    CAROL: {PRODUCE: 9.0},
    ClientQuotaEntity({"user": "dave", "client-id": "etl"}): {PRODUCE: 10485760.0},
}
TEXT = """\
user=alice
  ~ producer_byte_rate  1000 -> 1500 bytes/second  +50 %
  - request_percentage  12.5 percent of one thread
  ! lifts-limit: request_percentage clients that it bound have no limit any more; set another rule if that is not meant
user=bob (removed)
  - producer_byte_rate  7 bytes/second
  ! lifts-limit: producer_byte_rate clients that it bound have no limit any more; set another rule if that is not meant
user=dave,client-id=etl (new)
  + producer_byte_rate  10485760 bytes/second
1 to add, 1 to change, 2 to remove, on 3 entities
"""


class Place(NamedTuple):
    """Quotas that commands are run on, and the store behind them."""

    arguments: list[str]
    store: LocalStore


@pytest.fixture(params=["sqlite", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    url = f"sqlite:///{tmp_path / 'quotas.db'}" if request.param == "sqlite" else "memory:"
    with open_store(url) as store:
        assert set(store.alter(alterations(difference({}, BEFORE))).values()) == {None}
        if request.param == "sqlite":
            yield Place(["--store", url], store)
        else:
            with running_server(store) as address:
                yield Place(["--bootstrap-server", str(address)], store)


@pytest.fixture
def wanted(tmp_path: Path) -> str:
    path = tmp_path / "quotas.yaml"
    path.write_text(WANTED)
    return str(path)


@pytest.fixture
def plan(place: Place, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = str(tmp_path / "plan.json")
    assert run(["plan", "-f", wanted, *place.arguments, "--prune", "--out", path]) == 3
    capsys.readouterr()
    return path


def set_values(store: LocalStore, entity: ClientQuotaEntity, **values: float | None) -> None:
    ops = [ClientQuotaAlteration.Op(key, value) for key, value in values.items()]
    assert store.alter([ClientQuotaAlteration(entity, ops)]) == {entity: None}


def rollback_files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("*rollback*"))


class TestPlan:
    def test_it_says_what_would_change_and_changes_nothing(
        self, place: Place, wanted: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """By entity, with the ratio and what else comes of it; what the file does not name only when pruned."""
        assert run(["plan", "-f", wanted, *place.arguments, "--prune"]) == 3
        assert capsys.readouterr().out == TEXT
        assert run(["plan", "-f", wanted, *place.arguments]) == 3
        out = capsys.readouterr().out
        assert out.endswith("1 to add, 1 to change, 0 to remove, on 2 entities\n")
        assert "bob" not in out
        assert everything(place.store) == BEFORE

    def test_no_changes_are_exit_code_0(self, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Which makes it a check for drift; an empty plan can be applied, and does nothing."""
        file, path = tmp_path / "same.yaml", str(tmp_path / "plan.json")
        file.write_text(write_yaml(QuotaFile.of(BEFORE)))
        check = ["plan", "-f", str(file), *place.arguments, "--prune", "--out", path]
        assert run(check) == 0
        assert capsys.readouterr().out == "no changes\n"
        assert run(["apply", path, *place.arguments]) == 0
        assert rollback_files(tmp_path) == []
        set_values(place.store, BOB, producer_byte_rate=8.0)
        capsys.readouterr()
        assert run(check) == 3
        assert "8 -> 7 bytes/second  -12 %" in capsys.readouterr().out

    def test_as_json_it_is_the_plan(self, place: Place, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["plan", "-f", str(Path(plan).with_name("quotas.yaml")), *place.arguments, "--prune"]
        assert run([*arguments, "--format", "json"]) == 3
        out, err = capsys.readouterr()
        assert out == Path(plan).read_text()
        assert err == "1 to add, 1 to change, 2 to remove, on 3 entities\n"
        found = json.loads(out)
        assert found["format"] == 2
        assert found["target"]["id"] == place.store.identity
        assert {change["impact"] for change in found["changes"]} == {None}
        assert [warning["rule"] for change in found["changes"] for warning in change["warnings"]] == ["lifts-limit"] * 2

    def test_two_files_can_be_compared(self, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """No cluster is asked; and such a plan is for no cluster."""
        old, path = tmp_path / "old.yaml", str(tmp_path / "plan.json")
        old.write_text(write_yaml(QuotaFile.of(BEFORE)))
        assert run(["plan", "-f", wanted, "--quotas", str(old), "--prune", "--out", path]) == 3
        assert capsys.readouterr().out == TEXT
        with open_store(f"sqlite:///{tmp_path / 'quotas.db'}"):
            assert run(["apply", path, "--store", f"sqlite:///{tmp_path / 'quotas.db'}"]) == 2
        assert "plan.json was made for" in capsys.readouterr().err

    def test_ratios(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Never an exponent, and none where there is none."""
        pairs = [(3, 4), (4, 3), (1000, 1001), (100000, 100001), (1, 10**6), ("NaN", 5), (5e-324, 1e308), (1, 1.994)]
        names = [f"u{n}" for n in range(len(pairs))]
        for file, index in (("old.json", 0), ("new.json", 1)):
            entries = [
                {"entity": {"user": name}, "values": {"request_percentage": pair[index]}}
                for name, pair in zip(names, pairs, strict=True)
            ]
            (tmp_path / file).write_text(json.dumps(entries))
        assert run(["plan", "-f", str(tmp_path / "new.json"), "--quotas", str(tmp_path / "old.json")]) == 3
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ~")]
        ratios = [line.partition("thread")[2].strip() for line in lines]
        assert ratios == ["+33 %", "-25 %", "+0.1 %", "+<0.1 %", "+99999900 %", "", "", "+99 %"]

    def test_a_plan_that_cannot_be_written_is_said(
        self, wanted: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Before anything is printed."""
        before = sorted(tmp_path.iterdir())
        for out in (tmp_path / "missing" / "plan.json", tmp_path):
            assert run(["plan", "-f", wanted, "--store", "memory:", "--out", str(out)]) == 2
            assert f"--out {out}: cannot write the plan" in capsys.readouterr().err
        assert sorted(tmp_path.iterdir()) == before


class TestApply:
    def test_a_plan_is_carried_out_and_undone(
        self, place: Place, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Each entity told; the way back is on the disk, and leads to the very same quotas."""
        assert run(["apply", plan, *place.arguments, "--dry-run"]) == 0
        assert (everything(place.store), rollback_files(tmp_path)) == (BEFORE, [])
        capsys.readouterr()
        assert run(["apply", plan, *place.arguments, "--format", "json"]) == 0
        out, err = capsys.readouterr()
        assert [(one["entity"], one["status"], one["error"]) for one in json.loads(out)] == [
            ({"user": "alice"}, "done", None),
            ({"user": "bob"}, "done", None),
            ({"user": "dave", "client-id": "etl"}, "done", None),
        ]
        undo = str(tmp_path / "plan.rollback.json")
        assert f"to undo this: kquota rollback {undo}\n" in err
        assert "3 entities changed, 0 unchanged\n" in err
        assert everything(place.store) == PRUNED
        assert run(["apply", "-f", plan, *place.arguments]) == 0
        assert "0 entities changed, 3 unchanged" in capsys.readouterr().err
        assert run(["rollback", undo, *place.arguments, "--dry-run"]) == 0
        assert "3 entities would be restored" in capsys.readouterr().err
        assert everything(place.store) == PRUNED
        assert run(["rollback", undo, *place.arguments]) == 0
        assert "3 entities restored, 0 unchanged" in capsys.readouterr().err
        assert everything(place.store) == BEFORE
        assert run(["rollback", undo, *place.arguments]) == 0
        assert "0 entities restored, 3 unchanged" in capsys.readouterr().err
        assert rollback_files(tmp_path) == ["plan.rollback.json"]

    def test_a_plan_whose_base_was_changed_is_refused(
        self, place: Place, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Also where the plan does not change that value: it was made with another one in mind."""
        set_values(place.store, ALICE, consumer_byte_rate=501.0)
        set_values(place.store, BOB, producer_byte_rate=None)
        set_values(place.store, ClientQuotaEntity({"user": "dave", "client-id": "etl"}), producer_byte_rate=1.0)
        found = everything(place.store)
        for more in ([], ["--dry-run"]):
            assert run(["apply", plan, *place.arguments, *more]) == 1
            out, err = capsys.readouterr()
            assert out == ""
            assert err == (
                f"kquota: error: {plan} is out of date, so nothing was changed. What it touches was changed since it "
                "was made:\n"
                "  user=alice: consumer_byte_rate was 500 and is 501 now\n"
                "  user=dave,client-id=etl: producer_byte_rate was not set and is 1 now\n"
                "Make a new plan with kquota plan.\n"
            )
        assert (everything(place.store), rollback_files(tmp_path)) == (found, [])

    def test_what_the_plan_does_not_touch_may_change(self, place: Place, plan: str) -> None:
        set_values(place.store, CAROL, producer_byte_rate=10.0)
        assert run(["apply", plan, *place.arguments]) == 0
        assert everything(place.store) == {**PRUNED, CAROL: {PRODUCE: 10.0}}

    def test_it_resumes_where_it_ended(self, place: Place, plan: str, tmp_path: Path) -> None:
        """The first rollback file stays, and undoes all of it."""
        undo = tmp_path / "plan.rollback.json"
        assert run(["apply", plan, *place.arguments]) == 0
        written = undo.read_bytes()
        set_values(place.store, BOB, producer_byte_rate=7.0)  # as if this one had not been done
        assert run(["apply", plan, *place.arguments]) == 0
        assert everything(place.store) == PRUNED
        assert (rollback_files(tmp_path), undo.read_bytes()) == (["plan.rollback.json"], written)
        assert run(["rollback", str(undo), *place.arguments]) == 0
        assert everything(place.store) == BEFORE

    def test_what_the_first_rollback_file_does_not_hold_goes_into_another(
        self, place: Place, plan: str, tmp_path: Path
    ) -> None:
        """Somebody had done a part of the plan by hand, and undone it again: then it is the apply's own work."""
        set_values(place.store, BOB, producer_byte_rate=None)
        assert run(["apply", plan, *place.arguments]) == 0
        set_values(place.store, BOB, producer_byte_rate=7.0)
        assert run(["apply", plan, *place.arguments]) == 0
        names = ["plan.rollback-2.json", "plan.rollback.json"]
        assert (everything(place.store), rollback_files(tmp_path)) == (PRUNED, names)
        for name in names:
            assert run(["rollback", str(tmp_path / name), *place.arguments]) == 0
        assert everything(place.store) == BEFORE

    def test_no_rollback_file_is_overwritten(
        self, place: Place, plan: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whatever is in it: another plan's, nothing, or the very same of another day of a quota file."""
        (tmp_path / "plan.rollback.json").write_text('{"format": 1,')
        assert run(["apply", plan, *place.arguments]) == 0
        assert "kquota rollback " + str(tmp_path / "plan.rollback-2.json") in capsys.readouterr().err
        assert (tmp_path / "plan.rollback.json").read_text() == '{"format": 1,'
        for name in ("quotas.rollback.json", "quotas.rollback-2.json", "quotas.rollback-3.json"):
            set_values(place.store, ALICE, producer_byte_rate=1.0)
            assert run(["apply", "-f", wanted, *place.arguments]) == 0
            assert f"kquota rollback {tmp_path / name}\n" in capsys.readouterr().err
        assert run(["rollback", str(tmp_path / "quotas.rollback-2.json"), *place.arguments]) == 0
        assert everything(place.store)[ALICE][PRODUCE] == 1.0

    def test_where_the_rollback_file_goes_can_be_said(
        self, place: Place, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """There, or nothing is done; the same command again goes on with it."""
        here = tmp_path / "undo.json"
        here.write_text("something else")
        chosen = ["--rollback-file", str(here)]
        assert run(["apply", plan, *place.arguments, *chosen]) == 2
        assert (
            "it does not undo this; nothing was changed. Name another place with --rollback-file"
            in capsys.readouterr().err
        )
        assert run(["apply", plan, *place.arguments, "--rollback-file", str(tmp_path / "no" / "x.json")]) == 2
        assert "nothing was changed" in capsys.readouterr().err
        assert everything(place.store) == BEFORE
        here.unlink()
        assert run(["apply", plan, *place.arguments, *chosen]) == 0
        set_values(place.store, BOB, producer_byte_rate=7.0)
        assert run(["apply", plan, *place.arguments, *chosen]) == 0
        assert run(["rollback", str(here), *place.arguments]) == 0
        assert everything(place.store) == BEFORE
        assert run(["apply", plan, *place.arguments, "--no-rollback-file"]) == 0
        assert rollback_files(tmp_path) == []

    def test_a_plan_for_another_place_is_refused(
        self, place: Place, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The same quotas, elsewhere; and for rolling back as well."""
        with open_store("memory:") as other, running_server(other) as address:
            other.alter(alterations(difference({}, BEFORE)))
            for command in ("apply", "rollback"):
                assert run([command, plan, "--bootstrap-server", str(address)]) == 2
                err = capsys.readouterr().err
                assert f"kquota: error: {plan} was made for " in err
                assert f"(id {place.store.identity}), and this is {address} (id {other.identity})" in err
            assert everything(other) == BEFORE

    def test_a_plan_of_a_server_is_one_of_its_store(
        self, tmp_path: Path, wanted: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It is about the quotas, and not about the way to them."""
        url, plan = f"sqlite:///{tmp_path / 'quotas.db'}", str(tmp_path / "plan.json")
        with open_store(url) as store, running_server(store) as address:
            assert run(["plan", "-f", wanted, "--store", url, "--out", plan]) == 3
            assert run(["apply", plan, "--bootstrap-server", str(address)]) == 0
        assert run(["rollback", str(tmp_path / "plan.rollback.json"), "--store", url]) == 0
        with open_store(url) as store:
            assert everything(store) == {}

    def test_a_store_in_memory_takes_plans_too(self, wanted: str, tmp_path: Path) -> None:
        """Empty each time: that is what a plan for it was made from."""
        plan = str(tmp_path / "plan.json")
        assert run(["plan", "-f", wanted, "--store", "memory:", "--out", plan]) == 3
        assert run(["apply", plan, "--store", "memory:"]) == 0
        assert run(["rollback", str(tmp_path / "plan.rollback.json"), "--store", "memory:"]) == 0

    @pytest.mark.parametrize(
        "damage",
        [
            lambda text: text[: len(text) // 2],
            lambda text: text.replace('"after": 1500', '"after": 15000'),
            lambda text: text.replace('"format": 2', '"format": 1'),
            lambda text: text.replace('"base": "sha256:', '"base": "sha256:0'),
            lambda text: text.replace('"before": 1000', '"before": 1001'),
        ],
        ids=["cut-short", "after", "format", "base", "before"],
    )
    def test_a_damaged_plan_changes_nothing(
        self, damage: Callable[[str], str], place: Place, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = Path(plan).read_text()
        assert damage(text) != text
        Path(plan).write_text(damage(text))
        for command in ("apply", "rollback"):
            assert run([command, plan, *place.arguments]) == 2
            assert capsys.readouterr().err.startswith(f"kquota: error: {plan}: ")
        assert (everything(place.store), rollback_files(tmp_path)) == (BEFORE, [])

    def test_what_fails_leaves_the_rest_done(
        self, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Exit code 1, with what to do; the same command does what is left when it can be done."""
        file, plan = tmp_path / "quotas.yaml", str(tmp_path / "plan.json")
        file.write_text(WANTED + "- {entity: {ip: no-such-host.invalid}, values: {connection_creation_rate: 5}}\n")
        assert run(["plan", "-f", str(file), *place.arguments, "--out", plan]) == 3
        capsys.readouterr()
        assert run(["apply", plan, *place.arguments, "--format", "json"]) == 1
        out, err = capsys.readouterr()
        assert [one["status"] for one in json.loads(out)] == ["done", "done", "failed"]
        assert "2 entities changed, 0 unchanged, 1 failed\n" in err
        assert err.endswith("fix the cause and run it again: it resumes\n")
        assert everything(place.store).keys() == {ALICE, BOB, CAROL, *PRUNED}
        assert run(["apply", plan, *place.arguments, "--format", "json"]) == 1
        out = capsys.readouterr().out
        assert [one["status"] for one in json.loads(out)] == ["unchanged", "unchanged", "failed"]
        assert rollback_files(tmp_path) == ["plan.rollback.json"]

    def test_a_quota_file_from_standard_input(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What undoes it is put here."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WANTED.encode())))
        assert run(["apply", "-f", "-", "--store", "memory:"]) == 0
        assert "kquota rollback quotas.rollback.json\n" in capsys.readouterr().err
        assert rollback_files(tmp_path) == ["quotas.rollback.json"]


class TestRollback:
    def test_what_somebody_changed_since_is_left_alone(
        self, place: Place, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Unless it is forced; other values of the same entities are no matter of it."""
        assert run(["apply", plan, *place.arguments]) == 0
        set_values(place.store, ALICE, producer_byte_rate=1600.0, consumer_byte_rate=501.0)
        set_values(place.store, CAROL, producer_byte_rate=10.0)
        undo = ["rollback", str(tmp_path / "plan.rollback.json"), *place.arguments]
        capsys.readouterr()
        assert run([*undo, "--format", "json"]) == 1
        out, err = capsys.readouterr()
        assert [(one["entity"]["user"], one["status"]) for one in json.loads(out)] == [
            ("alice", "failed"),
            ("bob", "done"),
            ("dave", "done"),
        ]
        assert "user=alice: INVALID_UPDATE_VERSION: producer_byte_rate was left at 1500 and is 1600 now\n" in err
        assert "2 entities restored, 0 unchanged, 1 changed by somebody else since (--force restores them too)\n" in err
        since = {PRODUCE: 1600.0, CONSUME: 501.0}
        assert everything(place.store) == {ALICE: since, BOB: {PRODUCE: 7.0}, CAROL: {PRODUCE: 10.0}}
        assert run([*undo, "--force"]) == 0
        assert everything(place.store) == {**BEFORE, ALICE: {**BEFORE[ALICE], CONSUME: 501.0}, CAROL: {PRODUCE: 10.0}}

    def test_the_plan_itself_undoes_it_too(self, place: Place, plan: str) -> None:
        """Nobody who gives the wrong one of the two files applies the plan again."""
        assert run(["apply", plan, *place.arguments]) == 0
        assert run(["rollback", plan, *place.arguments]) == 0
        assert everything(place.store) == BEFORE


class TestHistory:
    def test_who_changed_what_and_when(
        self, tmp_path: Path, plan: str, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if place.arguments[0] == "--bootstrap-server":
            assert run(["history", *place.arguments]) == 6
            assert "give --store" in capsys.readouterr().err
            return
        assert run(["apply", plan, *place.arguments]) == 0
        capsys.readouterr()
        assert run(["history", *place.arguments, "--format", "jsonl"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {line["commit"] for line in lines} == {1, 2}
        assert [line for line in lines if line["commit"] == 2 and line["entity"] == {"user": "bob"}] == [
            {
                "commit": 2,
                "at": lines[-1]["at"],
                "principal": lines[-1]["principal"],
                "entity": {"user": "bob"},
                "key": PRODUCE,
                "before": 7,
                "after": None,
            }
        ]
        assert lines[-1]["principal"].startswith("local:")
        assert len(lines[-1]["at"]) == len("2026-01-02T03:04:05.678Z")
        assert run(["history", *place.arguments, "--format", "json", "--since", "1"]) == 0
        assert json.loads(capsys.readouterr().out) == [line for line in lines if line["commit"] == 2]
        assert run(["history", *place.arguments, "--name", "user=alice", "--format", "csv"]) == 0
        rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
        assert rows[0] == ["commit", "at", "principal", "entity", "key", "before", "after"]
        assert [(row[0], *row[3:]) for row in rows[1:]] == [
            (str(line["commit"]), "user=alice", line["key"], *(_cell(line[side]) for side in ("before", "after")))
            for line in lines
            if line["entity"] == {"user": "alice"}
        ]
        assert run(["history", *place.arguments, "--prefix", "user=da", "--format", "text"]) == 0
        head, change = capsys.readouterr().out.splitlines()
        assert head == f"2  {lines[-1]['at']}  {lines[-1]['principal']}"
        assert change == "  user=dave,client-id=etl  producer_byte_rate  - -> 10485760"

    @pytest.mark.parametrize("format, nothing", [("text", ""), ("json", "[]\n"), ("jsonl", "")])
    def test_no_history_yet(self, format: str, nothing: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["history", "--store", "memory:", "--format", format]) == 0
        assert capsys.readouterr().out == nothing


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["apply", "--store", "memory:"], "Say what to apply"),
        (["apply", "plan.json", "-f", "quotas.yaml", "--store", "memory:"], "not both"),
        (["apply", "QUOTAS", "--store", "memory:", "--rollback-file", "x", "--no-rollback-file"], "not both"),
        (["apply", "missing.json", "--store", "memory:"], "missing.json"),
        (["rollback", "QUOTAS", "--store", "memory:"], "this is no plan"),
        (["rollback", "missing.json", "--store", "memory:"], "missing.json"),
        (["rollback", "--store", "memory:"], "FILE"),
        (["plan", "--store", "memory:"], "--file"),
        (["plan", "-f", "QUOTAS"], "--bootstrap-server HOST:PORT, --store URL or --quotas FILE"),
        (["plan", "-f", "QUOTAS", "--store", "sqlite:///missing.db"], "there is no file"),
        (
            ["plan", "-f", "QUOTAS", "--quotas", "QUOTAS", "--dataset", "missing"],
            "there is nothing; `kquota analyze",
        ),
        (["history"], "Say where the quotas are"),
        (["history", "--store", "sqlite:///missing.db"], "there is no file"),
        (["history", "--store", "memory:", "--any", "group"], "Unsupported entity type group"),
    ],
)
def test_wrong_use_is_told_what_to_write(
    arguments: list[str], reason: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run([wanted if argument == "QUOTAS" else argument for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, reason in err) == ("", True), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["quotas.yaml"]


def test_a_plan_is_no_quota_file(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["plan", "--store", "memory:", "-f"], ["lint"], ["describe", "--quotas"]):
        assert run([*command, plan]) == 2
        assert "this is a plan and no quota file; kquota apply carries it out" in capsys.readouterr().err


def test_a_plan_is_pruned_when_it_is_made(plan: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["apply", plan, *place.arguments, "--prune"]) == 2
    assert "when it was made" in capsys.readouterr().err


class Gated(LocalStore):
    """A store that holds the nth request to alter it until it may go on, or fail."""

    def __init__(self, hold: int, snapshot: QuotaSnapshot | None = None) -> None:
        super().__init__(MemoryKeeper(snapshot))
        self.left = hold
        self.reached, self.go, self.ended = Event(), Event(), Event()
        self.fails = False

    def alter(
        self, alterations: Iterable[ClientQuotaAlteration], **options: Any
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        self.left -= 1
        if self.left:
            return super().alter(alterations, **options)
        self.reached.set()
        assert self.go.wait(120)
        try:
            if self.fails:
                raise StoreError("the power is gone")
            return super().alter(alterations, **options)
        finally:
            self.ended.set()


MANY = 10_000
SMALL = {ClientQuotaEntity({"user": f"user-{n}"}): {PRODUCE: float(n + 1)} for n in range(0, MANY, 2)}
LARGE = {ClientQuotaEntity({"user": f"user-{n}"}): {PRODUCE: float(n + 2)} for n in range(MANY)}


@pytest.fixture
def many(tmp_path: Path) -> str:
    path = tmp_path / "quotas.yaml"
    path.write_text(write_yaml(QuotaFile.of(LARGE)))
    return str(path)


@pytest.mark.parametrize("is_lost", [False, True], ids=["the-last-request-is-done", "the-last-request-is-lost"])
def test_killed_in_the_middle_of_ten_thousand_it_is_finished_by_the_same_command(
    is_lost: bool, many: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Killed while a request is under way, of which it never learns whether it was done."""
    plan, undo = str(tmp_path / "plan.json"), tmp_path / "plan.rollback.json"
    store = Gated(hold=4, snapshot=SMALL)
    with running_server(store) as address:
        target = ["--bootstrap-server", str(address)]
        assert run(["plan", "-f", many, *target, "--out", plan]) == 3
        program = [sys.executable, "-c", "from kquota.cli import main; main()", "apply", plan, *target]
        with subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            assert store.reached.wait(120)
            os.kill(process.pid, signal.SIGKILL)
            _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert [line for line in err.splitlines() if " of " in line] == [
            f"{done} of 10000 entities" for done in (1000, 2000, 3000)
        ]
        written = undo.read_bytes()
        store.fails = is_lost
        store.go.set()
        assert store.ended.wait(120)
        through = 3_000 if is_lost else 4_000
        now = everything(store)
        assert sum(now.get(entity) == values for entity, values in LARGE.items()) == through
        capfd.readouterr()
        assert run(["apply", plan, *target, "--format", "json"]) == 0
        out, err = capfd.readouterr()
        # The server, which is of this process, may say only now that its store failed.
        statuses = [one["status"] for one in json.loads(out[out.index("[\n") :])]
        assert (statuses.count("unchanged"), statuses.count("done")) == (through, MANY - through)
        assert f"{MANY - through} entities changed, {through} unchanged\n" in err
        assert everything(store) == LARGE
        assert (rollback_files(tmp_path), undo.read_bytes()) == (["plan.rollback.json"], written)
        assert len(read_plan(written, name="undo").changes) == MANY
        assert run(["rollback", str(undo), *target]) == 0
        assert everything(store) == SMALL


def test_where_the_answer_does_not_come_it_is_unknown(
    many: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was done is done, what was under way is unknown, and the rest is not sent; then the same command again."""
    store = Gated(hold=3)
    with running_server(store) as address:
        target = ["--bootstrap-server", str(address)]
        command = ["apply", "-f", many, *target, "--format", "json"]
        capfd.readouterr()
        try:
            assert run([*command, "-X", "default.api.timeout.ms=3000"]) == 1
        finally:
            store.go.set()
        out, err = capfd.readouterr()
        results = json.loads(out)
        assert [one["status"] for one in results[::1000]] == ["done"] * 2 + ["unknown"] + ["failed"] * 7
        assert results[-1]["error"]["message"].startswith("not sent: ")
        assert "2000 entities changed, 0 unchanged, 7000 failed, 1000 unknown\n" in err
        assert store.ended.wait(120)
        assert run(command) == 0
        assert everything(store) == LARGE
        assert rollback_files(tmp_path) == ["quotas.rollback-2.json", "quotas.rollback.json"]
        # One after the other, the last one first, they undo it all.
        for name in ("quotas.rollback-2.json", "quotas.rollback.json"):
            assert run(["rollback", str(tmp_path / name), *target]) == 0
        assert everything(store) == {}


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
