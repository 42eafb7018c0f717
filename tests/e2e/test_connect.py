"""The pipeline through Spark Connect: the same tables as on one machine, and the caller's session stays theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.datasets import rows_by_table
from tests.kit.spark_cluster import running_connect_server

LOG = Path("tests/data/golden/4.3.0/kafka-request.log").resolve()
KQUOTA = Path(sys.executable).with_name("kquota")
QUOTAS = """
- {entity: {user: null}, values: {producer_byte_rate: 100}}
- {entity: {user: ANONYMOUS, client-id: etl}, values: {producer_byte_rate: 50000, consumer_byte_rate: 1MiB}}
"""
ANALYZE = ["analyze", str(LOG), "--quotas", "quotas.yaml", "-q", "--out"]
WHATIF = ["pipeline", "whatif", "--quotas", "new.yaml", "-q", "--dataset"]
UTILISATION = ["pipeline", "utilisation", "-q", "--dataset"]
THEIRS = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "3")
spark.conf.set("spark.sql.session.timeZone", "America/New_York")
before = dict(spark.conf.getAll)
from kquota.cli import run

for command in json.loads(sys.argv[2]):
    assert run(command) == 0, command
assert dict(spark.conf.getAll) == before
assert spark.range(3).count() == 3
"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "new.yaml").write_text(QUOTAS.replace("50000", "500"))
    return tmp_path


def done(folder: Path, *command: str | Path) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_tables_are_those_of_a_local_session(server: str, folder: Path) -> None:
    """In a session of the caller's, which stays as it is, and in one of a command's own."""
    for step in (ANALYZE, WHATIF):
        done(folder, KQUOTA, *step, "here", "--master", "local[2]")
    commands = [[*step, "there"] for step in (ANALYZE, WHATIF)]
    done(folder, sys.executable, "-c", THEIRS, server, json.dumps(commands))
    expected = rows_by_table(folder / "here")
    assert rows_by_table(folder / "there") == expected
    assert all(expected[name] for name in ("usage", "clients", "utilisation", "requests", "whatif"))
    done(folder, KQUOTA, *UTILISATION, "there", "--master", server)
    assert rows_by_table(folder / "there") == expected


def test_a_server_that_is_not_there(folder: Path) -> None:
    command: list[str | Path] = [KQUOTA, *ANALYZE, "out", "--master", "sc://127.0.0.1:1"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "there is no Spark Connect server at 127.0.0.1:1" in ended.stderr
    assert not (folder / "out").exists()
