"""Recorded traffic read back: in the order of time, whatever the files are, and nothing of it lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.metering.callback import ClientQuotaType
from kquota.metering.callback_conformance import TrafficRecord
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import DamagedFileError, MissingTableError
from kquota.pipeline.dataset.steps import INGEST_STEP
from kquota.pipeline.dataset.tables import REQUESTS
from kquota.pipeline.dataset.traffic import RecordedTraffic
from tests.kit.analysis_directory import START_MS, AnalysisDirectory
from tests.kit.datasets import rows_of

Row = dict[str, Any]


def request(seq: int, record_ms: float, broker_id: int = 0) -> Row:
    return {
        "broker_id": broker_id,
        "seq": seq,
        "record_ms": float(record_ms),
        "api_key": 0,
        "api_version": 13,
        "user": "u",
        "client_id": "c",
        "key": "producer_byte_rate",
        "amount": float(seq),
        "throttle_ms": 0,
    }


rows = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2)), max_size=60)


@given(found=rows, file_of=st.lists(st.integers(0, 4), min_size=60, max_size=60))
def test_files_in_any_form_are_read_in_the_order_of_time(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[int, int]], file_of: list[int]
) -> None:
    """Rows of several brokers in a file, files that overlap, times out of order."""
    requests = [request(seq, time, broker) for seq, (time, broker) in enumerate(found)]
    with Dataset.create(tmp_path_factory.mktemp("traffic")).run(INGEST_STEP) as run:
        run.add("usage")
        for number in range(5):
            part = [row for row, file in zip(requests, file_of, strict=False) if file == number]
            run.add("requests", run.writer("requests").write(rows_of(REQUESTS, *part)))
        traffic = RecordedTraffic.of(run.commit())
    assert traffic.rows() == len(requests)
    assert traffic.brokers() == sorted({broker for _, broker in found})
    for broker in traffic.brokers():
        expected = sorted((time, seq) for seq, (time, of) in enumerate(found) if of == broker)
        assert [(one.now_ms, int(one.amount)) for one in traffic.of_broker(broker)] == expected


def test_a_request_as_it_is_recorded(tmp_path: Path) -> None:
    """What cannot be resolved or has no amount is counted and left out; connections are no callback's."""
    directory = AnalysisDirectory()
    directory.request("alice", "etl", 5.7, 100.0, throttle_ms=12)
    directory.request("alice", "", 6, 2.0, api_key=19, api_version=7, key="controller_mutation_rate")
    directory.request("alice", "", 7, 2.0, api_key=19, api_version=5, key="controller_mutation_rate")
    directory.request(None, "etl", 8, 1.0)
    directory.request("alice", "etl", 9, None)
    directory.request("alice", "etl", 10, 1.0, key="connection_creation_rate")
    traffic = RecordedTraffic.of(Dataset.open(directory.write(tmp_path / "out")))
    assert traffic.is_per_request
    mutation = ClientQuotaType.CONTROLLER_MUTATION
    assert list(traffic.of_broker(0)) == [
        TrafficRecord(START_MS + 5, ClientQuotaType.PRODUCE, "alice", "etl", 100.0, 1, 1, 12, 12),
        TrafficRecord(START_MS + 6, mutation, "alice", "", 2.0, strict=True),
        TrafficRecord(START_MS + 7, mutation, "alice", "", 2.0),
    ]
    assert traffic.skipped == 2


def test_without_requests_seconds_are_read(tmp_path: Path) -> None:
    """Of all days, in order."""
    directory = AnalysisDirectory()
    directory.usage("bob", "c", 86_400, 7.0, requests=3)
    told = {"throttled_requests": 2, "throttle_ms": 30, "throttle_max_ms": 20}
    directory.usage("bob", "c", 1, 9.0, requests=4, key="consumer_byte_rate", **told)
    directory.usage("alice", "c", 1, 5.0, requests=2)
    directory.usage("alice", None, 1, 5.0, grain="user")
    directory.usage("carol", "c", 1, 5.0, source="jmx", requests=None)  # a mean over the cell, not traffic
    directory.usage(None, None, 1, 5.0, key="connection_creation_rate", ip="10.0.0.1")
    traffic = RecordedTraffic.of(Dataset.open(directory.write(tmp_path / "out")))
    assert not traffic.is_per_request
    assert list(traffic.of_broker(0)) == [
        TrafficRecord(START_MS + 1000, ClientQuotaType.PRODUCE, "alice", "c", 5.0, 2),
        TrafficRecord(START_MS + 1000, ClientQuotaType.FETCH, "bob", "c", 9.0, 4, 2, 30, 20),
        TrafficRecord(START_MS + 86_400_000, ClientQuotaType.PRODUCE, "bob", "c", 7.0, 3),
    ]
    assert traffic.skipped == 2


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingTableError) as caught:
        RecordedTraffic.of(Dataset.create(tmp_path))
    assert caught.value.written_by == "ingest"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    directory = AnalysisDirectory()
    directory.request("alice", "etl", 5.7, 100.0)
    dataset = Dataset.open(directory.write(tmp_path / "out"))
    (file,) = dataset.files("requests")
    (tmp_path / "out" / file.path).write_text("nonsense")
    with pytest.raises(DamagedFileError) as caught:
        list(RecordedTraffic.of(dataset).of_broker(0))
    assert caught.value.path == file.path
