"""Request logs to the tables `usage`, `requests` and `rejected`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from kquota.pipeline.dataset.summary import AmbiguousHour, BackwardClock, Input
from kquota.pipeline.ingest.chunks import ChunkManifest, files_by_kind
from kquota.pipeline.ingest.counts import LineCounts, total
from kquota.pipeline.ingest.merge import merge_usage, number_rejected
from kquota.pipeline.ingest.request_log.cells import CELL_MS
from kquota.pipeline.ingest.request_log.clock import IN_ORDER_MS, LogTimes
from kquota.pipeline.ingest.request_log.duplicate_logs import Digests, digests_of, find_duplicate_logs
from kquota.pipeline.ingest.request_log.log_files import InputSplit, LogFile, group_splits, to_splits
from kquota.pipeline.ingest.request_log.overlaps import ReadLog, find_overlaps
from kquota.pipeline.ingest.request_log.repeated_hours import SplitStarts, split_starts, with_split_starts
from kquota.pipeline.ingest.request_log.split_reader import CHUNK_LINES, ReadOptions, read_splits
from kquota.pipeline.spark.workers import collect_manifests, default_parallelism
from kquota.wire.api_names import API_NAMES

if TYPE_CHECKING:
    from kquota.pipeline.dataset.run import Run

__all__ = ["LogSettings", "Spans", "estimate_lines", "ingest_logs"]

Spans = Mapping[int, Sequence[tuple[int, int]]]
"""By broker the times that its files cover, each [from_ms, to_ms) from its first line to its last; in any order.

A broker that logs nothing for a while within a file did nothing, however the file was cut."""

AUTO_KEEP_LINES: Final = 5_000_000
"""`requests` is written without being asked for up to this many lines, estimated from the sizes of the files."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the logs are to be read."""

    timezone: str = "UTC"
    """IANA name of the zone that the brokers logged in."""
    cluster: str = ""
    keep_requests: bool | None = None
    """Whether to write `requests`; None does up to :data:`AUTO_KEEP_LINES` lines."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of topics from before the logs begin."""
    envelope: str = ""
    """The field that holds each line, where a shipper wrapped them in JSON: ``message``, ``event.original``."""


def estimate_lines(files: Iterable[LogFile], *, sample_bytes: int = 256 * 1024) -> int:
    """About how many lines the files have, from the length of the first lines of each."""
    total = 0
    for file in files:
        if file.compressed:
            total += file.plain_bytes // 1000
            continue
        head = file.stored.read_range(0, min(file.size_bytes, sample_bytes))
        if head:
            total += round(file.size_bytes * (head.count(b"\n") or 1) / len(head))
    return total


def ingest_logs(run: Run, files: Sequence[LogFile], settings: LogSettings) -> Spans:
    """Read request logs; write the tables `usage`, `rejected` and perhaps `requests`, and count in the summary.

    :returns: the times that the logs cover.
    :raises MixedBrokersError: logs of several brokers were given as those of one.
    :raises NotSharedStorageError: the workers do not share the storage with this machine.
    """
    spark = run.spark
    parallelism = default_parallelism(spark)
    duplicates = find_duplicate_logs(
        files, lambda compared: collect_manifests(spark, compared, lambda file: [digests_of(file)], Digests)
    )
    files = [file for place, file in enumerate(files) if place not in duplicates]
    splits, ambiguous_hours = with_split_starts(
        files,
        to_splits(files, parallelism=parallelism),
        settings.timezone,
        lambda searches: collect_manifests(spark, searches, lambda search: [split_starts(search)], SplitStarts),
    )
    estimate = estimate_lines(files)
    keep = estimate <= AUTO_KEEP_LINES if settings.keep_requests is None else settings.keep_requests
    keep = keep and bool(files)
    tables = ("usage", "requests") if keep else ("usage",)
    writers = {kind: run.writer(kind) for kind in tables}
    writers |= {kind: run.temporary(kind) for kind in ("edges", "mutations", "connections", "rejected")}
    options = ReadOptions(writers, settings.cluster, settings.timezone, keep, run.broker.num_partitions)
    with run.stage("read the logs", partial(run.count_temporary, "edges"), _chunks(splits, estimate), unit="chunks"):
        chunks = _read(run, splits, options)
        run.check_shared([file for files in files_by_kind(chunks).values() for file in files])

    logs = _logs_read(chunks, splits)
    overlaps = find_overlaps(logs)
    with run.stage("merge chunks"), ThreadPoolExecutor(1, "rejected") as pool:
        rejected = pool.submit(number_rejected, run, chunks, splits, settings.cluster)
        unknown = merge_usage(run, chunks, cluster=settings.cluster, topics=settings.topics, keep_requests=keep)
    rejected.result()

    counts = total(LineCounts, (chunk.counts for chunk in chunks))
    summary = run.summary
    summary.inputs = [Input(file.path, "request-log", file.broker_id, file.size_bytes) for file in files]
    summary.start_ms, summary.end_ms = _seen(chunks) or (None, None)
    summary.lines, summary.good = counts.lines, counts.good
    summary.rejected, summary.blank = counts.rejected, counts.blank
    summary.forwarded, summary.followers = counts.forwarded, counts.followers
    summary.unknown_amounts = counts.unknown_amounts + unknown
    summary.versions = _by_api(counts.versions)
    summary.kept_requests = keep
    summary.duplicate_logs = list(duplicates.values())
    summary.overlaps = overlaps
    summary.ambiguous_hours = [AmbiguousHour(log.broker_id, log.path) for log in ambiguous_hours]
    summary.clock_went_backwards = _clock_went_backwards(logs)
    covered: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for log in logs:
        if log.span_ms is not None:
            covered[log.broker_id].append(log.span_ms)
    return covered


def _chunks(splits: Sequence[InputSplit], lines: int) -> int:
    """About how many chunks there will be."""
    total = sum(split.weight for split in splits) or 1
    return sum(-(-lines * split.weight // (total * CHUNK_LINES)) for split in splits)


def _read(run: Run, splits: Sequence[InputSplit], options: ReadOptions) -> list[ChunkManifest]:
    """Read splits on workers: some chunks for each. Their number depends on the bytes read, not on what is in them."""

    def read(task: Sequence[tuple[int, InputSplit]]) -> Iterator[ChunkManifest]:
        return read_splits(task, options)

    grouped = group_splits(splits, parallelism=default_parallelism(run.spark))
    tasks = [[(index, splits[index]) for index in task] for task in grouped]
    return collect_manifests(run.spark, tasks, read, ChunkManifest) if tasks else []


def _by_api(versions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Requests by API name and version, in order of both numbers."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    numbers = {text: tuple(map(int, text.split(":"))) for text in versions}
    for text in sorted(versions, key=numbers.__getitem__):
        api_key, version = numbers[text]
        name = API_NAMES[api_key] if 0 <= api_key < len(API_NAMES) else f"API_{api_key}"
        found[name][str(version)] = versions[text]
    return dict(found)


def _logs_read(chunks: Iterable[ChunkManifest], splits: Sequence[InputSplit]) -> list[ReadLog]:
    """What the chunks of each file say of it; files without a good line are left out."""
    by_file: dict[int, list[ChunkManifest]] = defaultdict(list)
    # Splits of a file are in its order, and so are the chunks of a split.
    for chunk in sorted(chunks, key=lambda chunk: chunk.split):
        by_file[splits[chunk.split].file].append(chunk)
    logs = []
    for of_file in by_file.values():
        first = of_file[0]
        times = [chunk.times for chunk in of_file if chunk.times is not None]
        if times:
            addresses = frozenset(address for chunk in of_file for address in chunk.addresses)
            path = splits[first.split].path
            logs.append(ReadLog(path, first.broker_id, reduce(LogTimes.merged_with, times), addresses, _seen(of_file)))
    return logs


def _seen(chunks: Iterable[ChunkManifest]) -> tuple[int, int] | None:
    """From the first second in which anything was recorded to the end of the last, in epoch milliseconds."""
    seen = [chunk.seen for chunk in chunks if chunk.seen is not None]
    return (CELL_MS * min(first for first, _ in seen), CELL_MS * (max(last for _, last in seen) + 1)) if seen else None


def _clock_went_backwards(logs: Iterable[ReadLog]) -> list[BackwardClock]:
    """Brokers with a clock that was set back while they logged: the largest step of each.

    Only steps within one file count: which file follows which is not known.
    """
    worst: dict[int, LogTimes] = {}
    for log in logs:
        before = worst.get(log.broker_id)
        if log.times.backwards_ms > max(IN_ORDER_MS, before.backwards_ms if before else 0.0):
            worst[log.broker_id] = log.times
    return [
        BackwardClock(broker_id, round(times.backwards_from_ms), round(times.backwards_ms))
        for broker_id, times in sorted(worst.items())
    ]
