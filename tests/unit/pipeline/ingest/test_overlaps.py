"""Logs of several brokers are not taken for those of one."""

from __future__ import annotations

import pytest

from kquota.pipeline.dataset.summary import Overlap
from kquota.pipeline.ingest.request_log.clock import LogTimes
from kquota.pipeline.ingest.request_log.overlaps import MixedBrokersError, ReadLog, find_overlaps


def log(path: str, first: float, last: float, *addresses: str, broker_id: int = 0) -> ReadLog:
    """Times in seconds."""
    return ReadLog(path, broker_id, LogTimes(first * 1000, last * 1000, 0.0, 0.0), frozenset(addresses))


def test_logs_of_two_brokers_at_once_are_an_error_that_names_them() -> None:
    logs = [log("a.1", 0, 100, "h1:9092"), log("a", 100, 200, "h1:9092"), log("b", 50, 150, "h2:9092", "h2:9093")]
    with pytest.raises(MixedBrokersError) as raised:
        find_overlaps(logs)
    assert (raised.value.broker_id, raised.value.paths) == (0, ("a.1", "b", "a"))
    assert str(raised.value) == (
        "given as logs of broker 0, but of several: their addresses differ, and their times overlap: "
        "a.1 (h1:9092), b (h2:9092, h2:9093), a (h1:9092)"
    )
    assert find_overlaps([logs[0], logs[1], log("b", 50, 150, "h2:9092", broker_id=1)]) == []


def test_rotated_logs_of_one_broker_are_nothing_to_speak_of() -> None:
    """Around a rotation lines of several threads may be out of order; each file may show other listeners."""
    logs = [log("a.2", 0, 101, "h1:9092", "h1:9093"), log("a.1", 100, 200, "h1:9092"), log("a", 199.5, 300)]
    assert find_overlaps(logs) == []


def test_what_may_have_another_reason_is_a_warning() -> None:
    one = log("a", 0, 100, "h1:9092")
    assert find_overlaps([one, log("copy", 40, 100, "h1:9092")]) == [Overlap(0, ["a", "copy"], 60_000)]
    assert find_overlaps([one, log("no connections", 90, 200)]) == [Overlap(0, ["a", "no connections"], 10_000)]
    assert find_overlaps([one, log("came back", 110, 200, "h7:9092")]) == [Overlap(0, ["a", "came back"], 0)]
    assert find_overlaps([one, log("two listeners", 50, 99, "h1:9093", "h1:9092")])[0].overlap_ms == 49_000


def test_many_logs_are_named_in_part() -> None:
    with pytest.raises(MixedBrokersError, match=r"b5 \(h5:1\) and 3 more$"):
        find_overlaps(log(f"b{number}", 0, 100, f"h{number}:1") for number in range(9))
