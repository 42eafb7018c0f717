"""Tables as folders of Parquet files, under a staging folder."""

from __future__ import annotations

from collections.abc import Iterable
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.errors import InputError
from kquota.pipeline.sources.staging import StagedFile
from kquota.pipeline.tables import (
    CALIBRATION,
    CLIENTS,
    CURVE,
    LIMITS,
    RECOMMENDATIONS,
    SHOWBACK,
    THROTTLED,
    UTILISATION,
    WHATIF,
    Table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["location", "table_folder", "take_in", "write_table"]

_EMPTY: Final = "empty.parquet"
_END: Final = b"PAR1"
"""How every whole Parquet file ends."""
_STEPS: Final = {
    "resolve": (CLIENTS, LIMITS),
    "utilisation": (UTILISATION, THROTTLED, CALIBRATION),
    "whatif": (WHATIF,),
    "sweep": (CURVE,),
    "recommend": (RECOMMENDATIONS,),
    "showback": (SHOWBACK,),
}
"""By step of the pipeline the tables that it writes; the others are of the ingest."""


def table_folder(directory: Path, table: Table) -> Path:
    """Where a table is, in a directory that an earlier run wrote.

    :raises InputError: it is not there, or not whole.
    """
    folder = directory / table.name
    step = next((name for name, tables in _STEPS.items() if table in tables), None)
    written_by = "`kquota analyze` or `kquota pipeline ingest`" if step is None else f"`kquota pipeline {step}`"
    files = list(folder.rglob("*.parquet"))
    if not files:
        raise InputError(f"{directory} has no table {table.name}: {written_by} writes it")
    for path in files:
        if not _is_whole(path):
            raise InputError(f"{path} is damaged or was cut short: {written_by} writes it anew")
    return folder


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(max(0, size - len(_END)))
        return size >= 2 * len(_END) and file.read() == _END


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
