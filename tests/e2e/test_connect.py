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
RECOMMEND = ["pipeline", "recommend", "--candidates", "3", "--objective", "throttled_share<=1", "-q", "--dataset"]
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
    done(folder, KQUOTA, *ANALYZE, "here", "--master", "local[2]")
    done(folder, KQUOTA, *WHATIF, "here", "--master", "local[2]")
    done(folder, KQUOTA, *ANALYZE, "there", "--master", server)
    done(folder, KQUOTA, *WHATIF, "there", "--master", server)
    found = rows_by_table(folder / "there")
    assert found == rows_by_table(folder / "here")
    assert all(found[name] for name in ("usage", "clients", "utilisation", "requests", "whatif"))


def test_a_session_of_the_callers_is_used_as_it_is(server: str, folder: Path) -> None:
    commands = [[*step, "theirs"] for step in (ANALYZE, WHATIF, RECOMMEND)]
    done(folder, sys.executable, "-c", THEIRS, server, json.dumps(commands))
    assert rows_by_table(folder / "theirs")["recommendations"]
