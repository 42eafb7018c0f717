"""Kafka's own connection quotas and ours, told the same, accept and reject the same, and have the same metrics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kquota.metering.metrics import SOCKET_SERVER
from kquota.metering.replay import replay
from tests.kit.connection_traces import connection_traces
from tests.kit.kafka import NEW, needs_compiler, needs_kafka
from tests.kit.line_program import LineProgram, java_command
from tests.kit.metering_differential import different_metrics

PROGRAM = Path(__file__).parent / "java" / "ConnectionTraces.java"
TRACES = 300


def test_hundreds_of_traces_get_the_same_answers(tmp_path: Path) -> None:
    """Limits, rates, throttle times and rejections; sensors, MBeans and values of the metrics."""
    jars = needs_kafka(NEW)
    needs_compiler()
    seen: Counter[str] = Counter()
    with LineProgram(java_command(jars, PROGRAM), errors=tmp_path / "errors") as judge:
        for trace in connection_traces(TRACES, seed=1):
            kafka = judge.ask(trace.line())
            ours = list(replay(trace.operations, trace.broker))
            assert len(kafka) == len(ours)
            for theirs, answer in zip(kafka, ours, strict=True):
                if "metrics" in theirs:
                    assert different_metrics(theirs, answer, (SOCKET_SERVER,)) == [], trace
                    seen["metrics"] += len(theirs["metrics"])
                    continue
                assert theirs == {field: answer[field] for field in theirs}, trace
                seen["rejected" if theirs["rejected"] else "uncounted" if theirs["value"] is None else "accepted"] += 1
    print(seen)
    assert min(seen[what] for what in ("metrics", "rejected", "uncounted", "accepted")) > TRACES
