"""Tables as folders of Parquet files: written whole, added to, and there even where they have no rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.pipeline.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["add_rows", "ensure_table", "write_table"]


def write_table(frame: DataFrame, staging: Path, table: Table) -> None:
    """Write a table under `staging`; one without rows has one file with its schema."""
    frame = table.conform(frame)
    frame.write.partitionBy(*table.partition_by).parquet(str(staging / table.name))
    ensure_table(staging, table)


def add_rows(staging: Path, table: Table, rows: DataFrame) -> None:
    """Add rows to a table that workers began."""
    folder = staging / f"part-{uuid4().hex}"
    table.conform(rows).write.partitionBy(*table.partition_by).parquet(str(folder))
    for path in folder.rglob("*.parquet"):
        place = staging / table.name / path.relative_to(folder).parent
        place.mkdir(parents=True, exist_ok=True)
        path.rename(place / path.name)
    shutil.rmtree(folder)


def ensure_table(staging: Path, table: Table) -> None:
    """A table without rows is still a table: one empty file with the schema."""
    folder = staging / table.name
    if not any(folder.rglob("*.parquet")):
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(to_arrow_schema(table.schema).empty_table(), folder / "empty.parquet", store_schema=False)
