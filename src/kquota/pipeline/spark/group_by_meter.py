"""The door through which rows of usage come to the meter that they count on, whole meters at a time.

Usage lies in files by time, and most steps need all of a meter's cells at once. Workers read the files, keep what
counts on a meter as rows of numbers, and shuffle these in blocks (:mod:`kquota.pipeline.spark.shuffle`); a function
then gets the cells of a bucket of meters, and gives a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.spark.lazy_values import LazyValue, map_in_arrow
from kquota.pipeline.spark.shuffle import (
    BLOCKS,
    bucket_by_bucket,
    bucket_count,
    from_blocks,
    sorted_by_bucket,
    to_blocks,
)

if TYPE_CHECKING:
    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["Bools", "Cells", "Floats", "Ints", "group_by_meter"]

Cells = npt.NDArray[np.void]
"""Structured rows with a field `meter`, a number."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_BLOCK_ROWS: Final = 250_000

_T = TypeVar("_T")


def group_by_meter(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    meters: LazyValue[_T],
    to_cells: Callable[[pa.RecordBatch, _T], Cells],
    transform: Callable[[Cells, _T], pa.Table],
    schema: pa.Schema,
) -> DataFrame:
    """Apply `transform` to all cells of some meters at a time, until all were.

    :param columns: of `usage`, that `to_cells` needs.
    :param meters: what both functions get, too.
    :param to_cells: what counts on meters, always of the same fields; runs on workers, as `transform` does.
    :param transform: gives columns that can be cast to `schema`, from cells in any order.
    """
    buckets = bucket_count(spark)

    def blocks_of(cells: Sequence[Cells]) -> pa.RecordBatch:
        rows = _to_table(cells[0] if len(cells) == 1 else np.concatenate(cells))
        return to_blocks(rows, rows["meter"].to_numpy() % buckets)

    def to_block_batches(meters: _T, batches: Batches) -> Iterator[pa.RecordBatch]:
        buffered: list[Cells] = []
        for batch in batches:
            buffered.append(to_cells(batch, meters))
            if sum(map(len, buffered)) >= _BLOCK_ROWS:
                yield blocks_of(buffered)
                buffered.clear()
        if buffered:
            yield blocks_of(buffered)

    def transformed(meters: _T, batches: Batches) -> Iterator[pa.RecordBatch]:
        def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
            yield from transform(_to_cells(from_blocks(blocks)), meters).cast(schema).to_batches()

        return bucket_by_bucket(batches, work)

    blocks = map_in_arrow(usage.select(*columns), meters, to_block_batches, BLOCKS)
    return map_in_arrow(sorted_by_bucket(blocks), meters, transformed, from_arrow_schema(schema))


def _to_table(cells: Cells) -> pa.Table:
    return pa.table({name: np.ascontiguousarray(cells[name]) for name in cells.dtype.names or ()})


def _to_cells(rows: pa.Table) -> Cells:
    """What :func:`_to_table` was given."""
    cells = np.empty(rows.num_rows, [(field.name, field.type.to_pandas_dtype()) for field in rows.schema])
    for name in rows.schema.names:
        cells[name] = rows[name].to_numpy()
    return cells
