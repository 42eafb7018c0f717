"""Usage summed on the workers that read it, before Spark's own ``groupBy`` adds up what is left.

A table `usage` has many rows for each client and key. A worker sums what it reads batch by batch, so that few
rows reach the JVM; the ``groupBy`` of the caller then has little to do, and is plain Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kquota.pipeline.spark.workers import drop_zip_importers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.spark.parquet_source import ArrowSource, Batches

__all__ = ["partial_sums"]

_BUFFERED_ROWS: Final = 1_000_000
"""Sums that a worker keeps before it gives them on: this bounds its memory where nearly every row is a group."""


def partial_sums(
    rows: ArrowSource,
    keys: Sequence[str],
    aggregates: Mapping[str, str],
    schema: StructType,
    prepare: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> DataFrame:
    """Sum rows by some keys, as far as one worker sees them: the same keys may be in several rows of the result.

    Nulls are left out of sums; the sum of nothing but nulls is null.

    :param keys: columns that make a group; null is a value like any other.
    :param aggregates: by column ``sum``, ``min`` or ``max``.
    :param schema: the keys, then the columns of `aggregates`.
    :param prepare: gives columns of `schema`, from a batch of `rows`; runs on workers.
    """
    names = [*keys, *aggregates]
    arrow_schema = to_arrow_schema(schema)

    def summed(table: pa.Table) -> pa.Table:
        found = table.group_by(list(keys), use_threads=False).aggregate(list(aggregates.items()))
        sums = [f"{name}_{how}" for name, how in aggregates.items()]
        # Each batch has dictionaries of its own; Spark takes plain strings.
        return found.select([*keys, *sums]).rename_columns(names).cast(arrow_schema)

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        buffered: list[pa.Table] = []
        for batch in batches:
            buffered.append(summed(prepare(pa.Table.from_batches([batch]))))
            if sum(table.num_rows for table in buffered) > _BUFFERED_ROWS:
                buffered = [summed(pa.concat_tables(buffered))]
                if buffered[0].num_rows > _BUFFERED_ROWS // 2:
                    yield from buffered[0].to_batches()
                    buffered = []
        if buffered:
            yield from summed(pa.concat_tables(buffered)).to_batches()

    return rows.mapInArrow(work, schema)
