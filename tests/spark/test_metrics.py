"""`kquota analyze` on brokers' metrics from the command line: what comes out, and what is refused."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kquota.cli import run
from kquota.pipeline.dataset import spark_run
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.tables import ALL_TABLES
from tests.kit.datasets import USUAL_TABLES
from tests.kit.metrics import answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = Path("tests/data/golden/4.3.0/kafka-request.log")
T = 1_767_322_800
QUOTAS = """
- entity: {user: alice}
  values: {producer_byte_rate: 100}
- entity: {user: null}
  values: {producer_byte_rate: 5000}
- entity: {client-id: etl}
  values: {consumer_byte_rate: 10}
- entity: {ip: null}
  values: {connection_creation_rate: 5}
"""
PRODUCE = "kafka_server_produce_byte_rate"


@pytest.fixture(autouse=True)
def _one_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_run, "start_session", lambda **_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


def summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text())  # type: ignore[no-any-return]


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    return Dataset.open(out).read(table).to_pylist()  # type: ignore[no-any-return]


def series(name: str, rate: float, **labels: str) -> tuple[dict[str, str], list[tuple[float, float]]]:
    return {"__name__": name, **labels}, [(T + 60 * minute, rate + minute) for minute in range(5)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Quotas, and a folder of answers of Prometheus about two brokers."""
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "range").mkdir()
    of_broker = []
    for pod in ("kafka-1", "kafka-2"):
        of_broker += [
            series(PRODUCE, 80.0, user="alice", pod=pod),
            series(PRODUCE, 50.0, user="bob", client_id="b", pod=pod),
            series("kafka_server_produce_throttle_time", 300.0, user="alice", pod=pod),
            series("kafka_server_fetch_byte_rate", 20.0, client_id="etl", pod=pod),
            series("kafka_server_socket_server_metrics_connection_accept_rate", 2.0, ip="10.0.0.7", pod=pod),
            series("kafka_server_brokertopicmetrics_messagesin_total", 1.0, topic="t", pod=pod),
        ]
    (tmp_path / "range" / "a.json").write_text(answer(*of_broker))
    (tmp_path / "range" / "b.json").write_text(answer(series(PRODUCE, 80.0, user="alice", pod="kafka-1")))
    return tmp_path


def analyze(files: Path, *arguments: object, out: str = "out") -> int:
    command = ["analyze", "-q", "--quotas", files / "quotas.yaml", "--out", files / out, *arguments]
    return run(list(map(str, command)))


def test_metrics_alone_are_analysed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage per meter, limits of those meters, a report; what is not known is null; what is left out is said."""
    assert analyze(files, "--prometheus", files / "range" / "*.json", "--broker-label", "pod") == 0
    out = files / "out"
    for table in {*USUAL_TABLES} - {"requests"}:
        assert Dataset.open(out).read(table).column_names == ALL_TABLES[table].columns
    usage = rows(out, "usage")
    assert len(usage) == 2 * 4 * 5
    assert {row["broker_id"] for row in usage} == {1, 2}
    assert {row["grain"] for row in usage} == {"user", "client", "client-id", "meter"}
    alice = [row for row in usage if row["user"] == "alice" and row["broker_id"] == 1]
    assert sorted(row["amount"] for row in alice) == [60 * (80 + minute) for minute in range(5)]
    assert {row["client_id"] for row in alice} == {None}
    clients = {(row["user"], row["client_id"], row["ip"]): row for row in rows(out, "clients")}
    assert [
        (clients[one]["meter"], clients[one]["limit"], clients[one]["level"]) for one in sorted(clients, key=str)
    ] == [
        ("user=alice", 100.0, 3),
        ("user=bob", 5000.0, 6),
        ("client-id=etl", 10.0, 7),
        ("ip=10.0.0.7", 5.0, 2),
    ]
    assert {row["requests"] for row in clients.values()} == {None}
    [episode, _] = rows(out, "throttled")
    assert (episode["meter"], episode["cause"], episode["requests"]) == ("user=alice", "producer_byte_rate", None)
    metrics = summary(out)["metrics"]
    assert (metrics["readings"], metrics["meters"], metrics["step_ms"]) == (55, 8, 60_000)
    assert (metrics["duplicates"], metrics["contradictions"], metrics["covered_by_log"]) == (5, 0, 0)
    assert (metrics["other_series"], metrics["other_metrics"]) == (2, 1)
    assert metrics["brokers"] == {"kafka-1": 1, "kafka-2": 2}
    assert (summary(out)["lines"], summary(out)["good"]) == (55, 55)
    told = capsys.readouterr().out
    assert "55 readings of 8 meters from metrics (prometheus), one each 60 s" in told
    assert "2 of 1 other metrics" in told
    assert "brokers: 1 is kafka-1, 2 is kafka-2" in told
    assert "requests were told" not in told
    page = (out / "report.html").read_text()
    assert "55 readings of 8 meters, one each 60 s" in page
    assert "not recorded of" not in page


def test_the_steps_give_what_analyze_gives(files: Path) -> None:
    arguments = ["--prometheus", f"{files}/range/a.json", "--broker-label", "pod"]
    assert analyze(files, "--no-report", *arguments) == 0
    steps = str(files / "steps")
    for step in (
        ["ingest", "-q", *arguments, "--out", steps],
        ["resolve", "-q", "--dataset", steps, "--quotas", str(files / "quotas.yaml")],
        ["utilisation", "-q", "--dataset", steps],
    ):
        assert run(["pipeline", *step]) == 0
    for table in ("usage", "clients", "utilisation", "throttled"):
        assert sorted(map(str, rows(files / "out", table))) == sorted(map(str, rows(files / "steps", table))), table


def test_quotas_that_changed_while_metrics_were_taken(files: Path) -> None:
    """Each cell is held against the limit of its start, without any log; the steps give the same."""
    folder, change_ms = files / "by-date", (T + 120) * 1000
    folder.mkdir()
    (folder / "2026-01-01.yaml").write_text(QUOTAS)
    (folder / "2026-01-02T030200Z.yaml").write_text(QUOTAS.replace("100", "50"))
    arguments = ["--prometheus", f"{files}/range/a.json", "--broker-label", "pod"]
    out, steps = files / "out", files / "steps"
    assert run(["analyze", "-q", "--no-report", "--quotas", str(folder), "--out", str(out), *arguments]) == 0
    assert summary(out)["quotas_over_time"]["changes"] == 1
    alice = [row for row in rows(out, "usage") if row["user"] == "alice" and row["broker_id"] == 1]
    later = [row for row in alice if row["cell_start_ms"] >= change_ms]
    assert 0 < len(later) < len(alice)
    [line] = [row for row in rows(out, "utilisation") if row["meter"] == "user=alice" and row["broker_id"] == 1]
    assert (line["limit"], line["seconds_active"], line["seconds_over_100"]) == (50.0, 300, 60 * len(later))
    assert {(row["valid_from_ms"], row["limit"]) for row in rows(out, "limits") if row["user"] == "alice"} == {
        (None, 100.0),
        (change_ms, 50.0),
    }
    for step in (
        ["ingest", "-q", *arguments, "--out", str(steps)],
        ["resolve", "-q", "--dataset", str(steps), "--quotas", str(folder)],
        ["utilisation", "-q", "--dataset", str(steps)],
    ):
        assert run(["pipeline", *step]) == 0
    for table in ("clients", "limits", "utilisation", "throttled"):
        assert sorted(map(str, rows(out, table))) == sorted(map(str, rows(steps, table))), table
    # What-if replays under one limit, by default the last.
    (files / "new.yaml").write_text(QUOTAS.replace("100", "60"))
    assert run(["pipeline", "whatif", "-q", "--dataset", str(out), "--quotas", str(files / "new.yaml")]) == 0
    found = {(row["limit_old"], row["limit_new"]) for row in rows(out, "whatif") if row["meter"] == "user=alice"}
    assert found == {(50.0, 60.0)}
    # It does not outlive the usage that it is of.
    again = ["--overwrite", "--quotas", str(folder), "--out", str(out), *arguments]
    assert run(["analyze", "-q", "--no-report", *again]) == 0
    assert not (out / "whatif").exists()


def test_a_log_is_believed_where_there_is_one(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells of metrics in its time are left out, whosever they are; those before and after, and of others, are not."""
    assert analyze(files, "--no-report", LOG) == 0
    start, end = (summary(files / "out")[name] for name in ("start_ms", "end_ms"))
    first, last = start // 1000 - 600, end // 1000 + 600
    around = [(at, 7.0) for at in range(first, last, 60)]
    for number in (0, 1):
        (files / f"{number}.json").write_text(answer(({"__name__": PRODUCE, "user": "alice"}, around)))
    capsys.readouterr()
    metrics = [f"--prometheus={number}={files}/{number}.json" for number in (0, 1)]
    assert analyze(files, "--no-report", LOG, *metrics, out="both") == 0
    found = [row for row in rows(files / "both", "usage") if row["source"] == "prometheus"]
    mine = [row for row in found if row["broker_id"] == 0]
    assert len(found) - len(mine) == len(around)
    left_out = summary(files / "both")["metrics"]["covered_by_log"]
    assert len(mine) + left_out == len(around)
    assert left_out > 0
    assert not [row for row in mine if row["cell_start_ms"] < end and start < row["cell_start_ms"] + row["cell_ms"]]
    of_log = [row for row in rows(files / "both", "usage") if row["source"] == "request-log"]
    assert len(of_log) == len(rows(files / "out", "usage"))
    told = capsys.readouterr().out
    assert f"{left_out} in times that a request log covers" in told
    assert "by the logs" in told


def test_what_cannot_be_told_apart_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "strimzi.json").write_text(answer(series("kafka_server_brokertopicmetrics_messagesin_total", 1.0)))
    (files / "hosts.json").write_text(answer(series(PRODUCE, 1.0, user="a", instance="10.0.0.1:9404")))
    for arguments, message in (
        (["--prometheus", files / "range" / "a.json"], "give --broker-label pod"),
        (["--prometheus", files / "strimzi.json"], "Strimzi"),
        (["--prometheus", files / "hosts.json", "--broker-label", "instance"], "Say it with --broker 10.0.0.1:9404=N"),
        (["--prometheus", files / "hosts.json", "--broker", "a=1"], "give --broker-label"),
        (["--prometheus", files / "nowhere*"], "no such file"),
        (["--prometheus", files / "hosts.json", "--metrics-mapping", files / "no.toml"], "--metrics-mapping"),
        ([], "--jmx FILE"),
    ):
        assert analyze(files, *arguments) == 2, arguments
        assert message in capsys.readouterr().err
        assert not (files / "out").exists()


def test_too_many_bad_readings_fail_the_job_after_it_is_written(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = f'{PRODUCE}{{user="alice"}} 5 {T}000\n'
    (files / "bad.prom").write_text(good + f'{PRODUCE}{{user="bob"}} -5 {T}000\n')
    assert analyze(files, "--no-report", "--prometheus", files / "bad.prom") == 1
    assert "1 of 2 lines could not be used" in capsys.readouterr().err
    [rejected] = rows(files / "out", "rejected")
    assert (rejected["file"], rejected["line"]) == (str(files / "bad.prom"), 2)
    assert "impossible value" in rejected["reason"]
    assert len(rows(files / "out", "usage")) == 1


def test_other_systems_are_read_by_a_mapping(files: Path) -> None:
    name = "redpanda_kafka_quotas_client_quota_throughput_by_entity"
    labels = {"redpanda_quota_type": "produce_quota", "redpanda_quota_user": "alice"}
    (files / "r.json").write_text(answer(({"__name__": name, **labels}, [(T, 100), (T + 60, 700), (T + 120, 800)])))
    mapping = ["--metrics-mapping", "examples/metrics/redpanda.toml"]
    assert analyze(files, "--no-report", "--prometheus", files / "r.json", *mapping) == 0
    assert sorted(row["amount"] for row in rows(files / "out", "usage")) == [100, 600]
    [line] = rows(files / "out", "utilisation")
    assert (line["meter"], line["rate_max"]) == ("user=alice", 10.0)
