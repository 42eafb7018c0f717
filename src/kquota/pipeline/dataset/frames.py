"""Tables of a dataset in Spark. Spark itself is imported where it is called: readers of datasets do without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.tables import Table
from kquota.pipeline.dataset.writing import TableWriter, read_file
from kquota.pipeline.spark.workers import drop_zip_importers, file_tasks
from kquota.pipeline.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.pipeline.spark.parquet_source import ParquetSource

__all__ = ["files_source", "table_frame", "write_frame"]

_FILE_ROWS: Final = 1_000_000
"""A task writes a file after about this many rows, and has no more of them in memory."""
_BATCH_ROWS: Final = 65_536
_GLOB: Final = re.compile(r"([\\*?\[\]{}])")
"""What Spark takes for a pattern in a path."""
_DESCRIBED: Final = pa.schema([("file", pa.binary())])

_Batches = Iterable[pa.RecordBatch]


def table_frame(spark: SparkSession, storage: Storage, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """A table that consists of these files.

    Spark looks for each file: of more than 32, which is a setting of the caller's session, in a job of its own. That
    took 0.09 s for 200 files on two cores, and no less without the job. On a storage that it cannot read without
    packages of its own, its Python workers do that.
    """
    if not files:
        return spark.createDataFrame([], table.schema)
    base = storage.spark_url(table.name)
    if base is None:
        return _read_by_workers(spark, storage, table, files)
    paths = [_GLOB.sub(r"\\\1", f"{base}{file.path.removeprefix(table.name)}") for file in files]
    return spark.read.schema(table.schema).option("basePath", base).parquet(*paths).select(*table.columns)


def _read_by_workers(spark: SparkSession, storage: Storage, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """As :func:`table_frame`. All columns are read, whichever are asked for."""
    tasks = file_tasks(spark, [file.bytes for file in files])

    def work(batches: _Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for place in tasks[index]:
                    yield from read_file(storage, files[place], table, table.columns).to_batches(_BATCH_ROWS)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, table.schema)


def files_source(spark: SparkSession, storage: Storage, schema: pa.Schema, files: Sequence[DataFile]) -> ParquetSource:
    """Arrow batches of any files, with the columns of `schema`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from kquota.pipeline.spark.parquet_source import ParquetSource

    sizes = {file.path: file.bytes for file in files}
    return ParquetSource(spark, storage.open_input, sizes, from_arrow_schema(schema))


def write_frame(frame: DataFrame, writer: TableWriter) -> list[DataFile]:
    """Let workers write the rows of a frame; each task writes its own files."""
    assert writer.table is not None
    rows = writer.table.conform(frame).mapInArrow(_writing(writer), "file binary").collect()
    return [msgspec.json.decode(row.file, type=DataFile) for row in rows]


def _writing(writer: TableWriter) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    def work(batches: _Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        buffered: list[pa.RecordBatch] = []
        for batch in batches:
            buffered.append(batch)
            if sum(one.num_rows for one in buffered) >= _FILE_ROWS:
                yield _described(writer, buffered)
                buffered = []
        if buffered:
            yield _described(writer, buffered)

    return work


def _described(writer: TableWriter, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    files = writer.write(pa.Table.from_batches(batches))
    return pa.RecordBatch.from_arrays([pa.array(map(msgspec.json.encode, files), pa.binary())], schema=_DESCRIBED)
