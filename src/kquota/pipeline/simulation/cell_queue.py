"""The queue of recorded cells before a meter, compiled: one meter and one limit at a time.

A cell is some requests of one size, its parts, evenly spread; each may stand for several.

Open arrivals: parts arrive when they were recorded, and there is one queue for the meter. While it is muted, until
`free_ms`, the head waits; what has arrived by then lies between head and tail, and is the backlog::

    cells        [ a a a a ][ b b b b ][ c c c c ]
                     ^ head        ^ tail: the first that arrives after free_ms
                     |             |
                  `gone` of it     `waiting` = all between, less `gone`
                  is charged

The head is charged together with those behind it, up to the largest request there was; joined ones need the bytes
around their records (`envelope`) only once. What is larger is charged in several requests.

Closed arrivals: each client has a queue of its own, and its next part arrives as long after the answer to the one
before as in the recording. Two cells of a client with 4 parts and 2 under 100 B/s (see
:mod:`kquota.pipeline.simulation.cells` for when parts arrive)::

    ms           562.5  687.5  812.5  937.5  | 1125  1375
    recorded       500    500    500    500  |  200   200
    charged at   562.5  687.5  812.5 5562.5    15562.5  15812.5
                                  |       |          |
                throttled until 5562.5    |          arrived at 1125 + (5562.5 - 937.5) = 5750, and waited 9812.5 ms
                                   throttled until 15562.5

>>> from kquota.metering.statistics import Windows
>>> from kquota.pipeline.simulation.cells import MeterCells, simulate_cells
>>> cells = MeterCells(
...     start_ms=np.array([0, 1_000]), size_ms=np.array([1_000, 1_000]), amount=np.array([2_000.0, 400.0]),
...     requests=np.array([4, 2]), client=np.array([0, 0]), first=np.array([0, 2]), key=["producer_byte_rate"],
...     largest=np.array([500.0]), end_ms=np.array([60_000]),
... )
>>> [outcome] = simulate_cells(cells, [[100.0]], lambda key: Windows(), lambda key: 1)
>>> outcome[[AMOUNT, MAX_DELAY_MS, TOTAL_DELAY_MS]].tolist()  # the second delay is 5562.5 - 937.5
[2400.0, 9812.5, 14437.5]
"""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kquota.pipeline.simulation.compiled_meter import (
    AMOUNT,
    BACKLOG_MAX,
    BYTES,
    FETCHED,
    MAX_DELAY_MS,
    TOTAL_DELAY_MS,
    Floats,
    Ints,
    charge_request,
    compiled,
    inlined,
    new_meter,
    record_evenly,
    windowed_sum,
)

if TYPE_CHECKING:
    from kquota.pipeline.simulation.compiled_meter import Rule

__all__ = ["PART_COLUMNS", "replay_all", "to_parts"]

PART_COLUMNS: Final = 5
_START_MS, _EVERY_MS, _PARTS, _EACH, _STANDS_FOR = range(PART_COLUMNS)
"""Of a cell: when it begins, and one part comes after the other; how many they are, the amount of each, and how many
requests each stands for."""


@compiled
def to_parts(start_ms: Floats, length_ms: Floats, counts: Ints, amount: Floats, requests: Ints, cells: Floats) -> None:
    """Write the rows of cells in which there is something.

    :param start_ms: from when on they are spread, and over which length.
    :param counts: how many parts each has: no more than its requests, and one at least.
    :param cells: one row for each cell with an amount.
    """
    row = 0
    for cell in range(len(amount)):
        if amount[cell] <= 0.0:
            continue
        parts = counts[cell]
        cells[row, _START_MS] = start_ms[cell]
        cells[row, _EVERY_MS] = length_ms[cell] / parts
        cells[row, _PARTS] = parts
        cells[row, _EACH] = amount[cell] / parts
        cells[row, _STANDS_FOR] = max(requests[cell], 1) / parts
        row += 1


@inlined
def _came_ms(cells: Floats, cell: int, part: int) -> float:
    return cells[cell, _START_MS] + (part + 0.5) * cells[cell, _EVERY_MS]  # type: ignore[no-any-return]


@compiled
def _came_before(cells: Floats, last: int, cell: int, part: int, until_ms: float) -> tuple[int, int, float]:
    """From one part on: the first that comes no sooner than this, and how much comes before it."""
    total = 0.0
    while cell < last:
        parts = int(cells[cell, _PARTS])
        if _came_ms(cells, cell, parts - 1) < until_ms:
            total += (parts - part) * cells[cell, _EACH]
            part = 0
            cell += 1
            continue
        while _came_ms(cells, cell, part) < until_ms:
            total += cells[cell, _EACH]
            part += 1
        break
    return cell, part, total


@compiled
def _joined(
    cells: Floats, last: int, cell: int, part: int, left: float, rule: Rule, at_ms: float
) -> tuple[float, int, float]:
    """What goes with what is left of a part: how much in all, how many parts that is, and what it counts for."""
    amount, joined = left, 1
    part += 1
    while True:
        if part >= cells[cell, _PARTS]:
            part = 0
            cell += 1
            if cell >= last:
                break
        more = cells[cell, _EACH]
        if amount + more > rule.largest_request or _came_ms(cells, cell, part) > at_ms:
            break
        amount += more
        joined += 1
        part += 1
    return amount, joined, max(amount - (joined - 1) * rule.envelope, left)


@compiled
def _wait(cells: Floats, last: int, cell: int, part: int, count: int, until_ms: float, out: Floats) -> tuple[int, int]:
    """Note how long so many parts waited; gives the part behind them."""
    while count > 0 and cell < last:
        parts = int(cells[cell, _PARTS])
        until = min(part + count, parts)
        waited_ms = max(until_ms - _came_ms(cells, cell, part), 0.0)
        out[MAX_DELAY_MS] = max(out[MAX_DELAY_MS], waited_ms)
        while part < until and waited_ms > 0.0:
            out[TOTAL_DELAY_MS] += waited_ms * cells[cell, _STANDS_FOR]
            count -= 1
            part += 1
            waited_ms = until_ms - _came_ms(cells, cell, part)
        count -= until - part
        part = until
        if part == parts:
            part = 0
            cell += 1
    return cell, part


@compiled
def _replay_open(cells: Floats, rule: Rule, out: Floats) -> float:
    """Requests come as recorded, and wait while the meter is muted.

    The head of the queue is a part of a cell, of which some may have gone; its tail is sought only where it waits.
    Gives the most that the samples ever held where no cell came near the limit, and otherwise infinity: all limits that
    this much is far below do just the same.
    """
    meter = new_meter(rule.windows)
    joins = rule.kind in (BYTES, FETCHED)
    cell, part, last = rule.first, 0, rule.last
    tail_cell, tail_part = cell, 0
    gone = waiting = 0.0
    is_waiting = False
    free_ms = -math.inf
    peak_sum = 0.0
    while cell < last:
        parts = int(cells[cell, _PARTS])
        each = cells[cell, _EACH]
        arrived_ms = _came_ms(cells, cell, part)
        is_idle = arrived_ms >= free_ms
        if is_idle:
            is_waiting = False
            if part == 0 and gone == 0.0 and windowed_sum(meter) + parts * each <= rule.far:
                peak_sum = max(peak_sum, windowed_sum(meter) + parts * each)
                record_evenly(meter, rule, each, cells[cell, _START_MS], cells[cell, _EVERY_MS], parts)
                out[AMOUNT] += parts * each
                cell += 1
                continue
        else:
            if not is_waiting:
                is_waiting = True
                tail_cell, tail_part, waiting = cell, part, -gone
            tail_cell, tail_part, more = _came_before(cells, last, tail_cell, tail_part, free_ms)
            waiting += more
            out[BACKLOG_MAX] = max(out[BACKLOG_MAX], waiting)
        peak_sum = math.inf
        at_ms = max(arrived_ms, free_ms)
        if at_ms > rule.end_ms:
            break
        left = each - gone
        amount, joined, charged = left, 1, left
        if left > rule.largest_request:
            amount, joined, charged = rule.largest_request, 0, rule.largest_request
        elif joins and not is_idle:
            amount, joined, charged = _joined(cells, last, cell, part, left, rule, at_ms)
        free_ms, accepted = charge_request(meter, rule, charged, at_ms, out)
        if not accepted:
            continue
        out[AMOUNT] += amount
        waiting -= amount
        gone = 0.0 if joined else gone + amount
        cell, part = _wait(cells, last, cell, part, joined, at_ms, out)
        is_waiting = is_waiting and (cell < tail_cell or (cell == tail_cell and part < tail_part))
    _wait(cells, last, cell, part, _ALL, rule.end_ms, out)
    return peak_sum


_ALL: Final = 2**62


@compiled
def _replay_closed(cells: Floats, clients: Ints, rule: Rule, out: Floats) -> None:
    """A client's request comes after the answer to the one before it; what is held up moves all that comes after.

    The parts of a cell lie so far apart that each has the answer to the one before it in hand.
    """
    begin, end = rule.first, rule.last
    if begin == end:
        return
    meter = new_meter(rule.windows)
    changes = np.flatnonzero(clients[begin + 1 : end] != clients[begin : end - 1]) + begin + 1
    cell = np.concatenate((np.full(1, begin), changes))
    last = np.concatenate((changes, np.full(1, end)))
    part = np.zeros(len(last), np.int64)
    arrived_ms, left = np.zeros(len(last)), np.zeros(len(last))
    turns = [(math.inf, -1)]
    for client in range(len(last)):
        left[client] = cells[cell[client], _EACH]
        arrived_ms[client] = _came_ms(cells, cell[client], 0)
        heappush(turns, (arrived_ms[client], client))
    waiting = 0.0
    while turns[0][0] <= rule.end_ms:
        now_ms, client = turns[0]
        amount = min(left[client], rule.largest_request)
        free_ms, accepted = charge_request(meter, rule, amount, now_ms, out)
        was_waiting = now_ms > arrived_ms[client]
        if accepted:
            out[AMOUNT] += amount
            left[client] -= amount
            waiting -= amount if was_waiting else 0.0
        if left[client] <= 0.0:
            here = cell[client]
            waited_ms = now_ms - arrived_ms[client]
            out[MAX_DELAY_MS] = max(out[MAX_DELAY_MS], waited_ms)
            out[TOTAL_DELAY_MS] += waited_ms * cells[here, _STANDS_FOR]
            later_ms = now_ms - _came_ms(cells, here, part[client])
            part[client] += 1
            if part[client] >= cells[here, _PARTS]:
                part[client] = 0
                here += 1
                cell[client] = here
                if here >= last[client]:
                    heappop(turns)
                    continue
            left[client] = cells[here, _EACH]
            arrived_ms[client] = max(arrived_ms[client], _came_ms(cells, here, part[client]) + later_ms)
            was_waiting = False
        next_ms = max(arrived_ms[client], free_ms)
        if next_ms > arrived_ms[client] and not was_waiting:
            waiting += left[client]
            out[BACKLOG_MAX] = max(out[BACKLOG_MAX], waiting)
        heapreplace(turns, (next_ms, client))
    for _, client in turns:
        if client >= 0 and arrived_ms[client] <= rule.end_ms:
            waited_ms = rule.end_ms - arrived_ms[client]
            out[MAX_DELAY_MS] = max(out[MAX_DELAY_MS], waited_ms)
            out[TOTAL_DELAY_MS] += waited_ms * cells[cell[client], _STANDS_FOR]


@compiled
def replay_all(cells: Floats, clients: Ints, rules: Any, out: Floats) -> None:
    """Replay under each of the rules, an array of `RULE`, and write what comes of it into a row of `out`.

    Those of one meter follow each other: with rising limits, all that are far above its traffic cost one replay.

    :param cells: as :func:`to_parts` writes them.
    :param clients: of each cell.
    """
    same, peak_sum = 0, math.inf
    for number in range(len(rules)):
        rule, other = rules[number], rules[same]
        is_same = peak_sum < math.inf and other.first == rule.first and other.last == rule.last
        if rule.in_flight > 0:
            _replay_closed(cells, clients, rule, out[number])
        elif is_same and peak_sum <= rule.far:
            out[number] = out[same]
        else:
            same, peak_sum = number, _replay_open(cells, rule, out[number])
