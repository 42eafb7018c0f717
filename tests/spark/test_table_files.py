"""Tables that Spark writes: what its workers wrote is there, or it is said that it is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from kquota.pipeline.dataset import table_files
from kquota.pipeline.dataset.table_files import NotSharedStorageError, table_folder, write_table
from kquota.pipeline.dataset.tables import SHOWBACK, USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def usage(spark: SparkSession, rows: int) -> DataFrame:
    """Some rows of `usage`, of two days, in two partitions."""
    columns = [f"CAST(NULL AS {field.dataType.simpleString()}) {field.name}" for field in USAGE.schema]
    columns[USAGE.columns.index("date")] = "date_add(DATE '2026-01-01', CAST(id % 2 AS INT)) date"
    return spark.range(0, rows, 1, 2).selectExpr(*columns)


@pytest.mark.parametrize("rows", [0, 1, 1001])
def test_a_table_with_so_many_rows(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    """Without any it has a file with its columns."""
    write_table(usage(spark, rows), tmp_path, USAGE)
    assert pq.read_table(table_folder(tmp_path, USAGE)).num_rows == rows
    write_table(spark.createDataFrame([], SHOWBACK.schema), tmp_path, SHOWBACK)
    assert pq.read_table(table_folder(tmp_path, SHOWBACK)).column_names == list(SHOWBACK.columns)


def test_workers_that_write_elsewhere(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a folder of the same name on another disk: to the driver it stays empty."""
    monkeypatch.setattr(table_files, "location", lambda folder: f"file://{tmp_path}/elsewhere/{folder.name}")
    with pytest.raises(
        NotSharedStorageError, match=r"1,001 rows to .*/usage, and 0 are here: the directory has to be on a"
    ):
        write_table(usage(spark, 1001), tmp_path / "here", USAGE)
    assert not (tmp_path / "here").exists()


def test_some_that_write_elsewhere(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs beside the driver."""
    write_table(usage(spark, 2), tmp_path / "here", USAGE)
    monkeypatch.setattr(table_files, "location", lambda folder: f"file://{tmp_path}/elsewhere/{folder.name}")
    with pytest.raises(NotSharedStorageError, match=r"7 rows to .*/usage, and 2 are here"):
        write_table(usage(spark, 7), tmp_path / "here", USAGE)
