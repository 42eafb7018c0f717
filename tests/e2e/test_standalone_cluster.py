"""The pipeline on a Spark cluster of several processes, by spark-submit: the same tables as on one machine."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.kit.eventually import eventually
from tests.kit.spark_cluster import SPARK_HOME, SparkCluster, running_cluster, spark_environment

SAMPLE = Path(__file__).parents[2] / "examples" / "capture" / "sample"
KQUOTA = Path(sys.executable).with_name("kquota")
WORKERS = 2
LINES = 12_000
MOST_TASKS = 24
"""Of a stage, where the submitter does not say more: 16 that take rows from a shuffle, and some that read files."""
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For what lives for seconds."""

pytestmark = pytest.mark.timeout(900)  # many processes begin, each for seconds

NEW_QUOTAS = """\
- {entity: {user: search}, values: {consumer_byte_rate: 300000}}
- {entity: {user: null}, values: {producer_byte_rate: 150000, controller_mutation_rate: 1}}
- {entity: {client-id: etl}, values: {consumer_byte_rate: 400000}}
"""
LOGS = ("part-1.log", "part-2.log", "part-3.log.gz")
STEPS = (
    ["analyze", *LOGS, "--quotas", "quotas.yaml", "--no-report", "--out"],
    ["pipeline", "whatif", "--quotas", "new.yaml", "--dataset"],
)
"""Each needs one more argument: where its tables are. All are in the current directory, where workers are not."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's first minute as three logs that meet within a second, one of them compressed, and quotas."""
    folder = tmp_path_factory.mktemp("cluster")
    lines = gzip.decompress((SAMPLE / "kafka-request.log.gz").read_bytes()).splitlines(keepends=True)[:LINES]
    third = len(lines) // 3
    parts = (b"".join(lines[:third]), b"".join(lines[third : 2 * third]), gzip.compress(b"".join(lines[2 * third :])))
    for name, part in zip(LOGS, parts, strict=True):
        (folder / name).write_bytes(part)
    (folder / "quotas.yaml").write_bytes((SAMPLE / "quotas.yaml").read_bytes())
    (folder / "new.yaml").write_text(NEW_QUOTAS)
    return folder


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[SparkCluster]:
    with running_cluster(folder / "cluster", workers=WORKERS) as cluster:
        yield cluster


def locally(folder: Path, *command: str) -> None:
    """Run kquota as on a laptop."""
    done = subprocess.run(
        [KQUOTA, *command, "--master", "local[2]"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def submitted(cluster: SparkCluster, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run kquota by spark-submit on the cluster."""
    entrypoint = subprocess.run([KQUOTA, "pipeline", "entrypoint"], capture_output=True, text=True, check=True)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.cores.max": str(WORKERS),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # of these, before the first task
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        # As on many clusters, a plain path is not one of a folder that all machines mount.
        "spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": cluster.folder.as_uri(),
    }
    return subprocess.run(
        [
            *(SPARK_HOME / "bin" / "spark-submit", "--master", cluster.url),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *(entrypoint.stdout.strip(), *command),
        ],
        cwd=folder,
        env=spark_environment() | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_cannot_be_used_is_said_by_spark_submit_too(cluster: SparkCluster, folder: Path) -> None:
    """With the exit code of the command; spark-submit joins its standard error to its output."""
    done = submitted(cluster, folder, "analyze", "--log", "missing.log", "--quotas", "quotas.yaml", "--out", "none")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no such log: missing.log" in done.stdout


@pytest.fixture(scope="module")
def results(cluster: SparkCluster, folder: Path) -> tuple[Path, Path]:
    """What the steps wrote here, and what they wrote on the cluster."""
    for step in STEPS:
        locally(folder, *step, "here")
        name, *options = step[1:] if step[0] == "pipeline" else step
        done = submitted(cluster, folder, name, *options, "there")
        assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
    return folder / "here", folder / "there"


def rows(table: Path) -> list[dict[str, Any]]:
    """The rows of a table in an order that small differences of numbers do not change."""
    found: list[dict[str, Any]] = pq.read_table(table).to_pylist()
    return sorted(found, key=lambda row: ([repr(one) for one in row.values() if not isinstance(one, float)], repr(row)))


def same(found: Any, expected: Any) -> bool:
    """Equal, floating sums but for the order in which they were added."""
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-9)
    return bool(found == expected)


def tables(out: Path) -> set[str]:
    return {path.parent.relative_to(out).parts[0] for path in out.rglob("*.parquet")}


def test_every_table_has_the_same_rows(results: tuple[Path, Path]) -> None:
    here, there = results
    assert tables(there) == tables(here) >= {"usage", "requests", "throttled", "calibration", "whatif"}
    for name in sorted(tables(here)):
        expected, found = rows(here / name), rows(there / name)
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            assert one.keys() == other.keys()
            assert all(same(one[column], other[column]) for column in one), (name, one, other)


def test_the_summaries_say_the_same(results: tuple[Path, Path]) -> None:
    """All but how long it took."""
    here, there = (json.loads((out / "summary.json").read_text()) for out in results)
    assert here.pop("seconds").keys() == there.pop("seconds").keys()
    # Means are sums in the order in which tasks end.
    differences = [summary["whatif"].pop("grain_difference") for summary in (here, there)]
    near = {name: pytest.approx(it, rel=1e-9) if isinstance(it, float) else it for name, it in differences[0].items()}
    assert differences[1] == near
    assert there == here
    assert here["lines"] == LINES


def test_both_workers_did_it(results: tuple[Path, Path], cluster: SparkCluster) -> None:
    """Each step was an application on this cluster, with tasks on either worker, none of which failed."""
    assert cluster.state()["aliveworkers"] == WORKERS
    eventually(lambda: [one["state"] for one in cluster.state()["completedapps"]], ["FINISHED"] * len(STEPS))
    for application in (one["id"] for one in cluster.state()["completedapps"]):
        ends = [one for one in events(cluster, application) if one["Event"] == "SparkListenerTaskEnd"]
        assert {one["Task End Reason"]["Reason"] for one in ends} == {"Success"}
        # An executor takes the one core that a worker has.
        assert len({one["Task Info"]["Executor ID"] for one in ends}) == WORKERS
        # A little log costs few tasks, whatever Spark's own number of partitions is. (Of a table of more than 32 files
        # Spark lets workers look whether each is there, in a task for each.)
        begins = [one for one in events(cluster, application) if one["Event"] == "SparkListenerStageSubmitted"]
        stages = [one["Stage Info"] for one in begins if not is_listing(one)]
        assert [one for one in stages if one["Number of Tasks"] > MOST_TASKS] == []


def is_listing(begin: dict[str, Any]) -> bool:
    """Whether a stage lists files."""
    return str(begin["Properties"].get("spark.job.description")).startswith("Listing leaf files")


def events(cluster: SparkCluster, application: str) -> Iterator[dict[str, Any]]:
    with (cluster.folder / application).open(encoding="utf-8") as log:
        yield from map(json.loads, log)
