"""Tables as folders of Parquet files, under a staging folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.pipeline.sources.staging import StagedFile
from kquota.pipeline.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["location", "take_in", "write_table"]

_EMPTY: Final = "empty.parquet"


def location(folder: Path) -> str:
    """A folder for Spark, which on a cluster may take a plain path for one of its default file system, such as HDFS."""
    return f"file://{folder.absolute()}"


def write_table(frame: DataFrame, staging: Path, table: Table) -> None:
    """Write a table under `staging`."""
    frame = table.conform(frame)
    frame.write.partitionBy(*table.partition_by).parquet(location(staging / table.name))
    _ensure_file(staging, table)


def take_in(staging: Path, table: Table, files: Iterable[StagedFile]) -> None:
    """Make a table of those of the staged files that were written for it."""
    for file in files:
        if file.kind == table.name:
            (staging / table.name / _EMPTY).unlink(missing_ok=True)
            target = staging / table.name / file.partition
            target.mkdir(parents=True, exist_ok=True)
            (staging / file.path).rename(target / Path(file.path).name)
    _ensure_file(staging, table)


def _ensure_file(staging: Path, table: Table) -> None:
    """A table without rows is still a table: one empty file with the schema."""
    folder = staging / table.name
    if not any(folder.rglob("*.parquet")):
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(to_arrow_schema(table.schema).empty_table(), folder / _EMPTY, store_schema=False)
