"""Cells of usage gathered by the meter that they count on.

They travel as blocks of bytes, of many meters each: shuffled one by one, they would cost more than all that is done
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.workers import forget_zip_importers

if TYPE_CHECKING:
    from kquota.pipeline.arrow_source import ArrowSource, Batches

__all__ = ["Cells", "Floats", "Ints", "gather_by_meter", "starts_of"]

Cells = npt.NDArray[np.void]
"""Structured rows with a field `meter`, a number."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BLOCKS: Final = pa.schema([("bucket", pa.int32()), ("cells", pa.binary())])
_BLOCK_ROWS: Final = 500_000
_BUCKETS_PER_PARTITION: Final = 4


def gather_by_meter(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    to_cells: Callable[[pa.RecordBatch], Cells],
    cell: np.dtype[np.void],
    transform: Callable[[Cells], pa.Table],
    schema: pa.Schema,
) -> DataFrame:
    """Apply `transform` to all cells of some meters at a time, until all were.

    :param columns: of `usage`, that `to_cells` needs.
    :param to_cells: what counts on meters; runs on workers, as `transform` does.
    :param cell: what a row of it consists of, among that the number `meter`.
    :param transform: gives columns that can be cast to `schema`, from cells in any order.
    """
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    buckets = partitions * _BUCKETS_PER_PARTITION

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        held: list[Cells] = []
        for batch in batches:
            held.append(to_cells(batch))
            if sum(map(len, held)) >= _BLOCK_ROWS:
                yield _packed(np.concatenate(held), buckets)
                held.clear()
        if held:
            yield _packed(np.concatenate(held), buckets)

    def unpack(batches: Batches) -> Iterator[pa.RecordBatch]:
        forget_zip_importers()
        for cells in _buckets(batches, cell):
            yield from transform(cells).cast(schema).to_batches()

    blocks = usage.select(*columns).mapInArrow(pack, from_arrow_schema(_BLOCKS))
    together = blocks.repartition(partitions, "bucket").sortWithinPartitions("bucket")
    return together.mapInArrow(unpack, from_arrow_schema(schema))


def _packed(cells: Cells, buckets: int) -> pa.RecordBatch:
    """Blocks of cells of whole meters, in :data:`_BLOCKS`."""
    bucket = (cells["meter"] % buckets).astype(np.uint16 if buckets <= 2**16 else np.uint32)  # few bytes sort faster
    order = np.argsort(bucket, kind="stable")
    cells, bucket = cells.take(order), bucket[order]  # several times faster than cells[order]
    starts = starts_of(bucket)
    blocks = [block.tobytes() for block in np.split(cells, starts[1:])] if len(cells) else []
    return pa.record_batch([pa.array(bucket[starts], pa.int32()), pa.array(blocks, pa.binary())], schema=_BLOCKS)


def _buckets(batches: Batches, cell: np.dtype[np.void]) -> Iterator[Cells]:
    """The cells of one bucket after the other, from blocks in order of bucket."""
    held: list[Cells] = []
    current = None
    for batch in batches:
        for bucket, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if bucket != current and held:
                yield np.concatenate(held)
                held.clear()
            current = bucket
            held.append(np.frombuffer(block.as_buffer(), cell))
    if held:
        yield np.concatenate(held)


def starts_of(*columns: npt.NDArray[np.generic]) -> Ints:
    """The rows at which any of the columns changes."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)
