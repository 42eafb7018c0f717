"""kquota's own way through the cells of meters, with rows of Spark's in the shuffle in place of blocks.

What :func:`shuffled_as_rows` puts in the place of :func:`kquota.pipeline.spark.group_by_meter.group_by_meter` does the
same but for that: it shows what the blocks earn.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from benchmarks.idiomatic_kernels import whole_groups
from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.meters import meter_series
from kquota.pipeline.simulation import cell_frames
from kquota.pipeline.spark.group_by_meter import Cells
from kquota.pipeline.spark.lazy_values import LazyValue, map_in_arrow
from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["shuffled_as_rows"]

_GROUP: Final = ("meter", "broker_id")


@contextmanager
def shuffled_as_rows() -> Iterator[None]:
    """Jobs that are planned within shuffle cells as rows of plain columns. What workers need travels with the job."""
    with ExitStack() as stack:
        for module in (meter_series, cell_frames):
            stack.enter_context(mock.patch.object(module, "group_by_meter", _group_by_meter))
        yield


def _group_by_meter(
    spark: SparkSession,
    usage: ArrowSource,
    columns: Sequence[str],
    meters: LazyValue[Any],
    to_cells: Callable[[pa.RecordBatch, Any], Cells],
    transform: Callable[[Cells, Any], pa.Table],
    schema: pa.Schema,
) -> DataFrame:
    del spark
    layout = _layout(columns, lambda batch: to_cells(batch, _collected(meters)))
    names = layout.names or ()
    fields = pa.schema([(name, pa.from_numpy_dtype(layout[name])) for name in names])

    def to_columns(known: Any, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            cells = to_cells(batch, known)
            yield pa.record_batch([np.ascontiguousarray(cells[name]) for name in names], schema=fields)

    def work(known: Any, batches: Batches) -> Iterator[pa.RecordBatch]:
        for rows in whole_groups(batches, _GROUP):
            cells = np.empty(rows.num_rows, layout)
            for name in names:
                cells[name] = rows[name].to_numpy()
            yield from transform(cells, known).cast(schema).to_batches()

    rows = map_in_arrow(usage.select(*columns), meters, to_columns, from_arrow_schema(fields))
    in_order = rows.repartition(*_GROUP).sortWithinPartitions(*_GROUP)
    return map_in_arrow(in_order, meters, work, from_arrow_schema(schema))


def _collected(meters: LazyValue[Any]) -> Any:
    values = [pickle.loads(one) for one in meters.frame.collect()[0][0]]
    return values[0] if len(values) == 1 else tuple(values)


def _layout(usage_columns: Sequence[str], to_cells: Callable[[pa.RecordBatch], Cells]) -> np.dtype[np.void]:
    """What a row of cells is made of, which Spark has to know beforehand: the cells of no usage say it."""
    every = to_arrow_schema(USAGE.schema)
    nothing = [pa.array([], every.field(name).type) for name in usage_columns]
    return to_cells(pa.record_batch(nothing, names=list(usage_columns))).dtype
