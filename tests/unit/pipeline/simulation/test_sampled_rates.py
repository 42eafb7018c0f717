"""Which rates the limits of a sweep are spread over: those that a meter's windows come to."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.metering.statistics import SampledRate, Windows
from kquota.pipeline.advice.curve import Grid
from kquota.pipeline.simulation.cell_frames import sampled_rates


def rates(cells: dict[int, float], windows: Windows) -> tuple[float, float]:
    """Mean and highest of one meter with so much in each of some seconds."""
    start_ms = 1000 * np.array(list(cells), np.int64)
    size_ms = np.full(len(cells), 1000, np.int64)
    found = sampled_rates(start_ms, size_ms, np.array(list(cells.values())), np.array([0]), [windows])
    return found[0, 0], found[0, 1]


def test_windows_are_those_of_the_broker() -> None:
    burst = {0: 1000.0, 1: 1000.0}
    assert rates(burst, Windows(11, 1000))[1] == pytest.approx(200.0)
    assert rates(burst, Windows(3, 1000))[1] == pytest.approx(1000.0)
    assert rates(burst, Windows(11, 2000))[1] == pytest.approx(100.0)


def test_seconds_that_follow_each_other_only_in_the_table_are_not_added_up() -> None:
    assert rates({0: 1000.0, 3600: 1000.0}, Windows())[1] == pytest.approx(100.0)


def test_clients_of_a_meter_add_up_where_cells_are_by_client() -> None:
    start_ms = np.array([0, 1000, 0, 1000, 0], np.int64)
    amount = np.array([10.0, 10.0, 30.0, 30.0, 7.0])
    found = sampled_rates(start_ms, np.full(5, 1000), amount, np.array([0, 4]), [Windows(2, 1000), Windows(2, 1000)])
    assert found == pytest.approx(np.array([[20.0, 80.0], [7 / 3, 7.0]]))


@given(
    cells=st.dictionaries(st.integers(0, 60), st.floats(1, 1000), min_size=1),
    windows=st.builds(Windows, st.integers(2, 12), st.sampled_from([1000, 2000])),
)
def test_the_highest_limit_that_is_tried_is_above_what_kafka_would_compare(
    cells: dict[int, float], windows: Windows
) -> None:
    cells = dict(sorted(cells.items()))
    kafkas = SampledRate(windows)
    highest = 0.0
    for second, amount in cells.items():
        kafkas.add(amount, second * 1000 + 500)
        highest = max(highest, kafkas.measure(second * 1000 + 500))
    mean, found = rates(cells, windows)
    assert Grid()(inf, mean, found)[-1] >= highest * (1 - 1e-9)
