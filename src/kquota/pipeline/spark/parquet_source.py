"""Tables as a source of Arrow batches for functions that run on Spark's workers.

A function over whole batches needs no rows of the JVM: to make those of Parquet, and batches of those again, costs more
than most functions do. So workers read the files themselves, as they wrote them (docs/adr/0005).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StringType, StructType

from kquota.errors import InputError
from kquota.pipeline.dataset.tables import Table
from kquota.pipeline.spark.workers import drop_zip_importers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArrowSource", "Batches", "ParquetSource"]

Batches = Iterable[pa.RecordBatch]

_BATCH_ROWS: Final = 262_144
_TASK_BYTES: Final = 32 * 1024**2
_TASKS_PER_CORE: Final = 3


class ArrowSource(Protocol):
    """Rows that a function over Arrow batches can be run on; a DataFrame is one. Strings may be dictionary-encoded."""

    def select(self, *columns: str) -> ArrowSource:
        """Only these columns."""

    def mapInArrow(self, func: Callable[[Batches], Batches], schema: StructType) -> DataFrame:  # noqa: N802 (as Spark's)
        """Apply `func` to the batches of each task; it returns batches of `schema`."""


class ParquetSource:
    """Parquet files read by Spark's workers without the JVM."""

    def __init__(self, spark: SparkSession, files: Sequence[Path], schema: StructType) -> None:
        """Take the files, and the columns to read of them."""
        self._spark = spark
        # Workers open them, and their current directory is another.
        self._files = [file.absolute() for file in files]
        self._schema = schema

    @classmethod
    def of_table(cls, spark: SparkSession, folder: Path, table: Table) -> Self:
        """A table's folder, without its partition columns.

        :raises InputError: another version of kquota wrote it, without some column, or the file looked at is damaged.
        """
        columns = [field for field in table.schema if field.name not in table.partition_by]
        files = list(folder.rglob("*.parquet"))
        try:
            written = pq.read_schema(files[0]).names if files else table.columns
        except pa.ArrowInvalid:
            raise InputError(f"{files[0]} is damaged: run the step that wrote it again") from None
        if missing := [field.name for field in columns if field.name not in written]:
            raise InputError(
                f"{folder}: another version of kquota wrote it, without the column {missing[0]}: run the step that "
                "wrote it again"
            )
        return cls(spark, files, StructType(columns))

    def select(self, *columns: str) -> ParquetSource:
        """Only these columns."""
        return ParquetSource(self._spark, self._files, StructType([self._schema[name] for name in columns]))

    def mapInArrow(self, func: Callable[[Batches], Batches], schema: StructType) -> DataFrame:  # noqa: N802 (as Spark's)
        """Apply `func` to the batches of each task; it returns batches of `schema`."""
        tasks = self._tasks()
        columns = self._schema.names
        strings = [field.name for field in self._schema if isinstance(field.dataType, StringType)]

        def read(paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
            for path in paths:
                with pq.ParquetFile(path, read_dictionary=strings) as file:
                    for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                        yield batch.select(columns)

        def work(batches: Batches) -> Iterator[pa.RecordBatch]:
            drop_zip_importers()
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from func(read(tasks[task]))

        return self._spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(work, schema)

    def _tasks(self) -> list[list[str]]:
        """Files by task: of about the same size, the largest first."""
        sizes = {str(path): path.stat().st_size for path in self._files}
        cores = self._spark.sparkContext.defaultParallelism
        target = min(_TASK_BYTES, sum(sizes.values()) // (cores * _TASKS_PER_CORE))
        tasks: list[list[str]] = []
        filled = target
        for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
            if filled >= target:
                tasks.append([])
                filled = 0
            tasks[-1].append(path)
            filled += sizes[path]
        return tasks
