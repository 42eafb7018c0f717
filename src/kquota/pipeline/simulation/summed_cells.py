"""Recorded cells of clients summed to those of meters, compiled."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kquota.pipeline.simulation.compiled_meter import Floats, Ints, compiled, inlined

__all__ = ["SummedCells", "summed"]

_METER: Final = np.dtype(
    [
        ("meter", np.int64),
        ("broker_id", np.int64),
        ("first", np.int64),
        ("amount", np.float64),
        ("largest", np.float64),
        ("requests", np.int64),
        ("throttled_requests_logged", np.int64),
        ("cell_ms", np.int64),
        ("unknown_amounts", np.int64),
    ]
)


class SummedCells(NamedTuple):
    """Cells of meters, one for each client and time, in order."""

    start_ms: Ints
    size_ms: Ints
    """Of several clients one may just have come: that of the longest."""
    amount: Floats
    requests: Ints
    client: Ints
    meters: npt.NDArray[np.void]
    """By meter and broker: these two, its `first` cell, and what is summed of all of them: amount, requests,
    unknown_amounts, and throttled_requests_logged; and `largest` amount of a request, and longest `cell_ms`."""


def summed(cells: npt.NDArray[np.void], order: Ints) -> SummedCells:
    """Sum cells of the same meter, broker, client and start.

    :param cells: rows of :data:`~kquota.pipeline.simulation.cell_frames.CELL`.
    :param order: of these four, in this order.
    """
    count = len(cells)
    start_ms, size_ms, requests, client = np.empty((4, count), np.int64)
    amount, meters = np.empty(count), np.zeros(count, _METER)
    rows, found = _sum(cells, order, start_ms, size_ms, amount, requests, client, meters)
    return SummedCells(start_ms[:rows], size_ms[:rows], amount[:rows], requests[:rows], client[:rows], meters[:found])


@compiled
def _sum(
    cells: Any, order: Ints, start_ms: Ints, size_ms: Ints, amount: Floats, requests: Ints, client: Ints, meters: Any
) -> tuple[int, int]:
    row, found = -1, -1
    meter, broker_id, who, when = -1, 0, 0, 0
    told, counted, unknown, longest, largest, total = 0, 0, 0, 0, 0.0, 0.0
    for place in order:
        cell = cells[place]
        is_other = found < 0 or cell.meter != meter or cell.broker_id != broker_id
        if is_other or cell.client != who or cell.cell_start_ms != when:
            row += 1
            start_ms[row] = when = cell.cell_start_ms
            client[row] = who = cell.client
            size_ms[row], requests[row], amount[row] = 0, 0, 0.0
        if is_other:
            if found >= 0:
                _note(meters[found], total, largest, counted, told, unknown, longest)
            found += 1
            meters[found].meter = meter = cell.meter
            meters[found].broker_id = broker_id = cell.broker_id
            meters[found].first = row
            told, counted, unknown, longest, largest, total = 0, 0, 0, 0, 0.0, 0.0
        size_ms[row] = max(size_ms[row], cell.cell_ms)
        amount[row] += cell.amount
        requests[row] += cell.requests
        total += cell.amount
        counted += cell.requests
        told += cell.throttled_requests
        unknown += cell.unknown_amounts
        largest = max(largest, cell.amount_max)
        longest = max(longest, cell.cell_ms)
    if found >= 0:
        _note(meters[found], total, largest, counted, told, unknown, longest)
    return row + 1, found + 1


@inlined
def _note(
    meter: Any,
    amount: float,
    largest: float,
    requests: int,
    throttled_requests_logged: int,
    unknown_amounts: int,
    cell_ms: int,
) -> None:
    meter.amount, meter.largest, meter.requests = amount, largest, requests
    meter.throttled_requests_logged, meter.unknown_amounts, meter.cell_ms = (
        throttled_requests_logged,
        unknown_amounts,
        cell_ms,
    )
