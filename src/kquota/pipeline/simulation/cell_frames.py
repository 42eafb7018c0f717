"""What limits do to recorded cells: the usage of each meter goes through the compiled replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kquota.metering.statistics import Windows
from kquota.pipeline.limits.counting import CONTROLLER
from kquota.pipeline.limits.identities import IDENTITY
from kquota.pipeline.meters.rates import window_rates
from kquota.pipeline.simulation.arrivals import ArrivalModel, Outcome
from kquota.pipeline.simulation.candidate_limits import CandidateMeters, QuotaColumns
from kquota.pipeline.simulation.recording import (
    SIMULATED,
    Candidates,
    Recording,
    Replay,
    Span,
    own_limit_only,
    spans_by_place,
)
from kquota.pipeline.simulation.summed_cells import summed
from kquota.pipeline.spark.group_by_meter import Cells, Floats, Ints, group_by_meter
from kquota.pipeline.spark.lazy_values import LazyValue
from kquota.pipeline.spark.persisted_frames import persist
from kquota.pipeline.spark.shuffle import group_starts, sort_order

if TYPE_CHECKING:
    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["CELL", "sampled_rates", "simulate_cell_frames", "simulate_cell_frames_by_quota_set"]

_QUOTA_SETS: Final = "quota_sets"
_SIMULATED_BY_QUOTA_SET: Final = pa.schema([*SIMULATED, (_QUOTA_SETS, pa.int32())])
"""And which quotas set the limit, a bit for each."""

_COUNTS: Final = ("requests", "throttled_requests", "unknown_amounts")
_COLUMNS: Final = ("broker_id", "cell_start_ms", "cell_ms", "amount", "amount_max", *_COUNTS)
CELL: Final = np.dtype(
    [
        ("meter", np.int32),
        ("client", np.int32),
        ("broker_id", np.int32),
        ("cell_start_ms", np.int64),
        ("cell_ms", np.int32),
        ("amount", np.float64),
        ("amount_max", np.float64),
        *((name, np.int64) for name in _COUNTS),
    ]
)
"""A cell of usage, with the numbers of its client, and of the meter that it counts on."""


def simulate_cell_frames(
    usage: ArrowSource, clients: DataFrame, recording: Recording, candidates: Candidates = own_limit_only
) -> DataFrame:
    """Columns of :data:`~kquota.pipeline.simulation.recording.SIMULATED`, from cells.

    :param usage: rows of the `usage` table; those of other clients are left aside.
    :param clients: one row per cluster, user, client_id, ip and key, with meter, and limit (null: none).
    """
    return _simulate(usage, clients, (QuotaColumns(),), recording, candidates).drop(_QUOTA_SETS)


def simulate_cell_frames_by_quota_set(
    usage: ArrowSource, clients: DataFrame, quotas: Sequence[QuotaColumns], recording: Recording
) -> list[DataFrame]:
    """For each of some quotas what :func:`simulate_cell_frames` gives, from one pass over the usage.

    :param clients: one row per cluster, user, client_id, ip and key, with the columns that `quotas` name.
    """
    simulated = persist(_simulate(usage, clients, quotas, recording, own_limit_only))
    return [
        simulated.where(F.col(_QUOTA_SETS).bitwiseAND(1 << place) != 0).drop(_QUOTA_SETS)
        for place in range(len(quotas))
    ]


def _simulate(
    usage: ArrowSource,
    clients: DataFrame,
    quotas: Sequence[QuotaColumns],
    recording: Recording,
    candidates: Candidates,
) -> DataFrame:
    counted = clients.select(*dict.fromkeys((*IDENTITY, *(name for columns in quotas for name in columns))))
    meters = LazyValue.of(counted, partial(CandidateMeters.of, quotas=quotas))
    replay = recording.replay
    by_client = replay.arrivals.model is ArrivalModel.CLOSED
    return group_by_meter(
        clients.sparkSession,
        usage,
        (*IDENTITY, *_COLUMNS),
        meters.beside(LazyValue.of(recording.spans, spans_by_place)),
        lambda batch, known: _cells(batch, known[0], by_client=by_client),
        lambda cells, known: _simulated_cells(cells, *known, replay, candidates),
        _SIMULATED_BY_QUOTA_SET,
    )


def _cells(batch: pa.RecordBatch, meters: CandidateMeters, *, by_client: bool) -> Cells:
    """Of usage rows those that count on a meter; all of a meter's clients are one unless `by_client`."""
    client = meters.identities.of(batch)
    columns = {name: batch.column(name) for name in _COLUMNS}
    values = {
        name: (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
        for name, column in columns.items()
    }
    found = []
    for counted in meters.counted:
        meter = counted[client]
        rows = np.flatnonzero(meter >= 0)
        which = slice(None) if len(rows) == len(meter) else rows
        cells = np.empty(len(rows), CELL)
        cells["meter"] = meter[which]
        cells["client"] = client[which] if by_client else 0
        for name, column in values.items():
            cells[name] = column[which]
        if meters.are_mutations.any():
            cells["broker_id"][meters.are_mutations[cells["meter"]]] = CONTROLLER
        found.append(cells)
    return found[0] if len(found) == 1 else np.concatenate(found)


def _simulated_cells(
    cells: Cells, meters: CandidateMeters, spans: Mapping[tuple[str, int], Span], replay: Replay, candidates: Candidates
) -> pa.Table:
    # Compiled code is loaded where it is needed, not wherever a plan is made.
    from kquota.pipeline.simulation.cells import MeterCells, simulate_cells

    if not len(cells):
        return _SIMULATED_BY_QUOTA_SET.empty_table()
    order = sort_order(cells["cell_start_ms"], cells["client"], cells["broker_id"], cells["meter"])
    start_ms, size_ms, amount, counted, client, found = summed(cells, order)
    names = meters.names.take(pa.array(found["meter"]))
    places = zip(names["cluster"].to_pylist(), found["broker_id"].tolist(), strict=True)
    first_ms, last_ms = np.array([spans[place] for place in places], np.int64).T
    requests = _requests(counted, size_ms)
    first = found["first"].copy()
    largest = np.maximum(found["largest"], np.maximum.reduceat(amount / np.maximum(requests, 1), first))
    keys = names["key"].to_pylist()
    # Those of large recordings take their time.
    rates = np.zeros((len(found), 2))
    if candidates is not own_limit_only:
        rates = sampled_rates(start_ms, size_ms, amount, first, [replay.windows(key) for key in keys])
    limits = [
        [
            (limit, quota_sets)
            for own, quota_sets in meters.candidates[meter]
            for limit in candidates(own, mean, highest)
        ]
        for meter, (mean, highest) in zip(found["meter"].tolist(), rates.tolist(), strict=True)
    ]
    outcomes = simulate_cells(
        MeterCells(
            start_ms,
            size_ms,
            amount,
            requests,
            client,
            np.append(first, len(start_ms)),
            keys,
            largest,
            last_ms,
        ),
        [[limit for limit, _ in those] for those in limits],
        replay.windows,
        replay.arrivals.in_flight_of,
    )
    rows = np.repeat(np.arange(len(found)), [len(those) for those in limits])
    recorded = {
        name: found[name]
        for name in ("broker_id", "throttled_requests_logged", "requests", "cell_ms", "unknown_amounts")
    }
    recorded |= {"recorded": found["amount"], "largest": largest, "recorded_ms": last_ms - first_ms}
    columns = {name: column[rows] for name, column in recorded.items()}
    columns["limit"] = np.array([limit for those in limits for limit, _ in those])
    columns[_QUOTA_SETS] = np.array([quota_sets for those in limits for _, quota_sets in those])
    columns |= {name: outcomes[:, place] for place, name in enumerate(Outcome._fields)}
    simulated = names.take(pa.array(rows))
    for name, column in columns.items():
        simulated = simulated.append_column(name, pa.array(column))
    return simulated.select(_SIMULATED_BY_QUOTA_SET.names).cast(_SIMULATED_BY_QUOTA_SET)


def sampled_rates(start_ms: Ints, size_ms: Ints, amount: Floats, first: Ints, windows: Sequence[Windows]) -> Floats:
    """By meter the mean of what its windows come to per second while it is active, and the highest that Kafka may see:
    it divides by no more than the windows before the current one where that has just begun (``Rate.windowSize``).

    :param first: cell of each meter; its cells may be of several clients one after the other.
    :param windows: by meter.
    """
    meter = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(amount))))
    order = np.lexsort((start_ms, meter))
    cells = group_starts(meter[order], start_ms[order])
    meter, start_ms = meter[order][cells], start_ms[order][cells]
    size_ms, amount = np.maximum.reduceat(size_ms[order], cells), np.add.reduceat(amount[order], cells)
    starts = group_starts(meter)
    # Windows need not begin where cells do.
    reach_ms = np.array([one.span_ms for one in windows], np.int64)[meter] + size_ms
    rates = window_rates(start_ms, size_ms, amount, reach_ms, starts)
    mean = np.add.reduceat(rates * size_ms, starts) / np.add.reduceat(size_ms, starts)
    least_ms = np.array([max(one.samples - 1, 1) * one.size_ms for one in windows])
    return np.column_stack([mean, np.maximum.reduceat(rates * reach_ms, starts) / least_ms])


def _requests(counted: Ints, cell_ms: Ints) -> Ints:
    """How many requests cells have. A broker's metrics do not say: they tell a rate, as of many and small ones."""
    unknown = _ASSUMED_PER_S * np.maximum(cell_ms // 1000, 1)
    return np.where(counted > 0, counted, unknown).astype(np.int64)


_ASSUMED_PER_S: Final = 4
