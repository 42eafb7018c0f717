"""Functions over Arrow batches find the same in a table's files as in the DataFrame of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.limits.clients import to_client_totals
from kquota.pipeline.spark.parquet_source import ArrowSource
from tests.kit.analysis_directory import AnalysisDirectory

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@pytest.fixture
def usage(tmp_path: Path) -> Dataset:
    analysis = AnalysisDirectory()
    for number in range(500):
        client_id = ("etl", "", None)[number % 3]
        amount = None if number % 7 == 0 or client_id is None else number / 8
        analysis.usage(f"user-{number % 5}", client_id, number * 1000, amount, throttle_ms=number)
    return Dataset.open(analysis.write(tmp_path / "out"))


def totals(source: ArrowSource) -> "set[Row]":
    return set(to_client_totals(source).collect())


def test_files_and_dataframe_give_the_same(spark: "SparkSession", usage: Dataset) -> None:
    """Sums per client, over several partitions, with nulls among names and amounts."""
    assert len(usage.files("usage")) > 3
    found = totals(usage.source(spark, "usage"))
    assert found == totals(usage.frame(spark, "usage"))
    assert len(found) == 15
    assert sum(row.throttle_ms for row in found) == sum(range(500))
    assert {row.amount for row in found if row.client_id is None} == {None}


def test_only_wanted_columns_are_read_in_the_order_asked_for(spark: "SparkSession", usage: Dataset) -> None:
    """A function gets the columns that it selected, as it named them."""

    def names(batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"names": [",".join(batch.schema.names)]})

    schema = StructType([StructField("names", StringType())])
    source = usage.source(spark, "usage").select("key", "amount", "cluster")
    assert {row.names for row in source.mapInArrow(names, schema).collect()} == {"key,amount,cluster"}


def test_a_table_without_rows_has_no_rows(spark: "SparkSession", tmp_path: Path) -> None:
    """Nothing in, nothing out."""
    empty = Dataset.open(AnalysisDirectory().write(tmp_path / "out"))
    assert totals(empty.source(spark, "usage")) == set()
