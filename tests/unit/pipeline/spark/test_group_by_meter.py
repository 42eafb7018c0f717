"""Cells come out of blocks as they went in: to the bit, and those of a meter all in one bucket."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kquota.pipeline.spark.group_by_meter import Cells, _to_cells, _to_table
from kquota.pipeline.spark.shuffle import from_blocks, to_blocks

CELL = np.dtype(
    [("meter", np.int32), ("start_ms", np.int64), ("amount", np.float64), ("sampled", np.bool_), ("size_ms", np.int32)]
)
INTS = st.sampled_from([-1, 0, 1, 255, 65_536, 2**31 - 1, -(2**31)])
TIMES = st.sampled_from([0, 1_000, 1_760_000_000_000, 1_760_000_000_001, -(2**62), 2**62])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 2.5, -1.0, 1e300, float("nan"), float("inf")])


@st.composite
def some_cells(draw: st.DrawFn) -> Cells:
    count = draw(st.integers(0, 20))
    cells = np.zeros(count, CELL)
    cells["meter"] = draw(arrays.arrays(np.int32, count, elements=st.integers(0, 5)))
    for name, values in (("start_ms", TIMES), ("amount", FLOATS), ("size_ms", INTS)):
        cells[name] = draw(arrays.arrays(CELL[name], count, elements=values))
    cells["sampled"] = draw(arrays.arrays(np.bool_, count))
    return cells


@given(cells=some_cells(), buckets=st.integers(1, 4))
def test_cells_come_out_of_blocks_as_they_went_in(cells: Cells, buckets: int) -> None:
    rows = _to_table(cells)
    blocks = to_blocks(rows, cells["meter"] % buckets)
    found = {
        bucket: _to_cells(from_blocks([block.as_buffer()]))
        for bucket, block in zip(blocks.column("bucket").to_pylist(), blocks.column("block"), strict=True)
    }
    assert sorted(found) == sorted(set((cells["meter"] % buckets).tolist()))
    for bucket, of_bucket in found.items():
        assert of_bucket.dtype == CELL
        # To the bit: a number that is none, and the zero below zero, among them.
        assert of_bucket.tobytes() == cells[cells["meter"] % buckets == bucket].tobytes()
