"""Files of metrics read as a worker reads them: text, answers to queries, and what cannot be used."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kquota.config import BrokerConfig
from kquota.errors import InputError
from kquota.metering.engine import QuotaManagers
from kquota.metering.metrics import read_metrics as read_broker
from kquota.net.prometheus import exposition
from kquota.pipeline.ingest.metrics.mapping import Reading
from kquota.pipeline.ingest.metrics.mbean_names import jmx_unquote
from kquota.pipeline.ingest.metrics.metric_files import (
    MetricInputs,
    broker_of_label,
    find_metric_files,
    parse_broker_ids,
)
from kquota.pipeline.ingest.metrics.prometheus_text import parse_labels, parse_sample, scraped_at_ms, time_in_name_ms
from kquota.pipeline.ingest.request_log.line import RejectedLineError
from kquota.quotas import CLIENT_ID, IP, USER, ClientQuotaEntity, sanitize
from tests.kit.metrics import answer, read_metrics
from tests.kit.strategies import any_names

T = 1_767_323_045
PRODUCE = {"__name__": "kafka_server_produce_byte_rate", "user": "alice", "client_id": "etl"}
SAMPLE = Path("examples/capture/sample/jmx.csv")


def values(folder: Path, inputs: MetricInputs) -> list[tuple[str, str | None, str | None, int, float]]:
    """Key, user, client id, time and value of all readings, in order."""
    _, readings, series, _ = read_metrics(folder, inputs)
    names = {row["meter"]: row for row in series.to_pylist()}
    found = [
        (
            names[row["meter"]]["key"],
            names[row["meter"]]["user"],
            names[row["meter"]]["client_id"],
            row["at_ms"],
            row["value"],
        )
        for row in readings.to_pylist()
    ]
    return sorted(found, key=str)


@given(
    st.dictionaries(
        st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True).filter(lambda name: not name.startswith("__")),
        st.text(st.characters(exclude_categories=["Cs"])),
        max_size=4,
    ),
    st.floats(),
)
def test_lines_are_read_as_their_writer_meant_them(labels: dict[str, str], value: float) -> None:
    """What prometheus-client writes comes back: labels to the character, values to the bit."""
    registry = CollectorRegistry()
    gauge = Gauge("some_metric", "help", list(labels), registry=registry)
    (gauge.labels(**labels) if labels else gauge).set(value)
    [line] = [line for line in generate_latest(registry).decode().split("\n") if line and not line.startswith("#")]
    sample = parse_sample(line)
    assert sample.at_ms is None
    assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))
    assert parse_labels(sample.series) == {"__name__": "some_metric", **labels}


@pytest.mark.parametrize(
    ("line", "series", "value", "at_ms"),
    [
        ('a{b="c"} 1', 'a{b="c"}', 1.0, None),
        ('a{b="c",} 1e3 1767323045000', 'a{b="c",}', 1000.0, T * 1000),
        ('a{b="} 7 {"} NaN 1767323045.5', 'a{b="} 7 {"}', math.nan, T * 1000 + 500),
        ('{__name__="a", b="c"} +Inf', '{__name__="a", b="c"}', math.inf, None),
        ('{"a.b", c="d"} 2 1767323045 # {trace="x"} 1 2', '{"a.b", c="d"}', 2.0, T * 1000),
        ("a 5", "a", 5.0, None),
    ],
)
def test_every_form_of_a_line(line: str, series: str, value: float, at_ms: int | None) -> None:
    """Scrapes, OpenMetrics with seconds and exemplars, dumps with the name among the labels."""
    sample = parse_sample(line)
    assert (sample.series, sample.at_ms) == (series, at_ms)
    assert sample.value == value or (math.isnan(value) and math.isnan(sample.value))
    assert parse_labels(sample.series)["__name__"] in ("a", "a.b")


@pytest.mark.parametrize("line", ["a", "a{b=} 1", 'a{b="c} 1', "a b", "a 1 x", "<html>", '{b="c"} 1', "a 1 -5", "1 2"])
def test_what_is_no_line_is_rejected(line: str) -> None:
    with pytest.raises(RejectedLineError):
        parse_labels(parse_sample(line).series)


def test_times_of_scrapes() -> None:
    assert scraped_at_ms("# scraped_at 1767323045") == T * 1000
    assert scraped_at_ms("# scraped_at: 2026-01-02T03:04:05Z") == T * 1000
    assert scraped_at_ms("# HELP scraped_at 5") is None
    with pytest.raises(RejectedLineError):
        scraped_at_ms("# scraped_at noon")
    for name in ("b1-1767323045.prom", "1767323045000", "scrape-20260102T030405Z.prom.gz", "2026-01-02T03:04:05Z.txt"):
        assert time_in_name_ms(name) == T * 1000, name
    for name in ("scrape.prom", "kafka-9404.prom", "20261399T999999Z"):
        assert time_in_name_ms(name) is None, name


def test_an_answer_and_its_scrapes_say_the_same(tmp_path: Path) -> None:
    """query_range, query, promtool's list, several documents, and text: the same values at the same times."""
    points = [(T, 1.5), (T + 15, 2.5)]
    whole = answer((PRODUCE, points))
    result = json.loads(whole)["data"]["result"]
    vectors = [
        {
            "status": "success",
            "data": {"resultType": "vector", "result": [{"metric": PRODUCE, "value": [at, str(one)]}]},
        }
        for at, one in points
    ]
    line = 'kafka_server_produce_byte_rate{user="alice",client_id="etl"}'
    files = {
        "range.json": whole,
        "pretty.json": json.dumps(json.loads(whole), indent=2),
        "promtool.json": json.dumps(result),
        "instant.jsonl": "\n".join(map(json.dumps, vectors)),
        "scrapes.prom": "".join(f"# scraped_at {at}\n# TYPE x gauge\n{line} {one}\n\n" for at, one in points),
        "dump.txt": "".join(f"{line} {one} {at}000\n" for at, one in points),
    }
    expected = [("producer_byte_rate", "alice", "etl", at * 1000, one) for at, one in points]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        for path in (tmp_path / name, tmp_path / f"{name}.gz"):
            assert values(tmp_path, MetricInputs(prometheus=(str(path),))) == expected, path.name


def test_bad_readings_cost_themselves(tmp_path: Path) -> None:
    """Out of order, below 0, infinite, no name, no number: each is rejected with its reason, the rest is read."""
    other = {"__name__": "kafka_server_brokertopicmetrics_bytesin_total", "topic": "t"}
    average = {"__name__": "kafka_server_produce_throttle_time", "user": "alice", "client_id": "etl"}
    text = answer(
        (PRODUCE, [(T, 1), (T + 60, 2), (T + 30, 3), (T + 120, "NaN"), (T + 180, 4)]),
        (average, [(T, "NaN"), (T + 60, 5)]),
        (PRODUCE | {"client_id": "b"}, [(T, -1), (T + 60, "+Inf"), (T + 120, 6)]),
        ({"user": "alice"}, [(T, 1)]),
        (PRODUCE | {"user": "100%"}, [(T, 1)]),
        (PRODUCE | {"user": "x"}, [(T, "much")]),
        (other, [(T, "much")]),
        ({"__name__": "kafka_server_produce_queue_size"}, [(T, 1)]),
    )
    (tmp_path / "a.json").write_text(text)
    [manifest], readings, _, rejected = read_metrics(tmp_path, MetricInputs(prometheus=(str(tmp_path / "a.json"),)))
    assert sorted(readings["value"].to_pylist(), key=str) == [1, 2, 4, 5, 6, pytest.approx(math.nan, nan_ok=True)]
    assert (manifest.readings, manifest.without_value, manifest.related) == (6, 1, 1)
    assert manifest.other == {"kafka_server_brokertopicmetrics_bytesin_total": 1}
    assert [(row["line"], row["reason"].partition(":")[0]) for row in rejected] == [
        (1, "time goes back"),
        (1, "an impossible value"),
        (1, "a series without a name"),
        (1, "the user is not URL-encoded, as Kafka encodes it"),
        (1, "values that are not pairs of a time and a number"),
    ]
    assert "2 values: series 3" in rejected[1]["reason"]
    assert rejected[0]["file"] == str(tmp_path / "a.json")
    assert "alice" in rejected[0]["sample"]


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("cut.json", answer((PRODUCE, [(T, 1)])).encode()[:-9], 1, "broken JSON"),
        ("error.json", b'{"status":"error","error":"query timed out"}', 1, "query timed out"),
        ("scalar.json", b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', 1, "a scalar"),
        ("other.json", b'{"status":"success","data":{"resultType":"matrix","result":[{"m":1}]}}', 1, "not an answer"),
        ("cut.json.gz", gzip.compress(answer((PRODUCE, [(T, 1)])).encode())[:-9], 1, "broken compressed"),
        ("untimed.prom", b'kafka_server_fetch_byte_rate{user="a"} 1\n', 1, "scraped_at"),
        ("page.prom", b"\n<html>no metrics</html>\n", 2, "not a line"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_rejected_line(
    tmp_path: Path, name: str, content: bytes, line: int, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    [manifest], readings, _, rejected = read_metrics(tmp_path, MetricInputs(prometheus=(str(tmp_path / name),)))
    assert readings.num_rows == 0
    assert [row["line"] for row in rejected] == [line]
    assert reason in rejected[0]["reason"]
    assert manifest.rejected == 1


def test_a_bad_document_among_several_costs_itself(tmp_path: Path) -> None:
    good = [answer((PRODUCE, [(T + minute * 60, minute)])) for minute in range(3)]
    (tmp_path / "many.json").write_text("\n".join([good[0], good[1][:-5], "", good[2]]))
    [manifest], readings, _, rejected = read_metrics(tmp_path, MetricInputs(prometheus=(str(tmp_path / "many.json"),)))
    assert readings["value"].to_pylist() == [0.0, 2.0]
    assert [(row["line"], row["reason"][:11]) for row in rejected] == [(2, "broken JSON")]
    assert manifest.rejected == 1


def test_brokers_are_told_by_file_label_or_default(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        answer(*((PRODUCE | {"instance": value}, [(T, 1)]) for value in ("k1:9404", "kafka-2.kafka.svc:9404", "7")))
    )
    path = str(tmp_path / "a.json")

    def brokers(inputs: MetricInputs) -> list[int]:
        return sorted(read_metrics(tmp_path, inputs, broker_id=9)[2]["broker_id"].to_pylist())

    label = MetricInputs(prometheus=(path,), broker_label="instance", broker_ids={"k1:9404": 1})
    assert brokers(label) == [1, 2, 7]
    assert brokers(MetricInputs(prometheus=(path,))) == [9, 9, 9]
    assert brokers(MetricInputs(prometheus=(f"5={path}",), broker_label="instance")) == [5, 5, 5]
    [manifest], *_ = read_metrics(tmp_path, MetricInputs(prometheus=(path,), broker_label="instance"))
    assert manifest.unknown_brokers == ["k1:9404"]
    *_, rejected = read_metrics(tmp_path, MetricInputs(prometheus=(path,), broker_label="pod"))
    assert {row["reason"].partition(":")[0] for row in rejected} == {"no label that says the broker"}
    assert broker_of_label("10.0.0.1:9404", {}) is None
    assert parse_broker_ids(["a=b=3"]) == {"a=b": 3}
    with pytest.raises(InputError, match="VALUE=N"):
        parse_broker_ids(["k1"])


def test_files_that_cannot_be_metrics_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1....")
    (tmp_path / "a.json").write_text("{}")
    for inputs, message in (
        (MetricInputs(prometheus=("nowhere/*.json",)), "no such file"),
        (MetricInputs(prometheus=(str(tmp_path / "a.parquet"),)), "Parquet"),
        (MetricInputs(prometheus=(f"1={tmp_path}/a.json", f"2={tmp_path}/a.json")), "given twice"),
    ):
        with pytest.raises(InputError, match=message):
            find_metric_files(inputs)


def test_the_sample_is_read_whole(tmp_path: Path) -> None:
    """All rates and throttle times of the capture, and nothing rejected."""
    [manifest], readings, series, rejected = read_metrics(tmp_path, MetricInputs(jmx=(f"1={SAMPLE}",)))
    rows = [line.rstrip().rpartition('",')[2].split(",") for line in SAMPLE.read_text().splitlines()[1:]]
    usage = [value for attribute, value in rows if attribute in ("byte-rate", "request-time", "mutation-rate")]
    averages = [value for attribute, value in rows if attribute == "throttle-time"]
    kinds = readings["reading"].to_pylist()
    assert kinds.count(Reading.RATE) == len(usage) == 5183
    assert kinds.count(Reading.THROTTLE_TIME) == len(averages)
    found = readings["value"].to_pylist()
    assert sum(one for one in found if one == one) == pytest.approx(  # noqa: PLR0124 (NaN)
        sum(float(value) for value in usage + averages if value != "NaN")
    )
    assert (manifest.step_ms, manifest.related, manifest.other, rejected) == (1000, 6, {}, [])
    assert "CN=Bücher,O=a b" in series["user"].to_pylist()
    assert "price list, daily=1" in series["client_id"].to_pylist()


@pytest.mark.parametrize("form", ["original", "csv", "tsv", "properties"])
def test_what_jmxtool_printed_is_read(tmp_path: Path, form: str) -> None:
    """Kafka's own tool, in each of its formats, with a client id that has commas and quotes."""
    path = Path("tests/data/jmxtool") / f"{form}.txt"
    _, readings, series, rejected = read_metrics(tmp_path, MetricInputs(jmx=(str(path),)))
    assert {(row["key"], row["user"], row["client_id"]) for row in series.to_pylist()} == {
        ("consumer_byte_rate", None, "etl"),
        ("producer_byte_rate", "CN=a", 'a*b, "c" \\ d'),
    }
    assert sorted(map(str, readings["value"].to_pylist())) == ["12345678.5", "12345678.5", "nan", "nan"]
    assert rejected == []


def test_other_metrics_are_counted_by_name(tmp_path: Path) -> None:
    text = (
        '"time","kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=a:Count",'
        '"kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=b:Count","java.lang:type=Memory:x"\n'
        f"{T}000,1,2,text\n{T}999,1,2,text\n"
    )
    (tmp_path / "jmx.csv").write_text(text)
    (tmp_path / f"{T}.prom").write_text('jvm_threads 5\nkafka_x{a="1"} 1\nkafka_x{a="2"} 1\n')
    inputs = MetricInputs(prometheus=(str(tmp_path / f"{T}.prom"),), jmx=(str(tmp_path / "jmx.csv"),))
    manifests, *_ = read_metrics(tmp_path, inputs)
    assert manifests[0].other == {"jvm_threads": 1, "kafka_x": 2}
    assert manifests[1].other == {"kafka.server:type=BrokerTopicMetrics Count": 2, "java.lang:type=Memory x": 1}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(st.tuples(any_names, any_names, st.floats(0, 1e12), st.integers(0, 20_000)), min_size=1, max_size=6),
    st.booleans(),
)
def test_what_kquota_writes_is_read_back(
    tmp_path: Path, traffic: list[tuple[str, str, float, int]], by_pair: bool
) -> None:
    """Usage, throttle times and connections of the engine, through its own Prometheus text, to the bit."""
    managers = QuotaManagers(BrokerConfig())
    on = {USER: None, CLIENT_ID: None} if by_pair else {USER: None}
    for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate"):
        managers.update_quota(key, ClientQuotaEntity(on), 10.0)
    managers.update_quota("connection_creation_rate", ClientQuotaEntity({IP: None}), 5.0)
    now = T * 1000
    for user, client_id, amount, at_ms in sorted(traffic, key=lambda one: one[3]):
        # A name that looks as if it were quoted cannot be told from one that an exporter quoted.
        assume(jmx_unquote(client_id) == client_id)
        managers.produce.record(user, client_id, amount, now + at_ms)
        managers.request.record(user, client_id, amount / 1e9, now + at_ms)
    managers.connections.accept("PLAINTEXT", "10.0.0.7", now)
    end = now + 20_000
    (tmp_path / f"{end}.prom").write_bytes(exposition(managers, end))
    _, readings, series, rejected = read_metrics(tmp_path, MetricInputs(prometheus=(str(tmp_path / f"{end}.prom"),)))
    assert rejected == []
    keys = {
        "Produce": "producer_byte_rate",
        "Request": "request_percentage",
        "Fetch": "consumer_byte_rate",
        "ControllerMutation": "controller_mutation_rate",
        "socket-server-metrics": "connection_creation_rate",
    }
    rates = ("byte-rate", "request-time", "mutation-rate", "connection-accept-rate", "throttle-time")
    expected = [
        (keys[metric.group], *(metric.tags.get(tag) or None for tag in (USER, CLIENT_ID, IP)), str(metric.value))
        for metric in read_broker(managers, end)
        if metric.name in rates and any(metric.tags.get(tag) for tag in (USER, CLIENT_ID, IP))
    ]
    names = {row["meter"]: row for row in series.to_pylist()}
    found = []
    for row in readings.to_pylist():
        of = names[row["meter"]]
        found.append((of["key"], of["user"] and sanitize(of["user"]), of["client_id"], of["ip"], str(row["value"])))
        assert row["at_ms"] == end
    assert sorted(found, key=str) == sorted(expected, key=str)
