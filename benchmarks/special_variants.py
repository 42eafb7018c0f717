"""kquota's own way through the cells of meters with one of its parts taken out, to see what that part earns.

Each variant takes the place of :func:`kquota.pipeline.spark.group_by_meter.group_by_meter` while a job runs, and does
the same but for one thing. What workers need travels with the job. :func:`totals_of_parts` is another way to the totals
of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.idiomatic_kernels import whole_groups
from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.limits.clients import _CLIENT, _TOTALS, _sums
from kquota.pipeline.limits.identities import IDENTITY
from kquota.pipeline.simulation import cell_frames
from kquota.pipeline.spark.arrow import decode_dictionaries
from kquota.pipeline.spark.group_by_meter import Cells, group_by_meter
from kquota.pipeline.spark.parquet_source import ArrowSource, Batches
from kquota.pipeline.spark.shuffle import (
    BLOCKS,
    block_batch,
    bucket_count,
    from_blocks,
    group_starts,
    partition_rows,
    shuffle_by_bucket,
    sort_order,
)
from kquota.pipeline.spark.workers import drop_zip_importers
from kquota.pipeline.utilisation import meter_series
from kquota.pipeline.utilisation.meter_series import known_sums

__all__ = [
    "ARROW_BLOCKS",
    "COMBINED",
    "LZ4_BLOCKS",
    "ONE_SUM",
    "RAW_BLOCKS",
    "ROWS",
    "sum_cells",
    "totals_of_parts",
    "variant",
]

ARROW_BLOCKS: Final = "Arrow"
"""Rows are shuffled in Arrow's own format, as in all other shuffles of blocks, not packed."""
LZ4_BLOCKS: Final = "Arrow, lz4"
"""The same, with each column compressed."""
RAW_BLOCKS: Final = "raw"
"""Rows are shuffled as the bytes that they are in memory, not packed."""
ROWS: Final = "rows"
"""Rows are shuffled as rows of plain columns, by meter and broker, and not as blocks of bytes."""
ONE_SUM: Final = "plain sum"
"""The replay's cells are summed by NumPy, as those of the utilisation are, and not by compiled code of their own."""
COMBINED: Final = "combined"
"""One general function sums what a worker has read, by meter, broker and second, before it is shuffled; and the plain
sum follows after the shuffle."""

_BLOCK_ROWS: Final = 250_000
_PART_ROWS: Final = 1_000_000
_PLACE: Final = ("meter", "client", "broker_id", "is_sampled", "cell_start_ms", "cell_ms")
_GROUP: Final = ("meter", "broker_id")
_LARGEST: Final = ("amount_max",)

ToCells = Callable[[pa.RecordBatch], Cells]
Transform = Callable[[Cells], pa.Table]


@contextmanager
def variant(name: str | None) -> Iterator[None]:
    """Jobs that are planned within run so; None changes nothing.

    :raises ValueError: there is no such variant.
    """
    with ExitStack() as stack:
        if name is not None:
            other = _VARIANTS.get(name)
            if other is None:
                raise ValueError(f"no such variant: {name}")
            for module in (meter_series, cell_frames):
                stack.enter_context(mock.patch.object(module, "group_by_meter", other))
        yield


def sum_cells(cells: Cells, by: Sequence[str]) -> Cells:
    """Sum rows that are the same in all of some columns, in the order of these; of largest amounts take the largest.

    What is not known (NaN) counts as nothing beside what is.
    """
    order = sort_order(cells[by[-1]], *(cells[name] for name in reversed(by[:-1])))
    cells = cells.take(order)
    starts = group_starts(*(cells[name] for name in by))
    summed = np.empty(len(starts), cells.dtype)
    for name in cells.dtype.names or ():
        column = np.ascontiguousarray(cells[name])
        if name in by:
            summed[name] = column[starts]
        elif name in _LARGEST:
            summed[name] = np.maximum.reduceat(column, starts)
        elif column.dtype.kind == "f":
            summed[name] = known_sums(column, starts)
        else:
            summed[name] = np.add.reduceat(column, starts)
    return summed


def _with_arrow_blocks(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    to_cells: ToCells,
    transform: Transform,
    schema: pa.Schema,
    compression: str | None = None,
) -> DataFrame:
    """As `group_by_meter`. Structured rows become columns before the shuffle, and structured rows again after it."""
    buckets = bucket_count(spark)
    layout = _layout(columns, to_cells)

    def written(rows: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
            stream.write_table(rows)
        block: bytes = sink.getvalue().to_pybytes()
        return block

    def blocks_of(cells: Cells) -> pa.RecordBatch:
        order, starts, bucket = partition_rows(cells["meter"] % buckets)
        cells = cells.take(order)
        rows = pa.table({name: np.ascontiguousarray(cells[name]) for name in layout.names or ()})
        sizes = np.diff(np.append(starts, len(order))).tolist()
        parts = (rows.slice(start, size) for start, size in zip(starts.tolist(), sizes, strict=True))
        return block_batch(bucket, [written(part) for part in parts])

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        begun: list[Cells] = []
        for batch in batches:
            begun.append(to_cells(batch))
            if sum(map(len, begun)) >= _BLOCK_ROWS:
                yield blocks_of(np.concatenate(begun))
                begun.clear()
        if begun:
            yield blocks_of(np.concatenate(begun))

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        rows = from_blocks(blocks)
        cells = np.empty(rows.num_rows, layout)
        for name in layout.names or ():
            cells[name] = rows[name].to_numpy()
        yield from transform(cells).cast(schema).to_batches()

    return shuffle_by_bucket(usage.select(*columns).mapInArrow(pack, BLOCKS), work, from_arrow_schema(schema))


def _with_raw_blocks(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    to_cells: ToCells,
    transform: Transform,
    schema: pa.Schema,
) -> DataFrame:
    """As `group_by_meter`. What a row is made of has to be known where it is read."""
    buckets = bucket_count(spark)
    layout = _layout(columns, to_cells)

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        begun: list[Cells] = []
        for batch in batches:
            begun.append(to_cells(batch))
            if sum(map(len, begun)) >= _BLOCK_ROWS:
                yield _raw_blocks(np.concatenate(begun), buckets)
                begun.clear()
        if begun:
            yield _raw_blocks(np.concatenate(begun), buckets)

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        cells = np.concatenate([np.frombuffer(block, layout) for block in blocks])
        yield from transform(cells).cast(schema).to_batches()

    return shuffle_by_bucket(usage.select(*columns).mapInArrow(pack, BLOCKS), work, from_arrow_schema(schema))


def _raw_blocks(cells: Cells, buckets: int) -> pa.RecordBatch:
    order, starts, bucket = partition_rows(cells["meter"] % buckets)
    ordered = cells.take(order)
    return block_batch(bucket, [part.tobytes() for part in np.split(ordered, starts[1:])] if len(starts) else [])


def _layout(usage_columns: Sequence[str], to_cells: ToCells) -> np.dtype[np.void]:
    """What cells are made of: those of no rows say it."""
    every = to_arrow_schema(USAGE.schema)
    nothing = pa.record_batch(
        [pa.array([], every.field(name).type) for name in usage_columns], names=list(usage_columns)
    )
    return to_cells(nothing).dtype


def _with_rows(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    to_cells: ToCells,
    transform: Transform,
    schema: pa.Schema,
) -> DataFrame:
    """As `group_by_meter`, with cells as columns of Spark's."""
    layout = _layout(columns, to_cells)
    names = layout.names or ()
    fields = pa.schema([(name, pa.from_numpy_dtype(layout[name])) for name in names])

    def to_columns(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        for batch in batches:
            cells = to_cells(batch)
            yield pa.record_batch([np.ascontiguousarray(cells[name]) for name in names], schema=fields)

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        for rows in whole_groups(batches, _GROUP):
            cells = np.empty(rows.num_rows, layout)
            for name in names:
                cells[name] = rows[name].to_numpy()
            yield from transform(cells).cast(schema).to_batches()

    rows = usage.select(*columns).mapInArrow(to_columns, from_arrow_schema(fields))
    return rows.repartition(*_GROUP).sortWithinPartitions(*_GROUP).mapInArrow(work, from_arrow_schema(schema))


def _with_one_sum(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    to_cells: ToCells,
    transform: Transform,
    schema: pa.Schema,
) -> DataFrame:
    """As `group_by_meter`, without the replay's own sum."""
    return group_by_meter(spark, usage, columns, to_cells, _with_plain_sum(transform), schema)


def _with_combined_cells(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    to_cells: ToCells,
    transform: Transform,
    schema: pa.Schema,
) -> DataFrame:
    """As `group_by_meter`, with cells that are summed before the shuffle, a batch of a file at a time, and after it."""

    def to_summed_cells(batch: pa.RecordBatch) -> Cells:
        cells = to_cells(batch)
        return sum_cells(cells, _key_of(cells)) if len(cells) else cells

    return group_by_meter(spark, usage, columns, to_summed_cells, _with_plain_sum(transform), schema)


def _key_of(cells: Cells) -> list[str]:
    return [name for name in _PLACE if name in (cells.dtype.names or ())]


def _with_plain_sum(transform: Transform) -> Transform:
    """The same, with the plain sum where `transform` would have used the compiled one; others stay as they are."""

    def transform_plainly(cells: Cells) -> pa.Table:
        from kquota.pipeline.simulation import summed_cells

        with mock.patch.object(summed_cells, "summed", _summed):
            return transform(cells)

    return transform_plainly


def _summed(cells: Cells, order: npt.NDArray[np.int64]) -> Any:
    """What :func:`kquota.pipeline.simulation.summed_cells.summed` gives, without anything compiled."""
    from kquota.pipeline.simulation.summed_cells import _METER, SummedCells

    cells = cells.take(order)
    starts = group_starts(*(cells[name] for name in ("meter", "broker_id", "client", "cell_start_ms")))
    sums = {
        name: np.add.reduceat(cells[name], starts)
        for name in ("amount", "requests", "throttled_requests", "unknown_amounts")
    }
    size_ms = np.maximum.reduceat(cells["cell_ms"], starts).astype(np.int64)
    meter, broker_id = cells["meter"][starts], cells["broker_id"][starts]
    first = group_starts(meter, broker_id)
    meters = np.zeros(len(first), _METER)
    meters["meter"], meters["broker_id"], meters["first"] = meter[first], broker_id[first], first
    meters["largest"] = np.maximum.reduceat(np.maximum.reduceat(cells["amount_max"], starts), first)
    meters["cell_ms"] = np.maximum.reduceat(size_ms, first)
    for name in ("amount", "requests", "unknown_amounts"):
        meters[name] = np.add.reduceat(sums[name], first)
    meters["throttled_requests_logged"] = np.add.reduceat(sums["throttled_requests"], first)
    return SummedCells(
        cells["cell_start_ms"][starts],
        size_ms,
        sums["amount"],
        sums["requests"],
        cells["client"][starts].astype(np.int64),
        meters,
    )


def totals_of_parts(usage: ArrowSource) -> DataFrame:
    """As :func:`kquota.pipeline.limits.clients.to_client_totals`: Spark sums, as rows, what workers have summed."""
    columns = (*_CLIENT, *_TOTALS)
    schema = StructType([USAGE.schema[name] for name in columns])

    def parts(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        summed: pa.Table | None = None
        for batch in batches:
            of_batch = decode_dictionaries(_sums(pa.Table.from_batches([batch])))
            summed = of_batch if summed is None else _sums(pa.concat_tables([summed, of_batch]))
            if summed.num_rows > _PART_ROWS:
                yield from summed.to_batches()
                summed = None
        if summed is not None:
            yield from summed.to_batches()

    found = usage.select(*columns).mapInArrow(parts, schema).groupBy(*IDENTITY)
    sums = [getattr(F, how)(name).alias(name) for name, how in _TOTALS.items()]
    return found.agg(F.max("grain").alias("grain"), *sums).select(*columns)


_VARIANTS: Final = {
    ARROW_BLOCKS: _with_arrow_blocks,
    LZ4_BLOCKS: partial(_with_arrow_blocks, compression="lz4"),
    RAW_BLOCKS: _with_raw_blocks,
    ROWS: _with_rows,
    ONE_SUM: _with_one_sum,
    COMBINED: _with_combined_cells,
}
