"""Usage of limited meters as series over time: gathered by meter, summed by second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kquota.pipeline.gathering import starts_of
from kquota.pipeline.transforms.identities import IDENTITY, Identity, numbers_of
from kquota.pipeline.transforms.meter_cells import Cells, Floats, Ints, gather_by_meter

if TYPE_CHECKING:
    from kquota.pipeline.arrow_source import ArrowSource

__all__ = ["Meters", "Series", "series_by_meter"]

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


@dataclass(frozen=True, slots=True)
class Meters:
    """Limited meters, numbered, and which identities count on them."""

    numbers: dict[Identity, int]
    names: pa.Table
    """cluster, meter, key, limit, limit_source: one row per meter."""

    @property
    def clients(self) -> dict[Identity, int]:
        """The identities, numbered each for itself."""
        return {identity: number for number, identity in enumerate(self.numbers)}

    @property
    def of_client(self) -> Ints:
        """The meter of each of :attr:`clients`."""
        return np.array(list(self.numbers.values()), np.int64)

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
        return starts_of(self.meter, self.broker_id)


def series_by_meter(
    usage: ArrowSource, clients: DataFrame, transform: Callable[[Series, Meters], pa.Table], schema: pa.Schema
) -> DataFrame:
    """Apply `transform` to the series of some meters at a time, until all were.

    :param usage: rows of the `usage` table.
    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    :param transform: gives columns that can be cast to `schema`; runs on workers.
    """
    spark = clients.sparkSession
    meters = spark.sparkContext.broadcast(Meters.of(clients))
    return gather_by_meter(
        spark,
        usage,
        (*IDENTITY, *_COLUMNS),
        lambda batch: _cells(batch, meters.value),
        _CELL,
        lambda cells: transform(_to_series(cells), meters.value),
        schema,
    )


def _cells(batch: pa.RecordBatch, meters: Meters) -> Cells:
    """Of usage rows those that count on a meter."""
    meter = numbers_of(batch, meters.numbers)
    rows = np.flatnonzero(meter >= 0)
    cells = np.empty(len(rows), _CELL)
    cells["meter"] = meter[rows]
    for name in _COLUMNS:
        cells[name] = pc.fill_null(batch.column(name), 0).to_numpy(zero_copy_only=False)[rows]
    return cells


def _to_series(cells: Cells) -> Series:
    order = np.lexsort((cells["cell_start_ms"], cells["broker_id"], cells["meter"]))
    columns = {name: cells[name][order] for name in ("meter", *_COLUMNS)}
    starts = starts_of(columns["meter"], columns["broker_id"], columns["cell_start_ms"])
    return Series(
        **{
            name: np.add.reduceat(values, starts) if name in _SUMMED else values[starts]
            for name, values in columns.items()
        }
    )
