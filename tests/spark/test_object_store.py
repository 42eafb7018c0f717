"""The pipeline where all files are in an object store: logs, datasets, and what is between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota.cli import run
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.storage.object_store import _client
from tests.kit.datasets import left_over, rows_by_table
from tests.kit.s3 import BUCKET, S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path("tests/data/golden/4.3.0").resolve()
QUOTAS = """
- {entity: {user: null}, values: {producer_byte_rate: 100}}
- {entity: {user: ANONYMOUS, client-id: etl}, values: {producer_byte_rate: 50000, consumer_byte_rate: 1MiB}}
"""
STEPS = (
    ["analyze", "--quotas", "quotas.yaml", "--out"],
    ["pipeline", "resolve", "--quotas", "quotas.yaml", "--dataset"],
    ["pipeline", "utilisation", "--dataset"],
    ["pipeline", "whatif", "--quotas", "new.yaml", "--dataset"],
    ["pipeline", "sweep", "--candidates", "3", "--dataset"],
    ["pipeline", "recommend", "--candidates", "3", "--objective", "throttled_share<=1", "--dataset"],
    ["pipeline", "showback", "--dataset"],
    ["pipeline", "report", "--dataset"],
)


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder that is the bucket. What users set is in the environment; Spark has no jar for it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "new.yaml").write_text(QUOTAS.replace("50000", "500"))
    yield s3_server.folder / BUCKET
    _client.cache_clear()


def test_the_tables_are_those_of_a_folder(spark: SparkSession, bucket: Path, tmp_path: Path) -> None:
    (bucket / "logs").mkdir()
    log = bucket / "logs" / "broker-1.log"
    log.write_bytes((GOLDEN / "kafka-request.log").read_bytes())
    here, there = str(tmp_path / "here"), f"s3a://{BUCKET}/there"
    for url, given in ((here, str(log)), (there, f"s3://{BUCKET}/logs/broker-{{broker}}.log")):
        for step in STEPS:
            source = [f"1={given}" if url == here else given] if step[0] == "analyze" else []
            assert run([step[0], *source, *step[1:], url, "-q"]) == 0, step
    assert rows_by_table(there) == rows_by_table(here)
    found = Dataset.open(there)
    assert left_over(found) == []
    assert {"summary.json", "report.html"} <= {file.path for file in found.storage.list()}
    assert [one.file for one in found.summary.inputs] == [f"s3://{BUCKET}/logs/broker-1.log"]
