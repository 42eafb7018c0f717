"""The compiled replay of cells is the replay of requests through the metering classes, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import baseline_json
from kquota.metering.statistics import TokenBucket, Windows
from kquota.metering.throttling import bucket_throttle_ms
from kquota.pipeline.simulation.arrivals import ANSWER_IN_HAND_MS, NO_THROTTLING, Outcome
from kquota.pipeline.simulation.cells import REQUESTS_PER_CELL, MeterCells, simulate_cells
from kquota.pipeline.simulation.limiters import Connection, MeterLimiter
from kquota.pipeline.simulation.mutation_waits import mutation_delays_ms
from kquota.pipeline.simulation.requests import simulate_requests
from kquota.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

SAMPLE = Path(__file__).parents[4] / "examples" / "capture" / "sample" / "kafka-request.log.gz"
START_MS = 1_760_000_000_000
KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)


class OfOneMeter(NamedTuple):
    """Cells of one meter."""

    start_ms: npt.NDArray[np.int64]
    size_ms: npt.NDArray[np.int64]
    amount: npt.NDArray[np.float64]
    requests: npt.NDArray[np.int64]
    client: npt.NDArray[np.int64]
    largest: float


def to_cells(rows: list[tuple[int, float, int]], *, largest: float | None = None, size_ms: int = 1000) -> OfOneMeter:
    """Cells of (second, amount, requests), or (number, ...) of longer ones."""
    amounts = np.array([amount for _, amount, _ in rows], np.float64)
    requests = np.array([count for _, _, count in rows], np.int64)
    return OfOneMeter(
        START_MS + max(size_ms, 1000) * np.array([second for second, _, _ in rows], np.int64),
        np.full(len(rows), size_ms, np.int64),
        amounts,
        requests,
        np.zeros(len(rows), np.int64),
        float((amounts / np.maximum(requests, 1)).max(initial=0.0)) if largest is None else largest,
    )


def held(
    meters: Sequence[tuple[OfOneMeter, str, Sequence[float]]], windows: Windows, *, in_flight: int, end_ms: int
) -> list[list[Outcome]]:
    """Of each of the meters, by its limits."""
    cells = [one for one, _, _ in meters]
    start_ms, size_ms, amount, requests, client = (
        np.concatenate(column) for column in list(zip(*cells, strict=True))[:5]
    )
    first = np.cumsum([0, *(len(one.amount) for one in cells)])
    found = simulate_cells(
        MeterCells(
            start_ms, size_ms, amount, requests, client, first, [key for _, key, _ in meters],
            np.array([one.largest for one in cells]), np.full(len(cells), end_ms),
        ),
        [limits for _, _, limits in meters],
        lambda key: windows,
        lambda key: in_flight,
    )  # fmt: skip
    outcomes = iter([Outcome(row[0], int(row[1]), *row[2:]) for row in found.tolist()])
    return [[next(outcomes) for _ in limits] for _, _, limits in meters]


def held_one(
    cells: OfOneMeter, key: str, limits: Sequence[float], windows: Windows, *, in_flight: int, end_ms: int
) -> list[Outcome]:
    return held([(cells, key, limits)], windows, in_flight=in_flight, end_ms=end_ms)[0]


def as_connection(cells: OfOneMeter, *, is_closed: bool = False) -> Connection:
    """The requests that cells are taken for; in the closed model traffic begins and ends in the middle of a cell."""
    at_ms: list[float] = []
    amounts: list[float] = []
    used = [(start_ms, size_ms) for start_ms, size_ms, amount in zip(*cells[:3], strict=True) if amount > 0]
    ends = {start_ms + size_ms for start_ms, size_ms in used}
    starts = {start_ms for start_ms, _ in used}
    for start_ms, size_ms, amount, requests in zip(*cells[:4], strict=True):
        parts = max(1, min(int(requests), REQUESTS_PER_CELL * int(max(size_ms // 1000, 1))))
        if amount > 0:
            from_ms, length_ms = start_ms, size_ms
            begins, ends_here = start_ms not in ends, start_ms + size_ms not in starts
            if is_closed and begins:
                from_ms += size_ms / 2
            if is_closed and begins != ends_here:
                length_ms /= 2
            elif is_closed and begins and ends_here:
                length_ms = min(parts * ANSWER_IN_HAND_MS, size_ms / 2)
            if is_closed:
                parts = min(parts, max(int(length_ms // ANSWER_IN_HAND_MS), 1))
            at_ms += [float(from_ms + (part + 0.5) * (length_ms / parts)) for part in range(parts)]
            amounts += [float(amount / parts)] * parts
    return Connection(at_ms, amounts, largest=cells.largest)


def held_as_requests(
    connections: Sequence[Connection], key: str, limit: float, windows: Windows, *, in_flight: int, end_ms: int
) -> Outcome:
    """What the metering classes say."""
    [found] = simulate_requests(connections, MeterLimiter(key, limit, windows), in_flight=in_flight, end_ms=end_ms)
    return found.outcome


def end_of(cells: OfOneMeter) -> int:
    return int(cells.start_ms[-1]) + int(cells.size_ms[-1])


@st.composite
def traffic(draw: st.DrawFn) -> OfOneMeter:
    """Bursts, quiet minutes, idle hours; cells of one request and of hundreds."""
    rows: list[tuple[int, float, int]] = []
    second = 0
    for _ in range(draw(st.integers(1, 6))):
        second += draw(st.sampled_from([1, 1, 2, 11, 12, 60, 3_601, 7_200]))
        base = draw(st.sampled_from([1.0, 40.0, 400.0, 4_000.0]))
        for _ in range(draw(st.integers(1, 25))):
            second += 1
            rows.append((second, draw(st.integers(0, 8)) * base, draw(st.sampled_from([0, 1, 2, 5, 16, 17, 300]))))
    if not any(amount for _, amount, _ in rows):
        rows.append((second + 1, 10.0, 1))
    largest = draw(st.sampled_from([None, 1.0, 50.0, 5_000.0]))
    return to_cells(rows, largest=largest, size_ms=draw(st.sampled_from([1000, 1000, 300, 15, 5000])))


LIMITS = st.sampled_from([0.0, 0.5, 3.0, 25.0, 150.0, 1_000.0, 1e6, inf])
WINDOWS = st.sampled_from([Windows(), Windows(3, 1000), Windows(1, 1000), Windows(5, 2000)])


# Half of a cell of 300 ms has no room for 16 requests of which each has the answer to the one before it in hand.
@example(
    cells=to_cells([(23, 2.0, 16)], largest=0.125, size_ms=300),
    key=PRODUCER_BYTE_RATE,
    limit=0.5,
    windows=Windows(3, 1000),
    in_flight=2,
)
# 80 requests one after the other take 800 ms, and not the 160 that 16 do.
@example(
    cells=to_cells([(3, 200.0, 300), (23, 200.0, 300)], size_ms=5000),
    key=PRODUCER_BYTE_RATE,
    limit=10.0,
    windows=Windows(),
    in_flight=1,
)
@given(
    cells=traffic(), key=st.sampled_from(KEYS), limit=LIMITS, windows=WINDOWS, in_flight=st.sampled_from([0, 1, 2, 5])
)
def test_cells_go_through_the_metering_classes_step_by_step(
    cells: OfOneMeter, key: str, limit: float, windows: Windows, in_flight: int
) -> None:
    connection = as_connection(cells, is_closed=in_flight > 0)
    (found,) = held_one(cells, key, [limit], windows, in_flight=in_flight, end_ms=end_of(cells))
    wanted = held_as_requests([connection], key, limit, windows, in_flight=in_flight, end_ms=end_of(cells))
    if key == CONTROLLER_MUTATION_RATE and not in_flight and 0 < limit < inf:
        return  # the closed form, which has a test of its own
    assert found.throttled_requests == wanted.throttled_requests
    # Sums of the same samples in another order may round a time to the next millisecond.
    assert found.throttled_ms == pytest.approx(wanted.throttled_ms, abs=wanted.throttled_requests)
    assert found.amount == pytest.approx(wanted.amount)
    assert found.muted_ms == pytest.approx(wanted.muted_ms, abs=1 + wanted.throttled_requests)
    assert found.max_delay_ms == pytest.approx(wanted.max_delay_ms, abs=1 + wanted.throttled_requests)
    if found.throttled_requests:  # far below the limit neither is looked for
        assert found.peak == pytest.approx(wanted.peak)
        is_split = key == CONSUMER_BYTE_RATE or max(connection.amounts) > cells.largest
        if not in_flight and not (is_split and key != REQUEST_PERCENTAGE):  # of which the classes count all, or nothing
            assert found.backlog_max == pytest.approx(wanted.backlog_max)


@given(clients=st.lists(traffic(), min_size=2, max_size=4), key=st.sampled_from(KEYS), limit=LIMITS)
def test_clients_that_wait_for_their_answers_each_do_so_alone(
    clients: list[OfOneMeter], key: str, limit: float
) -> None:
    largest = max(one.largest for one in clients)
    clients = [one._replace(largest=largest) for one in clients]
    merged = OfOneMeter(
        np.concatenate([one.start_ms for one in clients]),
        np.concatenate([one.size_ms for one in clients]),
        np.concatenate([one.amount for one in clients]),
        np.concatenate([one.requests for one in clients]),
        np.repeat(np.arange(len(clients)), [len(one.amount) for one in clients]),
        largest,
    )
    end_ms = max(end_of(one) for one in clients)
    (found,) = held_one(merged, key, [limit], Windows(), in_flight=1, end_ms=end_ms)
    connections = [as_connection(one, is_closed=True) for one in clients]
    wanted = held_as_requests(connections, key, limit, Windows(), in_flight=1, end_ms=end_ms)
    assert found.throttled_requests == wanted.throttled_requests
    assert found.amount == pytest.approx(wanted.amount)
    assert found.muted_ms == pytest.approx(wanted.muted_ms, abs=1 + wanted.throttled_requests)
    assert found.max_delay_ms == pytest.approx(wanted.max_delay_ms, abs=1 + wanted.throttled_requests)


@given(
    requests=st.lists(st.tuples(st.sampled_from([1, 40, 400, 3_000, 90_000]), st.integers(1, 40)), min_size=1),
    limit=st.sampled_from([0.5, 1.0, 3.0, 25.0]),
    windows=WINDOWS,
)
def test_the_closed_form_of_mutations_is_the_token_bucket(
    requests: list[tuple[int, int]], limit: float, windows: Windows
) -> None:
    at_ms = START_MS + np.cumsum([gap_ms for gap_ms, _ in requests]).astype(np.float64)
    amounts = np.array([amount for _, amount in requests], np.float64)
    (waits_ms,) = mutation_delays_ms(at_ms, amounts, np.array([limit]), windows)
    bucket = TokenBucket(windows)
    free_ms = 0.0
    for arrived_ms, amount, waited_ms in zip(at_ms, amounts, waits_ms, strict=True):
        free_ms = max(free_ms, arrived_ms)
        while (tokens := bucket.measure(int(free_ms), limit)) < 0:
            free_ms += max(bucket_throttle_ms(tokens, limit), 1)
        bucket.record(float(amount), int(free_ms), limit)
        assert free_ms - arrived_ms == pytest.approx(waited_ms, abs=1)


@given(cells=traffic(), key=st.sampled_from(KEYS), in_flight=st.sampled_from([0, 3]))
def test_many_limits_at_once_are_each_alone(cells: OfOneMeter, key: str, in_flight: int) -> None:
    limits = [1.0, 10.0, 100.0, 1_000.0, inf]
    together = held_one(cells, key, limits, Windows(), in_flight=in_flight, end_ms=end_of(cells))
    alone = [held_one(cells, key, [limit], Windows(), in_flight=in_flight, end_ms=end_of(cells))[0] for limit in limits]
    assert together == alone


@given(
    meters=st.lists(st.tuples(traffic(), st.sampled_from(KEYS), st.lists(LIMITS, max_size=3)), min_size=1, max_size=4),
    in_flight=st.sampled_from([0, 1]),
)
def test_many_meters_at_once_are_each_alone(meters: list[tuple[OfOneMeter, str, list[float]]], in_flight: int) -> None:
    end_ms = max(end_of(cells) for cells, _, _ in meters)
    together = held(meters, Windows(), in_flight=in_flight, end_ms=end_ms)
    alone = [held([one], Windows(), in_flight=in_flight, end_ms=end_ms)[0] for one in meters]
    assert together == alone


@given(cells=traffic(), key=st.sampled_from(KEYS), limit=LIMITS, in_flight=st.sampled_from([0, 5]))
def test_no_work_is_made_and_none_is_lost(cells: OfOneMeter, key: str, limit: float, in_flight: int) -> None:
    """What is let through is at most what was recorded, and all of it where nothing waits."""
    (found,) = held_one(cells, key, [limit], Windows(), in_flight=in_flight, end_ms=end_of(cells))
    total = float(cells.amount.sum())
    assert found.amount <= total * (1 + 1e-9)
    if not found.throttled_requests:
        assert found.amount == pytest.approx(total)
        assert found == NO_THROTTLING._replace(amount=found.amount, peak=found.peak)
    # Long after the end everything is through, but under a limit of nothing.
    (later,) = held_one(cells, key, [max(limit, 1e-3)], Windows(), in_flight=in_flight, end_ms=end_of(cells) + 10**14)
    assert later.amount == pytest.approx(total)


def test_a_burst_waits_for_the_window_to_move_on() -> None:
    # 11 s at 100 B/s under a limit of 50: over 10 s of window that is reached with the first 500 bytes.
    cells = to_cells([(second, 100.0, 1) for second in range(11)])
    (found,) = held_one(cells, PRODUCER_BYTE_RATE, [50.0], Windows(), in_flight=0, end_ms=end_of(cells))
    assert found.amount < 1100
    assert found.throttled_requests > 0
    assert found.backlog_max == pytest.approx(1100 - found.amount, abs=200)


def assert_as_the_classes(cells: OfOneMeter, key: str, limits: Sequence[float], *, in_flight: int = 0) -> list[Outcome]:
    """Compare with the metering classes under each of the limits."""
    connection = as_connection(cells, is_closed=in_flight > 0)
    windows = Windows()
    end_ms = end_of(cells)
    found = held_one(cells, key, limits, windows, in_flight=in_flight, end_ms=end_ms)
    for limit, one in zip(limits, found, strict=True):
        wanted = held_as_requests([connection], key, limit, windows, in_flight=in_flight, end_ms=end_ms)
        assert one.throttled_requests == wanted.throttled_requests
        assert one.throttled_ms == pytest.approx(wanted.throttled_ms, abs=wanted.throttled_requests)
        # The last one may come a millionth of a second before the end, or after it.
        assert one.amount == pytest.approx(
            wanted.amount, abs=float((cells.amount / np.maximum(cells.requests, 1)).max())
        )
        assert one.muted_ms == pytest.approx(wanted.muted_ms, abs=1 + wanted.throttled_requests)
        assert one.max_delay_ms == pytest.approx(wanted.max_delay_ms, abs=1 + wanted.throttled_requests)
    return found


@pytest.fixture(scope="module")
def captured() -> dict[tuple[str, str], OfOneMeter]:
    """The committed capture of a real broker, by user and key, as an independent loop counts it by second."""
    counted, _ = baseline_json.read([SAMPLE])
    seconds: dict[tuple[str, str], dict[int, list[float]]] = {}
    for (second, user, _, key), (amount, requests, *_) in counted.items():
        sums = seconds.setdefault((user, key), {}).setdefault(second, [0.0, 0.0])
        sums[0] += amount
        sums[1] += requests
    return {
        meter: to_cells([(second - START_MS // 1000, sums[0], int(sums[1])) for second, sums in sorted(cells.items())])
        for meter, cells in seconds.items()
    }


@pytest.mark.parametrize("in_flight", [0, 1])
def test_a_real_capture_goes_through_the_metering_classes(
    captured: dict[tuple[str, str], OfOneMeter], in_flight: int
) -> None:
    """Each user's meters, under limits from far below to above what they used."""
    throttled = set()
    for (user, key), cells in captured.items():
        mean = cells.amount.sum() / ((end_of(cells) - int(cells.start_ms[0])) / 1000)
        if not mean or (key == CONTROLLER_MUTATION_RATE and not in_flight):
            continue
        found = assert_as_the_classes(
            cells, key, [mean * part for part in (0.5, 0.9, 1.1, 2.0, 8.0)], in_flight=in_flight
        )
        if any(one.throttled_requests for one in found):
            throttled.add((user, key))
    assert len(throttled) > 15


def test_a_clock_that_was_set_back_and_forth(captured: dict[tuple[str, str], OfOneMeter]) -> None:
    """Seconds that came twice are one cell, and those that were left out are a gap."""
    cells = max(
        (one for (_, key), one in captured.items() if key == PRODUCER_BYTE_RATE), key=lambda one: len(one.amount)
    )
    second = (cells.start_ms - cells.start_ms[0]) // 1000
    third = len(second) // 3
    second[third:] -= 30
    second[2 * third :] += 3_600
    mean = float(cells.amount.mean())
    for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE):
        rows = [
            (int(one), float(cells.amount[second == one].sum()), int(cells.requests[second == one].sum()))
            for one in np.unique(second)
        ]
        found = assert_as_the_classes(to_cells(rows), key, [mean * 0.7, mean, mean * 1.5])
        assert found[0].throttled_requests
