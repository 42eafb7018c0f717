"""What clients get under a limit: through a gateway that enforces it, beside a broker that does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.kit.kafka import NEW, needs_kafka

ROOT = Path(__file__).parents[2]
NEAR = 0.1
"""Of the limit: how far a short run on a busy machine may be from another one."""


def test_a_client_gets_as_much_through_a_gateway_as_from_a_broker_with_the_same_quota(tmp_path: Path) -> None:
    """Produce and fetch of librdkafka, which does not look at the throttle time: the benchmark's check, shorter."""
    needs_kafka(NEW)
    command = ["benchmarks.check_gateway_limits", "--short", "--only", "librdkafka", "--results", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    results = tmp_path / "gateway-limits.json"
    assert results.exists(), done.stderr
    works = json.loads(results.read_text())["works"]
    assert {work["kind"] for work in works} == {"produce", "fetch"}
    for work in works:
        got = {name: endpoint["mean"] for name, endpoint in work["endpoints"].items()}
        assert 1 - NEAR <= got["gateway"] <= 1 + NEAR, work["work"]
        assert abs(got["gateway"] - got["broker"]) <= NEAR, work["work"]
        assert got["both"] >= got["broker"] - NEAR, work["work"]
