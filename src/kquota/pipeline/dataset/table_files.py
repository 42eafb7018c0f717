"""Tables as folders of Parquet files, under a staging folder."""

from __future__ import annotations

from collections.abc import Iterable
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.errors import InputError, KquotaError
from kquota.pipeline.dataset.tables import (
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
from kquota.pipeline.ingest.chunks import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["NotSharedStorageError", "check_shared", "location", "table_folder", "take_in", "write_table"]

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


class NotSharedStorageError(KquotaError):
    """What workers wrote does not come to where the driver reads it."""

    def __init__(self, folder: Path, written: str, found: str) -> None:
        super().__init__(
            f"Spark's workers wrote {written} to {folder}, and {found} here: the directory has to be on a file system "
            "that this machine and all workers have mounted under the same path"
        )


def write_table(frame: DataFrame, staging: Path, table: Table) -> None:
    """Write a table under `staging`.

    :raises NotSharedStorageError: the workers wrote it elsewhere.
    """
    folder = staging / table.name
    written = Observation()
    frame = table.conform(frame).observe(written, F.count(F.lit(1)).alias("rows"))
    frame.write.partitionBy(*table.partition_by).parquet(location(folder))
    rows = sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))
    if rows != written.get["rows"]:
        raise NotSharedStorageError(folder, f"{written.get['rows']:,} rows", f"{rows:,} are")
    _ensure_file(staging, table)


def take_in(staging: Path, table: Table, files: Iterable[DataFile]) -> None:
    """Make a table of those of the staged files that were written for it.

    :raises NotSharedStorageError: the workers wrote one elsewhere.
    """
    own = [file for file in files if file.kind == table.name]
    check_shared(staging, own)
    for file in own:
        (staging / table.name / _EMPTY).unlink(missing_ok=True)
        target = staging / table.name / file.partition
        target.mkdir(parents=True, exist_ok=True)
        (staging / file.path).rename(target / Path(file.path).name)
    _ensure_file(staging, table)


def check_shared(staging: Path, files: Iterable[DataFile]) -> None:
    """See that files are here that workers say they wrote.

    :raises NotSharedStorageError: one is not.
    """
    for file in files:
        if not (staging / file.path).is_file():
            raise NotSharedStorageError(staging, file.path, "it is not")


def _ensure_file(staging: Path, table: Table) -> None:
    """A table without rows is still a table: one empty file with the schema."""
    folder = staging / table.name
    if not any(folder.rglob("*.parquet")):
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(to_arrow_schema(table.schema).empty_table(), folder / _EMPTY, store_schema=False)
