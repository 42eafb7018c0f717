"""The public functions of `kquota.pipeline`: the tables of the command line, and no job before rows are asked for."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kquota import pipeline
from kquota.cli import run
from kquota.errors import InputError
from kquota.files import QuotaFile, read_quota_file
from kquota.pipeline.dataset import spark_run
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.tables import ALL_TABLES
from kquota.policy import Objective, OwnerMap, read_owner_rules
from kquota.quotas import CONNECTION_CREATION_RATE, ClientQuotaAlteration, ClientQuotaEntity
from kquota.stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLE = EXAMPLES / "capture" / "sample"
QUOTAS = EXAMPLES / "quotas.yaml"
OTHER = """
- entity: {user: null}
  values: {producer_byte_rate: 20000, consumer_byte_rate: 50000, request_percentage: 5}
"""
OWNERS = b"owner,user,client-id,client-id-prefix\nteam-a,alice,,\nteam-b,,,etl\n"
OBJECTIVE = "throttled_share<=0.5%"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The sample in three files, one of them compressed, with lines that cannot be read."""
    lines = gzip.decompress((SAMPLE / "kafka-request.log.gz").read_bytes()).splitlines(keepends=True)
    folder = tmp_path_factory.mktemp("logs")
    third = len(lines) // 3
    parts = [lines[:third], lines[third : 2 * third], lines[2 * third :]]
    for number, part in enumerate(parts):
        part[100 * number : 100 * number] = [b"not a line\n", b"\n", b"[2026-01-02 03:04:05,006] DEBUG Completed {}\n"]
        part.append(b"nor this\n")
    (folder / "0.log").write_bytes(b"".join(parts[0]))
    (folder / "1.log.gz").write_bytes(gzip.compress(b"".join(parts[1])))
    (folder / "2.log").write_bytes(b"".join(parts[2]))
    return [str(folder / "*.log*")]


@pytest.fixture(scope="module")
def quotas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quotas") / "other.yaml"
    path.write_text(OTHER)
    return path


@pytest.fixture(scope="module")
def dataset(spark: "SparkSession", logs: list[str], quotas: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """What the commands write of the same logs."""
    out = tmp_path_factory.mktemp("dataset") / "out"
    owners = quotas.with_name("owners.csv")
    owners.write_bytes(OWNERS)
    of_out = ["--dataset", str(out), "-q"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_run, "start_session", lambda **_: spark)
        patch.setattr(type(spark), "stop", lambda _: None)
        for command in (
            [
                "analyze",
                *logs,
                "--quotas",
                str(QUOTAS),
                "-q",
                "--no-report",
                "--max-rejected",
                "100%",
                "--out",
                str(out),
            ],
            ["pipeline", "whatif", "--quotas", str(quotas), *of_out],
            ["pipeline", "sweep", *of_out],
            ["pipeline", "recommend", "--objective", OBJECTIVE, *of_out],
            ["pipeline", "showback", "--owners", str(owners), *of_out],
        ):
            assert run(command) == 0
    return Dataset.open(out)


@pytest.fixture(scope="module")
def requests(spark: "SparkSession", logs: list[str]) -> "DataFrame":
    return pipeline.read_request_log(spark, logs).persist()


@pytest.fixture(scope="module")
def usage(requests: "DataFrame") -> "DataFrame":
    return pipeline.usage(requests).persist()


@pytest.fixture(scope="module")
def clients(usage: "DataFrame") -> "DataFrame":
    return pipeline.resolve(usage, file_of(QUOTAS)).persist()


def file_of(path: Path) -> QuotaFile:
    return read_quota_file(path.read_bytes(), name=str(path))


def rows(table: Any) -> list[str]:
    """Rows of a table in an order of their own; sums of doubles to ten digits."""
    values = table.toArrow().to_pylist() if hasattr(table, "toArrow") else table.to_pylist()
    return sorted(
        repr([(name, float(f"{x:.9e}") if isinstance(x, float) else x) for name, x in sorted(row.items())])
        for row in values
    )


def test_requests_are_those_of_the_table(dataset: Dataset, requests: "DataFrame") -> None:
    charged = requests.where(f"key != '{CONNECTION_CREATION_RATE}'")
    assert rows(charged) == rows(dataset.read("requests"))


def test_usage_is_the_table(dataset: Dataset, usage: "DataFrame") -> None:
    assert rows(usage) == rows(dataset.read("usage"))
    assert usage.where(f"key = '{CONNECTION_CREATION_RATE}'").count() > 0


def test_rejected_lines_are_those_of_the_table(dataset: Dataset, spark: "SparkSession", logs: list[str]) -> None:
    found = rows(pipeline.rejected(spark, logs))
    assert found == rows(dataset.read("rejected"))
    assert len(found) == 9


def test_clients_are_those_of_the_table(dataset: Dataset, clients: "DataFrame") -> None:
    columns = [name for name in ALL_TABLES["clients"].columns if name in clients.columns]
    assert {"user", "client_id", "limit", "limit_source", "meter", "throttle_ms"} <= {*columns}
    assert rows(clients.select(*columns)) == rows(dataset.read("clients", columns=columns))


_OF_CLIENTS: dict[str, Callable[..., "DataFrame"]] = {
    "utilisation": lambda requests, usage, clients: pipeline.utilisation(usage, clients),
    "throttled": lambda requests, usage, clients: pipeline.throttled(usage, clients),
    "calibration": lambda requests, usage, clients: pipeline.calibrate(requests, clients),
    "showback": lambda requests, usage, clients: pipeline.showback(
        usage, OwnerMap(read_owner_rules(OWNERS, name="owners.csv"), file_of(QUOTAS)), clients
    ),
    "curve": lambda requests, usage, clients: pipeline.sweep(usage, file_of(QUOTAS)),
    "recommendations": lambda requests, usage, clients: pipeline.recommend(
        usage,
        file_of(QUOTAS),
        goal=pipeline.RecommendationGoal(objectives=(Objective.parse(OBJECTIVE),)),
        owners=OwnerMap((), file_of(QUOTAS)),
    ),
}


@pytest.mark.parametrize("table", _OF_CLIENTS)
def test_a_function_gives_the_table_of_its_step(
    table: str, dataset: Dataset, requests: "DataFrame", usage: "DataFrame", clients: "DataFrame"
) -> None:
    found = rows(_OF_CLIENTS[table](requests, usage, clients))
    assert found
    assert found == rows(dataset.read(table))


@pytest.mark.parametrize("grain", ["request", "cell"])
def test_a_what_if_of_requests_or_of_cells(
    grain: str, dataset: Dataset, quotas: Path, requests: "DataFrame", usage: "DataFrame"
) -> None:
    one_by_one = requests.where(f"key != '{CONNECTION_CREATION_RATE}'") if grain == "request" else None
    found = pipeline.what_if(usage, file_of(quotas), old=file_of(QUOTAS), requests=one_by_one)
    if grain == "request":
        assert rows(found) == rows(dataset.read("whatif"))
    assert {row.grain for row in found.select("grain").distinct().collect()} == {grain}


def test_no_function_runs_a_job_or_leaves_anything_behind(spark: "SparkSession", logs: list[str], quotas: Path) -> None:
    """Of a plan from the logs to recommendations."""
    context, before = spark.sparkContext, dict(spark.conf.getAll)
    persisted = len(context._jsc.getPersistentRDDs())
    context.setJobGroup("planning", "")
    try:
        requests = pipeline.read_request_log(spark, logs)
        usage = pipeline.usage(requests)
        clients = pipeline.resolve(usage, file_of(QUOTAS))
        for function in _OF_CLIENTS.values():
            function(requests, usage, clients)
        pipeline.what_if(usage, file_of(quotas), requests=requests)
        pipeline.what_if(usage, file_of(quotas), only_changed=True)
        pipeline.rejected(spark, logs)
        assert context.statusTracker().getJobIdsForGroup("planning") == []
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None takes it back
    assert dict(spark.conf.getAll) == before
    assert len(context._jsc.getPersistentRDDs()) == persisted


def test_the_log_is_read_once(spark: "SparkSession", logs: list[str], tmp_path: Path) -> None:
    """Mutations and all other requests are branches of one shuffle."""
    frame = pipeline.read_request_log(spark, logs)
    frame.write.parquet(str(tmp_path / "requests"))
    plan = frame._jdf.queryExecution().executedPlan()
    frame.collect()
    assert "ReusedExchange" in plan.toString() or "ReusedExchange" in plan.finalPhysicalPlan().toString()


def test_failing_at_the_first_line_that_cannot_be_read(spark: "SparkSession", logs: list[str]) -> None:
    requests = pipeline.read_request_log(spark, logs, mode="failfast")
    with pytest.raises(Exception, match=r"\d\.log.*: a line cannot be read, .*: "):
        requests.count()
    with pytest.raises(InputError, match="`mode`: there is no strict; there are permissive and failfast"):
        pipeline.read_request_log(spark, logs, mode="strict")  # type: ignore[arg-type] # on purpose


def test_a_log_that_is_not_there(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such log"):
        pipeline.read_request_log(spark, str(tmp_path / "none.log"))


def test_times_as_timestamps(usage: "DataFrame") -> None:
    row = pipeline.with_timestamps(usage).selectExpr("cell_start_ms", "unix_millis(cell_start) AS same").first()
    assert row is not None
    assert row.cell_start_ms == row.same


def test_the_package_loads_nothing_before_it_is_used() -> None:
    program = (
        "import sys, kquota.pipeline as p; assert not {'pyspark', 'pyarrow', 'numpy'} & {*sys.modules}; "
        "assert all(callable(getattr(p, name)) for name in p.__all__)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


class TestFormats:
    @pytest.fixture(autouse=True)
    def _registered(self, spark: "SparkSession") -> None:
        pipeline.register(spark)

    def test_requests(self, spark: "SparkSession", logs: list[str], dataset: Dataset) -> None:
        found = spark.read.format("kafka-request-log").load(logs[0])
        table = dataset.read("requests").select(["connection", "record_ms", "key", "local_ms"])
        assert rows(found.select(*table.column_names)) == rows(table)

    @pytest.mark.parametrize(
        "options, reason",
        [
            ({"broker_id": "one"}, "option broker_id: one is not a whole number"),
            ({"brokers": "1"}, "there is no option brokers; there are broker_id, cluster"),
            ({"timezone": "Mars/Base"}, "Mars/Base"),
        ],
    )
    def test_options_that_cannot_be_used(
        self, spark: "SparkSession", logs: list[str], options: dict[str, str], reason: str
    ) -> None:
        with pytest.raises(Exception, match=reason):
            spark.read.format("kafka-request-log").options(**options).load(logs[0]).count()

    def test_quotas_of_a_file(self, spark: "SparkSession") -> None:
        found = spark.read.format("kquota").load(str(QUOTAS)).collect()
        expected = {
            (entity.to_text(), key, value)
            for entity, values in file_of(QUOTAS).snapshot().items()
            for key, value in values.items()
        }
        assert {(row.entity, row.key, row.value) for row in found} == expected

    def test_a_store_and_its_history(self, spark: "SparkSession", tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'quotas.db'}"
        with open_store(url) as store:
            alice = ClientQuotaEntity({"user": "alice"})
            store.alter(
                [ClientQuotaAlteration(alice, [ClientQuotaAlteration.Op("producer_byte_rate", 1000.0)])],
                principal="User:ops",
            )
        read = spark.read.format("kquota")
        assert [(row.user, row.key, row.value) for row in read.load(url).collect()] == [
            ("alice", "producer_byte_rate", 1000.0)
        ]
        history = read.option("table", "history").load(url).collect()
        assert [(row.number, row.principal, row.user, row.before, row.after) for row in history] == [
            (1, "User:ops", "alice", None, 1000.0)
        ]
        bound = read.option("table", "resolved").option("user", "alice").load(url).collect()
        assert [(row.key, row.limit, row.limit_source, row.meter) for row in bound] == [
            ("producer_byte_rate", 1000.0, "user=alice", "user=alice")
        ]

    @pytest.mark.parametrize(
        "options, reason",
        [
            ({}, "give one place"),
            ({"path": "quotas.yaml", "bootstrap_servers": "localhost:9092"}, "give one place"),
            ({"path": "no/such.yaml"}, "there is no file no/such.yaml"),
            ({"path": str(QUOTAS), "table": "limits"}, "there is no limits; there are quotas, resolved, history"),
            ({"path": str(QUOTAS), "table": "resolved"}, "say whose limits"),
            ({"bootstrap_servers": "localhost:9092", "table": "history"}, "a cluster keeps none"),
        ],
    )
    def test_a_place_that_cannot_be_read(self, spark: "SparkSession", options: dict[str, str], reason: str) -> None:
        with pytest.raises(Exception, match=reason):
            spark.read.format("kquota").options(**options).load().count()
