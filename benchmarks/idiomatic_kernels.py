"""What the idiomatic baseline does with the rows of whole meters, in the same kernels as kquota's pipeline.

The rows come out of ``sortWithinPartitions`` as plain columns, in order: meter (a number), broker, time. Sums of cells
are sums from one change of these columns to the next; without map-side combining they are made here, with it each cell
is one row already. The figures are those of :mod:`kquota.pipeline.meters.rates` and the compiled replay of
:mod:`kquota.pipeline.simulation.cells`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.config import BrokerConfig
from kquota.pipeline.dataset.tables import UTILISATION
from kquota.pipeline.limits.periods import LimitPeriods, MeterTimelines
from kquota.pipeline.meters.meter_series import Meters, Series, known_sums
from kquota.pipeline.meters.rates import _figures, _limited, _named
from kquota.pipeline.simulation.arrivals import Outcome
from kquota.pipeline.simulation.cell_frames import _requests
from kquota.pipeline.simulation.recording import SIMULATED, Replay, Span
from kquota.pipeline.spark.shuffle import group_starts

__all__ = ["HELD", "PLACE", "KnownMeters", "columns_of", "replayed", "utilisation_figures", "whole_groups"]

PLACE: Final = ("number", "broker_id")
"""By what rows are brought together: the number of the meter, and the broker that counts."""
COUNTS: Final = ("requests", "throttled_requests", "throttle_ms", "unknown_amounts")
UTILISATION_SCHEMA: Final = to_arrow_schema(UTILISATION.schema)
HELD: Final = pa.schema([*SIMULATED, ("quotas", pa.int32())])
"""Columns of what a replay gives, and which of the quotas set the limit: 0 for the first."""

Array = npt.NDArray[Any]


def whole_groups(batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.Table]:
    """The same rows, cut only where a key changes: no group is in two tables, and a table has one group at least.

    :param batches: in the order of the keys. Of them no more is in memory than one, and the group that it begins with.
    """
    begun: list[pa.RecordBatch] = []
    key: list[object] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if begun and [batch.column(name)[0].as_py() for name in keys] != key:
            yield pa.Table.from_batches(begun)
            begun = []
        last = int(group_starts(*(batch.column(name).to_numpy(zero_copy_only=False) for name in keys))[-1])
        if last:
            yield pa.Table.from_batches([*begun, batch.slice(0, last)])
            begun = []
        begun.append(batch.slice(last))
        key = [batch.column(name)[-1].as_py() for name in keys]
    if begun:
        yield pa.Table.from_batches(begun)


def columns_of(rows: pa.Table) -> dict[str, Array]:
    """By name the columns as arrays; NaN for null in those of doubles."""
    columns = {}
    for name in rows.schema.names:
        column = rows[name].combine_chunks()
        if column.null_count:
            column = pc.fill_null(column, np.nan)
        columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


@dataclass(frozen=True, slots=True)
class KnownMeters:
    """The meters that rows refer to by number; small beside them, and broadcast."""

    names: pa.Table
    """cluster, meter, key, limit, limit_source, in the order of their numbers."""
    limits: npt.NDArray[np.float64]
    """By meter and quotas: infinite for no limit, NaN where those quotas do not have the meter."""

    def of_utilisation(self) -> Meters:
        """As the kernels of the utilisation take them: limits that do not change."""
        always = LimitPeriods(np.empty(0, np.int64))
        nobody = MeterTimelines({}, np.full((1, 1), -1))
        return Meters(always, nobody, self.names, self.limits[:, :1], np.ones((len(self.limits), 1), np.bool_))


def utilisation_figures(rows: pa.Table, known: KnownMeters, config: BrokerConfig) -> pa.Table:
    """Rows of `utilisation`, of the meters of these rows.

    :param rows: whole meters, in the order of PLACE, is_sampled and end_ms; a row is a cell of a client, or the sum of
        several with the same of these and with the same length.
    """
    cells = columns_of(rows)
    starts = group_starts(cells["number"], cells["broker_id"], cells["is_sampled"], cells["end_ms"])
    series = Series(
        meter=cells["number"][starts],
        broker_id=cells["broker_id"][starts],
        is_sampled=cells["is_sampled"][starts],
        cell_start_ms=np.minimum.reduceat(cells["end_ms"] - cells["cell_ms"], starts),
        cell_ms=np.maximum.reduceat(cells["cell_ms"], starts),
        amount=np.add.reduceat(cells["amount"], starts),
        rate=np.add.reduceat(cells["amount"] * 1000 / cells["cell_ms"], starts),
        **{name: known_sums(cells[name], starts) for name in COUNTS},
    )
    meters = known.of_utilisation()
    series, rate = _limited(series, meters, config)
    figures = _figures(series, rate, meters.limits_of(series))
    named: pa.Table = _named(meters, series.meter[series.starts], figures, UTILISATION_SCHEMA).cast(UTILISATION_SCHEMA)
    return named


def replayed(rows: pa.Table, known: KnownMeters, replay: Replay, spans: Mapping[tuple[str, int], Span]) -> pa.Table:
    """Rows of :data:`HELD`: what the limits of these meters do to their cells.

    :param rows: whole meters, in the order of PLACE and cell_start_ms; a row is a cell of a client, or of them all.
    """
    # Compiled code is loaded by workers only.
    from kquota.pipeline.simulation.cells import MeterCells, simulate_cells

    cells = columns_of(rows)
    starts = group_starts(cells["number"], cells["broker_id"], cells["cell_start_ms"])
    first = group_starts(cells["number"][starts], cells["broker_id"][starts])
    meter_starts = starts[first]  # of rows, where `first` is of cells
    number, broker_id = cells["number"][meter_starts], cells["broker_id"][meter_starts]
    names = known.names.take(pa.array(number))
    places = zip(names["cluster"].to_pylist(), broker_id.tolist(), strict=True)
    first_ms, last_ms = np.array([spans[place] for place in places], np.int64).T
    size_ms = np.maximum.reduceat(cells["cell_ms"], starts).astype(np.int64)
    amount = np.add.reduceat(cells["amount"], starts)
    requests = _requests(np.add.reduceat(cells["requests"], starts), size_ms)
    of_one = np.maximum.reduceat(amount / np.maximum(requests, 1), first)
    largest = np.maximum(np.maximum.reduceat(cells["amount_max"], meter_starts), of_one)
    keys = names["key"].to_pylist()
    limits = known.limits[number]
    is_tried = ~np.isnan(limits)
    outcomes = simulate_cells(
        MeterCells(
            cells["cell_start_ms"][starts],
            size_ms,
            amount,
            requests,
            np.zeros(len(starts), np.int64),
            np.append(first, len(starts)),
            keys,
            largest,
            last_ms,
        ),
        [those[tried].tolist() for those, tried in zip(limits, is_tried, strict=True)],
        replay.windows,
        replay.arrivals.in_flight_of,
    )
    meter, quotas = np.nonzero(is_tried)
    columns: dict[str, Array] = {
        "broker_id": broker_id[meter],
        "limit": limits[is_tried],
        "recorded": np.add.reduceat(cells["amount"], meter_starts)[meter],
        "throttled_requests_logged": np.add.reduceat(cells["throttled_requests"], meter_starts)[meter],
        "requests": np.add.reduceat(cells["requests"], meter_starts)[meter],
        "largest": largest[meter],
        "recorded_ms": (last_ms - first_ms)[meter],
        "cell_ms": np.maximum.reduceat(cells["cell_ms"], meter_starts)[meter],
        "unknown_amounts": np.add.reduceat(cells["unknown_amounts"], meter_starts)[meter],
        "quotas": quotas,
        **{name: outcomes[:, place] for place, name in enumerate(Outcome._fields)},
    }
    of_row = names.take(pa.array(meter))
    found = [
        of_row[name] if name in of_row.schema.names and name not in columns else columns[name] for name in HELD.names
    ]
    held: pa.Table = pa.table(found, names=HELD.names).cast(HELD)
    return held
