"""What workers staged, put together: cells that stand in two pieces of a log, connections, mutations, rejected lines.

All of it is small beside the log: the cells of most seconds are final where a worker wrote them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.sources.cells import EDGE_SCHEMA, USAGE_SCHEMA
from kquota.pipeline.sources.log_files import LogRange
from kquota.pipeline.sources.staging import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    StagedFile,
    Stretch,
)
from kquota.pipeline.table_files import add_rows, ensure_table
from kquota.pipeline.tables import REJECTED, REQUESTS, USAGE
from kquota.pipeline.transforms.usage import (
    charge_mutations,
    merge_cells,
    to_connection_usage,
    to_mutation_requests,
    to_mutation_usage,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["finish_rejected", "finish_usage"]


def finish_usage(
    spark: SparkSession,
    staging: Path,
    stretches: Sequence[Stretch],
    *,
    cluster: str,
    topics: Mapping[str, int],
    keep_requests: bool,
) -> int:
    """Complete `usage` (and `requests`) beside the rows that are final already; returns the unknown amounts."""
    staged: dict[str, list[StagedFile]] = defaultdict(list)
    mixed = _mixed_stretches(stretches)
    for index, stretch in enumerate(stretches):
        for file in stretch.files:
            kind = "mixed" if file.kind == "usage" and index in mixed else file.kind
            staged[kind].append(file)
    # Three small queries, whose planning takes longer than their work: side by side.
    with ThreadPoolExecutor(3, "ingest") as pool:
        merged = pool.submit(_merge_edges, spark, staging, staged["edges"], staged["mixed"], cluster)
        counted = pool.submit(_count_connections, spark, staging, staged["connections"], cluster)
        unknown = pool.submit(
            _charge_mutations, spark, staging, staged["mutations"], topics, keep_requests=keep_requests
        )
    merged.result()
    counted.result()
    if keep_requests:
        ensure_table(staging, REQUESTS)
    ensure_table(staging, USAGE)
    return unknown.result()


def _merge_edges(
    spark: SparkSession, staging: Path, edges: Sequence[StagedFile], mixed: Sequence[StagedFile], cluster: str
) -> None:
    if edges or mixed:
        # A small part of all cells, unless files of one broker overlap.
        cells = _read(spark, staging, mixed, USAGE_SCHEMA)
        add_rows(staging, USAGE, merge_cells(_read(spark, staging, edges, EDGE_SCHEMA), cells, cluster=cluster))
    for file in mixed:
        (staging / file.path).unlink()


def _count_connections(spark: SparkSession, staging: Path, files: Sequence[StagedFile], cluster: str) -> None:
    if files:
        add_rows(staging, USAGE, to_connection_usage(_read(spark, staging, files, CONNECTIONS_SCHEMA), cluster=cluster))


def _charge_mutations(
    spark: SparkSession,
    staging: Path,
    files: Sequence[StagedFile],
    topics: Mapping[str, int],
    *,
    keep_requests: bool,
) -> int:
    """Returns how many requests cost an amount that is not known."""
    if not files:
        return 0
    counts = {"topic": pa.array(topics.keys(), pa.string()), "partitions": pa.array(topics.values(), pa.int64())}
    before = spark.createDataFrame(pa.table(counts))
    charged = charge_mutations(_read(spark, staging, files, MUTATIONS_SCHEMA), before).persist()
    add_rows(staging, USAGE, to_mutation_usage(charged))
    if keep_requests:
        add_rows(staging, REQUESTS, to_mutation_requests(charged))
    unknown = charged.where(F.col("charged").isNull()).count()
    charged.unpersist()
    return int(unknown)


def _mixed_stretches(stretches: Sequence[Stretch]) -> set[int]:
    """Stretches whose final cells may also stand elsewhere: files of one broker overlap in time, or are out of order.

    Then rows of the same second, client and key have to be added up, instead of standing side by side.
    """
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for stretch in stretches:
        of_broker = spans[stretch.broker_id]
        if stretch.final is None:
            of_broker += [stretch.open] if stretch.open else []
            continue
        final_from, final_to = stretch.final
        open_from, open_to = stretch.open or stretch.final
        around = [(open_from, final_from - 1), stretch.final, (final_to + 1, open_to)]
        of_broker += [(start, end) for start, end in around if start <= end]
    starts = {broker: sorted(start for start, _ in of_broker) for broker, of_broker in spans.items()}
    ends = {broker: sorted(end for _, end in of_broker) for broker, of_broker in spans.items()}
    mixed = set()
    for index, stretch in enumerate(stretches):
        if stretch.final is None:
            continue
        begun = bisect_right(starts[stretch.broker_id], stretch.final[1])
        over = bisect_left(ends[stretch.broker_id], stretch.final[0])
        if begun - over > 1:  # more than the stretch's own
            mixed.add(index)
    return mixed


def finish_rejected(
    spark: SparkSession, staging: Path, stretches: Sequence[Stretch], ranges: Sequence[LogRange], cluster: str
) -> None:
    """Give rejected lines their file and their number in it."""
    files = [file for stretch in stretches for file in stretch.files if file.kind == "rejected"]
    if files:
        (staging / "rejected").rename(staging / "rejected-staged")
        lines_of_range = Counter[int]()
        for stretch in stretches:
            lines_of_range[stretch.range] += stretch.lines
        before: dict[int, int] = {}
        for index, piece in enumerate(ranges):
            follows = index > 0 and ranges[index - 1].file == piece.file
            before[index] = before[index - 1] + lines_of_range[index - 1] if follows else 0
        places = spark.createDataFrame(
            pa.table(
                {
                    "range": pa.array(range(len(ranges)), pa.int64()),
                    "file": pa.array((piece.path for piece in ranges), pa.string()),
                    "before": pa.array((before[index] for index in range(len(ranges))), pa.int64()),
                }
            )
        )
        staged = [
            StagedFile(file.kind, file.path.replace("rejected/", "rejected-staged/", 1), file.rows) for file in files
        ]
        rows = _read(spark, staging, staged, REJECTED_SCHEMA).join(F.broadcast(places), "range")
        numbered = rows.select(
            F.lit(cluster).alias("cluster"),
            "file",
            (F.col("line") + F.col("before")).alias("line"),
            "reason",
            "sample",
        )
        REJECTED.conform(numbered).orderBy("file", "line").write.parquet(str(staging / "rejected"))
    ensure_table(staging, REJECTED)


def _read(spark: SparkSession, staging: Path, files: Sequence[StagedFile], schema: pa.Schema) -> DataFrame:
    spark_schema = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], spark_schema)
    return spark.read.schema(spark_schema).parquet(*(str(staging / file.path) for file in files))
