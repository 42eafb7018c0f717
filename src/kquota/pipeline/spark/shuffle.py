"""The one shuffle of the pipeline's own: Arrow tables, in blocks of many rows, come together by the number of a bucket.

A bucket holds whatever has to be looked at together: whole meters, the cells of one second, the rows of one topic. Who
reads rows cuts its table into one block for each bucket, an Arrow stream as bytes; Spark shuffles and sorts the blocks,
not the rows in them; and a function gets all blocks of a bucket at a time::

    rows   --to_blocks-->   (bucket, block)   --shuffle_by_bucket-->   work(blocks of bucket 0), work(those of 1), ...

To Spark a block is a number and some bytes. As rows of Spark's the same cells took nearly three times the CPU, because
the JVM copies, sorts and decodes each of them (docs/adr/0020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kquota.pipeline.spark.session import SHUFFLE_PARTITIONS
from kquota.pipeline.spark.workers import drop_zip_importers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.pipeline.spark.parquet_source import Batches

__all__ = [
    "BLOCKS",
    "bucket_by_bucket",
    "bucket_count",
    "from_blocks",
    "from_blocks_by_kind",
    "group_starts",
    "shuffle_by_bucket",
    "sort_order",
    "sorted_by_bucket",
    "to_blocks",
    "with_kind",
]

_BLOCKS: Final = pa.schema([("bucket", pa.int32()), ("block", pa.binary())])
BLOCKS: Final[StructType] = from_arrow_schema(_BLOCKS)
"""`bucket` is its number, `block` rows of it as an Arrow stream. A bucket may have many blocks."""

_BUCKETS_PER_PARTITION: Final = 4
_KIND: Final = b"kind"
_PARTITIONS: Final = 200
"""Spark's default, where its setting is no number: with ``auto`` Databricks chooses, but not for these buckets."""
_SPARSE: Final = 64
"""Where there are this many times more numbers than rows, numbers are sorted, not counted."""

Ints = npt.NDArray[np.int64]


def bucket_count(spark: SparkSession) -> int:
    """How many buckets there should be: a few for each partition of a shuffle."""
    partitions = str(spark.conf.get(SHUFFLE_PARTITIONS))
    return (int(partitions) if partitions.isdigit() else _PARTITIONS) * _BUCKETS_PER_PARTITION


def shuffle_by_bucket(
    blocks: DataFrame, work: Callable[[Sequence[pa.Buffer]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """Apply `work` to all blocks of a bucket, bucket by bucket. A worker has the blocks of one bucket in memory.

    :param blocks: rows of :data:`BLOCKS`.
    :param work: gives batches of `schema`; runs on workers.
    """
    return sorted_by_bucket(blocks).mapInArrow(lambda batches: bucket_by_bucket(batches, work), schema)


def sorted_by_bucket(blocks: DataFrame) -> DataFrame:
    """The shuffle by itself: all blocks of a bucket are in one partition, one after the other."""
    partitions = bucket_count(blocks.sparkSession) // _BUCKETS_PER_PARTITION
    return blocks.repartition(partitions, "bucket").sortWithinPartitions("bucket")


def bucket_by_bucket(
    batches: Batches, work: Callable[[Sequence[pa.Buffer]], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Apply `work` to all blocks of each bucket, on a worker that reads a partition of :func:`sorted_by_bucket`."""
    drop_zip_importers()
    buffered: list[pa.Buffer] = []
    current = None
    for batch in batches:
        for bucket, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if bucket != current and buffered:
                yield from work(buffered)
                buffered.clear()
            current = bucket
            buffered.append(block.as_buffer())
    if buffered:
        yield from work(buffered)


def group_starts(*columns: npt.NDArray[np.generic]) -> Ints:
    """The rows at which any of the columns changes."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def sort_order(at_ms: Ints, *groups: Ints) -> Ints:
    """How to order rows: by the last of the groups first, by the first after the others, and by time within."""
    code, size = np.zeros(len(at_ms), np.int64), 1
    for group in reversed(groups):
        place, count = _numbered(np.ascontiguousarray(group))
        if count > 1:
            code = code * count + place
            size *= count
    # Two bytes are sorted without comparing any.
    if size <= 2**16:
        code = code.astype(np.uint16)
    at_ms = np.ascontiguousarray(at_ms)
    if (at_ms[1:] >= at_ms[:-1]).all():
        return np.argsort(code, kind="stable")
    by_time = np.argsort(at_ms, kind="stable")  # mostly they are nearly in order, which this is fastest with
    order: Ints = by_time[np.argsort(code[by_time], kind="stable")]
    return order


def _numbered(group: Ints) -> tuple[Ints, int]:
    """Numbers for the values that there are, in their order; and how many."""
    if not len(group):
        return group, 0
    lowest, highest = int(group.min()), int(group.max())
    if highest - lowest > _SPARSE * len(group):
        values, group = np.unique(group, return_inverse=True)
        return group, len(values)
    is_there = np.zeros(highest - lowest + 1, np.bool_)
    group = group - lowest
    is_there[group] = True
    count = int(np.count_nonzero(is_there))
    return (np.cumsum(is_there) - 1)[group] if count > 1 else group, count


def to_blocks(table: pa.Table, bucket: Ints) -> pa.RecordBatch:
    """The rows of a table in blocks by bucket, a row of :data:`BLOCKS` each; :func:`from_blocks` reads them.

    :param bucket: by row of the table its number.
    """
    # Two bytes are sorted without comparing any.
    order = np.argsort(bucket.astype(np.uint16 if len(bucket) and bucket.max() < 2**16 else np.uint32), kind="stable")
    bucket = bucket[order]
    rows, starts = table.take(pa.array(order)), group_starts(bucket)
    sizes = np.diff(np.append(starts, len(order))).tolist()
    blocks = [_to_bytes(rows.slice(start, size)) for start, size in zip(starts.tolist(), sizes, strict=True)]
    ends = np.cumsum([0, *map(len, blocks)])
    # Made of buffers: to make an array of values takes longer than all else that is done with them.
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(blocks))]
    values = pa.Array.from_buffers(pa.binary(), len(blocks), buffers)
    return pa.record_batch([pa.array(bucket[starts], pa.int32()), values], schema=_BLOCKS)


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # Less for the JVM to copy and to sort: without it the shuffle of 10 million cells took 1 GB more memory.
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    block: bytes = sink.getvalue().to_pybytes()
    return block


def from_blocks(blocks: Sequence[pa.Buffer]) -> pa.Table:
    """The rows of some blocks of the same columns."""
    return pa.concat_tables([pa.ipc.open_stream(block).read_all() for block in blocks])


def with_kind(rows: pa.Table, kind: str) -> pa.Table:
    """The same rows, which :func:`from_blocks_by_kind` tells from those of other kinds in a bucket."""
    return rows.replace_schema_metadata({_KIND: kind})


def from_blocks_by_kind(blocks: Sequence[pa.Buffer]) -> dict[str, pa.Table]:
    """The rows of some blocks by their kind, where different tables were shuffled together."""
    found: dict[str, list[pa.Table]] = {}
    for block in blocks:
        rows = pa.ipc.open_stream(block).read_all()
        kind = rows.schema.metadata[_KIND].decode()
        found.setdefault(kind, []).append(rows.replace_schema_metadata())
    return {kind: pa.concat_tables(tables) for kind, tables in found.items()}
