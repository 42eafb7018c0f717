"""A real broker and our server, asked the same, say and keep the same."""

from collections import Counter
from pathlib import Path

import pytest

from examples.capture.broker import running_broker
from kquota.stores import open_store
from tests.kit.differential import compare
from tests.kit.kafka import NEW, needs_kafka
from tests.kit.quota_requests import quota_requests
from tests.kit.quota_server import running_server

REQUESTS = 1_000


@pytest.mark.timeout(1200)  # a real broker writes each of hundreds of alterations to disk, one after the other
def test_a_thousand_requests_get_the_same_answers_and_leave_the_same_quotas(tmp_path: Path) -> None:
    """On a broker of its own: among what is set there are quotas that would slow any other test."""
    needs_kafka(NEW)
    with (
        running_broker(NEW, tmp_path / "kafka", passwords={}, log_requests=False) as broker,
        open_store(f"sqlite:///{tmp_path}/quotas.db") as store,
        running_server(store) as ours,
    ):
        report = compare(quota_requests(REQUESTS, seed=1), broker.plaintext, str(ours))
    print(report)
    assert report.differences == [], str(report)
    assert report.requests == REQUESTS + 1
    assert report.empty_classes() == []
    assert report.changes > REQUESTS / 10
    outcomes = sum(report.outcomes.values(), Counter())
    assert min(outcomes[one] for one in ("accepted", "refused", "closed")) > REQUESTS / 10
