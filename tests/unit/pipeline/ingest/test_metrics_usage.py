"""Usage of readings: what a reading stands for, and that nothing is counted twice."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.ingest.metrics.mapping import Reading, parse_metric_rules
from kquota.pipeline.ingest.metrics.metric_files import MetricInputs
from kquota.pipeline.ingest.metrics.readings import READINGS_SCHEMA, SERIES_SCHEMA, Origin
from kquota.pipeline.ingest.metrics.usage import Intervals, ReadingCounts, usage_of_readings
from kquota.pipeline.ingest.request_log.cells import USAGE_SCHEMA
from tests.kit.metrics import answer, usage_of

T = 1_767_322_800
PRODUCE = {"__name__": "kafka_server_produce_byte_rate", "user": "alice", "client_id": "etl"}
AVERAGE = PRODUCE | {"__name__": "kafka_server_produce_throttle_time"}
FAR = [(T + 15 * number, 10.0) for number in range(5)]


def usage(
    tmp_path: Path, *answers: str, covered: dict[int, list[tuple[int, int]]] | None = None, **inputs: Any
) -> tuple[list[dict[str, Any]], ReadingCounts]:
    for number, text in enumerate(answers):
        (tmp_path / f"{number}.json").write_text(text)
    return usage_of(tmp_path, MetricInputs(prometheus=(str(tmp_path / "*.json"),), **inputs), covered=covered)


def cells(rows: list[dict[str, Any]]) -> list[tuple[float, float, float | None]]:
    """From, to (seconds since T), amount."""
    return [
        (row["cell_start_ms"] / 1000 - T, (row["cell_start_ms"] + row["cell_ms"]) / 1000 - T, row["amount"])
        for row in rows
    ]


def test_a_rate_stands_for_the_time_back_to_the_reading_before(tmp_path: Path) -> None:
    rows, counts = usage(tmp_path, answer((PRODUCE, [(T, 1), (T + 60, 2), (T + 120, 0.5)])))
    assert cells(rows) == [(-60, 0, 60), (0, 60, 120), (60, 120, 30)]
    assert {(row["source"], row["grain"], row["user"], row["client_id"], row["ip"]) for row in rows} == {
        ("prometheus", "client", "alice", "etl", None)
    }
    unknown = {"amount_max", "requests", "connections", "throttled_requests", "throttle_ms", "throttle_max_ms"}
    unknown |= {"unknown_amounts"}
    assert {row[name] for row in rows for name in unknown} == {None}
    assert (counts.meters, counts.cells, counts.steps) == (1, {"prometheus": 3}, {60_000: 3})


def test_after_a_gap_a_reading_stands_for_one_step(tmp_path: Path) -> None:
    """What was used in a gap is not known, and not made up."""
    rows, counts = usage(tmp_path, answer((PRODUCE, [(T, 1), (T + 60, 1), (T + 130, 1), (T + 600, 1)])))
    assert cells(rows) == [(-70, 0, 70), (0, 60, 60), (60, 130, 70), (530, 600, 70)]
    assert counts.gaps == 1


def test_one_reading_alone_stands_for_the_window(tmp_path: Path) -> None:
    rows, _ = usage(tmp_path, answer((PRODUCE, [(T, 2)])))
    assert cells(rows) == [(-11, 0, 22)]


@pytest.mark.parametrize("files", [1, 2])
def test_the_same_twice_is_counted_once(tmp_path: Path, files: int) -> None:
    once = answer((PRODUCE, FAR)) if files == 2 else answer((PRODUCE, FAR), (PRODUCE, FAR))
    rows, counts = usage(tmp_path, *[once] * files)
    assert sum(row["amount"] for row in rows) == 10 * 75
    assert (counts.duplicates, counts.contradictions) == (5, 0)


def test_different_values_for_one_time_are_said(tmp_path: Path) -> None:
    """Two brokers' files read as one broker's."""
    _, counts = usage(tmp_path, answer((PRODUCE, FAR)), answer((PRODUCE, [(at, 2 * value) for at, value in FAR])))
    assert (counts.duplicates, counts.contradictions) == (5, 5)


def test_replicas_of_one_prometheus_are_one(tmp_path: Path) -> None:
    """The one with more readings is taken, the other fills its gaps."""
    a, b = (PRODUCE | {"prometheus_replica": name} for name in "ab")
    whole = [(T + 15 * number, 10.0) for number in range(20)]
    with_gap = [point for number, point in enumerate(whole) if not 8 <= number < 11]
    late = [(at + 4, 11.0) for at, _ in whole[4:14]]
    rows, counts = usage(tmp_path, answer((a, with_gap), (b, late)))
    spans = [(start, end) for start, end, _ in cells(rows)]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert [amount for *_, amount in cells(rows)].count(165) == 2
    assert len(rows) == len(with_gap) + 2
    assert counts.duplicates == 8
    assert not counts.conflicts


def test_brokers_mixed_up_are_a_conflict(tmp_path: Path) -> None:
    """Labels that differ at one time, and that nothing was said of, are not added up and not thrown away."""
    _, counts = usage(tmp_path, answer((PRODUCE | {"instance": "k1"}, FAR), (PRODUCE | {"instance": "k2"}, FAR)))
    [conflict] = counts.conflicts
    assert conflict.meter == "producer_byte_rate of user=alice,client-id=etl"
    assert {conflict.one, conflict.other} == {'{"instance": "k1"}', '{"instance": "k2"}'}
    later = [(at + 3600, value) for at, value in FAR]
    rows, counts = usage(tmp_path, answer((PRODUCE | {"job": "old"}, FAR), (PRODUCE | {"job": "new"}, later)))
    assert not counts.conflicts
    assert len(rows) == 10
    rows, counts = usage(
        tmp_path,
        answer((PRODUCE | {"instance": "k-1"}, FAR), (PRODUCE | {"instance": "k-2"}, FAR)),
        broker_label="instance",
    )
    assert [row["broker_id"] for row in rows] == [1] * 5 + [2] * 5


def test_where_a_log_was_kept_nothing_is_taken(tmp_path: Path) -> None:
    covered = {0: [((T + 20) * 1000, (T + 31) * 1000)], 1: [(0, 2**60)]}
    rows, counts = usage(tmp_path, answer((PRODUCE, FAR)), covered=covered)
    assert [end for _, end, _ in cells(rows)] == [0, 15, 60]
    assert counts.covered_by_log == 2


def test_throttle_times_say_that_there_were_some(tmp_path: Path) -> None:
    """How long one was at least; 0 where the average says that there was none for the whole cell."""
    averages: list[tuple[float, float | str]] = [(T, "NaN"), (T + 15, 700.2), (T + 30, 650), (T + 60, "NaN")]
    rows, _ = usage(tmp_path, answer((PRODUCE, FAR), (AVERAGE, averages)))
    assert [row["throttle_max_ms"] for row in rows] == [0, 701, 650, None, 0]
    assert {row["throttled_requests"] for row in rows} == {None}
    coarse = [(T + 60 * number, 10) for number in range(3)]
    rows, _ = usage(tmp_path, answer((PRODUCE, coarse), (AVERAGE, [(at, "NaN") for at, _ in coarse])))
    assert [row["throttle_max_ms"] for row in rows] == [None, None, None]


def test_throttle_times_without_usage_are_told(tmp_path: Path) -> None:
    rows, _ = usage(tmp_path, answer((AVERAGE, [(T, 5), (T + 15, 6)])))
    assert [(row["amount"], row["throttle_max_ms"]) for row in rows] == [(None, 5), (None, 6)]


def test_counters_grow_and_begin_anew(tmp_path: Path) -> None:
    """The first value says nothing; after a reset all that there is was used since."""
    rules = tuple(parse_metric_rules(Path("examples/metrics/redpanda.toml").read_text(), name=""))
    labels = {"redpanda_quota_type": "produce_quota", "redpanda_quota_user": "alice"}
    used = labels | {"__name__": "redpanda_kafka_quotas_client_quota_throughput_by_entity"}
    waited = labels | {"__name__": "redpanda_kafka_quotas_client_quota_throttle_time_ms_by_entity"}
    times = [T, T + 60, T + 120, T + 600]
    rows, counts = usage(
        tmp_path,
        answer(
            (used, list(zip(times, (500, 700, 50, 80), strict=True))),
            (waited, list(zip(times, (9, 9, 4, 5), strict=True))),
        ),
        rules=rules,
    )
    assert cells(rows) == [(0, 60, 200), (60, 120, 50), (120, 600, 30)]
    assert [row["throttle_ms"] for row in rows] == [0, 4, 1]
    assert {row["grain"] for row in rows} == {"user"}
    assert (counts.resets, counts.gaps) == (1, 1)


def test_jmx_and_prometheus_of_one_broker_are_not_added_up(tmp_path: Path) -> None:
    header = '"time","kafka.server:type=Produce,user=alice,client-id=etl:byte-rate"'
    ticks = "".join(f"{(T + 10 + second) * 1000},20.0\n" for second in range(10))
    (tmp_path / "jmx.csv").write_text(f"{header}\n{ticks}")
    (tmp_path / "a.json").write_text(answer((PRODUCE, FAR)))
    inputs = MetricInputs(prometheus=(str(tmp_path / "a.json"),), jmx=(str(tmp_path / "jmx.csv"),))
    rows, counts = usage_of(tmp_path, inputs)
    assert [row["source"] for row in rows].count("jmx") == 10
    assert [end for (_, end, _), row in zip(cells(rows), rows, strict=True) if row["source"] == "prometheus"] == [
        0,
        45,
        60,
    ]
    assert counts.duplicates == 2


spans = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)).map(lambda one: (one[0], one[0] + one[1])))


@given(spans, spans)
def test_intervals_touch_where_they_share_a_moment(these: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    intervals = Intervals.joined(these)
    starts, ends = (pa.array([one[at] for one in others], pa.int64()).to_numpy() for at in (0, 1))
    moments = {moment for start, end in these for moment in range(start, end)}
    expected = [bool(moments & set(range(start, end))) for start, end in others]
    assert intervals.touch(starts, ends).tolist() == expected


readings = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 400), st.floats(0, 1e6)), min_size=1, max_size=40).map(
    lambda rows: [(origin, T * 1000 + at * 500, value) for origin, at, value in rows]
)


@given(readings, st.lists(st.tuples(st.integers(0, 200_000), st.integers(1, 30_000)), max_size=3))
def test_cells_never_overlap_and_rates_are_kept(
    rows: list[tuple[int, int, float]], logged: list[tuple[int, int]]
) -> None:
    """Whatever was read, in however many copies: no moment is counted twice, and none that a log covers."""
    origins = [Origin("prometheus", f'{{"replica": "{number}"}}', "").to_text() for number in range(3)]
    meter = {"meter": 7, "broker_id": 1, "key": "producer_byte_rate", "grain": "user", "user": "a"}
    series = pa.Table.from_pylist(
        [meter | {"origin": number, "origin_text": text} for number, text in enumerate(origins)], SERIES_SCHEMA
    )
    table = pa.Table.from_pylist(
        [
            {"meter": 7, "origin": origin, "reading": int(Reading.RATE), "at_ms": at_ms, "value": value}
            for origin, at_ms, value in rows
        ],
        READINGS_SCHEMA,
    )
    covered = [(T * 1000 + start, T * 1000 + start + length) for start, length in logged]
    found, counts = usage_of_readings(
        table, series, covered={1: Intervals.joined(covered)}, default_step_ms=11_000, cluster="c"
    )
    assert found.schema == USAGE_SCHEMA
    result = sorted((row["cell_start_ms"], row["cell_ms"], row["amount"]) for row in found.to_pylist())
    for (start, length, _), (after, _, _) in itertools.pairwise(result):
        assert start + length <= after
    told = {(at_ms, value) for _, at_ms, value in rows}
    for start, length, amount in result:
        assert any(at_ms == start + length and amount == pytest.approx(value * length / 1000) for at_ms, value in told)
        assert not any(start < end and begin < start + length for begin, end in covered)
    assert len(rows) == counts.duplicates + counts.covered_by_log + len(result)
