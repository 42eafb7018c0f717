"""What limits would have done to a meter's recorded cells: its amount and requests of each second.

The statistic is Kafka's to the last rule (``Rate``, ``SampledStat``, ``TokenBucket``), compiled. What a cell does not
say is assumed: its requests are of one size and evenly spread, 16 a second of them at most, and wait in one queue for
the whole meter. :mod:`kquota.pipeline.replay.held_requests` is the same without assumptions.

Cells far below a limit are counted as a whole, which is all the same for the statistic: no request of theirs can be
over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from kquota.metering.statistics import Windows
from kquota.metering.throttling import LONGEST_MS
from kquota.pipeline.replay.arrivals import ENVELOPE_BYTES, NOTHING, Outcome, most_at_a_time
from kquota.pipeline.replay.mutation_waits import missing_tokens, mutation_waits_ms
from kquota.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

__all__ = ["REQUESTS_PER_CELL", "MeterCells", "outcomes_of_cells"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REQUESTS_PER_CELL: Final = 16
"""In each second of it: so many stand for more."""

_NEAR: Final = 0.95
_AMOUNT, _THROTTLED, _THROTTLED_MS, _MUTED_MS, _MAX_DELAY_MS, _TOTAL_DELAY_MS, _BACKLOG_MAX, _PEAK = range(8)
_BYTES, _FETCHED, _TIME, _TOKENS, _CONNECTIONS = range(5)
_KINDS: Final = {
    PRODUCER_BYTE_RATE: _BYTES,
    CONSUMER_BYTE_RATE: _FETCHED,
    REQUEST_PERCENTAGE: _TIME,
    CONTROLLER_MUTATION_RATE: _TOKENS,
    CONNECTION_CREATION_RATE: _CONNECTIONS,
}


class MeterCells(NamedTuple):
    """The cells of one meter on one broker, in the order of their times; for the closed model client by client."""

    start_ms: Ints
    size_ms: Ints
    amount: Floats
    requests: Ints
    """Where it is not known, what is to be taken for it."""
    largest: float
    """The largest request there was: what waits leaves joined, up to this."""
    client: Ints
    """Whose cells they are, a number."""


def outcomes_of_cells(
    cells: MeterCells, key: str, limits: Sequence[float], windows: Windows, *, in_flight: int, end_ms: int
) -> list[Outcome]:
    """What each of the limits does to the cells, up to `end_ms`; an infinite limit is none.

    :param windows: of byte rates and request time, or of mutations, by the key.
    :param in_flight: with 0 requests come as they were recorded, otherwise each waits for its client's one before it.
    """
    kind = _KINDS[key]
    found = np.zeros((len(limits), len(Outcome._fields)))
    has_closed_form = np.array([kind == _TOKENS and not in_flight and 0 < limit < math.inf for limit in limits], bool)
    if has_closed_form.any():
        found[has_closed_form] = _mutations(cells, np.asarray(limits)[has_closed_form].tolist(), windows, end_ms)
    for limit, out, is_found in zip(limits, found, has_closed_form, strict=True):
        rule = _Rule(kind, windows.samples, windows.size_ms, float(limit), float(end_ms))
        if is_found:
            continue
        if in_flight:
            _replay_closed(cells, rule, out)
        else:
            _replay_open(cells, rule, out)
    return [Outcome(row[0], int(row[1]), *row[2:]) for row in found.tolist()]


def _mutations(cells: MeterCells, limits: Sequence[float], windows: Windows, end_ms: int) -> list[Outcome]:
    """Of mutations that come as recorded, by the closed form."""
    at_ms, amounts, requests = _expanded(cells)
    outcomes = []
    if not len(at_ms):
        return [NOTHING] * len(limits)
    per_second = np.asarray(limits, np.float64)
    waits = mutation_waits_ms(np.floor(at_ms), amounts, per_second, windows)
    used = (missing_tokens(np.floor(at_ms), amounts, per_second) + amounts).max(axis=1)
    for limit, waited_ms, most_used in zip(limits, waits, used, strict=True):
        done_ms = at_ms + waited_ms
        turn_ms = np.maximum(at_ms, np.concatenate([[-np.inf], done_ms[:-1]]))
        told_ms = np.where(turn_ms < end_ms, done_ms - turn_ms, 0.0)
        muted_ms = np.where(told_ms > 0, np.minimum(done_ms, end_ms) - turn_ms, 0.0)
        shown_ms = np.minimum(done_ms, end_ms) - at_ms
        waiting = shown_ms > 0
        outcomes.append(
            Outcome(
                float(amounts[done_ms <= end_ms].sum()),
                int((told_ms > 0).sum()),
                float(told_ms.sum()),
                float(muted_ms.sum()),
                float(shown_ms.max()),
                float((shown_ms * requests).sum()),
                most_at_a_time(at_ms[waiting], done_ms[waiting], amounts[waiting]),
                float(most_used / (limit * windows.span_ms / 1000)),
            )
        )
    return outcomes


def _expanded(cells: MeterCells) -> tuple[Floats, Floats, Floats]:
    """The parts of all cells: when they come, their amounts, and how many requests each stands for."""
    used = cells.amount > 0
    parts = np.clip(cells.requests[used], 1, REQUESTS_PER_CELL * np.maximum(cells.size_ms[used] // 1000, 1))
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    at_ms = np.repeat(cells.start_ms[used], parts) + (number + 0.5) * np.repeat(cells.size_ms[used] / parts, parts)
    amounts = np.repeat(cells.amount[used] / parts, parts)
    return at_ms, amounts, np.repeat(np.maximum(cells.requests[used], 1) / parts, parts)


class _Rule(NamedTuple):
    """A limit, and what it is compared with."""

    kind: int
    windows: int
    window_ms: int
    limit: float
    end_ms: float


class _Meter(NamedTuple):
    """The statistic of a meter: the ring of samples (values, starts, last events), or the bucket."""

    values: Floats
    starts: Floats
    lasts: Floats
    place: Ints
    """The current slot, -1 before the first event, and how many slots were used."""
    bucket: Floats
    """The tokens, and when they were counted."""
    held: Floats
    """The sum of all slots, or more where some are to be forgotten; and until when anybody is muted."""


class _Queue(NamedTuple):
    """What has come and was not let through: from the head up to what came last."""

    head: Ints
    """Cell and part of the request at the head."""
    left: Floats
    """What is left of that, and of all."""


if TYPE_CHECKING:

    def compiled(function: Any) -> Any:
        """As numba's."""

    def inlined(function: Any) -> Any:
        """The same, in place of its calls: what is called for each part costs several times more otherwise."""
else:
    compiled = njit(cache=True, nogil=True)
    inlined = njit(cache=True, nogil=True, inline="always")


@compiled
def _new_meter(rule: _Rule) -> _Meter:
    slots = rule.windows + 1
    place = np.zeros(2, np.int64)
    place[0] = -1
    return _Meter(np.zeros(slots), np.zeros(slots), np.zeros(slots), place, np.zeros(2), np.zeros(2))


@inlined
def _record(meter: _Meter, rule: _Rule, amount: float, now_ms: float) -> None:
    """Count an amount: as SampledTotal.record, which has the reasons."""
    slot = meter.place[0]
    if slot < 0 or now_ms - meter.starts[slot] >= rule.window_ms:
        slot = (slot + 1) % len(meter.values)
        meter.place[0] = slot
        meter.place[1] = max(meter.place[1], slot + 1)
        meter.held[0] -= meter.values[slot]
        meter.values[slot] = 0.0
        meter.starts[slot] = now_ms
    meter.values[slot] += amount
    meter.lasts[slot] = now_ms
    meter.held[0] += amount


@compiled
def _measure(meter: _Meter, rule: _Rule, now_ms: float) -> tuple[float, float]:
    """The sum of what is not forgotten, and over how many milliseconds: as SampledRate.measure."""
    total = 0.0
    oldest_ms = math.inf
    for slot in range(meter.place[1]):
        if now_ms - meter.lasts[slot] >= rule.windows * rule.window_ms:
            meter.values[slot] = 0.0
            meter.starts[slot] = now_ms
            meter.lasts[slot] = now_ms
        total += meter.values[slot]
        oldest_ms = min(oldest_ms, meter.starts[slot])
    meter.held[0] = total
    elapsed_ms = now_ms - oldest_ms
    missing_ms = (rule.windows - 1) * rule.window_ms - int(elapsed_ms / rule.window_ms) * rule.window_ms
    return total, max(elapsed_ms + max(missing_ms, 0.0), 1.0)


@compiled
def _rounded(value: float) -> float:
    """As java_round, up to the longest throttle time."""
    if not value < LONGEST_MS:
        return 0.0 if math.isnan(value) else float(LONGEST_MS)
    whole = math.floor(value)
    return max(whole + 1.0 if value - whole >= 0.5 else whole, 0.0)


@compiled
def _over(value: float, by: float) -> float:
    """As Java divides."""
    if by != 0.0:
        return value / by
    return math.nan if value == 0.0 else math.copysign(math.inf, value)


@compiled
def _count(meter: _Meter, rule: _Rule, amount: float, now_ms: float) -> tuple[float, bool, float]:
    """Count a request: how long it is throttled, whether it is let through, and the level."""
    limit = rule.limit
    if rule.kind == _TOKENS:
        burst = rule.windows * (rule.window_ms / 1000.0) * limit
        tokens = min(meter.bucket[0] + limit * ((now_ms - meter.bucket[1]) / 1000.0), burst)
        meter.bucket[1] = now_ms
        is_through = not tokens < 0.0
        if is_through:
            tokens -= amount
        meter.bucket[0] = tokens
        throttle_ms = 0.0 if is_through else max(_rounded(_over(-tokens, limit) * 1000.0), 1.0)
        return throttle_ms, is_through, _over(burst - tokens, burst)
    _record(meter, rule, amount, now_ms)
    total, over_ms = _measure(meter, rule, now_ms)
    rate = total / (over_ms / 1000.0)
    throttle_ms = _rounded(_over(rate - limit, limit) * over_ms) if rate > limit else 0.0
    if rule.kind == _TIME:
        throttle_ms = min(throttle_ms, float(rule.window_ms))
    is_through = rule.kind != _FETCHED or throttle_ms == 0.0
    if not is_through:
        meter.values[meter.place[0]] -= amount
    return throttle_ms, is_through, _over(rate, limit)


@inlined
def _far_below(rule: _Rule) -> float:
    """A sum of samples that gives no rate near the limit."""
    return rule.limit * (rule.windows - 1) * (rule.window_ms / 1000.0) * _NEAR


@compiled
def _turn(meter: _Meter, rule: _Rule, amount: float, at_ms: float, out: Floats) -> tuple[float, bool]:
    """Count a request, and note what came of it: when the mute ends, and whether it was let through."""
    if rule.kind != _TOKENS and meter.held[0] + amount <= _far_below(rule):
        _record(meter, rule, amount, math.floor(at_ms))
        return at_ms, True
    throttle_ms, is_through, level = _count(meter, rule, amount, math.floor(at_ms))
    if throttle_ms > 0.0:
        out[_THROTTLED] += 1.0
        out[_THROTTLED_MS] += throttle_ms
        until_ms = min(at_ms + throttle_ms, rule.end_ms)
        out[_MUTED_MS] += max(until_ms - max(at_ms, meter.held[1]), 0.0)
        meter.held[1] = max(meter.held[1], until_ms)
    out[_PEAK] = max(out[_PEAK], level)
    return at_ms + throttle_ms, is_through


@inlined
def _parts(cells: MeterCells, cell: int) -> int:
    """How many requests stand for those of a cell."""
    parts: int = max(1, min(cells.requests[cell], REQUESTS_PER_CELL * max(cells.size_ms[cell] // 1000, 1)))
    return parts


@inlined
def _came_ms(cells: MeterCells, cell: int, part: int) -> float:
    came_ms: float = cells.start_ms[cell] + (part + 0.5) * cells.size_ms[cell] / _parts(cells, cell)
    return came_ms


@compiled
def _waited(cells: MeterCells, cell: int, waited_ms: float, out: Floats) -> None:
    """Note how long one of a cell's parts waited, which stands for some requests."""
    out[_MAX_DELAY_MS] = max(out[_MAX_DELAY_MS], waited_ms)
    out[_TOTAL_DELAY_MS] += waited_ms * max(cells.requests[cell], 1) / _parts(cells, cell)


@inlined
def _record_cell(meter: _Meter, rule: _Rule, cells: MeterCells, cell: int, out: Floats) -> None:
    """Count a cell that nothing of can be throttled."""
    parts = _parts(cells, cell)
    amount = cells.amount[cell] / parts
    for part in range(parts):
        _record(meter, rule, amount, math.floor(_came_ms(cells, cell, part)))
        out[_AMOUNT] += amount


@compiled
def _most(cells: MeterCells, rule: _Rule) -> float:
    """The largest request: what waits is joined up to it, what is more is split."""
    if rule.kind == _BYTES:
        return cells.largest
    if rule.kind != _FETCHED:
        return math.inf
    # No answer is larger than what a whole window lets pass.
    window = rule.limit * (rule.windows - 1) * (rule.window_ms // 1000)
    return min(cells.largest, window) if window > 0.0 else cells.largest


@compiled
def _after(cells: MeterCells, cell: int, part: int) -> tuple[int, int]:
    """The part that comes next."""
    part += 1
    if part < _parts(cells, cell):
        return cell, part
    cell += 1
    while cell < len(cells.amount) and cells.amount[cell] <= 0.0:
        cell += 1
    return cell, 0


@compiled
def _joined(
    cells: MeterCells, rule: _Rule, queue: _Queue, at_ms: float, last_cell: int, last_part: int
) -> tuple[float, int]:
    """How much goes into the next request, and how many parts that is; none where it is less than one."""
    most = _most(cells, rule)
    amount = queue.left[0]
    if amount > most:
        return most, 0
    if rule.kind not in (_BYTES, _FETCHED):
        return amount, 1
    parts = 1
    cell, part = _after(cells, queue.head[0], queue.head[1])
    while cell < last_cell or (cell == last_cell and part < last_part):
        more = cells.amount[cell] / _parts(cells, cell)
        if amount + more > most or _came_ms(cells, cell, part) > at_ms:
            break
        amount += more
        parts += 1
        cell, part = _after(cells, cell, part)
    return amount, parts


@compiled
def _let_out(
    meter: _Meter, rule: _Rule, cells: MeterCells, queue: _Queue, free_ms: float, cell: int, part: int,
    before_ms: float, out: Floats,
) -> float:  # fmt: skip
    """Let what waits, up to this cell's part, take its turns before a time; gives when the mute ends."""
    while queue.left[1] > 0.0:
        at_ms = max(free_ms, _came_ms(cells, queue.head[0], queue.head[1]))
        if at_ms >= before_ms:
            break
        amount, parts = _joined(cells, rule, queue, at_ms, cell, part)
        charged = max(amount - (parts - 1) * ENVELOPE_BYTES, queue.left[0]) if parts > 1 else amount
        free_ms, is_through = _turn(meter, rule, charged, at_ms, out)
        if not is_through:
            continue
        out[_AMOUNT] += amount
        queue.left[0] -= amount
        queue.left[1] -= amount
        for _ in range(parts):
            head_cell, head_part = queue.head
            _waited(cells, head_cell, at_ms - _came_ms(cells, head_cell, head_part), out)
            queue.head[0], queue.head[1] = _after(cells, head_cell, head_part)
            if queue.head[0] > cell or (queue.head[0] == cell and queue.head[1] >= part):
                queue.left[1] = 0.0
            else:
                queue.left[0] = cells.amount[queue.head[0]] / _parts(cells, queue.head[0])
    return free_ms


@compiled
def _replay_open(cells: MeterCells, rule: _Rule, out: Floats) -> None:
    """Requests come as recorded, and wait while the meter is muted."""
    meter = _new_meter(rule)
    queue = _Queue(np.zeros(2, np.int64), np.zeros(2))
    far = _far_below(rule)
    free_ms = -math.inf
    count = len(cells.amount)
    for cell in range(count):
        amount = cells.amount[cell]
        if amount <= 0.0:
            continue
        if queue.left[1] > 0.0:
            free_ms = _let_out(meter, rule, cells, queue, free_ms, cell, 0, _came_ms(cells, cell, 0), out)
        is_idle = queue.left[1] == 0.0 and free_ms <= _came_ms(cells, cell, 0)
        if is_idle and rule.kind != _TOKENS and meter.held[0] + amount <= far:
            _record_cell(meter, rule, cells, cell, out)
            continue
        amount /= _parts(cells, cell)
        for part in range(_parts(cells, cell)):
            came_ms = _came_ms(cells, cell, part)
            if queue.left[1] > 0.0:
                free_ms = _let_out(meter, rule, cells, queue, free_ms, cell, part, came_ms, out)
            if queue.left[1] == 0.0:
                queue.head[0], queue.head[1] = cell, part
                queue.left[0] = amount
            queue.left[1] += amount
            if free_ms > came_ms:
                out[_BACKLOG_MAX] = max(out[_BACKLOG_MAX], queue.left[1])
    _let_out(meter, rule, cells, queue, free_ms, count, 0, np.nextafter(rule.end_ms, math.inf), out)
    cell, part = queue.head
    while queue.left[1] > 0.0 and cell < count:
        _waited(cells, cell, max(rule.end_ms - _came_ms(cells, cell, part), 0.0), out)
        cell, part = _after(cells, cell, part)


@compiled
def _replay_closed(cells: MeterCells, rule: _Rule, out: Floats) -> None:
    """A client's request comes after the answer to the one before it; what is held up moves all that comes after.

    The parts of a cell lie so far apart that each has the answer to the one before it in hand.
    """
    meter = _new_meter(rule)
    most = _most(cells, rule)
    starts = np.flatnonzero(cells.client[1:] != cells.client[:-1]) + 1
    first = np.concatenate((np.zeros(1, np.int64), starts))
    last = np.concatenate((starts, np.full(1, len(cells.client))))
    cell, part = first.copy(), np.zeros(len(first), np.int64)
    came_ms, left = np.zeros(len(first)), np.zeros(len(first))
    turns = [(math.inf, -1)]
    for client in range(len(first)):
        while cell[client] < last[client] and cells.amount[cell[client]] <= 0.0:
            cell[client] += 1
        if cell[client] < last[client]:
            left[client] = cells.amount[cell[client]] / _parts(cells, cell[client])
            came_ms[client] = _came_ms(cells, cell[client], 0)
            heappush(turns, (came_ms[client], client))
    waiting = 0.0
    while turns[0][0] <= rule.end_ms:
        now_ms, client = turns[0]
        turn = min(left[client], most)
        free_ms, is_through = _turn(meter, rule, turn, now_ms, out)
        was_waiting = now_ms > came_ms[client]
        if is_through:
            out[_AMOUNT] += turn
            left[client] -= turn
            waiting -= turn if was_waiting else 0.0
        if left[client] <= 0.0:
            _waited(cells, cell[client], now_ms - came_ms[client], out)
            later_ms = now_ms - _came_ms(cells, cell[client], part[client])
            next_cell, part[client] = _after(cells, cell[client], part[client])
            cell[client] = next_cell
            if next_cell >= last[client]:
                heappop(turns)
                continue
            left[client] = cells.amount[next_cell] / _parts(cells, next_cell)
            came_ms[client] = max(came_ms[client], _came_ms(cells, next_cell, part[client]) + later_ms)
            was_waiting = False
        turn_ms = max(came_ms[client], free_ms)
        if turn_ms > came_ms[client] and not was_waiting:
            waiting += left[client]
            out[_BACKLOG_MAX] = max(out[_BACKLOG_MAX], waiting)
        heapreplace(turns, (turn_ms, client))
    for _, client in turns:
        if client >= 0 and came_ms[client] <= rule.end_ms:
            _waited(cells, cell[client], rule.end_ms - came_ms[client], out)
