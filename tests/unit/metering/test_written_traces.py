"""Traces that are written out get the answers that Kafka's own quota managers gave, to the last bit."""

from __future__ import annotations

import pytest

from kquota.metering.replay import replay
from tests.kit.metering_differential import same_answer
from tests.kit.written_traces import WRITTEN_TRACES, golden_answers

GOLDEN = golden_answers()


@pytest.mark.parametrize("name", WRITTEN_TRACES)
def test_as_kafka_answered(name: str) -> None:
    trace = WRITTEN_TRACES[name]
    ours = list(replay(trace.operations, trace.broker))
    assert len(ours) == len(GOLDEN[name])
    for number, (kafka, answer) in enumerate(zip(GOLDEN[name], ours, strict=True)):
        assert same_answer(kafka, answer), (number, kafka, answer)


def test_each_trace_was_recorded() -> None:
    """And nothing else; ``python -m tests.real.record_written_traces`` does so."""
    assert list(GOLDEN) == list(WRITTEN_TRACES)
