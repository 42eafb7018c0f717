"""What limits would have done to meters' recorded cells: their amounts and requests of each second.

The statistic is Kafka's to the last rule (``Rate``, ``SampledStat``, ``TokenBucket``), compiled. What a cell does not
say is assumed: its requests are of one size and evenly spread, 16 a second of them at most, and wait in one queue for
the whole meter. :mod:`kquota.pipeline.simulation.requests` is the same without assumptions.

A cell of one second with 4 requests and 2,000 bytes is taken for 4 parts of 500 bytes. Under a limit of 100 B/s with
open arrivals, in 11 windows of a second::

    ms           0    125       375       625       875    1000         5125                      15125
    recorded     |-----500-------500-------500-------500-----|
    sum                500      1000      1500                           2000
    divided by        10 s    10.25 s    10.5 s                          10 s
    rate                50        98       143                            200 B/s
                                            |<- waits for 4.5 s: muted ->|
                                                      |<-- 4.25 s later: |<-- muted for 10 s ------>|

>>> from kquota.metering.statistics import Windows
>>> cells = MeterCells(
...     start_ms=np.array([0]), size_ms=np.array([1_000]), amount=np.array([2_000.0]), requests=np.array([4]),
...     client=np.array([0]), first=np.array([0, 1]), key=[PRODUCER_BYTE_RATE], largest=np.array([500.0]),
...     end_ms=np.array([20_000]),
... )
>>> [outcome] = simulate_cells(cells, [[100.0]], lambda key: Windows(), lambda key: 0).tolist()
>>> dict(zip(Outcome._fields[:6], outcome))  # doctest: +NORMALIZE_WHITESPACE
{'amount': 2000.0, 'throttled_requests': 2.0, 'throttled_ms': 14500.0, 'muted_ms': 14500.0,
 'max_delay_ms': 4250.0, 'total_delay_ms': 4250.0}

With closed arrivals a job is taken to begin in the middle of its first cell and to end in the middle of its last, and
what is delayed delays all that follows (:mod:`kquota.pipeline.simulation.cell_queue`).

Cells far below a limit are counted as a whole, which is all the same for the statistic: no request of theirs can be
over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kquota.metering.statistics import Windows
from kquota.pipeline.simulation.arrivals import ANSWER_IN_HAND_MS, ENVELOPE_BYTES, NO_THROTTLING, Outcome, peak_backlog
from kquota.pipeline.simulation.cell_queue import PART_COLUMNS, replay_all, to_parts
from kquota.pipeline.simulation.compiled_meter import BYTES, CONNECTIONS, FETCHED, RULE, TIME, TOKENS, Floats, Ints
from kquota.pipeline.simulation.mutation_waits import mutation_delays_ms, token_deficit
from kquota.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

__all__ = ["REQUESTS_PER_CELL", "MeterCells", "simulate_cells"]

REQUESTS_PER_CELL: Final = 16
"""In each second of it: so many stand for more."""

_NEAR: Final = 0.95
_KINDS: Final = {
    PRODUCER_BYTE_RATE: BYTES,
    CONSUMER_BYTE_RATE: FETCHED,
    REQUEST_PERCENTAGE: TIME,
    CONTROLLER_MUTATION_RATE: TOKENS,
    CONNECTION_CREATION_RATE: CONNECTIONS,
}


class MeterCells(NamedTuple):
    """The cells of some meters, meter by meter, each in the order of their times; for the closed model by client."""

    start_ms: Ints
    size_ms: Ints
    amount: Floats
    requests: Ints
    """Where it is not known, what is to be taken for it."""
    client: Ints
    """Whose cells they are, a number."""
    first: Ints
    """Where the cells of each meter begin, and at last where they end. What follows has one element for each meter."""
    key: Sequence[str]
    largest: Floats
    """The largest request there was: what waits leaves joined, up to this."""
    end_ms: Ints
    """When the recording ends."""


def simulate_cells(
    cells: MeterCells,
    limits: Sequence[Sequence[float]],
    windows_of: Callable[[str], Windows],
    in_flight_of: Callable[[str], int],
) -> Floats:
    """What each of a meter's limits does to its cells: a row for each, with the fields of an `Outcome`.

    :param limits: for each meter any number; an infinite one is none.
    :param windows_of: those of a key.
    :param in_flight_of: of requests that count on a key; with 0 they come as they were recorded, otherwise each waits
        for its client's one before it.
    """
    in_flight = np.array([in_flight_of(key) for key in cells.key], np.int64)
    parts, first = _parts(cells, in_flight > 0)
    meters = np.repeat(np.arange(len(cells.key)), [len(those) for those in limits])
    rules = _rules(cells, first, windows_of)[meters]
    rules["in_flight"] = in_flight[meters]
    rules["limit"] = [limit for those in limits for limit in those]
    _find_bounds(rules)
    found = np.zeros((len(rules), len(Outcome._fields)))
    is_closed_form = (rules["kind"] == TOKENS) & (rules["in_flight"] == 0)
    is_closed_form &= (rules["limit"] > 0) & (rules["limit"] < math.inf)
    for meter in np.unique(meters[is_closed_form]).tolist():
        begin, end = np.searchsorted(meters, [meter, meter + 1])
        rows = begin + np.flatnonzero(is_closed_form[begin:end])
        those = parts[first[meter] : first[meter + 1]]
        found[rows] = _mutations(those, rules["limit"][rows], windows_of(cells.key[meter]), float(cells.end_ms[meter]))
    rows = np.flatnonzero(~is_closed_form)
    outcomes = np.zeros((len(rows), found.shape[1]))
    replay_all(parts, cells.client[cells.amount > 0], rules[rows], outcomes)
    found[rows] = outcomes
    return found


def _rules(cells: MeterCells, first: Ints, windows_of: Callable[[str], Windows]) -> npt.NDArray[np.void]:
    """Those of the meters, still without a limit."""
    rules = np.zeros(len(cells.key), RULE)
    windows = [windows_of(key) for key in cells.key]
    rules["kind"] = [_KINDS[key] for key in cells.key]
    rules["windows"] = [one.samples for one in windows]
    rules["window_ms"] = [one.size_ms for one in windows]
    rules["largest_request"] = cells.largest
    rules["envelope"] = [ENVELOPE_BYTES.get(key, 0.0) for key in cells.key]
    rules["end_ms"] = cells.end_ms
    rules["first"], rules["last"] = first[:-1], first[1:]
    return rules


def _find_bounds(rules: npt.NDArray[np.void]) -> None:
    """What is far below the limit, and the largest request: what waits is joined up to it, what is more is split."""
    window_s = (rules["windows"] - 1) * rules["window_ms"] / 1000
    with np.errstate(invalid="ignore"):  # one window has no other ones, whatever the limit
        rules["far"] = rules["limit"] * window_s * _NEAR
        # No answer is larger than what a whole window lets pass.
        answer = rules["limit"] * (rules["windows"] - 1) * (rules["window_ms"] // 1000)
    rules["far"][rules["limit"] == math.inf] = math.inf
    rules["far"][(rules["kind"] == TOKENS) & (rules["limit"] < math.inf)] = -math.inf
    is_answer = (rules["kind"] == FETCHED) & (answer > 0)
    rules["largest_request"][is_answer] = np.minimum(rules["largest_request"], answer)[is_answer]
    rules["largest_request"][(rules["kind"] != FETCHED) & (rules["kind"] != BYTES)] = math.inf


def _parts(cells: MeterCells, are_closed: npt.NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """The cells in which there is something, as the replay takes them; and where those of each meter begin and end."""
    is_used = cells.amount > 0
    parts = np.empty((np.count_nonzero(is_used), PART_COLUMNS))
    start_ms, length_ms = cells.start_ms.astype(np.float64), cells.size_ms.astype(np.float64)
    counts = np.clip(cells.requests, 1, REQUESTS_PER_CELL * np.maximum(cells.size_ms // 1000, 1))
    if are_closed.any():
        _shorten_ends(cells, np.repeat(are_closed, np.diff(cells.first)), start_ms, length_ms, counts)
    to_parts(start_ms, length_ms, counts, cells.amount, cells.requests, parts)
    return parts, np.append(0, np.cumsum(is_used))[cells.first]


def _shorten_ends(
    cells: MeterCells, is_closed: npt.NDArray[np.bool_], start_ms: Floats, length_ms: Floats, counts: Ints
) -> None:
    """Let traffic begin in the middle of the first of successive cells, and end in the middle of the last.

    That is when it does in the mean. Spread over whole cells, a job would seem to be one longer than it is, and the
    pause behind it shorter: who waits for answers then has more time than there is. A job of a single cell is taken for
    one request after the other. No part comes sooner after another than its answer does: in what is left of a short
    cell there are fewer parts, which stand for more requests.
    """
    is_used = cells.amount > 0
    used = np.flatnonzero(is_used)
    meter = np.repeat(np.arange(len(cells.key)), np.diff(cells.first))[used]
    follows = (meter[1:] == meter[:-1]) & (cells.client[used][1:] == cells.client[used][:-1])
    follows &= cells.start_ms[used][1:] <= (cells.start_ms + cells.size_ms)[used][:-1]
    begins, ends = np.zeros((2, len(is_used)), np.bool_)
    begins[used], ends[used] = np.append(True, ~follows), np.append(~follows, True)
    half_ms = length_ms / 2
    start_ms[is_closed & begins] += half_ms[is_closed & begins]
    length_ms[is_closed & (begins != ends)] /= 2
    single = is_closed & begins & ends
    length_ms[single] = np.minimum(counts[single] * ANSWER_IN_HAND_MS, half_ms[single])
    room = np.maximum(length_ms[is_closed] // ANSWER_IN_HAND_MS, 1).astype(np.int64)
    counts[is_closed] = np.minimum(counts[is_closed], room)


def _mutations(parts: Floats, limits: Floats, windows: Windows, end_ms: float) -> list[Outcome]:
    """Of mutations that come as recorded, by the closed form."""
    if not len(parts):
        return [NO_THROTTLING] * len(limits)
    start_ms, every_ms, counts, each, stands_for = parts.T
    counts = counts.astype(np.int64)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    at_ms = np.repeat(start_ms, counts) + (number + 0.5) * np.repeat(every_ms, counts)
    amounts, requests = np.repeat(each, counts), np.repeat(stands_for, counts)
    outcomes = []
    waits = mutation_delays_ms(np.floor(at_ms), amounts, limits, windows)
    used = (token_deficit(np.floor(at_ms), amounts, limits) + amounts).max(axis=1)
    for limit, waited_ms, most_used in zip(limits.tolist(), waits, used, strict=True):
        done_ms = at_ms + waited_ms
        tried_ms = np.maximum(at_ms, np.concatenate([[-np.inf], done_ms[:-1]]))
        throttle_ms = np.where(tried_ms < end_ms, done_ms - tried_ms, 0.0)
        muted_ms = np.where(throttle_ms > 0, np.minimum(done_ms, end_ms) - tried_ms, 0.0)
        shown_ms = np.minimum(done_ms, end_ms) - at_ms
        waiting = shown_ms > 0
        outcomes.append(
            Outcome(
                float(amounts[done_ms <= end_ms].sum()),
                int((throttle_ms > 0).sum()),
                float(throttle_ms.sum()),
                float(muted_ms.sum()),
                float(shown_ms.max()),
                float((shown_ms * requests).sum()),
                peak_backlog(at_ms[waiting], done_ms[waiting], amounts[waiting]),
                float(most_used / (limit * windows.span_ms / 1000)),
            )
        )
    return outcomes
