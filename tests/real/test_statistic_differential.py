"""Kafka's own ``Rate`` and ``TokenBucket`` and ours, in every unit of time, told the same, measure the same doubles."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kquota.metering.statistics import TimeUnit
from kquota.quotas import is_same_value
from tests.kit.kafka import NEW, needs_compiler, needs_kafka
from tests.kit.statistic_traces import STATISTICS, statistic_judge, statistic_traces

TRACES = 50


def test_every_unit_measures_the_same(tmp_path: Path) -> None:
    """To the last bit: clocks that go back, numbers that cancel out, and those that are none, included."""
    jars = needs_kafka(NEW)
    needs_compiler()
    compared = Counter[tuple[str, TimeUnit]]()
    with statistic_judge(jars, tmp_path / "errors") as judge:
        for trace in statistic_traces(TRACES, seed=1):
            kafka = [float(one) for one in judge.ask(trace.line())]
            ours = trace.ours()
            first = next((n for n, pair in enumerate(zip(kafka, ours, strict=True)) if not is_same_value(*pair)), None)
            assert first is None, (trace, first, kafka[first], ours[first])
            compared[trace.statistic, trace.unit] += 1
    assert compared == {(statistic, unit): TRACES for statistic in STATISTICS for unit in TimeUnit}
