"""Kafka's own quota managers and our engine, told the same, answer the same."""

from pathlib import Path

from kquota.metering.replay import replay
from tests.kit.kafka import NEW, needs_compiler, needs_kafka
from tests.kit.metering_differential import compare, metering_judge
from tests.kit.metering_traces import metering_traces

TRACES = 300


def test_hundreds_of_traces_get_the_same_answers(tmp_path: Path) -> None:
    """Meters, limits, values and throttle times to the millisecond, and all metrics, in all classes of traces."""
    jars = needs_kafka(NEW)
    needs_compiler()
    with metering_judge(jars, tmp_path / "errors") as judge:
        report = compare(metering_traces(TRACES, seed=1), judge, replay)
    print(report)
    assert report.differences == [], str(report)
    assert report.traces == TRACES
    assert report.metrics > report.answers
    assert report.empty() == []
