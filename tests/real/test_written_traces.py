"""The recorded answers to the written traces are Kafka's own."""

from __future__ import annotations

from pathlib import Path

from tests.kit.kafka import NEW, needs_compiler, needs_kafka
from tests.kit.metering_differential import metering_judge
from tests.kit.written_traces import WRITTEN_TRACES, golden_answers


def test_kafka_answers_what_was_recorded(tmp_path: Path) -> None:
    jars = needs_kafka(NEW)
    needs_compiler()
    golden = golden_answers()
    with metering_judge(jars, tmp_path / "errors") as judge:
        for name, trace in WRITTEN_TRACES.items():
            assert judge.ask(trace.line()) == golden[name], name
