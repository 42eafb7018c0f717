"""summary.json: flat, with names that readers know, and read as it was written."""

from __future__ import annotations

import json

import msgspec
import pytest

from kquota.pipeline.dataset.summary import (
    CalibrationTotals,
    Input,
    QuotaPeriodRead,
    QuotasOverTimeRead,
    Summary,
    encode_summary,
)


def test_a_summary_is_read_as_it_was_written() -> None:
    summary = Summary.empty()
    summary.inputs = [Input("kafka-request.log", "request-log", 1, 1000), Input("usage.prom", "prometheus", None, 10)]
    summary.versions = {"Produce": {"9": 3}}
    summary.calibration = CalibrationTotals(10, 9, 1, 1000, 990)
    summary.quotas_over_time = QuotasOverTimeRead(0, None, [QuotaPeriodRead(None, 5, 1)])
    summary.seconds = {"read the logs": 1.5}
    assert msgspec.json.decode(encode_summary(summary), type=Summary) == summary


def test_what_no_step_has_counted_is_left_out() -> None:
    content = json.loads(encode_summary(Summary.empty()))
    assert content["lines"] == 0
    assert content["start_ms"] is None
    assert not {"clients", "calibration", "whatif", "seconds", "metrics", "overlaps"} & content.keys()


def test_what_a_step_counted_as_none_is_there() -> None:
    summary = Summary.empty()
    summary.throttled_meters = 0
    assert json.loads(encode_summary(summary))["throttled_meters"] == 0


def test_it_is_text_for_people() -> None:
    summary = Summary.empty()
    summary.cluster = "Zürich"
    text = encode_summary(summary).decode()
    assert '\n  "cluster": "Zürich",\n' in text
    assert text.endswith("}\n")


@pytest.mark.parametrize("content", [b"{}", b"[]", b"", b'{"lines": "many"}'])
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(content, type=Summary)
