"""Cells of usage gathered by the meter that they count on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.spark.packed_rows import PackedRows, unpacked
from kquota.pipeline.spark.shuffle import BLOCKS, block_batch, bucket_count, partition_rows, shuffle_by_bucket

if TYPE_CHECKING:
    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["Bools", "Cells", "Floats", "Ints", "group_by_meter"]

Cells = npt.NDArray[np.void]
"""Structured rows with a field `meter`, a number."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_BLOCK_ROWS: Final = 250_000


def group_by_meter(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    to_cells: Callable[[pa.RecordBatch], Cells],
    transform: Callable[[Cells], pa.Table],
    schema: pa.Schema,
) -> DataFrame:
    """Apply `transform` to all cells of some meters at a time, until all were.

    :param columns: of `usage`, that `to_cells` needs.
    :param to_cells: what counts on meters, always of the same fields; runs on workers, as `transform` does.
    :param transform: gives columns that can be cast to `schema`, from cells in any order.
    """
    buckets = bucket_count(spark)

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        held: list[Cells] = []
        for batch in batches:
            held.append(to_cells(batch))
            if sum(map(len, held)) >= _BLOCK_ROWS:
                yield _packed(_joined(held), buckets)
                held.clear()
        if held:
            yield _packed(_joined(held), buckets)

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        yield from transform(_joined([unpacked(block) for block in blocks])).cast(schema).to_batches()

    return shuffle_by_bucket(usage.select(*columns).mapInArrow(pack, BLOCKS), work, from_arrow_schema(schema))


def _joined(cells: Sequence[Cells]) -> Cells:
    return cells[0] if len(cells) == 1 else np.concatenate(cells)


def _packed(cells: Cells, buckets: int) -> pa.RecordBatch:
    """Blocks of cells of whole meters."""
    order, starts, bucket = partition_rows(cells["meter"] % buckets)
    return block_batch(bucket, PackedRows(cells).parts(order, starts))
