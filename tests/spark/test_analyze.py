"""`kquota analyze` from the command line: what comes out, and what becomes of bad input."""

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kquota.cli import run
from kquota.pipeline.dataset import spark_run
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.tables import ALL_TABLES
from kquota.stores import open_store
from tests.kit.datasets import USUAL_TABLES
from tests.kit.quota_server import running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path("tests/data/golden")
QUOTAS = """
- entity: {user: null}
  values: {producer_byte_rate: 100000}
- entity: {user: ANONYMOUS, client-id: etl}
  values: {producer_byte_rate: 50000, consumer_byte_rate: 1MiB}
"""


@pytest.fixture(autouse=True)
def _one_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job of a test joins the session of the run, and leaves it running."""
    monkeypatch.setattr(spark_run, "start_session", lambda **_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


@pytest.fixture
def quotas(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.yaml"
    path.write_text(QUOTAS)
    return path


def summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text())  # type: ignore[no-any-return]


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    return Dataset.open(out).read(table).to_pylist()  # type: ignore[no-any-return]


def analyze(*arguments: object) -> int:
    return run(["analyze", "-q", "--no-report", *map(str, arguments)])


def test_every_table_is_written_with_its_schema(quotas: Path, tmp_path: Path) -> None:
    """A run leaves all tables, with the columns of the contract, and a summary that adds up."""
    log = GOLDEN / "4.3.0" / "kafka-request.log"
    assert analyze(log, "--quotas", quotas, "--out", tmp_path / "out", "--cluster", "c1", "--broker-id", 3) == 0
    dataset = Dataset.open(tmp_path / "out")
    assert dataset.tables == {*USUAL_TABLES, "quotas"}
    for table in USUAL_TABLES:
        written = pq.read_table(tmp_path / "out" / table) if dataset.files(table) else dataset.read(table)
        assert sorted(written.column_names) == sorted(ALL_TABLES[table].columns), table
    found = summary(tmp_path / "out")
    assert found["lines"] == found["good"] + found["rejected"] + found["blank"] == len(log.read_bytes().splitlines())
    assert found["rejected"] == 0
    assert {row["broker_id"] for row in rows(tmp_path / "out", "usage")} == {3}
    clients = rows(tmp_path / "out", "clients")
    assert {row["cluster"] for row in clients} == {"c1"}
    etl = next(row for row in clients if row["client_id"] == "etl" and row["key"] == "producer_byte_rate")
    assert (etl["limit"], etl["limit_source"], etl["level"], etl["meter"]) == (
        50000.0,
        "user=ANONYMOUS,client-id=etl",
        1,
        "user=ANONYMOUS,client-id=etl",
    )


def test_quotas_may_come_from_a_store_or_a_server(quotas: Path, tmp_path: Path) -> None:
    """The same limits as from the file that was applied to it, wherever they are read."""
    log, url = GOLDEN / "2.8.2" / "kafka-request.log", f"sqlite:///{tmp_path / 'quotas.db'}"
    assert run(["apply", "-f", str(quotas), "--store", url]) == 0
    with open_store(url) as store, running_server(store) as address:
        for number, place in enumerate((("--quotas", quotas), ("--store", url), ("--bootstrap-server", address))):
            assert analyze(log, *place, "--out", tmp_path / f"out-{number}") == 0
    limits = [
        sorted(
            (row["user"] or "", row["client_id"] or "", row["key"], row["limit"] or 0.0) for row in rows(out, "clients")
        )
        for out in (tmp_path / "out-0", tmp_path / "out-1", tmp_path / "out-2")
    ]
    assert limits[0] == limits[1] == limits[2]
    assert any(limit for *_, limit in limits[0])


def test_bad_lines_cost_only_themselves(quotas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each bad line is put aside with its number and reason; all good lines of the same file are counted."""
    good = (GOLDEN / "4.3.0" / "kafka-request.log").read_bytes().splitlines()[:40]
    old = (GOLDEN / "2.7" / "kafka-request.log").read_bytes().splitlines()[0]
    huge = good[0].replace(b'"clientId":"', b'"clientId":"' + b"x" * 5_000_000)
    bad = {
        3: (good[0][:300], "the line ends within it"),
        7: (b"java.lang.IllegalStateException: oops", "no `Completed request:`"),
        11: (good[1].replace(b'"localTimeMs":', b'"localTimeMs":NaN,"x":'), "broken JSON"),
        12: (old, "before 2.8"),
        17: (good[2].replace(b"User:", b"User:\xff\xfe"), "broken JSON"),
        19: (good[3].replace(b'"throttleTimeMs":0,"responseQ', b'"throttleTimeMs":"0","responseQ'), "not the request"),
        23: (good[4].replace(b"[2026-", b"[2026-99-99 1", 1), "time"),
        29: (b"\x00\x01\x02" * 300, "no `Completed request:`"),
    }
    lines = list(good)
    for number, (line, _) in bad.items():
        lines.insert(number - 1, line)
    lines[20:20] = [b"", huge, b"  "]
    path = tmp_path / "bad.log"
    path.write_bytes(b"\r\n".join(lines))
    shifted = {number + (3 if number > 20 else 0): reason for number, (_, reason) in bad.items()}

    assert analyze(path, "--quotas", quotas, "--out", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert "8 of 51 lines could not be used" in error
    assert "--max-rejected" in error
    found = summary(tmp_path / "out")
    assert (found["lines"], found["good"], found["rejected"], found["blank"]) == (51, 41, 8, 2)
    rejected = {row["line"]: row for row in rows(tmp_path / "out", "rejected")}
    assert rejected.keys() == shifted.keys()
    for number, reason in shifted.items():
        assert reason in rejected[number]["reason"]
        assert rejected[number]["file"] == str(path)
        assert rejected[number]["sample"].isprintable()
        assert len(rejected[number]["sample"]) <= 200 * len("\\x00")
    assert any(len(row["client_id"] or "") > 5_000_000 for row in rows(tmp_path / "out", "clients"))

    assert analyze(path, "--quotas", quotas, "--out", tmp_path / "out", "--overwrite", "--max-rejected", 8) == 0


def test_broken_and_empty_compressed_files(quotas: Path, tmp_path: Path) -> None:
    """A broken tail is one rejected line; what was there before it counts; an empty file has nothing."""
    text = (GOLDEN / "3.9.1" / "kafka-request.log").read_bytes()
    # Without its first line it is no copy of the other.
    (tmp_path / "cut.gz").write_bytes(gzip.compress(text.partition(b"\n")[2])[:-5000])
    (tmp_path / "whole.log.2026-01-01-00.gz").write_bytes(gzip.compress(text))
    (tmp_path / "empty.gz").touch()
    (tmp_path / "nothing.gz").write_bytes(gzip.compress(b""))
    assert analyze("--log", tmp_path / "*.gz", "--quotas", quotas, "--out", tmp_path / "out") == 0
    found = summary(tmp_path / "out")
    assert found["rejected"] == 1
    whole = len(text.splitlines())
    assert whole < found["good"] < 2 * whole
    [rejected] = rows(tmp_path / "out", "rejected")
    assert "broken compressed file" in rejected["reason"]
    assert rejected["line"] == found["good"] - whole + 1


def test_logs_of_two_brokers_are_not_added_up_as_those_of_one(
    quotas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (GOLDEN / "3.9.1" / "kafka-request.log").read_bytes()
    for broker in (1, 2):
        path = tmp_path / f"logs/broker-{broker}/kafka-request.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(text.replace(b'"connection":"127.0.0.1:', b'"connection":"10.0.0.%d:' % broker))
    assert analyze("--log", tmp_path / "logs/*/*", "--quotas", quotas, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    for named in ("broker 0", "broker-1/kafka-request.log (10.0.0.1:", "broker-2/kafka-request.log (10.0.0.2:"):
        assert named in error
    assert "say whose each is, with --log 1=GLOB --log 2=GLOB, or --log 'logs/broker-{broker}/*'" in error
    assert not (tmp_path / "out").exists()

    by_path = tmp_path / "logs/broker-{broker}/*"
    assert analyze("--log", by_path, "--quotas", quotas, "--out", tmp_path / "out") == 0
    assert {row["broker_id"] for row in rows(tmp_path / "out", "usage")} == {1, 2}
    assert "overlaps" not in summary(tmp_path / "out")


def test_a_copy_of_a_log_is_named_and_not_counted(
    quotas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = GOLDEN / "3.9.1" / "kafka-request.log"
    (tmp_path / "copy.gz").write_bytes(gzip.compress(log.read_bytes()))
    assert analyze(log, tmp_path / "copy.gz", "--quotas", quotas, "--out", tmp_path / "out") == 0
    found = summary(tmp_path / "out")
    assert found["lines"] == len(log.read_bytes().splitlines())
    assert [one["file"] for one in found["inputs"]] == [str(log.resolve())]
    assert found["duplicate_logs"] == [{"file": str(tmp_path / "copy.gz"), "of": str(log.resolve())}]
    assert f"not counted: {tmp_path}" in capsys.readouterr().out


def test_a_log_without_lines_gives_empty_tables(quotas: Path, tmp_path: Path) -> None:
    """Tables without rows are tables all the same."""
    (tmp_path / "empty.log").touch()
    assert analyze(tmp_path / "empty.log", "--quotas", quotas, "--out", tmp_path / "out") == 0
    for table in USUAL_TABLES:
        written = Dataset.open(tmp_path / "out").read(table)
        assert written.num_rows == 0
        assert written.column_names == ALL_TABLES[table].columns


def test_time_zones_move_the_cells(quotas: Path, tmp_path: Path) -> None:
    """The same line in another zone is another second."""
    line = (GOLDEN / "4.3.0" / "kafka-request.log").read_bytes().splitlines()[0]
    (tmp_path / "a.log").write_bytes(line + b"\n")
    starts = []
    for zone in ("UTC", "Asia/Kolkata"):
        out = tmp_path / zone.replace("/", "-")
        assert analyze(tmp_path / "a.log", "--quotas", quotas, "--out", out, "--timezone", zone) == 0
        starts.append(summary(out)["start_ms"])
    assert starts[0] - starts[1] == 5.5 * 3600 * 1000


def test_the_steps_give_what_analyze_gives(quotas: Path, tmp_path: Path) -> None:
    """ingest, resolve and utilisation one after the other write the same tables."""
    log = GOLDEN / "3.9.1" / "kafka-request.log"
    whole, steps = tmp_path / "whole", tmp_path / "steps"
    assert analyze(log, "--quotas", quotas, "--out", whole) == 0
    for step in (
        ["ingest", "-q", "--log", log, "--out", steps],
        ["resolve", "-q", "--dataset", steps, "--quotas", quotas],
        ["utilisation", "-q", "--dataset", steps],
    ):
        assert run(["pipeline", *map(str, step)]) == 0
    for table in USUAL_TABLES:
        assert sorted(map(str, rows(whole, table))) == sorted(map(str, rows(steps, table))), table
    left_out = {"seconds", "inputs"}
    assert {k: v for k, v in summary(whole).items() if k not in left_out} == {
        k: v for k, v in summary(steps).items() if k not in left_out
    }


def test_deleted_topics_cost_what_the_topics_file_says(quotas: Path, tmp_path: Path) -> None:
    """Counts from before the log make unknown amounts known."""
    line = next(
        line
        for line in (GOLDEN / "4.3.0" / "kafka-request.log").read_bytes().splitlines()
        if b'"requestApiKey":20,"requestApiVersion":6' in line
        and b'"isForwarded":false' in line
        and b'"errorCode":0' in line
    )
    (tmp_path / "a.log").write_bytes(line + b"\n")
    assert analyze(tmp_path / "a.log", "--quotas", quotas, "--out", tmp_path / "a") == 0
    assert summary(tmp_path / "a")["unknown_amounts"] == 1
    answers = json.loads(line[line.index(b"{") : line.rindex(b"}") + 1])["response"]["responses"]
    [name] = [answer["name"] for answer in answers if answer["errorCode"] == 0]
    (tmp_path / "topics.csv").write_text(f"topic,partitions\n{name},12\n")
    assert (
        analyze(tmp_path / "a.log", "--quotas", quotas, "--out", tmp_path / "b", "--topics", tmp_path / "topics.csv")
        == 0
    )
    assert summary(tmp_path / "b")["unknown_amounts"] == 0
    [mutation] = [row for row in rows(tmp_path / "b", "clients") if row["key"] == "controller_mutation_rate"]
    assert mutation["amount"] == 12.0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--log", "nowhere/*.log"], 2, "no such log"),
        ([], 2, "no log is given"),
        (["LOG", "--timezone", "Mars/Olympus"], 2, "no such time zone"),
        (["LOG", "--max-rejected", "many"], 2, "--max-rejected many"),
        (["LOG", "--topics", "nowhere.csv"], 2, "nowhere.csv"),
        (["LOG", "-D", "quota.window.num=0"], 2, "quota.window.num"),
        (["LOG", "--out", "TAKEN"], 2, "nothing was touched; give another --out"),
    ],
)
def test_what_cannot_be_used_is_said(
    arguments: list[str], code: int, message: str, quotas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments end with exit code 2 and a message that says what is wrong, before Spark starts."""
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("mine")
    places = {"LOG": str(GOLDEN / "2.8.2" / "kafka-request.log"), "TAKEN": str(taken)}
    given = [places.get(argument, argument) for argument in arguments]
    if "--out" not in given:
        given += ["--out", str(tmp_path / "out")]
    assert analyze(*given, "--quotas", quotas) == code
    assert message in capsys.readouterr().err
    assert [path.name for path in taken.iterdir()] == ["thesis.txt"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- entity: {user: a}\n  values: {producer_bytes: 1}\n", "producer_bytes"),
        ("- entity: {user: a}\n  values: {producer_byte_rate: -1}\n", "must be greater than 0"),
        ("- entity: {user: a}\n  valuez: {producer_byte_rate: 1}\n", "valuez"),
    ],
)
def test_a_bad_quota_file_stops_the_job(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quotas that Kafka would refuse are not analyzed against."""
    (tmp_path / "q.yaml").write_text(text)
    log = GOLDEN / "2.8.2" / "kafka-request.log"
    assert analyze(log, "--quotas", tmp_path / "q.yaml", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "q.yaml:" in error
