"""What workers sum before a ``groupBy`` adds up to the sums of all rows, wherever batches begin and end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from kquota.pipeline.spark import partial_sums as module
from kquota.pipeline.spark.partial_sums import partial_sums

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "b"]),
        st.integers(0, 2),
        st.one_of(st.none(), st.integers(0, 9).map(float)),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=30,
)
SCHEMA = StructType(
    [
        StructField("who", StringType()),
        StructField("day", LongType()),
        StructField("amount", DoubleType()),
        StructField("last", LongType()),
    ]
)


class OneTask:
    """Rows that one worker reads, in batches that each have dictionaries of their own."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches

    def mapInArrow(  # noqa: N802 - as Spark's
        self, func: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType
    ) -> list[pa.RecordBatch]:
        assert schema == SCHEMA
        return list(func(iter(self._batches)))


def batches_of(rows: Sequence[tuple[Any, ...]], cuts: Sequence[int]) -> list[pa.RecordBatch]:
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut <= len(rows))})
    found = []
    for begin, end in pairwise(ends):
        who, day, amount, last = zip(*rows[begin:end], strict=True)
        columns = [
            pa.array(who, pa.string()).dictionary_encode(),
            pa.array(day, pa.int64()),
            pa.array(amount, pa.float64()),
            pa.array(last, pa.int64()),
        ]
        found.append(pa.record_batch(columns, names=SCHEMA.names))
    return found


def summed(task: OneTask, prepare: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> list[tuple[Any, ...]]:
    found: Any = partial_sums(task, ("who", "day"), {"amount": "sum", "last": "max"}, SCHEMA, prepare)  # type: ignore[arg-type]
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def totals(rows: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """By group the sum of `amount` and the largest `last`, None where there is none."""
    known: dict[tuple[Any, ...], tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    for who, day, amount, last in rows:
        known[who, day][0].extend([] if amount is None else [amount])
        known[who, day][1].extend([] if last is None else [last])
    return {
        group: (sum(amounts) if amounts else None, max(lasts, default=None))
        for group, (amounts, lasts) in known.items()
    }


@given(rows=ROWS, cuts=st.lists(st.integers(0, 30), max_size=5), most=st.sampled_from([1, 4, 1_000]))
def test_partial_sums_add_up_to_the_sums(rows: list[tuple[Any, ...]], cuts: list[int], most: int) -> None:
    """However many sums a worker keeps; where it keeps all, each group is in one row."""
    with mock.patch.object(module, "_BUFFERED_ROWS", most):
        parts = summed(OneTask(batches_of(rows, cuts)))
    assert totals(parts) == totals(rows)
    if most == 1_000:
        assert len(parts) == len(totals(rows))


def test_rows_are_prepared_before_they_are_summed() -> None:
    def next_day(rows: pa.Table) -> pa.Table:
        return rows.set_column(1, "day", pa.array([day + 1 for day in rows["day"].to_pylist()], pa.int64()))

    assert summed(OneTask(batches_of([("a", 1, 2.0, 3)], [])), next_day) == [("a", 2, 2.0, 3)]
