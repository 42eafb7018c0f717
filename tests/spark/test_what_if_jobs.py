"""What-ifs, sweeps and recommendations from the command line: which quotas count, and what becomes of their tables."""

import re
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kquota.cli import run
from kquota.pipeline.dataset import spark_run
from kquota.policy import NO_IMPACT, read_plan
from tests.spark.test_analyze import GOLDEN, rows, summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = GOLDEN / "3.9.1" / "kafka-request.log"
CHANGE = "2026-11-21T120818Z"
KEYS = ("producer_byte_rate", "consumer_byte_rate")
OLD = "- {entity: {client-id: null}, values: {producer_byte_rate: 50, consumer_byte_rate: 1000}}\n"
LATER = OLD + "- {entity: {user: alice}, values: {producer_byte_rate: 20, consumer_byte_rate: 1000}}\n"
TRIED = """\
- {entity: {user: null}, values: {producer_byte_rate: 30, consumer_byte_rate: 100}}
- {entity: {user: alice, client-id: shared}, values: {producer_byte_rate: 10}}
"""
UNBOUND = "- {entity: {user: null}, values: {producer_byte_rate: 1TB, consumer_byte_rate: 1TB}}\n"


@pytest.fixture(autouse=True)
def _one_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job of a test joins the session of the run, and leaves it running."""
    monkeypatch.setattr(spark_run, "start_session", lambda **_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The log, and quotas: `later` of the last part of it, `by-date` with what was before, `tried` to be tried."""
    shutil.copy(LOG, tmp_path / "log")
    for name, text in (("later", LATER), ("tried", TRIED), ("unbound", UNBOUND)):
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "by-date").mkdir()
    (tmp_path / "by-date" / "2026-11-20.yaml").write_text(OLD)
    (tmp_path / "by-date" / f"{CHANGE}.yaml").write_text(LATER)
    return tmp_path


def analyze(here: Path, out: str, quotas: str, *arguments: str) -> Path:
    given = {"--log": "log", "--quotas": quotas, "--out": out}
    places = [text for option, name in given.items() for text in (option, str(here / name))]
    assert run(["analyze", "-q", "--no-report", *places, *arguments]) == 0
    return here / out


def step(name: str, usage: Path, *arguments: object) -> int:
    return run(["pipeline", name, "-q", "--dataset", str(usage), *map(str, arguments)])


def used(out: Path) -> dict[str, float]:
    """By key what known clients used in all."""
    found = dict.fromkeys(KEYS, 0.0)
    for row in rows(out, "usage"):
        if row["key"] in found and row["user"] is not None and row["client_id"] is not None:
            found[row["key"]] += row["amount"]
    return found


def replayed(out: Path, column: str) -> dict[str, float]:
    """By key the sum of a column of `whatif`."""
    return {key: sum(row[column] for row in rows(out, "whatif") if row["key"] == key) for key in KEYS}


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert sorted(map(str, one)) == sorted(map(str, other))


def set_back(source: Path, target: Path, seconds: int) -> None:
    """The log with its clock set back from its middle on."""
    lines = source.read_text().removesuffix("\n").split("\n")

    def earlier(line: str) -> str:
        at = datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f") - timedelta(seconds=seconds)  # noqa: DTZ007 - text
        return f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}{line[24:]}"

    middle = len(lines) // 2
    target.write_text("\n".join([*lines[:middle], *map(earlier, lines[middle:]), ""]))


@pytest.mark.parametrize("clock", ["plain", "set back"])
@pytest.mark.parametrize("grain", ["request", "cell"])
def test_all_usage_is_replayed_whatever_the_quotas_were_in_between(here: Path, clock: str, grain: str) -> None:
    """In the middle of the log a first rule of a user puts clients on other meters: new quotas do not know of that.

    A clock that is set back loses nothing either.
    """
    if clock == "set back":
        set_back(here / "log", here / "log", 30)
    keep = "--keep-requests" if grain == "request" else "--no-keep-requests"
    dated, plain = analyze(here, "dated", "by-date", keep), analyze(here, "plain", "later.yaml", keep)
    steps = [(step["broker_id"], round(step["by_ms"], -3)) for step in summary(dated).get("clock_went_backwards", ())]
    assert steps == ([(0, 30_000)] if clock == "set back" else [])
    meters = {row["meter"] for row in rows(dated, "limits") if row["user"] == "alice" and row["meter"]}
    assert {"user=alice"} < meters
    assert {row["meter"] for row in rows(plain, "clients") if row["user"] == "alice" and row["meter"]} == {"user=alice"}

    for out in (dated, plain):
        assert step("whatif", out, "--quotas", here / "tried.yaml") == 0
    assert {row["grain"] for row in rows(dated, "whatif")} == {grain}
    assert any(row["throttled_requests"] for row in rows(dated, "whatif"))
    assert any(row["previous_meters"] for row in rows(dated, "whatif"))
    same(rows(dated, "whatif"), rows(plain, "whatif"))
    assert replayed(dated, "amount_old") == pytest.approx(used(plain))

    for out in (dated, plain):
        assert step("sweep", out) == 0
    assert any(row["throttled_share"] for row in rows(dated, "curve"))
    same(rows(dated, "curve"), rows(plain, "curve"))

    assert step("whatif", dated, "--quotas", here / "unbound.yaml") == 0
    assert replayed(dated, "amount_new") == pytest.approx(used(plain))


def test_what_was_made_with_other_quotas_goes_with_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """New quotas of a directory leave nothing there that speaks of the ones before, and say so."""
    out = analyze(here, "out", "by-date")
    for name, *arguments in (
        ("whatif", "--quotas", here / "tried.yaml"),
        ("sweep",),
        ("recommend", "--out", here / "recommended.yaml"),
        ("showback",),
        ("report",),
    ):
        assert step(name, out, *arguments) in (0, 1), name
    ingested = {name: rows(out, name) for name in ("usage", "requests", "rejected")}
    capsys.readouterr()
    assert step("resolve", out, "--quotas", here / "tried.yaml") == 0
    captured = capsys.readouterr()
    removed = "utilisation, throttled, calibration, whatif, curve, recommendations, showback, report"
    assert f"removed, since made with other quotas: {removed}\n" in captured.err
    assert {path.name for path in out.iterdir()} == {
        *("_runs", "_quotas", "summary.json", "quotas.yaml", "clients"),
        *(name for name, found in ingested.items() if found),
    }
    for name, before in ingested.items():
        same(rows(out, name), before)
    left = summary(out).keys()
    assert not left & {"throttled_meters", "calibration", "whatif", "curve", "recommendations", "showback"}
    assert {"start_ms", "good", "limited_meters"} < left

    assert step("report", out) == 2
    error = capsys.readouterr().err
    assert f"{out} has no utilisation, which the step utilisation writes" in error
    assert f"run `kquota pipeline utilisation --dataset {out}`" in error
    assert step("utilisation", out) == 0
    assert step("report", out) == 0
    assert "what-if" not in re.findall(r'<section id="([\w-]+)"', (out / "report.html").read_text())
    assert step("resolve", out, "--quotas", here / "tried.yaml") == 0


def test_a_what_if_elsewhere_leaves_the_directory_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It replaces what was there before, which was of another directory."""
    out, elsewhere = analyze(here, "out", "later.yaml"), analyze(here, "elsewhere", "tried.yaml")
    assert step("sweep", out) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert step("whatif", out, "--quotas", here / "tried.yaml", "--out", elsewhere) == 2
    assert step("whatif", out, "--quotas", here / "tried.yaml", "--out", elsewhere, "--overwrite") == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert {path.name for path in elsewhere.iterdir()} == {"_runs", "summary.json", "whatif"}
    assert "whatif" in summary(elsewhere)
    assert "curve" not in summary(elsewhere)
    capsys.readouterr()
    assert step("whatif", elsewhere, "--quotas", here / "tried.yaml") == 2
    assert f"{elsewhere} has no usage" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["usage", "requests", "clients"])
def test_a_table_that_was_cut_short_is_named(here: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = analyze(here, "out", "later.yaml")
    path = next((out / table).rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    capsys.readouterr()
    assert step("whatif", out, "--quotas", here / "tried.yaml") == 2
    captured = capsys.readouterr()
    assert f"kquota: error: {path} is missing or damaged" in captured.err
    assert "Traceback" not in captured.err
    assert not (out / "whatif").exists()


@pytest.mark.parametrize("table", ["usage", "clients"])
def test_a_table_that_is_damaged_inside_is_named(here: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What only shows when it is read is told in a line, without a stack."""
    out = analyze(here, "out", "later.yaml")
    path = next((out / table).rglob("*.parquet"))
    path.write_bytes(b"PAR1" + b"\xff" * (path.stat().st_size - 8) + b"PAR1")
    capsys.readouterr()
    assert step("whatif", out, "--quotas", here / "tried.yaml") in (1, 2)
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kquota: error: ")]
    assert len(errors) == 1
    assert path.name in errors[0] or "arquet" in errors[0]
    assert not (out / "whatif").exists()


def test_a_plan_says_what_each_change_would_have_done_to_the_recording(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change that throttles more comes first; nothing is written into the directory; the plan keeps the figures."""
    out = analyze(here, "out", "later.yaml")
    (here / "now.yaml").write_text(LATER)
    (here / "next.yaml").write_text(
        "- {entity: {user: alice}, values: {producer_byte_rate: 10}}\n"
        "- {entity: {user: nobody}, values: {producer_byte_rate: 10}}\n"
        "- {entity: {client-id: null}, values: {consumer_byte_rate: 2000}}\n"
    )
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    capsys.readouterr()
    arguments = ["plan", "-q", "-f", "next.yaml", "--quotas", "now.yaml", "--dataset", "out", "--out", "plan.json"]
    places = [str(here / one) if "." in one or one == "out" else one for one in arguments]
    assert run(places) == 3
    text = capsys.readouterr().out
    assert text.index("user=alice") < text.index("client-id=<default>")
    assert "user=nobody (new)\n  + producer_byte_rate  10 bytes/second\n      nobody in the recording" in text
    assert re.search(r"^on .* of recorded traffic, per request, open model: ", text, re.MULTILINE)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    plan = read_plan((here / "plan.json").read_bytes(), name="plan.json")
    impacts = {change.entity.to_text(): change.impact for change in plan.changes}
    assert impacts["user=nobody"] == NO_IMPACT
    alice = impacts["user=alice"]
    assert alice is not None
    assert alice.throttled_requests > 0
    assert alice.meters > 0
    assert run([*places, "--fail-on-impact", "throttled_requests<=1000"]) == 0
    assert run([*places, "--fail-on-impact", "throttled_requests<=0"]) == 3
    exceeded = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kquota: too much: ")]
    assert (
        f"kquota: too much: user=alice producer_byte_rate: throttled_requests is {alice.throttled_requests}, "
        "more than 0" in exceeded
    )
    assert len(exceeded) == 2
