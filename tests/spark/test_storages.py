"""The pipeline where all files are in an object store or in HDFS: logs, datasets, and what is between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota.cli import run
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.storage.object_store import _client
from kquota.pipeline.storage.opening import open_storage
from kquota.stores import open_store
from tests.kit.datasets import left_over, rows_by_table
from tests.kit.hdfs import hdfs
from tests.kit.s3 import BUCKET, S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["hdfs"]

CHANGES_PENDING = 3
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
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What users set is in the environment; Spark has no jar for it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    yield f"s3a://{BUCKET}"
    _client.cache_clear()


@pytest.mark.parametrize("storage", ["s3", "hdfs"])
def test_the_tables_are_those_of_a_folder(
    storage: str,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root: str = request.getfixturevalue(storage)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "new.yaml").write_text(QUOTAS.replace("50000", "500"))
    (tmp_path / "broker-1.log").write_bytes((GOLDEN / "kafka-request.log").read_bytes())
    open_storage(f"{root}/logs").put("broker-1.log", (GOLDEN / "kafka-request.log").read_bytes())
    open_store("sqlite:///quotas.db").close()
    plans = []
    here, there = str(tmp_path / "here"), f"{root}/there"
    for url, logs in ((here, tmp_path), (there, f"{root}/logs")):
        for step in STEPS:
            source = [f"{logs}/broker-{{broker}}.log"] if step[0] == "analyze" else []
            assert run([step[0], *source, *step[1:], url, "-q"]) == 0, step
        capsys.readouterr()
        assert run(["plan", "-f", "new.yaml", "--store", "sqlite:///quotas.db", "--dataset", url]) == CHANGES_PENDING
        plans.append(capsys.readouterr().out.replace(url, "URL"))
    assert rows_by_table(there) == rows_by_table(here)
    assert plans[0] == plans[1]
    assert "4 meters newly throttled" in plans[0]
    found = Dataset.open(there)
    assert left_over(found) == []
    assert {"summary.json", "report.html"} <= {file.path for file in found.storage.list()}
    assert [one.file for one in found.summary.inputs] == [f"{root.replace('s3a:', 's3:')}/logs/broker-1.log"]
