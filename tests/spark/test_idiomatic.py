"""The baseline of idiomatic PySpark, and kquota's own way with one part taken out, find what kquota finds."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bench_idiomatic import SPECIAL, TABLES, check_outputs
from benchmarks.generate_usage import CANDIDATE, ensure
from benchmarks.idiomatic_analyze import TABLES as ANALYSED
from benchmarks.idiomatic_analyze import analyze
from benchmarks.idiomatic_kernels import whole_groups
from benchmarks.idiomatic_page import idiomatic_section
from benchmarks.idiomatic_steps import BOTH, FORMS, STEPS, run_step
from benchmarks.same_tables import check_same_table
from benchmarks.sums import DifferentSumsError
from benchmarks.usage_traffic import EVEN, SKEWED, UsageProfile
from kquota.files import QuotaFile, read_quota_file, write_yaml
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import RESOLVE_STEP
from kquota.pipeline.limits.step import resolve
from kquota.quotas import CLIENT_ID, USER, ClientQuotaEntity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = Path(__file__).parents[2] / "examples" / "capture" / "sample"
LINES = 6_000


@pytest.fixture(scope="module")
def usage(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated usage with the table `clients` of a what-if, and other quotas, under which some clients move."""
    profile = UsageProfile(rows=3_000, users=12, brokers=2, rules=8, cells_per_s=40, seed=3, shape=SKEWED)
    directory, _ = ensure(tmp_path_factory.mktemp("generated"), profile)
    with Dataset.open(directory).run(RESOLVE_STEP, spark=spark) as run:
        quotas = run.quotas()
        assert quotas is not None
        resolve(run, quotas)
        run.commit()
    candidate = directory.parent / f"{directory.name}.{CANDIDATE}"
    rules = dict(read_quota_file(candidate.read_bytes(), name="candidate").snapshot())
    for name in ("user-00003", "hot"):
        rules[ClientQuotaEntity({USER: name, CLIENT_ID: "hot-00002" if name == "hot" else "app-0"})] = {
            "producer_byte_rate": 20_000.0
        }
    candidate.write_text(write_yaml(QuotaFile.of(rules)), encoding="utf-8")
    return directory


@pytest.mark.parametrize("step", STEPS)
def test_all_forms_of_a_step_write_the_same_tables(spark: SparkSession, usage: Path, step: str, tmp_path: Path) -> None:
    forms = [name for name, form in FORMS.items() if step in form.steps]
    outputs = {name: tmp_path / str(number) for number, name in enumerate(forms)}
    for name, out in outputs.items():
        out.mkdir()
        run_step(spark, step, FORMS[name], usage, out)
    assert min(check_outputs(step, outputs).values()) > 10


def test_two_quotas_move_clients_to_other_meters(spark: SparkSession, usage: Path, tmp_path: Path) -> None:
    """So that forms that agree agree on that, too."""
    run_step(spark, BOTH, FORMS["idiomatic"], usage, tmp_path)
    rows = pq.read_table(tmp_path / "whatif").to_pylist()
    assert {row["previous_meters"] for row in rows} == {None, "user=user-00003", "user=hot"}


def test_a_skewed_table_has_half_of_its_rows_on_one_meter_of_one_broker(usage: Path) -> None:
    rows = pq.read_table(usage / "usage", columns=["user", "key", "broker_id"]).to_pylist()
    of_hot = [row for row in rows if row["user"] == "hot"]
    assert len(of_hot) / len(rows) == pytest.approx(0.5, abs=0.05)
    assert all(row == {"user": "hot", "key": "producer_byte_rate", "broker_id": 1} for row in of_hot)


def test_only_a_skewed_table_says_its_shape_in_its_name() -> None:
    assert UsageProfile().name == "usage-50000000-10000-1000-2000-1"
    assert UsageProfile(shape=SKEWED).name == f"{UsageProfile().name}-{SKEWED}"


def test_an_analysis_with_idiomatic_steps_writes_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    with gzip.open(SAMPLE / "kafka-request.log.gz", "rb") as log:
        (tmp_path / "some.log").write_bytes(b"".join(next(log) for _ in range(LINES)))
    for form in (SPECIAL, "idiomatic"):
        analyze(
            [str(tmp_path / "some.log")],
            SAMPLE / "quotas.yaml",
            tmp_path / form,
            form,
            keep_requests=False,
            report=False,
            quiet=True,
        )
    first, second = tmp_path / SPECIAL, tmp_path / "idiomatic"
    for table in ("usage", "clients", "utilisation", "throttled"):
        assert check_same_table(first / table, second / table, ANALYSED[table]) > 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_groups_are_never_cut_whatever_the_batches(places: list[tuple[int, int]], cuts: list[int]) -> None:
    """Nor are rows lost, or put in another order."""
    places.sort()
    rows = pa.table({"number": [a for a, _ in places], "broker_id": [b for _, b in places], "row": range(len(places))})
    ends = sorted({0, len(places), *(cut for cut in cuts if cut <= len(places))})
    batches = [batch for begin, end in pairwise(ends) for batch in rows.slice(begin, end - begin).to_batches()]
    found = list(whole_groups(batches, ("number", "broker_id")))
    assert [row for table in found for row in table["row"].to_pylist()] == list(range(len(places)))
    seen = [{(row["number"], row["broker_id"]) for row in table.to_pylist()} for table in found]
    assert sum(map(len, seen)) == len(set(places))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"value": [1.0, 2.0 + 1e-8]}, "1 rows differ"),
        ({"count": [3, 5]}, "1 rows differ"),
        ({"count": [3, None]}, "1 rows differ"),
        ({"key": ["a", "c"]}, "2 rows differ"),
        ({"other": [0, 0]}, "same columns"),
    ],
)
def test_tables_that_differ_are_found(changed: dict[str, list[object]], message: str, tmp_path: Path) -> None:
    columns = {"key": ["a", "b"], "value": [1.0, 2.0], "count": [3, 4], "limit": [np.inf, None], "list": [["x"], []]}
    for name, table in (
        ("ours", columns),
        ("same", columns | {"value": [1.0, 2.0 + 1e-12]}),
        ("other", columns | changed),
    ):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(table), tmp_path / name / "part.parquet")
    assert check_same_table(tmp_path / "ours", tmp_path / "same", ["key"]) == 2
    with pytest.raises(DifferentSumsError, match=message):
        check_same_table(tmp_path / "ours", tmp_path / "other", ["key"])


def test_the_page_puts_each_form_beside_kquotas_own() -> None:
    def found(work_s: float) -> dict[str, object]:
        times = {
            name: {"median": work_s, "least": work_s - 1, "most": work_s} for name in ("wall_s", "work_s", "cpu_s")
        }
        return times | {"peak_pss_mb": 1500, "shuffle_mb": 12.3}

    result = {
        "rows": 1000, "rounds": 3, "shape": EVEN, "partitions": None,
        "usage_bytes": 5_000_000, "command": "python -m it",
        "machine": {"load_1min": 0.1}, "steps": {"what-if": {SPECIAL: found(2.0), "idiomatic": found(5.0)}},
    }  # fmt: skip
    page = idiomatic_section([result], lambda _: "here")
    times = "5.0 (4.0-5.0) | 5.0 (4.0-5.0) | 5.0 (4.0-5.0)"
    assert f"| 1,000 even | what-if | idiomatic | 3 | {times} | 1,500 | 12 | 2.50 | 2.50 |" in page
    assert set(TABLES) == set(STEPS)
