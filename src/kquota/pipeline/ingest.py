"""Logs to tables: `usage`, `requests` and `rejected`, written into an output directory's staging folder."""

from __future__ import annotations

import shutil
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kquota.pipeline.sources.cells import EDGE_SCHEMA, USAGE_SCHEMA
from kquota.pipeline.sources.log_files import LogFile, LogRange, cut_into_ranges, group_ranges
from kquota.pipeline.sources.range_reader import IngestOptions
from kquota.pipeline.sources.request_log import stage_request_logs
from kquota.pipeline.sources.staging import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    StagedFile,
    Stretch,
)
from kquota.pipeline.tables import REJECTED, REQUESTS, USAGE, Table
from kquota.pipeline.transforms.usage import (
    charge_mutations,
    merge_cells,
    to_connection_usage,
    to_mutation_requests,
    to_mutation_usage,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kquota.pipeline.progress import Progress

__all__ = ["IngestResult", "estimate_lines", "ingest_logs", "write_table"]

API_NAMES: Final = (
    "PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA",
    "CONTROLLED_SHUTDOWN", "OFFSET_COMMIT", "OFFSET_FETCH", "FIND_COORDINATOR", "JOIN_GROUP", "HEARTBEAT",
    "LEAVE_GROUP", "SYNC_GROUP", "DESCRIBE_GROUPS", "LIST_GROUPS", "SASL_HANDSHAKE", "API_VERSIONS",
    "CREATE_TOPICS", "DELETE_TOPICS", "DELETE_RECORDS", "INIT_PRODUCER_ID", "OFFSET_FOR_LEADER_EPOCH",
    "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "END_TXN", "WRITE_TXN_MARKERS", "TXN_OFFSET_COMMIT",
    "DESCRIBE_ACLS", "CREATE_ACLS", "DELETE_ACLS", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    "ALTER_REPLICA_LOG_DIRS", "DESCRIBE_LOG_DIRS", "SASL_AUTHENTICATE", "CREATE_PARTITIONS",
    "CREATE_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN", "DESCRIBE_DELEGATION_TOKEN",
    "DELETE_GROUPS", "ELECT_LEADERS", "INCREMENTAL_ALTER_CONFIGS", "ALTER_PARTITION_REASSIGNMENTS",
    "LIST_PARTITION_REASSIGNMENTS", "OFFSET_DELETE", "DESCRIBE_CLIENT_QUOTAS", "ALTER_CLIENT_QUOTAS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS", "ALTER_USER_SCRAM_CREDENTIALS", "VOTE", "BEGIN_QUORUM_EPOCH",
    "END_QUORUM_EPOCH", "DESCRIBE_QUORUM", "ALTER_PARTITION", "UPDATE_FEATURES", "ENVELOPE", "FETCH_SNAPSHOT",
    "DESCRIBE_CLUSTER", "DESCRIBE_PRODUCERS", "BROKER_REGISTRATION", "BROKER_HEARTBEAT", "UNREGISTER_BROKER",
    "DESCRIBE_TRANSACTIONS", "LIST_TRANSACTIONS", "ALLOCATE_PRODUCER_IDS", "CONSUMER_GROUP_HEARTBEAT",
    "CONSUMER_GROUP_DESCRIBE", "CONTROLLER_REGISTRATION", "GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY",
    "ASSIGN_REPLICAS_TO_DIRS", "LIST_CONFIG_RESOURCES", "DESCRIBE_TOPIC_PARTITIONS", "SHARE_GROUP_HEARTBEAT",
    "SHARE_GROUP_DESCRIBE", "SHARE_FETCH", "SHARE_ACKNOWLEDGE", "ADD_RAFT_VOTER", "REMOVE_RAFT_VOTER",
    "UPDATE_RAFT_VOTER",
)  # fmt: skip
"""Kafka's names of its APIs, by key (org.apache.kafka.common.protocol.ApiKeys)."""

AUTO_KEEP_LINES: Final = 5_000_000
"""Up to so many lines (estimated from the files' sizes) `requests` is written without being asked for."""

_TOPICS_DDL: Final = "topic string, partitions bigint"


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Counts over all lines read; lines = good + rejected + blank, and good includes forwarded and followers."""

    lines: int
    good: int
    rejected: int
    blank: int
    forwarded: int
    followers: int
    unknown_amounts: int
    versions: Mapping[str, Mapping[str, int]]
    kept_requests: bool
    tables: tuple[str, ...]


def estimate_lines(files: Iterable[LogFile], *, sample_bytes: int = 256 * 1024) -> int:
    """About how many lines the files have, from the length of the first lines of each."""
    total = 0
    for file in files:
        if file.compressed:
            total += file.plain_bytes // 1000
            continue
        with Path(file.path).open("rb") as stream:
            head = stream.read(sample_bytes)
        if head:
            total += round(file.size_bytes * (head.count(b"\n") or 1) / len(head))
    return total


def ingest_logs(
    spark: SparkSession,
    files: Sequence[LogFile],
    staging: Path,
    *,
    cluster: str,
    timezone: str,
    keep_requests: bool | None,
    default_partitions: int,
    topics: Mapping[str, int],
    progress: Progress,
) -> IngestResult:
    """Read request logs and write the tables `usage`, `rejected` and, if kept, `requests` under `staging`.

    :param timezone: IANA name of the zone that the brokers logged in.
    :param keep_requests: None keeps them on up to :data:`AUTO_KEEP_LINES` lines.
    :param topics: partition counts of topics from before the log begins.
    """
    parallelism = spark.sparkContext.defaultParallelism
    ranges = cut_into_ranges(files, parallelism=parallelism)
    estimate = estimate_lines(files)
    keep = keep_requests if keep_requests is not None else estimate <= AUTO_KEEP_LINES
    options = IngestOptions(str(staging), cluster, timezone, keep, default_partitions)
    lines_read = spark.sparkContext.accumulator(0)
    with progress.stage("read the logs", lambda: lines_read.value, estimate):
        tasks = group_ranges(ranges, parallelism=parallelism)
        stretches = stage_request_logs(spark, ranges, tasks, options, lines_read=lines_read) if ranges else []

    with progress.stage("put the pieces together"):
        unknown = _finish_usage(spark, staging, stretches, cluster, topics, keep_requests=keep)
        _finish_rejected(spark, staging, stretches, ranges, cluster)
    counts = Counter[tuple[int, str]]()
    for stretch in stretches:
        for version, count in stretch.versions.items():
            api, _, number = version.partition(":")
            counts[int(api), number] += count
    versions: dict[str, dict[str, int]] = defaultdict(dict)
    for (api_key, number), count in sorted(counts.items(), key=lambda item: (item[0][0], int(item[0][1]))):
        name = API_NAMES[api_key] if 0 <= api_key < len(API_NAMES) else f"API_{api_key}"
        versions[name][number] = count
    return IngestResult(
        lines=sum(stretch.lines for stretch in stretches),
        good=sum(stretch.good for stretch in stretches),
        rejected=sum(stretch.rejected for stretch in stretches),
        blank=sum(stretch.blank for stretch in stretches),
        forwarded=sum(stretch.forwarded for stretch in stretches),
        followers=sum(stretch.followers for stretch in stretches),
        unknown_amounts=sum(stretch.unknown_amounts for stretch in stretches) + unknown,
        versions=dict(versions),
        kept_requests=keep,
        tables=("usage", "rejected", "requests") if keep else ("usage", "rejected"),
    )


def _finish_usage(
    spark: SparkSession,
    staging: Path,
    stretches: Sequence[Stretch],
    cluster: str,
    topics: Mapping[str, int],
    *,
    keep_requests: bool,
) -> int:
    """Complete `usage` (and `requests`) beside the rows that are final already; returns the unknown amounts."""
    staged: dict[str, list[StagedFile]] = defaultdict(list)
    mixed = _mixed_stretches(stretches)
    for index, stretch in enumerate(stretches):
        for file in stretch.files:
            kind = "mixed" if file.kind == "usage" and index in mixed else file.kind
            staged[kind].append(file)

    charged = None
    unknown = 0
    parts = []
    if staged["edges"] or staged["mixed"]:
        edges = _read(spark, staging, staged["edges"], EDGE_SCHEMA)
        rows = _read(spark, staging, staged["mixed"], USAGE_SCHEMA)
        parts.append(merge_cells(edges, rows))
    if staged["connections"]:
        seen = _read(spark, staging, staged["connections"], CONNECTIONS_SCHEMA)
        parts.append(to_connection_usage(seen, cluster=cluster))
    if staged["mutations"]:
        before = spark.createDataFrame(list(topics.items()), _TOPICS_DDL)
        charged = charge_mutations(_read(spark, staging, staged["mutations"], MUTATIONS_SCHEMA), before).persist()
        parts.append(to_mutation_usage(charged))
    if parts:
        # A small part of all cells, unless files of one broker overlap.
        folder = staging / "part-usage"
        together = reduce(DataFrame.unionByName, parts)
        together.write.partitionBy(*USAGE.partition_by).parquet(str(folder))
        _move_files(folder, staging / "usage")
    for file in staged["mixed"]:
        (staging / file.path).unlink()
    if keep_requests:
        if charged is not None:
            folder = staging / "part-requests"
            REQUESTS.conform(to_mutation_requests(charged)).write.parquet(str(folder))
            _move_files(folder, staging / "requests")
        _ensure_table(staging, REQUESTS)
    if charged is not None:
        unknown = charged.where(F.col("charged").isNull()).count()
        charged.unpersist()
    _ensure_table(staging, USAGE)
    return unknown


def _mixed_stretches(stretches: Sequence[Stretch]) -> set[int]:
    """Stretches whose final cells may also stand elsewhere: files of one broker overlap in time, or are out of order.

    Then rows of the same second, client and key have to be added up, instead of standing side by side.
    """
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for stretch in stretches:
        if stretch.seen_from is None or stretch.seen_to is None:
            continue
        if stretch.inner_from is None or stretch.inner_to is None:
            spans[stretch.broker_id].append((stretch.seen_from, stretch.seen_to))
            continue
        spans[stretch.broker_id].append((stretch.inner_from, stretch.inner_to))
        if stretch.seen_from < stretch.inner_from:
            spans[stretch.broker_id].append((stretch.seen_from, stretch.inner_from - 1))
        if stretch.seen_to > stretch.inner_to:
            spans[stretch.broker_id].append((stretch.inner_to + 1, stretch.seen_to))
    starts = {broker: sorted(start for start, _ in of_broker) for broker, of_broker in spans.items()}
    ends = {broker: sorted(end for _, end in of_broker) for broker, of_broker in spans.items()}
    mixed = set()
    for index, stretch in enumerate(stretches):
        if stretch.inner_from is None or stretch.inner_to is None:
            continue
        begun = bisect_right(starts[stretch.broker_id], stretch.inner_to)
        over = bisect_left(ends[stretch.broker_id], stretch.inner_from)
        if begun - over > 1:  # more than the stretch's own
            mixed.add(index)
    return mixed


def _finish_rejected(
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
            [(index, piece.path, before[index]) for index, piece in enumerate(ranges)],
            "range bigint, file string, before bigint",
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
    _ensure_table(staging, REJECTED)


def write_table(frame: DataFrame, staging: Path, table: Table) -> None:
    """Write a table under `staging`; one without rows has one file with its schema."""
    frame = table.conform(frame)
    frame.write.partitionBy(*table.partition_by).parquet(str(staging / table.name))
    _ensure_table(staging, table)


def _read(spark: SparkSession, staging: Path, files: Sequence[StagedFile], schema: pa.Schema) -> DataFrame:
    spark_schema = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], spark_schema)
    return spark.read.schema(spark_schema).parquet(*(str(staging / file.path) for file in files))


def _move_files(folder: Path, target: Path) -> None:
    """Add the Parquet files of one folder to another, keeping their partition folders."""
    for path in folder.rglob("*.parquet"):
        place = target / path.relative_to(folder).parent
        place.mkdir(parents=True, exist_ok=True)
        path.rename(place / f"{folder.name}-{path.name}")
    shutil.rmtree(folder)


def _ensure_table(staging: Path, table: Table) -> None:
    """A table without rows is still a table: one empty file with the schema."""
    folder = staging / table.name
    if not any(folder.rglob("*.parquet")):
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(to_arrow_schema(table.schema).empty_table(), folder / "empty.parquet", store_schema=False)
