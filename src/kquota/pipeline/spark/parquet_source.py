"""Tables as a source of Arrow batches for functions that run on Spark's workers.

A function over whole batches needs no rows of the JVM: to make those of Parquet, and batches of those again, costs more
than most functions do. So workers read the files themselves, as they wrote them (docs/adr/0005).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StringType, StructType

from kquota.pipeline.spark.workers import drop_zip_importers, file_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArrowSource", "Batches", "ParquetSource"]

Batches = Iterable[pa.RecordBatch]

_BATCH_ROWS: Final = 262_144


class ArrowSource(Protocol):
    """Rows that a function over Arrow batches can be run on; a DataFrame is one. Strings may be dictionary-encoded."""

    def select(self, *columns: str) -> ArrowSource:
        """Only these columns."""

    def mapInArrow(self, func: Callable[[Batches], Batches], schema: StructType | str) -> DataFrame:  # noqa: N802 (as Spark's)
        """Apply `func` to the batches of each task; it returns batches of `schema`."""


class ParquetSource:
    """Parquet files read by Spark's workers without the JVM."""

    def __init__(
        self,
        spark: SparkSession,
        open_input: Callable[[str], pa.NativeFile],
        sizes: Mapping[str, int],
        schema: StructType,
    ) -> None:
        """Take files, and the columns to read of them.

        :param open_input: opens one by its path; workers get it pickled.
        :param sizes: in bytes, by path.
        """
        self._spark = spark
        self._open_input = open_input
        self._sizes = sizes
        self._schema = schema

    def select(self, *columns: str) -> ParquetSource:
        """Only these columns."""
        schema = StructType([self._schema[name] for name in columns])
        return ParquetSource(self._spark, self._open_input, self._sizes, schema)

    def mapInArrow(self, func: Callable[[Batches], Batches], schema: StructType | str) -> DataFrame:  # noqa: N802 (as Spark's)
        """Apply `func` to the batches of each task; it returns batches of `schema`."""
        read = self.read

        def work(batches: Batches) -> Iterator[pa.RecordBatch]:
            drop_zip_importers()
            yield from func(read(batches))

        return self.tasks.mapInArrow(work, schema)

    @property
    def tasks(self) -> DataFrame:
        """A row for each task: its number, of which :attr:`read` makes rows of this source."""
        count = len(self._tasks)
        return self._spark.range(0, count, 1, max(1, count))

    @property
    def read(self) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
        """Runs on workers, on batches of :attr:`tasks`."""
        paths, columns, open_input = list(self._sizes), self._schema.names, self._open_input
        strings = [field.name for field in self._schema if isinstance(field.dataType, StringType)]
        tasks = self._tasks

        def read(batches: Batches) -> Iterator[pa.RecordBatch]:
            numbers = (number for batch in batches for number in batch.column(0).to_pylist())
            for number in numbers:
                for path in (paths[index] for index in tasks[number]):
                    with open_input(path) as content, pq.ParquetFile(content, read_dictionary=strings) as file:
                        for rows in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                            yield rows.select(columns)

        return read

    @cached_property
    def _tasks(self) -> list[list[int]]:
        return file_tasks(self._spark, list(self._sizes.values()))
