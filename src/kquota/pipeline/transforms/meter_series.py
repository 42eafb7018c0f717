"""Usage of limited meters as series over time: gathered by meter, summed by second.

Cells travel as blocks of bytes, of many meters each: shuffled one by one, they would cost more than all that is done
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.transforms.identities import IDENTITY, Identity, numbers_of
from kquota.pipeline.workers import forget_zip_importers

if TYPE_CHECKING:
    from kquota.pipeline.arrow_source import ArrowSource, Batches

__all__ = ["Floats", "Ints", "Meters", "Series", "series_by_meter"]

_SUMMED: Final = ("amount", "requests", "throttled_requests", "throttle_ms")
_COLUMNS: Final = ("broker_id", "cell_start_ms", *_SUMMED)
_CELL: Final = np.dtype(
    [
        ("meter", np.int32),
        ("broker_id", np.int32),
        ("cell_start_ms", np.int64),
        ("amount", np.float64),
        ("requests", np.int64),
        ("throttled_requests", np.int64),
        ("throttle_ms", np.int64),
    ]
)
_NAMES: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("meter", pa.string()),
        ("key", pa.string()),
        ("limit", pa.float64()),
        ("limit_source", pa.string()),
    ]
)
_BLOCKS: Final = pa.schema([("bucket", pa.int32()), ("cells", pa.binary())])
_BLOCK_ROWS: Final = 500_000
_BUCKETS_PER_PARTITION: Final = 4

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Meters:
    """Limited meters, numbered, and which identities count on them."""

    numbers: dict[Identity, int]
    names: pa.Table
    """cluster, meter, key, limit, limit_source: one row per meter."""

    @classmethod
    def of(cls, clients: DataFrame) -> Self:
        """Those of resolved clients. Like all that is broadcast they have to fit into the driver and each worker."""
        limited = clients.where(F.col("meter").isNotNull())
        rows = limited.select(*IDENTITY, "meter", "limit", "limit_source").toArrow().to_pylist()
        meters: dict[tuple[str, ...], int] = {}
        numbers: dict[Identity, int] = {}
        names: list[dict[str, object]] = []
        for row in rows:
            number = meters.setdefault((row["cluster"], row["meter"], row["key"]), len(names))
            if number == len(names):
                names.append({name: row[name] for name in _NAMES.names})
            numbers[tuple(row[name] for name in IDENTITY)] = number
        return cls(numbers, pa.Table.from_pylist(names, _NAMES))


@dataclass(frozen=True, slots=True)
class Series:
    """Columns, one element per meter, broker and second, in that order; a meter that is here is here as a whole.

    `meter` is the row of the meter in :attr:`Meters.names`; an unknown amount counts as 0.
    """

    meter: Ints
    broker_id: Ints
    cell_start_ms: Ints
    amount: Floats
    requests: Ints
    throttled_requests: Ints
    throttle_ms: Ints

    @property
    def starts(self) -> Ints:
        """The rows at which another meter, or another broker, begins."""
        return _starts(self.meter, self.broker_id)


def series_by_meter(
    usage: ArrowSource, clients: DataFrame, transform: Callable[[Series, Meters], pa.Table], schema: pa.Schema
) -> DataFrame:
    """Apply `transform` to the series of some meters at a time, until all were.

    :param usage: rows of the `usage` table.
    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    :param transform: gives columns that can be cast to `schema`; runs on workers.
    """
    spark = clients.sparkSession
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    buckets = partitions * _BUCKETS_PER_PARTITION
    meters = spark.sparkContext.broadcast(Meters.of(clients))

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        held: list[npt.NDArray[np.void]] = []
        for batch in batches:
            held.append(_cells(batch, meters.value))
            if sum(map(len, held)) >= _BLOCK_ROWS:
                yield _packed(np.concatenate(held), buckets)
                held.clear()
        if held:
            yield _packed(np.concatenate(held), buckets)

    def unpack(batches: Batches) -> Iterator[pa.RecordBatch]:
        forget_zip_importers()
        for cells in _buckets(batches):
            yield from transform(_to_series(cells), meters.value).cast(schema).to_batches()

    blocks = usage.select(*IDENTITY, *_COLUMNS).mapInArrow(pack, from_arrow_schema(_BLOCKS))
    together = blocks.repartition(partitions, "bucket").sortWithinPartitions("bucket")
    return together.mapInArrow(unpack, from_arrow_schema(schema))


def _cells(batch: pa.RecordBatch, meters: Meters) -> npt.NDArray[np.void]:
    """Of usage rows those that count on a meter."""
    meter = numbers_of(batch, meters.numbers)
    rows = np.flatnonzero(meter >= 0)
    cells = np.empty(len(rows), _CELL)
    cells["meter"] = meter[rows]
    for name in _COLUMNS:
        cells[name] = pc.fill_null(batch.column(name), 0).to_numpy(zero_copy_only=False)[rows]
    return cells


def _packed(cells: npt.NDArray[np.void], buckets: int) -> pa.RecordBatch:
    """Blocks of cells of whole meters, in :data:`_BLOCKS`."""
    bucket = (cells["meter"] % buckets).astype(np.uint16 if buckets <= 2**16 else np.uint32)  # few bytes sort faster
    order = np.argsort(bucket, kind="stable")
    cells, bucket = cells.take(order), bucket[order]  # several times faster than cells[order]
    starts = _starts(bucket)
    blocks = [block.tobytes() for block in np.split(cells, starts[1:])] if len(cells) else []
    return pa.record_batch([pa.array(bucket[starts], pa.int32()), pa.array(blocks, pa.binary())], schema=_BLOCKS)


def _buckets(batches: Batches) -> Iterator[npt.NDArray[np.void]]:
    """The cells of one bucket after the other, from blocks in order of bucket."""
    held: list[npt.NDArray[np.void]] = []
    current = None
    for batch in batches:
        for bucket, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if bucket != current and held:
                yield np.concatenate(held)
                held.clear()
            current = bucket
            held.append(np.frombuffer(block.as_buffer(), _CELL))
    if held:
        yield np.concatenate(held)


def _to_series(cells: npt.NDArray[np.void]) -> Series:
    order = np.lexsort((cells["cell_start_ms"], cells["broker_id"], cells["meter"]))
    columns = {name: cells[name][order] for name in ("meter", *_COLUMNS)}
    starts = _starts(columns["meter"], columns["broker_id"], columns["cell_start_ms"])
    return Series(
        **{
            name: np.add.reduceat(values, starts) if name in _SUMMED else values[starts]
            for name, values in columns.items()
        }
    )


def _starts(*columns: npt.NDArray[np.generic]) -> Ints:
    """The rows at which any of the columns changes."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)
