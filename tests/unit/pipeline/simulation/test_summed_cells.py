"""Sums of cells are those of a plain loop, whatever order the cells come in."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.simulation.cell_frames import CELL
from kquota.pipeline.simulation.summed_cells import summed
from kquota.pipeline.spark.shuffle import sort_order

FEW = st.integers(0, 2)
COUNTS = st.sampled_from([0, 1, 2, 2**31, 2**40])
ROWS = st.lists(
    st.tuples(
        FEW,
        FEW,
        st.sampled_from([-1, 0, 7, 2_000_000_000]),
        st.sampled_from([0, 1_000, 1_760_000_000_000]),
        st.sampled_from([250, 1_000]),
        st.integers(0, 9).map(float),
        st.integers(0, 9).map(float),
        COUNTS,
        COUNTS,
        COUNTS,
    ),
    max_size=40,
)


def order(cells: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    return sort_order(cells["cell_start_ms"], cells["client"], cells["broker_id"], cells["meter"])


@given(rows=ROWS)
def test_cells_are_summed_by_meter_broker_client_and_time(rows: list[tuple[float, ...]]) -> None:
    by_place: dict[tuple[float, ...], list[tuple[float, ...]]] = defaultdict(list)
    by_meter: dict[tuple[float, ...], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        meter, client, broker_id, start_ms = row[:4]
        by_place[meter, broker_id, client, start_ms].append(row[4:])
        by_meter[meter, broker_id].append(row[4:])
    cells = np.array(rows, CELL)
    found = summed(cells, order(cells))
    places = sorted(by_place)
    assert list(zip(found.client.tolist(), found.start_ms.tolist(), strict=True)) == [place[2:] for place in places]
    assert found.size_ms.tolist() == [max(one[0] for one in by_place[place]) for place in places]
    assert found.amount.tolist() == [sum(one[1] for one in by_place[place]) for place in places]
    assert found.requests.tolist() == [sum(one[3] for one in by_place[place]) for place in places]
    assert [tuple(meter) for meter in found.meters.tolist()] == [
        (
            *meter,
            next(row for row, place in enumerate(places) if place[:2] == meter),
            sum(one[1] for one in those),
            max(one[2] for one in those),
            sum(one[3] for one in those),
            sum(one[4] for one in those),
            max(one[0] for one in those),
            sum(one[5] for one in those),
        )
        for meter, those in sorted(by_meter.items())
    ]


@given(rows=ROWS)
def test_rows_are_ordered_as_by_comparing(rows: list[tuple[float, ...]]) -> None:
    cells = np.array(rows, CELL)
    wanted = np.lexsort((cells["cell_start_ms"], cells["client"], cells["broker_id"], cells["meter"]))
    assert order(cells).tolist() == wanted.tolist()
