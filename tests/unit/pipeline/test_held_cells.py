"""The compiled replay of cells is the replay of requests through the metering classes, step by step."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.metering.statistics import TokenBucket, Windows
from kquota.metering.throttling import bucket_throttle_ms
from kquota.pipeline.replay.arrivals import NOTHING
from kquota.pipeline.replay.held_cells import REQUESTS_PER_CELL, MeterCells, outcomes_of_cells
from kquota.pipeline.replay.held_requests import Connection, held_requests
from kquota.pipeline.replay.mutation_waits import mutation_waits_ms
from kquota.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

START_MS = 1_760_000_000_000
KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)


def to_cells(rows: list[tuple[int, float, int]], *, largest: float | None = None, size_ms: int = 1000) -> MeterCells:
    """Cells of (second, amount, requests)."""
    amounts = np.array([amount for _, amount, _ in rows], np.float64)
    requests = np.array([count for _, _, count in rows], np.int64)
    return MeterCells(
        START_MS + 1000 * np.array([second for second, _, _ in rows], np.int64),
        np.full(len(rows), size_ms, np.int64),
        amounts,
        requests,
        float((amounts / np.maximum(requests, 1)).max(initial=0.0)) if largest is None else largest,
        np.zeros(len(rows), np.int64),
    )


def as_connection(cells: MeterCells) -> Connection:
    """The requests that cells are taken for."""
    at_ms: list[float] = []
    amounts: list[float] = []
    for start_ms, size_ms, amount, requests in zip(*cells[:4], strict=True):
        parts = max(1, min(int(requests), REQUESTS_PER_CELL * int(max(size_ms // 1000, 1))))
        if amount > 0:
            at_ms += [float(start_ms + (part + 0.5) * size_ms / parts) for part in range(parts)]
            amounts += [float(amount / parts)] * parts
    return Connection(at_ms, amounts, largest=cells.largest)


def end_of(cells: MeterCells) -> int:
    return int(cells.start_ms[-1]) + int(cells.size_ms[-1])


@st.composite
def traffic(draw: st.DrawFn) -> MeterCells:
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
    return to_cells(rows, largest=largest, size_ms=draw(st.sampled_from([1000, 1000, 300])))


LIMITS = st.sampled_from([0.0, 0.5, 3.0, 25.0, 150.0, 1_000.0, 1e6, inf])
WINDOWS = st.sampled_from([Windows(), Windows(3, 1000), Windows(1, 1000), Windows(5, 2000)])


@given(
    cells=traffic(), key=st.sampled_from(KEYS), limit=LIMITS, windows=WINDOWS, in_flight=st.sampled_from([0, 1, 2, 5])
)
def test_cells_go_through_the_metering_classes_step_by_step(
    cells: MeterCells, key: str, limit: float, windows: Windows, in_flight: int
) -> None:
    connection = as_connection(cells)
    (found,) = outcomes_of_cells(cells, key, [limit], windows, in_flight=in_flight, end_ms=end_of(cells))
    wanted = held_requests(
        [connection], key, None if limit == inf else limit, windows, in_flight=in_flight, end_ms=end_of(cells)
    )
    if key == CONTROLLER_MUTATION_RATE and not in_flight and 0 < limit < inf:
        return  # the closed form, which has a test of its own
    assert found.throttled_requests == wanted.throttled_requests
    assert found.throttled_ms == wanted.throttled_ms
    assert found.amount == pytest.approx(wanted.amount)
    assert found.muted_ms == pytest.approx(wanted.muted_ms)
    assert found.max_delay_ms == pytest.approx(wanted.max_delay_ms)


@given(clients=st.lists(traffic(), min_size=2, max_size=4), key=st.sampled_from(KEYS), limit=LIMITS)
def test_clients_that_wait_for_their_answers_each_do_so_alone(
    clients: list[MeterCells], key: str, limit: float
) -> None:
    largest = max(one.largest for one in clients)
    clients = [one._replace(largest=largest) for one in clients]
    merged = MeterCells(
        np.concatenate([one.start_ms for one in clients]),
        np.concatenate([one.size_ms for one in clients]),
        np.concatenate([one.amount for one in clients]),
        np.concatenate([one.requests for one in clients]),
        largest,
        np.repeat(np.arange(len(clients)), [len(one.amount) for one in clients]),
    )
    end_ms = max(end_of(one) for one in clients)
    (found,) = outcomes_of_cells(merged, key, [limit], Windows(), in_flight=1, end_ms=end_ms)
    wanted = held_requests(
        [as_connection(one) for one in clients],
        key,
        None if limit == inf else limit,
        Windows(),
        in_flight=1,
        end_ms=end_ms,
    )
    assert found.throttled_requests == wanted.throttled_requests
    assert found.amount == pytest.approx(wanted.amount)
    assert found.muted_ms == pytest.approx(wanted.muted_ms)
    assert found.max_delay_ms == pytest.approx(wanted.max_delay_ms)


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
    (waits_ms,) = mutation_waits_ms(at_ms, amounts, np.array([limit]), windows)
    bucket = TokenBucket(windows)
    free_ms = 0.0
    for came_ms, amount, waited_ms in zip(at_ms, amounts, waits_ms, strict=True):
        free_ms = max(free_ms, came_ms)
        while (tokens := bucket.measure(int(free_ms), limit)) < 0:
            free_ms += max(bucket_throttle_ms(tokens, limit), 1)
        bucket.record(float(amount), int(free_ms), limit)
        assert free_ms - came_ms == pytest.approx(waited_ms, abs=1)


@given(cells=traffic(), key=st.sampled_from(KEYS), in_flight=st.sampled_from([0, 3]))
def test_many_limits_at_once_are_each_alone(cells: MeterCells, key: str, in_flight: int) -> None:
    limits = [1.0, 10.0, 100.0, 1_000.0, inf]
    together = outcomes_of_cells(cells, key, limits, Windows(), in_flight=in_flight, end_ms=end_of(cells))
    alone = [
        outcomes_of_cells(cells, key, [limit], Windows(), in_flight=in_flight, end_ms=end_of(cells))[0]
        for limit in limits
    ]
    assert together == alone


@given(cells=traffic(), key=st.sampled_from(KEYS), limit=LIMITS, in_flight=st.sampled_from([0, 5]))
def test_no_work_is_made_and_none_is_lost(cells: MeterCells, key: str, limit: float, in_flight: int) -> None:
    """What is let through is at most what was recorded, and all of it where nothing waits."""
    (found,) = outcomes_of_cells(cells, key, [limit], Windows(), in_flight=in_flight, end_ms=end_of(cells))
    total = float(cells.amount.sum())
    assert found.amount <= total * (1 + 1e-9)
    if not found.throttled_requests:
        assert found.amount == pytest.approx(total)
        assert found == NOTHING._replace(amount=found.amount, peak=found.peak)
    # Long after the end everything is through, but under a limit of nothing.
    (later,) = outcomes_of_cells(
        cells, key, [max(limit, 1e-3)], Windows(), in_flight=in_flight, end_ms=end_of(cells) + 10**14
    )
    assert later.amount == pytest.approx(total)


def test_a_burst_waits_for_the_window_to_move_on() -> None:
    # 11 s at 100 B/s under a limit of 50: over 10 s of window that is reached with the first 500 bytes.
    cells = to_cells([(second, 100.0, 1) for second in range(11)])
    (found,) = outcomes_of_cells(cells, PRODUCER_BYTE_RATE, [50.0], Windows(), in_flight=0, end_ms=end_of(cells))
    assert found.amount < 1100
    assert found.throttled_requests > 0
    assert found.backlog_max == pytest.approx(1100 - found.amount, abs=200)
