"""Values that functions on Spark's workers need beside their rows, made of a small frame when a job runs.

A plan that looks rows up in a value, such as the meters of clients, does not have to collect that value first: nothing
runs when it is made, nothing comes to the driver's Python, and Spark Connect, which has no broadcasts, can do it too::

    frame of clients --repartition(1)--> build(all rows) --pickle--> one row
                                                                      |  as a scalar subquery, which Spark runs once
    rows of a task                                                    v
      first row    a, b, c, ...                                     the value
      other rows   a, b, c, ...                                     null
      ---- mapInArrow ----> work(value, batches of a, b, c, ...)

So each task gets the value once, and a worker process unpickles it once for all of its tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kquota.pipeline.spark.parquet_source import ParquetSource
from kquota.pipeline.spark.workers import drop_zip_importers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["LazyValue", "map_in_arrow"]

_T = TypeVar("_T")
_U = TypeVar("_U")

_VALUE: Final = "_lazy_value"
_ROW_NUMBER: Final = 2**33 - 1
"""The bits of ``monotonically_increasing_id`` that count the rows of a partition."""

_AT_HAND: Final = 4
_values: dict[bytes, Any] = {}
"""Of this process, by digest; the latest at the end."""


class LazyValue(Generic[_T]):
    """What a function makes of all rows of a frame. They have to fit into one worker, and the value into each."""

    def __init__(self, frame: DataFrame) -> None:
        """Use :meth:`of`.

        :param frame: one row with the pickled value, or several of them, in an array.
        """
        self.frame = frame

    @classmethod
    def of(cls, rows: DataFrame, build: Callable[[pa.Table], _T]) -> Self:
        """Take the rows, and what makes the value of them; both run with the job that needs the value.

        :param build: gets the rows in an order that only depends on them, so that two tasks that need the value in
            different stages have the same one; runs on a worker.
        """
        schema = to_arrow_schema(rows.schema)

        def work(batches: Batches) -> Iterator[pa.RecordBatch]:
            drop_zip_importers()
            found = list(batches)
            table = pa.Table.from_batches(found) if found else schema.empty_table()
            in_order = table.sort_by([(name, "ascending") for name in schema.names])
            pickled = pickle.dumps(build(in_order), protocol=pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pydict({_VALUE: [[pickled]]})

        return cls(rows.repartition(1).mapInArrow(work, f"{_VALUE} array<binary>"))

    def beside(self, other: LazyValue[_U]) -> LazyValue[tuple[_T, _U]]:
        """A pair of two values, neither of which is a pair itself."""
        return LazyValue(self.frame.select(F.concat(_VALUE, other.frame.scalar()).alias(_VALUE)))


def map_in_arrow(
    source: ArrowSource,
    value: LazyValue[_T],
    work: Callable[[_T, Batches], Batches],
    schema: StructType | str,
) -> DataFrame:
    """As ``mapInArrow`` of Spark's frames, of a function that gets a value, too. The rows of a task keep their order.

    :param source: a frame, or what reads files.
    :param work: of the value and the batches of a task; not called where a task has no rows.
    """
    tasks: Any = source.tasks if isinstance(source, ParquetSource) else source
    read: Callable[[Batches], Batches] = source.read if isinstance(source, ParquetSource) else iter

    def with_value(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        remaining = iter(batches)
        batch = next(remaining, None)
        if batch is None:
            return
        values = [_unpickled(one.as_buffer()) for one in batch.column(_VALUE)[0].values]
        found: Any = values[0] if len(values) == 1 else tuple(values)
        yield from work(found, read(one.drop_columns([_VALUE]) for one in chain([batch], remaining)))

    first = F.monotonically_increasing_id().bitwiseAND(_ROW_NUMBER) == 0
    with_first: DataFrame = tasks.select("*", F.when(first, value.frame.scalar()).alias(_VALUE))
    return with_first.mapInArrow(with_value, schema)


def _unpickled(pickled: pa.Buffer) -> Any:
    """The value, the same object each time."""
    digest = blake2b(pickled, digest_size=16).digest()
    if digest not in _values:
        while len(_values) >= _AT_HAND:
            del _values[next(iter(_values))]
        _values[digest] = pickle.loads(pickled)  # noqa: S301 - what another worker of this program pickled
    return _values[digest]
