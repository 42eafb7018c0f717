"""The benchmarks over usage measure what they say: all baselines find what kquota finds, on generated usage."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest

from benchmarks import baseline_duckdb_usage, baseline_pyspark, usage_steps
from benchmarks.bench_what_if import check_held, check_utilisation
from benchmarks.generate_usage import CANDIDATE, UsageProfile, ensure, generate
from benchmarks.sums import DifferentSumsError
from kquota.clock import SystemClock
from kquota.files import read_quota_file
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import RESOLVE_STEP
from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.limits.step import resolve
from kquota.pipeline.progress import Progress
from kquota.pipeline.simulation.simulated import own_limit_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROFILE = UsageProfile(rows=3_000, users=12, brokers=2, rules=8, cells_per_s=40, seed=3)


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, summary = ensure(tmp_path_factory.mktemp("generated"), PROFILE)
    assert summary["sums"]["rows"] == PROFILE.rows
    return directory


@pytest.fixture(scope="module")
def outputs(spark: SparkSession, usage: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What kquota and both baselines found, each below a directory of its own."""
    out = tmp_path_factory.mktemp("found")
    progress = Progress(sys.stderr, SystemClock(), quiet=True)
    (out / "ours").mkdir()
    usage_steps.utilisation(spark, usage, out / "ours", progress)
    with Dataset.open(usage).run(RESOLVE_STEP, spark=spark) as run:
        quotas = run.quotas()
        assert quotas is not None
        resolve(run, quotas)
        run.commit()
    usage_steps.held(spark, usage, out / "ours", progress, own_limit_only)
    baseline_duckdb_usage.utilisation(usage, out / "ours", out / "duckdb")
    baseline_duckdb_usage.held(usage, out / "ours", out / "duckdb")
    baseline_pyspark.held(spark, usage, usage / "quotas.yaml", out / "plain")
    return out


def test_generated_usage_is_the_table_usage(usage: Path) -> None:
    """Its columns, one row for each broker, second, client and key, and amounts that its requests can have."""
    wanted = {field.name: field.dataType.simpleString() for field in USAGE.schema}
    names = {"int": "INTEGER", "bigint": "BIGINT", "string": "VARCHAR", "double": "DOUBLE", "date": "DATE"}
    files = f"{usage}/usage/*/*.parquet"
    found = dict(row[:2] for row in duckdb.execute("describe select * from read_parquet($1)", [files]).fetchall())
    assert found == {name: names[kind] for name, kind in wanted.items()}
    place = "broker_id, cell_start_ms, user, client_id, key"
    cells, rows = duckdb.execute(
        f"select count(distinct ({place})), count(*) from read_parquet($1)", [files]
    ).fetchone() or (0, 0)
    assert cells == rows == PROFILE.rows
    wrong = "amount < requests or amount_max > amount or amount_max * requests < amount or requests < 1"
    assert duckdb.execute(f"select count(*) from read_parquet($1) where {wrong}", [files]).fetchone() == (0,)


def test_the_same_profile_gives_the_same_rows(usage: Path, tmp_path: Path) -> None:
    generate(tmp_path / "again", PROFILE)
    place = [(name, "ascending") for name in ("broker_id", "cell_start_ms", "user", "client_id", "key")]
    first, again = (Dataset.open(one).read("usage").sort_by(place) for one in (usage, tmp_path / "again"))
    assert first == again
    assert (tmp_path / "again/quotas.yaml").read_bytes() == (usage / "quotas.yaml").read_bytes()


def test_both_quota_files_have_all_rules_and_differ_in_each(usage: Path) -> None:
    now = read_quota_file((usage / "quotas.yaml").read_bytes(), name="quotas").snapshot()
    other_path = usage.parent / f"{usage.name}.{CANDIDATE}"
    other = read_quota_file(other_path.read_bytes(), name="candidate").snapshot()
    assert len(now) == PROFILE.rules
    assert now.keys() == other.keys()
    assert all(other[entity][key] < value for entity, values in now.items() for key, value in values.items())


def test_all_tools_find_the_same(outputs: Path) -> None:
    """Some meters are throttled, and every one has the figures that kquota gives it."""
    meters = check_utilisation(outputs / "ours", outputs / "duckdb/utilisation.parquet")
    assert check_held(outputs / "ours", outputs / "duckdb/held.parquet") == meters
    assert check_held(outputs / "ours", f"{outputs}/plain/held/*.parquet") == meters
    throttled = duckdb.execute(
        "select count(*) from read_parquet($1) where throttled_requests > 0", [f"{outputs}/ours/held/*.parquet"]
    ).fetchone()
    assert throttled is not None
    assert 0 < throttled[0] < meters


def test_one_different_figure_is_found(outputs: Path, tmp_path: Path) -> None:
    for name, check in (("utilisation", check_utilisation), ("held", check_held)):
        rows = pq.read_table(outputs / f"duckdb/{name}.parquet").to_pylist()
        column = "rate_p95" if name == "utilisation" else "throttled_ms"
        rows[0][column] += 1
        (tmp_path / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
        changed = tmp_path / f"{name}.parquet"
        duckdb.execute(f"copy (select * from read_json('{tmp_path / name}.json')) to '{changed}' (format parquet)")
        with pytest.raises(DifferentSumsError, match=r"1 meters differ"):
            check(outputs / "ours", changed)


@pytest.mark.parametrize("grid", usage_steps.GRIDS)
@pytest.mark.parametrize("count", [1, 8])
def test_grids_try_as_many_limits_as_they_say(
    spark: SparkSession, usage: Path, outputs: Path, tmp_path: Path, grid: str, count: int
) -> None:
    progress = Progress(sys.stderr, SystemClock(), quiet=True)
    usage_steps.held(spark, usage, tmp_path, progress, usage_steps.candidates(grid, count))
    found = spark.read.parquet(str(tmp_path / "held")).groupBy("broker_id", "meter", "key").count().collect()
    assert len(found) == spark.read.parquet(str(outputs / "ours/held")).count()
    assert {row["count"] for row in found} == {count}
