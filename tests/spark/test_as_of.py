"""`kquota analyze` under quotas that changed, and `kquota pipeline showback`, from the command line."""

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota.cli import run
from kquota.pipeline.dataset import spark_run
from kquota.quotas import USER, ClientQuotaAlteration, ClientQuotaEntity
from kquota.stores.local import LocalStore
from kquota.stores.sqlite import SqliteKeeper
from tests.kit.datasets import USUAL_TABLES
from tests.kit.manual_clock import ManualClock
from tests.spark.test_analyze import GOLDEN, rows, summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = GOLDEN / "3.9.1" / "kafka-request.log"
CHANGE = "2026-11-21T12:08:18Z"
CHANGE_MS = int(datetime.fromisoformat(CHANGE).timestamp() * 1000)
DAY_BEFORE_MS = CHANGE_MS - 86_400_000
OLD = "- {entity: {user: null}, values: {producer_byte_rate: 50}, owner: everybody}\n"
NEW = f"""{OLD}\
- {{entity: {{client-id: etl}}, values: {{request_percentage: 1}}}}
- {{entity: {{user: null, client-id: shared}}, values: {{producer_byte_rate: 1}}}}
"""


@pytest.fixture(autouse=True)
def _one_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job of a test joins the session of the run, and leaves it running."""
    monkeypatch.setattr(spark_run, "start_session", lambda **_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The old quotas from the day before, the new ones from the middle of the log on."""
    folder = tmp_path / "by-date"
    folder.mkdir()
    (folder / "2026-11-20.yaml").write_text(OLD)
    (folder / f"{CHANGE}.yaml").write_text(NEW)
    (folder / "2026-11-22T000000Z.yaml").write_text("[]")
    return folder


def analyze(*arguments: object) -> int:
    return run(["analyze", "-q", *map(str, arguments)])


def without_time(out: Path) -> dict[str, object]:
    return {name: value for name, value in summary(out).items() if name not in ("seconds", "inputs")}


def test_a_folder_of_dated_quotas(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each second has the limit that was in force; the directory keeps both, so that its steps give the same again."""
    out, steps = tmp_path / "out", tmp_path / "steps"
    assert analyze(LOG, "--quotas", folder, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "the limits changed 1 time (2026-11-21 12:08:18 UTC)" in " ".join(printed.split())
    over_time = summary(out)["quotas_over_time"]
    assert over_time["changes"] == 1
    assert [(one["valid_to_ms"], one["entities"]) for one in over_time["periods"]] == [(CHANGE_MS, 1), (None, 3)]
    assert sorted(path.name for path in (out / "quotas").iterdir()) == [
        "2026-11-20T000000Z.yaml",
        "2026-11-21T120818Z.yaml",
    ]
    assert "request_percentage" in (out / "quotas.yaml").read_text()
    assert "changed 1 time" in (out / "report.html").read_text()
    assert {row["valid_from_ms"] for row in rows(out, "limits")} == {None, CHANGE_MS}

    shared = [row for row in rows(out, "limits") if row["client_id"] == "shared" and row["key"] == "producer_byte_rate"]
    assert {row["limit"] for row in shared} == {50.0, 1.0}
    meters = {row["meter"]: row for row in rows(out, "utilisation") if row["key"] == "producer_byte_rate"}
    assert meters["user=alice"]["limit"] == 50.0
    assert meters["user=alice,client-id=shared"]["limit"] == 1.0
    clients = rows(out, "clients")
    assert len({(row["user"], row["client_id"], row["ip"], row["key"]) for row in clients}) == len(clients)
    assert {row["limit"] for row in clients if row["client_id"] == "shared" and row["key"] == "producer_byte_rate"} == {
        1.0
    }

    for step in (
        ["ingest", "-q", "--log", LOG, "--out", steps],
        ["resolve", "-q", "--dataset", steps, "--quotas", folder],
        ["utilisation", "-q", "--dataset", steps],
    ):
        assert run(["pipeline", *map(str, step)]) == 0
    for table in (*USUAL_TABLES, "limits"):
        assert sorted(map(str, rows(out, table))) == sorted(map(str, rows(steps, table))), table
    assert without_time(out) == without_time(steps)

    # A plain file leaves nothing of the past.
    (tmp_path / "one.yaml").write_text(NEW)
    assert run(["pipeline", "resolve", "-q", "--dataset", str(steps), "--quotas", str(tmp_path / "one.yaml")]) == 0
    assert not (steps / "quotas").exists()
    assert not (steps / "limits").exists()
    assert "quotas_over_time" not in summary(steps)


def test_a_store_whose_quotas_were_changed_since(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log is judged by the limits of its own time, unless those of now are asked for."""
    clock = ManualClock(DAY_BEFORE_MS)
    user = ClientQuotaEntity({USER: None})
    with LocalStore(SqliteKeeper(tmp_path / "q.db"), clock=clock) as store:
        for later_ms, value in ((0, 50.0), (2 * 86_400_000, 7.0)):
            clock.advance(later_ms)
            store.alter([ClientQuotaAlteration(user, [ClientQuotaAlteration.Op("producer_byte_rate", value)])])
    url = f"sqlite:///{tmp_path / 'q.db'}"
    for number, (options, limit) in enumerate(
        (([], 50.0), (["--quotas-as-of", "log"], 50.0), (["--quotas-as-of", "now"], 7.0))
    ):
        out = tmp_path / str(number)
        assert analyze(LOG, "--store", url, "--no-report", "--out", out, *options) == 0
        assert {row["limit"] for row in rows(out, "utilisation")} == {limit}
        assert not (out / "quotas").exists()
    capsys.readouterr()
    assert analyze(LOG, "--quotas", tmp_path, "--no-report", "--out", tmp_path / "x") == 2
    assert "the name is not a time in UTC" in capsys.readouterr().err


def test_a_log_that_begins_before_its_quotas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is before the first file is held against nothing, and that is said."""
    folder = tmp_path / "by-date"
    folder.mkdir()
    (folder / f"{CHANGE}.yaml").write_text(OLD)
    assert analyze(LOG, "--quotas", folder, "--no-report", "--out", tmp_path / "out") == 0
    assert "no limits are known from before 2026-11-21 12:08:18 UTC" in " ".join(capsys.readouterr().out.split())
    usage = [row for row in rows(tmp_path / "out", "usage") if row["key"] == "producer_byte_rate" and row["user"]]
    after = {(row["user"], row["cell_start_ms"]) for row in usage if row["cell_start_ms"] >= CHANGE_MS}
    assert 0 < len(after) < len({(row["user"], row["cell_start_ms"]) for row in usage})
    assert sum(row["seconds_active"] for row in rows(tmp_path / "out", "utilisation")) == len(after)

    (folder / f"{CHANGE}.yaml").rename(folder / "2026-12-01.yaml")
    assert analyze(LOG, "--quotas", folder, "--no-report", "--overwrite", "--out", tmp_path / "out") == 0
    assert "come into force after this log" in capsys.readouterr().out
    assert rows(tmp_path / "out", "utilisation") == []


def test_showback_of_a_directory(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed for people and for a spreadsheet, kept as a table, and the clients without an owner as a list."""
    out = tmp_path / "out"
    assert analyze(LOG, "--quotas", folder, "--no-report", "--out", out) == 0
    (tmp_path / "owners.csv").write_text("owner,client-id,client-id-prefix\ndata,etl,\nkafka,,broker-\n")
    showback = ["pipeline", "showback", "-q", "--dataset", str(out), "--owners", str(tmp_path / "owners.csv")]
    capsys.readouterr()
    assert run([*showback, "--format", "csv"]) == 0
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["owner"] for row in found} >= {"data", "everybody"}
    table = rows(out, "showback")
    assert {(row["owner"], str(row["date"]), row["key"]) for row in table} == {
        (row["owner"], row["date"], row["key"]) for row in found
    }
    amounts: dict[str, float] = {}
    for client in rows(out, "clients"):
        amounts[client["key"]] = amounts.get(client["key"], 0.0) + (client["amount"] or 0.0)
    for key, amount in amounts.items():
        of_key = [row for row in table if row["key"] == key]
        assert sum(row["amount"] or 0.0 for row in of_key) == pytest.approx(amount)
        assert not amount or sum(row["share"] for row in of_key if row["share"]) == pytest.approx(1.0)

    assert run([*showback, "--timezone", "Pacific/Kiritimati", "--unowned", str(tmp_path / "nobody.csv")]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("2026-11-22\n  key ")
    assert "without an owner: " in captured.err
    assert (tmp_path / "nobody.csv").read_text().startswith("owner,user,client-id,ip\n")
    assert summary(out)["showback"]["timezone"] == "Pacific/Kiritimati"
    assert run([*showback, "--timezone", "Mars/Base"]) == 2
    assert run([*showback, "--format", "json"]) == 0
    capsys.readouterr()
    # The table does not outlive the usage that it is of.
    assert analyze(LOG, "--quotas", folder, "--no-report", "--overwrite", "--out", out) == 0
    assert not (out / "showback").exists()
    assert json.loads((out / "summary.json").read_text()).get("showback") is None
