"""Packed rows come out as they went in, in any order and in any parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kquota.pipeline.spark.packed_rows import PackedRows, unpacked

ROW = np.dtype(
    [("meter", np.int32), ("start_ms", np.int64), ("amount", np.float64), ("sampled", np.bool_), ("size_ms", np.int32)]
)
INTS = st.sampled_from([-1, 0, 1, 255, 256, 65_536, 2**31 - 1, -(2**31)])
TIMES = st.sampled_from([0, 1_000, 5_000, 1_760_000_000_000, 1_760_000_001_000, 1_760_000_000_001, -(2**62), 2**62])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 2.5, -1.0, 2.0**32 - 1, 2.0**32, 1e300, float("nan"), float("inf")])


@st.composite
def some_rows(draw: st.DrawFn) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    count = draw(st.integers(0, 20))
    rows = np.zeros(count, ROW)
    for name, values in (("meter", INTS), ("start_ms", TIMES), ("amount", FLOATS), ("size_ms", INTS)):
        few = draw(st.lists(values, min_size=1, max_size=4))
        rows[name] = draw(arrays.arrays(ROW[name], count, elements=st.sampled_from(few)))
    rows["sampled"] = draw(arrays.arrays(np.bool_, count))
    return rows


def as_bytes(rows: Any) -> bytes:
    return rows.tobytes()  # type: ignore[no-any-return]


@given(rows=some_rows(), data=st.data())
def test_rows_come_out_as_they_went_in(rows: np.ndarray[tuple[int], np.dtype[np.void]], data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows) - 1)))) if len(rows) > 1 else []
    starts = np.array([0, *cuts] if len(rows) else [], np.int64)
    parts = PackedRows(rows).parts(order, starts)
    assert len(parts) == len(starts)
    found = [unpacked(part) for part in parts]
    assert all(one.dtype == ROW for one in found)
    # To the bit: a number that is none, and the zero below zero, among them.
    assert b"".join(map(as_bytes, found)) == as_bytes(rows[order])


def test_what_is_the_same_in_all_rows_takes_no_room() -> None:
    rows = np.zeros(10_000, ROW)
    rows["start_ms"] = 1_760_000_000_000 + 1_000 * np.arange(10_000)
    rows["amount"] = np.arange(10_000)
    (part,) = PackedRows(rows).parts(np.arange(10_000), np.array([0]))
    assert len(part) < 10_000 * (2 + 4) + 1_000
