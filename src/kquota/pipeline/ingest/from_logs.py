"""Logs to tables: `usage`, `requests` and `rejected`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kquota.pipeline.ingest.merge import merge_usage, number_rejected
from kquota.pipeline.ingest.request_log.cells import CELL_MS
from kquota.pipeline.ingest.request_log.duplicate_logs import Digests, DuplicateLog, digests_of, find_duplicate_logs
from kquota.pipeline.ingest.request_log.log_files import InputSplit, LogFile, group_splits, to_splits
from kquota.pipeline.ingest.request_log.overlaps import LogOverlap, ReadLog, find_overlaps
from kquota.pipeline.ingest.request_log.reading import read_request_logs
from kquota.pipeline.ingest.request_log.repeated_hours import SplitStarts, split_starts, with_split_starts
from kquota.pipeline.ingest.request_log.split_reader import IngestOptions
from kquota.pipeline.ingest.request_log.times import IN_ORDER_MS, LogTimes
from kquota.pipeline.spark.workers import run_on_workers

if TYPE_CHECKING:
    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.ingest.chunks import ChunkManifest

__all__ = ["IngestResult", "estimate_lines", "ingest_logs"]

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


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Counts over all lines read; lines = good + rejected + blank, and good includes forwarded and followers.

    `usage` lies within [start_ms, end_ms); both None where it has no rows.
    """

    start_ms: int | None
    end_ms: int | None
    lines: int
    good: int
    rejected: int
    blank: int
    forwarded: int
    followers: int
    unknown_amounts: int
    versions: Mapping[str, Mapping[str, int]]
    kept_requests: bool
    covered: Mapping[int, Sequence[tuple[int, int]]]
    """By broker the times of its files, each from its first to its last line: from and up to ms; in any order."""
    clock_went_backwards: Mapping[int, LogTimes]
    """By broker whose clock was set back while it logged: the file with the largest step."""
    duplicate_logs: tuple[DuplicateLog, ...] = ()
    """Logs that were not read, because others hold all of their lines."""
    overlaps: tuple[LogOverlap, ...] = ()
    """Logs of one broker that may be of several, or hold the same lines."""
    ambiguous_hours: tuple[LogFile, ...] = ()
    """Logs that begin in an hour that came twice, and do not say in which of the two."""


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
    run: Run,
    files: Sequence[LogFile],
    *,
    cluster: str,
    timezone: str,
    keep_requests: bool | None,
    default_partitions: int,
    topics: Mapping[str, int],
) -> IngestResult:
    """Read request logs and write the tables `usage`, `rejected` and, if kept, `requests`.

    :param timezone: IANA name of the zone that the brokers logged in.
    :param keep_requests: None keeps them on up to :data:`AUTO_KEEP_LINES` lines.
    :param topics: partition counts of topics from before the log begins.
    :raises NotSharedStorageError: the workers do not share the storage with this machine.
    """
    spark = run.spark
    parallelism = spark.sparkContext.defaultParallelism
    repeated = find_duplicate_logs(files, lambda compared: run_on_workers(spark, digests_of, compared, Digests))
    files = [file for place, file in enumerate(files) if place not in repeated]
    ranges, ambiguous_hours = with_split_starts(
        files,
        to_splits(files, parallelism=parallelism),
        timezone,
        lambda searches: run_on_workers(spark, split_starts, searches, SplitStarts),
    )
    estimate = estimate_lines(files)
    keep = keep_requests if keep_requests is not None else estimate <= AUTO_KEEP_LINES
    tables = ("usage", "requests") if keep else ("usage",)
    writers = {kind: run.writer(kind) for kind in tables}
    writers |= {kind: run.temporary(kind) for kind in ("edges", "mutations", "connections", "rejected")}
    options = IngestOptions(writers, cluster, timezone, keep, default_partitions)
    lines_read = spark.sparkContext.accumulator(0)
    with run.stage("read the logs", lambda: lines_read.value, estimate):
        tasks = group_splits(ranges, parallelism=parallelism)
        chunks = read_request_logs(spark, ranges, tasks, options, lines_read=lines_read) if ranges else []
        run.check_shared([file for chunk in chunks for files in chunk.files.values() for file in files])

    times = _times_of_files(chunks, ranges)
    overlaps = find_overlaps(_read_logs(chunks, ranges, times))
    with run.stage("put the pieces together"), ThreadPoolExecutor(1, "rejected") as pool:
        rejected = pool.submit(number_rejected, run, chunks, ranges, cluster)
        unknown = merge_usage(run, chunks, cluster=cluster, topics=topics, keep_requests=keep)
    rejected.result()
    counts = Counter[tuple[int, str]]()
    for chunk in chunks:
        for version, count in chunk.versions.items():
            api, _, number = version.partition(":")
            counts[int(api), number] += count
    versions: dict[str, dict[str, int]] = defaultdict(dict)
    for (api_key, number), count in sorted(counts.items(), key=lambda item: (item[0][0], int(item[0][1]))):
        name = API_NAMES[api_key] if 0 <= api_key < len(API_NAMES) else f"API_{api_key}"
        versions[name][number] = count
    seen = [chunk.seen for chunk in chunks if chunk.seen is not None]
    return IngestResult(
        start_ms=min((CELL_MS * first for first, _ in seen), default=None),
        end_ms=max((CELL_MS * (last + 1) for _, last in seen), default=None),
        lines=sum(chunk.lines for chunk in chunks),
        good=sum(chunk.good for chunk in chunks),
        rejected=sum(chunk.rejected for chunk in chunks),
        blank=sum(chunk.blank for chunk in chunks),
        forwarded=sum(chunk.forwarded for chunk in chunks),
        followers=sum(chunk.followers for chunk in chunks),
        unknown_amounts=sum(chunk.unknown_amounts for chunk in chunks) + unknown,
        versions=dict(versions),
        kept_requests=keep,
        covered=_covered(chunks, ranges),
        clock_went_backwards=_clock_went_backwards(times),
        duplicate_logs=tuple(repeated.values()),
        overlaps=tuple(overlaps),
        ambiguous_hours=tuple(ambiguous_hours),
    )


def _covered(chunks: Iterable[ChunkManifest], ranges: Sequence[InputSplit]) -> dict[int, list[tuple[int, int]]]:
    """As :attr:`IngestResult.covered`. A broker that is silent within a file did nothing, however it was cut."""
    of_file: dict[tuple[int, int], tuple[int, int]] = {}
    for chunk in chunks:
        if chunk.seen is not None:
            place = (chunk.broker_id, ranges[chunk.range].file)
            first, last = of_file.get(place, chunk.seen)
            of_file[place] = (min(first, chunk.seen[0]), max(last, chunk.seen[1]))
    covered: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (broker_id, _), (first, last) in of_file.items():
        covered[broker_id].append((CELL_MS * first, CELL_MS * (last + 1)))
    return covered


def _times_of_files(chunks: Iterable[ChunkManifest], ranges: Sequence[InputSplit]) -> dict[tuple[int, int], LogTimes]:
    """By broker and file those of its lines."""
    of_file: dict[tuple[int, int], LogTimes] = {}
    # Ranges of a file are in its order, and so are the chunks of a range.
    for chunk in sorted(chunks, key=lambda chunk: chunk.range):
        if chunk.times is not None:
            place = (chunk.broker_id, ranges[chunk.range].file)
            of_file[place] = of_file[place].merged_with(chunk.times) if place in of_file else chunk.times
    return of_file


def _read_logs(
    chunks: Iterable[ChunkManifest], ranges: Sequence[InputSplit], times: Mapping[tuple[int, int], LogTimes]
) -> list[ReadLog]:
    """What each file said of its times, and of the addresses of its broker."""
    addresses: dict[int, set[str]] = defaultdict(set)
    for chunk in chunks:
        addresses[ranges[chunk.range].file].update(chunk.addresses)
    paths = {piece.file: piece.path for piece in ranges}
    return [
        ReadLog(paths[file], broker_id, of_file, frozenset(addresses[file]))
        for (broker_id, file), of_file in times.items()
    ]


def _clock_went_backwards(of_file: Mapping[tuple[int, int], LogTimes]) -> dict[int, LogTimes]:
    """As :attr:`IngestResult.clock_went_backwards`, each within one file: which file follows which is not known."""
    worst: dict[int, LogTimes] = {}
    for (broker_id, _), times in sorted(of_file.items()):
        if times.backwards_ms > max(IN_ORDER_MS, worst[broker_id].backwards_ms if broker_id in worst else 0.0):
            worst[broker_id] = times
    return worst
