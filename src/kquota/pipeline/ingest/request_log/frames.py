"""Request logs as frames of Spark, in one lazy plan: nothing is written, and nothing runs before rows are asked for.

The step `ingest` reads the same lines with the same reader, and writes tables of a dataset::

    files --splits, a task each--> LogReader --blocks of rows by kind--> shuffle by bucket
                                                                            |
          requests, connections <-------------------------------------------+----> mutations, by topic
                   |                                                                   | what each cost
                 union <------------------------------ by request <-- shuffle by second +

What a deletion of a topic cost is in another line, which another task may have read: hence the shuffles. Spark runs the
first of them once for both of its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.dataset.tables import REJECTED, REQUESTS
from kquota.pipeline.ingest.chunks import to_table
from kquota.pipeline.ingest.request_log.cells import CELL_MS
from kquota.pipeline.ingest.request_log.log_files import InputSplit, group_splits
from kquota.pipeline.ingest.request_log.log_reader import Chunk, LogReader, to_request_batches
from kquota.pipeline.ingest.request_log.usage_rows import (
    by_second,
    by_text,
    charge_mutations,
    mutation_costs,
    opened_connections,
)
from kquota.pipeline.spark.shuffle import (
    BLOCKS,
    bucket_by_bucket,
    bucket_count,
    from_blocks,
    from_blocks_by_kind,
    shuffle_by_bucket,
    sorted_by_bucket,
    to_blocks,
    with_kind,
)
from kquota.pipeline.spark.workers import default_parallelism, drop_zip_importers
from kquota.quotas import CONNECTION_CREATION_RATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kquota.pipeline.spark.parquet_source import Batches

__all__ = ["to_rejected", "to_requests"]

_OF_SPLITS: Final = pa.schema(
    [
        ("file", pa.string()),
        ("split", pa.int64()),
        ("lines", pa.int64()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("sample", pa.string()),
    ]
)
"""A row for each chunk, with the number of its lines, and one for each rejected line."""


def to_requests(spark: SparkSession, splits: Sequence[InputSplit], reader: LogReader) -> DataFrame:
    """Columns of the table `requests`: one row per request and key that it was charged to, and one for each connection,
    of connection_creation_rate, when it was first seen; its `seq` is null.
    """
    buckets = bucket_count(spark)

    def logged(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        rows = from_blocks_by_kind(blocks)
        if "requests" in rows:
            yield from to_request_batches(rows["requests"])
        if "connections" in rows:
            yield from to_request_batches(_first_sights(rows["connections"], reader.cluster))

    def costs(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        rows = from_blocks_by_kind(blocks)
        if "mutations" in rows:
            found = mutation_costs(rows["mutations"], reader.topics)
            yield to_blocks(found, by_second(found["record_ms"]) % buckets)

    def charged(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        yield from to_request_batches(charge_mutations(from_blocks(blocks)))

    kinds = ("requests", "connections", "mutations")
    rows = sorted_by_bucket(_of_chunks(spark, splits, reader, kinds, lambda chunk: _to_blocks(chunk, buckets), BLOCKS))
    requests = rows.mapInArrow(lambda batches: bucket_by_bucket(batches, logged), REQUESTS.schema)
    costed = rows.mapInArrow(lambda batches: bucket_by_bucket(batches, costs), BLOCKS)
    return requests.unionByName(shuffle_by_bucket(costed, charged, REQUESTS.schema))


def to_rejected(spark: SparkSession, splits: Sequence[InputSplit], reader: LogReader) -> DataFrame:
    """The table `rejected`: one row per line that could not be read."""
    files = [split.path for split in splits]

    def read(chunk: Chunk) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[object, ...]] = [(files[chunk.split], chunk.split, chunk.lines, None, None, None)]
        for table in chunk.tables["rejected"]:
            found = zip(*(table[name].to_pylist() for name in ("line", "reason", "sample")), strict=True)
            rows += [(files[chunk.split], chunk.split, 0, *one) for one in found]
        yield from to_table(rows, _OF_SPLITS).to_batches()

    read_lines = _of_chunks(spark, splits, reader, ("rejected",), read, from_arrow_schema(_OF_SPLITS))
    # Lines are numbered within their split.
    before = Window.partitionBy("file").orderBy("split").rangeBetween(Window.unboundedPreceding, -1)
    numbered = read_lines.withColumn("line", F.col("line") + F.coalesce(F.sum("lines").over(before), F.lit(0)))
    table = numbered.where(F.col("reason").isNotNull()).withColumn("cluster", F.lit(reader.cluster))
    return REJECTED.conform(table.select(*REJECTED.columns))


def _of_chunks(
    spark: SparkSession,
    splits: Sequence[InputSplit],
    reader: LogReader,
    kinds: Sequence[str],
    work: Callable[[Chunk], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """What `work` makes of chunks, with their rows of these kinds; each task reads some splits."""
    grouped = group_splits(splits, parallelism=default_parallelism(spark))
    tasks = [[(index, splits[index]) for index in task] for task in grouped]

    def each(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for chunk in reader.chunks(tasks[number], kinds):
                    yield from work(chunk)

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(each, schema)


def _to_blocks(chunk: Chunk, buckets: int) -> Iterator[pa.RecordBatch]:
    """Rows that other chunks matter to go to the bucket of their connection's ip, or of their topic; others to any."""
    for rows in chunk.tables["requests"]:
        yield to_blocks(with_kind(rows, "requests"), np.full(rows.num_rows, chunk.split % buckets))
    for kind, column in (("connections", "ip"), ("mutations", "topic")):
        for rows in chunk.tables[kind]:
            yield to_blocks(with_kind(rows, kind), by_text(rows[column]) % buckets)


def _first_sights(connections: pa.Table, cluster: str) -> pa.Table:
    """Connections as rows of `requests`: the log does not say when one was opened."""
    opened = opened_connections(connections)
    count = opened.num_rows
    seen_ms = pa.array(opened["second"].to_numpy() * float(CELL_MS))
    known = {
        "cluster": pa.repeat(cluster, count),
        "end_ms": seen_ms,
        "record_ms": seen_ms,
        "key": pa.repeat(CONNECTION_CREATION_RATE, count),
        "amount": pa.repeat(1.0, count),
        "throttle_ms": pa.repeat(0, count),
        **{name: opened[name] for name in ("broker_id", "connection", "ip")},
    }
    every = REQUESTS.arrow_schema
    return pa.table({field.name: known.get(field.name, pa.nulls(count, field.type)) for field in every})
