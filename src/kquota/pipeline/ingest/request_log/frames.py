"""Request logs as frames of Spark, in one lazy plan: nothing is written, and nothing runs before rows are asked for.

The step `ingest` reads the same lines with the same reader, and writes tables of a dataset::

    files --splits, a task each--> SplitReader --blocks of rows by kind--> shuffle by bucket
                                                                             |
           requests, connections <-------------------------------------------+----> mutations, by topic
                    |                                                                   | what each cost
                  union <------------------------------ by request <-- shuffle by second +

What a deletion of a topic cost is in another line, which another task may have read: hence the shuffles. Spark runs the
first of them once for both of its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.errors import InputError
from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.tables import REJECTED, REQUESTS
from kquota.pipeline.ingest.request_log.cells import CELL_MS
from kquota.pipeline.ingest.request_log.duplicate_logs import digests_of, find_duplicate_logs
from kquota.pipeline.ingest.request_log.log_files import InputSplit, find_log_files, group_splits, to_splits
from kquota.pipeline.ingest.request_log.repeated_hours import split_starts, with_split_starts
from kquota.pipeline.ingest.request_log.split_reader import ReadOptions, read_splits
from kquota.pipeline.ingest.request_log.usage_rows import (
    by_second,
    by_text,
    charge_mutations,
    mutation_costs,
    opened_connections,
)
from kquota.pipeline.ingest.time_zone import check_time_zone
from kquota.pipeline.spark.arrow import decode_dictionaries
from kquota.pipeline.spark.shuffle import (
    BLOCKS,
    bucket_by_bucket,
    bucket_count,
    from_blocks,
    from_blocks_by_kind,
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

__all__ = ["Mode", "RequestLog"]

Mode = Literal["permissive", "failfast"]

_BATCH_ROWS: Final = 65_536
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


@dataclass(slots=True)
class _Kept:
    """In place of what writes the rows of a chunk: keeps them, for a shuffle."""

    tables: list[pa.Table] = field(default_factory=list)

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Keep rows."""
        if rows.num_rows:
            self.tables.append(rows)
        return []

    def taken(self) -> list[pa.Table]:
        """What was kept, which is not kept any more."""
        tables, self.tables = self.tables, []
        return tables


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What one chunk of a split became."""

    split: int
    lines: int
    tables: Mapping[str, Sequence[pa.Table]]
    """By kind, those that were asked for."""


@dataclass(frozen=True)
class RequestLog:
    """The request logs of some brokers, and how they are to be read."""

    spark: SparkSession
    splits: Sequence[InputSplit]
    timezone: str = "UTC"
    cluster: str = ""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of topics from before the logs begin."""
    num_partitions: int = 1
    """The brokers' ``num.partitions``: of topics that are created without a number."""
    mode: Mode = "permissive"

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        urls: Sequence[str],
        *,
        broker_id: int = 0,
        timezone: str = "UTC",
        cluster: str = "",
        envelope: str = "",
        topics: Mapping[str, int] | None = None,
        num_partitions: int = 1,
        mode: Mode = "permissive",
    ) -> RequestLog:
        """Find the files, as :func:`~kquota.pipeline.ingest.request_log.log_files.find_log_files`, and look into them.

        Files that are copies of others are left out. This reads the beginning of each file, all of those that begin
        alike, and the times of a file that covers the hour that came twice at the end of summer time.

        :raises InputError: there is no such file, it cannot be read, or an argument makes no sense.
        """
        check_time_zone(timezone)
        if mode not in ("permissive", "failfast"):
            raise InputError(f"`mode`: {mode!r}: give 'permissive' or 'failfast'")
        found = find_log_files(urls, broker_id=broker_id, envelope=envelope)
        copies = find_duplicate_logs(found, lambda compared: [digests_of(one) for one in compared])
        files = [file for place, file in enumerate(found) if place not in copies]
        splits, _ = with_split_starts(
            files,
            to_splits(files, parallelism=default_parallelism(spark)),
            timezone,
            lambda searches: [split_starts(one) for one in searches],
        )
        return cls(spark, splits, timezone, cluster, topics or {}, num_partitions, mode)

    def requests(self) -> DataFrame:
        """Columns of the table `requests`: one row per request and key that it was charged to, and one for each
        connection, of connection_creation_rate, when it was first seen; its `seq` is null.
        """
        buckets, cluster = bucket_count(self.spark), self.cluster
        topics = dict(self.topics)

        def read(chunks: Iterator[_Chunk]) -> Iterator[pa.RecordBatch]:
            for number, chunk in enumerate(chunks):
                yield from _to_blocks(chunk, number, buckets)

        def logged(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
            rows = from_blocks_by_kind(blocks)
            if "requests" in rows:
                yield from _requests(rows["requests"])
            if "connections" in rows:
                yield from _requests(_first_sights(rows["connections"], cluster))

        def costs(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
            rows = from_blocks_by_kind(blocks)
            if "mutations" in rows:
                found = mutation_costs(rows["mutations"], topics)
                yield to_blocks(found, by_second(found["record_ms"]) % buckets)

        def charged(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
            yield from _requests(charge_mutations(from_blocks(blocks)))

        rows = sorted_by_bucket(self._map(("requests", "connections", "mutations"), read, BLOCKS))
        requests = rows.mapInArrow(lambda batches: bucket_by_bucket(batches, logged), REQUESTS.schema)
        costed = sorted_by_bucket(rows.mapInArrow(lambda batches: bucket_by_bucket(batches, costs), BLOCKS))
        return requests.unionByName(
            costed.mapInArrow(lambda batches: bucket_by_bucket(batches, charged), REQUESTS.schema)
        )

    def rejected(self) -> DataFrame:
        """The table `rejected`: one row per line that could not be read."""
        files = [split.path for split in self.splits]

        def read(chunks: Iterator[_Chunk]) -> Iterator[pa.RecordBatch]:
            for chunk in chunks:
                nothing = (None, None, None)
                rows = [(files[chunk.split], chunk.split, chunk.lines, *nothing)]
                for table in chunk.tables["rejected"]:
                    found = zip(*(table[name].to_pylist() for name in ("line", "reason", "sample")), strict=True)
                    rows += [(files[chunk.split], chunk.split, 0, *one) for one in found]
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [pa.array(column, kind.type) for column, kind in zip(columns, _OF_SPLITS, strict=True)],
                    schema=_OF_SPLITS,
                )

        # Lines are numbered within their split.
        before = Window.partitionBy("file").orderBy("split").rangeBetween(Window.unboundedPreceding, -1)
        numbered = self._map(("rejected",), read, from_arrow_schema(_OF_SPLITS)).withColumn(
            "line", F.col("line") + F.coalesce(F.sum("lines").over(before), F.lit(0))
        )
        table = numbered.where(F.col("reason").isNotNull()).withColumn("cluster", F.lit(self.cluster))
        return REJECTED.conform(table.select(*REJECTED.columns))

    def _map(
        self,
        kinds: Sequence[str],
        work: Callable[[Iterator[_Chunk]], Iterator[pa.RecordBatch]],
        schema: StructType | str,
    ) -> DataFrame:
        """Apply `work` to the chunks of each task, with their rows of these kinds."""
        grouped = group_splits(self.splits, parallelism=default_parallelism(self.spark))
        tasks = [[(index, self.splits[index]) for index in task] for task in grouped]
        timezone, cluster, num_partitions = self.timezone, self.cluster, self.num_partitions
        fails_fast, paths = self.mode == "failfast", [split.path for split in self.splits]

        def each(batches: Batches) -> Iterator[pa.RecordBatch]:
            drop_zip_importers()
            kept = {kind: _Kept() for kind in {*kinds, *(["rejected"] if fails_fast else [])}}
            options = ReadOptions(kept, cluster, timezone, "requests" in kinds, num_partitions)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    chunks = _read(tasks[number], options, kept)
                    yield from work(_without_rejected(chunks, paths) if fails_fast else chunks)

        return self.spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(each, schema)


def _read(
    splits: Sequence[tuple[int, InputSplit]], options: ReadOptions, kept: Mapping[str, _Kept]
) -> Iterator[_Chunk]:
    for manifest in read_splits(splits, options):
        yield _Chunk(manifest.split, manifest.counts.lines, {kind: rows.taken() for kind, rows in kept.items()})


def _to_blocks(chunk: _Chunk, number: int, buckets: int) -> Iterator[pa.RecordBatch]:
    """Rows that other chunks matter to go to the bucket of their connection's ip, or of their topic; others to any."""
    for rows in chunk.tables["requests"]:
        yield to_blocks(with_kind(rows, "requests"), np.full(rows.num_rows, (chunk.split + number) % buckets))
    for kind, column in (("connections", "ip"), ("mutations", "topic")):
        for rows in chunk.tables[kind]:
            yield to_blocks(with_kind(rows, kind), by_text(rows[column]) % buckets)


def _without_rejected(chunks: Iterator[_Chunk], paths: Sequence[str]) -> Iterator[_Chunk]:
    """:raises InputError: a line was rejected."""
    for chunk in chunks:
        for rows in chunk.tables["rejected"]:
            reason, sample = rows["reason"][0].as_py(), rows["sample"][0].as_py()
            raise InputError(f"{paths[chunk.split]}: a line cannot be used, {reason}: {sample}")
        yield chunk


def _requests(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from decode_dictionaries(rows).select(REQUESTS.columns).cast(REQUESTS.arrow_schema).to_batches(_BATCH_ROWS)


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
