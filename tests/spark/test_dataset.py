"""Tables of a dataset as Spark writes and reads them."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from kquota.pipeline.dataset import frames
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import ConflictError, MissingTableError, NotSharedStorageError
from kquota.pipeline.dataset.steps import INGEST_STEP, SWEEP_STEP
from kquota.pipeline.dataset.tables import CLIENTS, CURVE, USAGE, SchemaMismatchError
from kquota.pipeline.dataset.writing import TableWriter
from tests.kit.datasets import analysed, left_over, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = "a [b] {c,d} *e? f,g 100%25 ü"
"""What Spark could take for a pattern, for several paths or for an escape."""


def curve(spark: SparkSession, rows: int) -> DataFrame:
    return spark.createDataFrame(
        [tuple({"limit": float(n), "meter": "user=alice"}.get(name) for name in CURVE.columns) for n in range(rows)],
        CURVE.schema,
    )


def test_what_workers_write_is_read_by_spark_and_without_it(spark: SparkSession, tmp_path: Path) -> None:
    with analysed(tmp_path / ODD).run(SWEEP_STEP, spark=spark) as run:
        run.write("curve", curve(spark, 100))
        assert run.frame("curve").count() == 100
        dataset = run.commit()
    assert sorted(dataset.read("curve")["limit"].to_pylist()) == [float(n) for n in range(100)]
    assert {row.limit for row in dataset.frame(spark, "curve").collect()} == set(range(100))
    assert sum(file.rows for file in dataset.files("curve")) == 100
    assert left_over(dataset) == []


def test_partitions_are_columns_for_spark(spark: SparkSession, tmp_path: Path) -> None:
    dataset = analysed(tmp_path / ODD, 7)
    frame = dataset.frame(spark, "usage")
    assert frame.schema == USAGE.schema
    assert sorted(row.date for row in frame.where("requests = 7").collect()) == [date(2026, 1, 1), date(2026, 1, 2)]


def test_workers_read_files_without_the_columns_of_their_paths(spark: SparkSession, tmp_path: Path) -> None:
    source = analysed(tmp_path / ODD, 7).source(spark, "usage")
    requests = StructType().add("requests", LongType())
    found = source.select("requests").mapInArrow(lambda batches: batches, requests).collect()
    assert [row.requests for row in found] == [7, 7]


def test_a_table_without_rows_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    with analysed(tmp_path).run(SWEEP_STEP, spark=spark) as run:
        run.write("curve", curve(spark, 0))
        dataset = run.commit()
    assert dataset.files("curve") == ()
    assert dataset.frame(spark, "curve").schema == CURVE.schema
    assert dataset.frame(spark, "curve").collect() == []


def test_a_large_table_is_several_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(SWEEP_STEP, spark=spark) as run:
        batch = pa.RecordBatch.from_pylist([dict.fromkeys(CURVE.columns)] * 400_000, CURVE.arrow_schema)
        written = frames._writing(run.writer("curve"))([batch] * 6)
        assert len(list(written)) == 2


def test_a_frame_with_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with analysed(tmp_path).run(SWEEP_STEP, spark=spark) as run, pytest.raises(SchemaMismatchError, match="limit"):
        run.write("curve", curve(spark, 1).drop("limit"))


def test_a_table_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    for read in (dataset.frame, dataset.source):
        with pytest.raises(MissingTableError):
            read(spark, "curve")


def test_workers_on_another_machine(spark: SparkSession, tmp_path: Path) -> None:
    """They write under the same path, on another disk."""
    with Dataset.create(tmp_path / "here").run(INGEST_STEP, spark=spark) as run:
        there = analysed(tmp_path / "there")
        files = TableWriter(there.storage, "rejected", run.id).write(rows_of(CLIENTS, {"user": "alice"}))
        with pytest.raises(NotSharedStorageError) as caught:
            run.add("rejected", files)
        assert caught.value.path == files[0].path


def test_a_job_whose_table_is_replaced_is_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    def work() -> None:
        with analysed(tmp_path).run(SWEEP_STEP, spark=spark) as run:
            clients = run.frame("clients")
            analysed(tmp_path, 2)
            clients.collect()

    with pytest.raises(ConflictError) as caught:
        work()
    assert caught.value.by == ("analyze",)
