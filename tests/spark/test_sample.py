"""The main job on the sample capture, held against counts and metrics that no part of kquota made."""

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import baseline_json
from kquota.cli import run
from kquota.files import read_quota_file
from kquota.pipeline.dataset import spark_run
from kquota.pipeline.dataset.dataset import Dataset
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLE = EXAMPLES / "capture" / "sample"
KEYS = {"Produce": PRODUCER_BYTE_RATE, "Fetch": CONSUMER_BYTE_RATE, "Request": REQUEST_PERCENTAGE}

Meter = tuple[str, str]
"""Meter and quota key."""


@pytest.fixture(scope="module")
def out(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `kquota analyze` writes about the sample."""
    directory = tmp_path_factory.mktemp("sample") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_run, "start_session", lambda **_: spark)
        patch.setattr(type(spark), "stop", lambda _: None)
        command = ["analyze", str(SAMPLE / "kafka-request.log.gz"), "--quotas", str(EXAMPLES / "quotas.yaml"), "-q"]
        assert run([*command, "--out", str(directory)]) == 0
    return directory


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    return Dataset.open(out).read(table).to_pylist()  # type: ignore[no-any-return]


def test_totals_are_those_of_an_independent_count(out: Path) -> None:
    """Per user, client-id and key, what a plain loop over the raw log counts; per second, too."""
    cells, counts = baseline_json.read([SAMPLE / "kafka-request.log.gz"])
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["lines"], summary["good"], summary["rejected"]) == (counts["lines"], counts["lines"], 0)

    expected: dict[tuple[str, str, str], list[float]] = {}
    for (_, user, client_id, key), sums in cells.items():
        total = expected.setdefault((user, client_id, key), [0.0, 0.0, 0.0, 0.0])
        for column, value in enumerate(sums):
            total[column] += value
    found = {
        (row["user"], row["client_id"], row["key"]): row for row in rows(out, "clients") if row["user"] is not None
    }
    assert found.keys() == expected.keys()
    for client, (amount, requests, throttled, throttle_ms) in expected.items():
        row = found[client]
        assert (row["requests"], row["throttled_requests"], row["throttle_ms"]) == (requests, throttled, throttle_ms)
        if client[2] == CONTROLLER_MUTATION_RATE:
            assert row["amount"] >= amount  # the loop leaves out what deleting costs
        else:
            assert row["amount"] == pytest.approx(amount, rel=1e-9), client

    seconds = {
        (row["cell_start_ms"] // 1000, row["user"], row["client_id"], row["key"]): row["requests"]
        for row in rows(out, "usage")
        if row["user"] is not None
    }
    assert seconds == {cell: sums[1] for cell, sums in cells.items()}


def throttled_in_jmx() -> set[Meter]:
    """Meters whose throttle time in the broker's metrics was ever a number."""
    found = set()
    with (SAMPLE / "jmx.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            kind, _, tags = row["mbean"].removeprefix("kafka.server:type=").partition(",")
            if row["attribute"] == "throttle-time" and row["value"] != "NaN":
                found.add((tags, KEYS[kind]))
    return found


def test_throttled_meters_are_those_of_the_brokers_metrics(out: Path) -> None:
    """Whoever is throttled in JMX is named, and whoever is named with a definite cause is throttled in JMX.

    A throttled mutation shows under the request time of its user, not under its own rate.
    """
    named: dict[Meter, set[str]] = {}
    for row in rows(out, "throttled"):
        named.setdefault((row["meter"], row["key"]), set()).add(row["cause"])
    jmx = throttled_in_jmx()
    assert len(jmx) >= 10
    for meter, key in jmx:
        as_mutation = key == REQUEST_PERCENTAGE and (meter, CONTROLLER_MUTATION_RATE) in named
        assert (meter, key) in named or as_mutation, (meter, key)
    for (meter, key), causes in named.items():
        if causes != {"ambiguous"}:
            shown_as = REQUEST_PERCENTAGE if key == CONTROLLER_MUTATION_RATE else key
            assert (meter, shown_as) in jmx, (meter, key, causes)
    assert {cause for causes in named.values() for cause in causes} >= {"ambiguous", PRODUCER_BYTE_RATE}


def test_the_report_is_written(out: Path) -> None:
    """One page, with the worst meter in it."""
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "user=search" in page
    assert page.rstrip().endswith("</html>")


READ_BETWEEN_ITS_BURSTS = "user=billing"
"""Idle for longer than all windows, and read each second all the same (jmx.csv): a reading begins a window anew."""


def test_the_brokers_waits_are_those_of_kafkas_arithmetic(out: Path) -> None:
    """The broker as witness: per request within 5 ms or 5 %, mutations within 15 ms, sums per meter within 3 %."""
    compared = {PRODUCER_BYTE_RATE: [0.0, 0.0], CONSUMER_BYTE_RATE: [0.0, 0.0]}
    meters = 0
    for row in rows(out, "calibration"):
        if row["key"] == REQUEST_PERCENTAGE:
            assert row["within_5ms_or_5pct"] is None
            assert row["predicted_low_ms"] <= row["throttle_ms_logged"] <= row["predicted_high_ms"]
            continue
        meters += 1
        assert row["throttle_ms_predicted"] == pytest.approx(row["throttle_ms_logged"], rel=0.03), row
        if row["key"] == CONTROLLER_MUTATION_RATE:
            assert row["throttled_requests"] == 108
            assert row["error_p99_ms"] <= 15
        elif row["meter"] != READ_BETWEEN_ITS_BURSTS:
            waits = row["throttled_requests"] + row["false_positives"]
            compared[row["key"]][0] += waits
            compared[row["key"]][1] += waits * row["within_5ms_or_5pct"]
    assert meters == 9
    produced, fetched = compared[PRODUCER_BYTE_RATE], compared[CONSUMER_BYTE_RATE]
    assert produced[0] > 2_000
    assert produced[1] / produced[0] >= 0.99
    assert fetched[0] > 2_000
    assert fetched[1] / fetched[0] >= 0.97
    told = json.loads((out / "summary.json").read_text())["calibration"]
    assert told["compared"] > 5_000
    assert told["within_5ms_or_5pct"] / told["compared"] > 0.97


CALLBACK_QUOTAS = EXAMPLES / "callbacks" / "quotas.yaml"


def replayed(out: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[Meter, dict[str, Any]]:
    """What `kquota callback test` says of the sample, by meter."""
    command = ["callback", "test", *arguments, "--dataset", str(out), "--format", "json", "-q"]
    assert run(command) == 0
    meters = json.loads(capsys.readouterr().out)["meters"]
    return {(",".join(f"{tag}={name}" for tag, name in one["meter"].items()), one["key"]): one for one in meters}


def test_kafkas_rules_on_the_recorded_requests_are_what_the_broker_told(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For bytes produced: how many were throttled and how long, to a hundredth, where request time plays no part."""
    meters = replayed(out, capsys, "default")
    produced = [one for (meter, key), one in meters.items() if key == PRODUCER_BYTE_RATE and meter != "user=iot"]
    throttled = [one for one in produced if one["logged"]["throttled_requests"]]
    assert len(throttled) >= 4
    for one in produced:
        assert one["callback"] == one["kafka"]
        logged, kafka = one["logged"], one["kafka"]
        assert kafka["throttled_requests"] == pytest.approx(logged["throttled_requests"], rel=0.01), one
        assert kafka["throttle_ms"] == pytest.approx(logged["throttle_ms"], rel=0.01), one


def test_what_the_documentation_says_of_callbacks_on_the_sample(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tables are lines of these runs."""
    quotas = read_quota_file(CALLBACK_QUOTAS.read_bytes(), name="").snapshot()
    assert quotas.items() >= read_quota_file((EXAMPLES / "quotas.yaml").read_bytes(), name="").snapshot().items()

    setting = 'kquota.groups={"warehouse": {"client-ids": ["etl"]}}'
    meters = replayed(out, capsys, "groups", "-C", setting, "--quotas", str(CALLBACK_QUOTAS))
    warehouse = meters["group=warehouse", PRODUCER_BYTE_RATE]
    assert [warehouse[whose]["throttled_requests"] for whose in ("callback", "kafka", "logged")] == [4, 515, 516]

    meters = replayed(out, capsys, "fair-share", "--quotas", str(CALLBACK_QUOTAS))
    anna, ben = meters["user=anna", PRODUCER_BYTE_RATE], meters["user=ben", PRODUCER_BYTE_RATE]
    assert [anna[whose]["throttled_requests"] for whose in ("callback", "kafka", "logged")] == [54, 263, 263]
    assert [ben[whose]["throttled_requests"] for whose in ("callback", "kafka", "logged")] == [0, 252, 253]
    assert anna["callback"]["throttle_ms"] < anna["kafka"]["throttle_ms"]


@pytest.fixture(scope="module")
def out_of_jmx(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `kquota analyze` writes about the broker's metrics of the same three minutes."""
    directory = tmp_path_factory.mktemp("jmx") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_run, "start_session", lambda **_: spark)
        patch.setattr(type(spark), "stop", lambda _: None)
        command = ["analyze", "--jmx", f"0={SAMPLE / 'jmx.csv'}", "--quotas", str(EXAMPLES / "quotas.yaml"), "-q"]
        assert run([*command, "--no-report", "--out", str(directory)]) == 0
    return directory


def test_log_and_metrics_name_the_same_limits(out: Path, out_of_jmx: Path) -> None:
    """Every limited meter is there by both, with the same limit, rule and level."""

    def limits(directory: Path) -> set[tuple[Any, ...]]:
        names = ("meter", "key", "limit", "limit_source", "level")
        return {tuple(row[name] for name in names) for row in rows(directory, "clients") if row["meter"] is not None}

    assert len(limits(out)) == 14
    assert limits(out_of_jmx) == limits(out)


def test_log_and_metrics_throttle_the_same_meters(out: Path, out_of_jmx: Path) -> None:
    """And where the log leaves two causes open, metrics know which."""

    def causes(directory: Path) -> dict[Meter, set[str]]:
        found: dict[Meter, set[str]] = {}
        for row in rows(directory, "throttled"):
            found.setdefault((row["meter"], row["key"]), set()).add(row["cause"])
        return found

    by_log, by_metrics = causes(out), causes(out_of_jmx)
    assert by_metrics.keys() == by_log.keys()
    assert by_log["user=iot", PRODUCER_BYTE_RATE] == {"ambiguous"}
    assert {cause for found in by_metrics.values() for cause in found} == {key for _, key in by_metrics}


def test_log_and_metrics_agree_on_what_was_used(out: Path, out_of_jmx: Path) -> None:
    """Amounts of each limited meter, summed over the whole time.

    Kafka's rate divides by the 10 to 11 seconds that its windows really span, so that its mean over uneven traffic is a
    little high: bytes agree within 10 %, and within 1 % where traffic is even. Mutations agree within 5 %. Of request
    time a log holds half to two thirds.
    """

    def amounts(directory: Path) -> dict[Meter, float]:
        found: dict[Meter, float] = {}
        for row in rows(directory, "clients"):
            if row["meter"] is not None:
                meter = row["meter"], row["key"]
                found[meter] = found.get(meter, 0.0) + row["amount"]
        return found

    by_log, by_metrics = amounts(out), amounts(out_of_jmx)
    ratios = {meter: by_metrics[meter] / amount for meter, amount in by_log.items()}
    for (meter, key), ratio in ratios.items():
        match key:
            case "request_percentage":
                assert 1.4 < ratio < 2.1, meter
            case "controller_mutation_rate":
                assert 0.95 < ratio < 1.05, meter
            case _:
                assert 0.99 < ratio < 1.1, meter
    even = ("user=shop", "user=CN%3DB%C3%BCcher%2CO%3Da%20b,client-id=price%20list%2C%20daily%3D1", "user=iot")
    assert [ratios[meter, PRODUCER_BYTE_RATE] for meter in even] == pytest.approx([1, 1, 1], abs=0.01)
