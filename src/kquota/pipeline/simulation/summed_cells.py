"""Recorded cells of clients summed to those of meters."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kquota.pipeline.spark.group_by_meter import Cells, Floats, Ints
from kquota.pipeline.spark.shuffle import group_starts

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
    meters: Cells
    """By meter and broker: these two, its `first` cell, and what is summed of all of them: amount, requests,
    unknown_amounts, and throttled_requests_logged; and `largest` amount of a request, and longest `cell_ms`."""


def summed(cells: Cells, order: Ints) -> SummedCells:
    """Sum cells of the same meter, broker, client and start.

    :param cells: rows of :data:`~kquota.pipeline.simulation.cell_frames.CELL`.
    :param order: of these four, in this order.
    """
    cells = cells.take(order)
    starts = group_starts(*(cells[name] for name in ("meter", "broker_id", "client", "cell_start_ms")))

    def totals(name: str) -> npt.NDArray[Any]:
        return np.add.reduceat(np.ascontiguousarray(cells[name]), starts)

    amount, requests = totals("amount"), totals("requests")
    size_ms = np.maximum.reduceat(cells["cell_ms"], starts).astype(np.int64)
    meter, broker_id = cells["meter"][starts], cells["broker_id"][starts]
    first = group_starts(meter, broker_id)
    meters = np.zeros(len(first), _METER)
    meters["meter"], meters["broker_id"], meters["first"] = meter[first], broker_id[first], first
    meters["amount"], meters["requests"] = np.add.reduceat(amount, first), np.add.reduceat(requests, first)
    meters["largest"] = np.maximum.reduceat(cells["amount_max"], starts[first])
    meters["throttled_requests_logged"] = np.add.reduceat(totals("throttled_requests"), first)
    meters["unknown_amounts"] = np.add.reduceat(totals("unknown_amounts"), first)
    meters["cell_ms"] = np.maximum.reduceat(size_ms, first)
    client = cells["client"][starts].astype(np.int64)
    return SummedCells(cells["cell_start_ms"][starts], size_ms, amount, requests, client, meters)
