"""Rows of tables out of what workers wrote: cells that several workers have a part of, connections, mutations, and
rejected lines.

All of it is small compared with the log: the cells of most seconds are final where a worker wrote them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.ingest.chunks import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    ChunkManifest,
    files_by_kind,
    write_usage,
)
from kquota.pipeline.ingest.counts import total
from kquota.pipeline.ingest.request_log.cells import EDGE_SCHEMA, USAGE_SCHEMA, Ints
from kquota.pipeline.ingest.request_log.log_files import InputSplit
from kquota.pipeline.ingest.request_log.usage_rows import (
    by_second,
    by_text,
    charge_mutations,
    connection_usage,
    merge_cells,
    mutation_costs,
    mutation_usage,
    to_mergeable,
)
from kquota.pipeline.spark.arrow import decode_dictionaries
from kquota.pipeline.spark.shuffle import (
    BLOCKS,
    bucket_count,
    from_blocks,
    from_blocks_by_kind,
    shuffle_by_bucket,
    to_blocks,
    with_kind,
)
from kquota.pipeline.spark.workers import MANIFESTS, decode_manifests, manifest_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.spark.parquet_source import Batches

__all__ = ["merge_usage", "number_rejected"]

_FILE_ROWS: Final = 262_144


class _Merged(Struct):
    """What a worker made of a bucket of rows."""

    usage: list[DataFile] = []
    requests: list[DataFile] = []
    unknown_amounts: int = 0
    """Mutations that cost an amount that is not known."""


def merge_usage(
    run: Run,
    chunks: Sequence[ChunkManifest],
    *,
    cluster: str,
    topics: Mapping[str, int],
    keep_requests: bool,
) -> int:
    """Add `usage`, and `requests` if `keep_requests`, to the run; returns how many mutations cost an unknown amount."""
    overlapping = _overlapping_chunks(chunks)
    files = files_by_kind(chunks)
    final = [file for index, chunk in enumerate(chunks) if index not in overlapping for file in _usage_of(chunk)]
    files["usage"] = [file for index in sorted(overlapping) for file in _usage_of(chunks[index])]
    merged = total(_Merged, _merge(run, files, cluster=cluster, topics=topics, keep_requests=keep_requests))
    run.add("usage", [*final, *merged.usage])
    if keep_requests:
        run.add("requests", [*files["requests"], *merged.requests])
    return merged.unknown_amounts


def _usage_of(chunk: ChunkManifest) -> list[DataFile]:
    return chunk.files.get("usage", [])


def _merge(
    run: Run, files: Mapping[str, list[DataFile]], *, cluster: str, topics: Mapping[str, int], keep_requests: bool
) -> list[_Merged]:
    """Merge rows of all kinds in one Spark job, bucket by bucket.

    Cells meet by second, connections by ip. Mutations are shuffled twice: what a topic had before is in the rows of
    that topic, and what a request cost in those of that request.

    :param files: temporary files by kind, and `usage` of overlapping chunks.
    """
    buckets = bucket_count(run.spark)
    usage, requests = run.writer("usage"), run.writer("requests")
    sources = [
        ("edges", EDGE_SCHEMA, by_second, "cell_start_ms"),
        ("usage", USAGE_SCHEMA, by_second, "cell_start_ms"),
        ("connections", CONNECTIONS_SCHEMA, by_text, "ip"),
        ("mutations", MUTATIONS_SCHEMA, by_text, "topic"),
    ]

    def blocks_of(kind: str, schema: pa.Schema, number: Callable[[pa.ChunkedArray], Ints], column: str) -> DataFrame:
        def to_block_batches(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = decode_dictionaries(batch)
                yield to_blocks(with_kind(rows, kind), number(rows[column]) % buckets)

        blocks = run.temporary_source(schema, files[kind]).mapInArrow(to_block_batches, BLOCKS)
        return shuffle_by_bucket(blocks, cost, BLOCKS) if kind == "mutations" else blocks

    def cost(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        costs = mutation_costs(from_blocks(blocks), topics)
        yield to_blocks(with_kind(costs, "costs"), by_second(costs["record_ms"]) % buckets)

    def merge(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        rows, merged, tables = from_blocks_by_kind(blocks), _Merged(), []
        if cells := [to_mergeable(rows[kind]) for kind in ("edges", "usage") if kind in rows]:
            tables.append(merge_cells(pa.concat_tables(cells)))
        if "connections" in rows:
            tables.append(connection_usage(rows["connections"], cluster=cluster))
        if "costs" in rows:
            charged = charge_mutations(rows["costs"])
            tables.append(mutation_usage(charged))
            merged.unknown_amounts = charged["amount"].null_count
            if keep_requests:
                merged.requests = requests.write(charged)
        merged.usage = write_usage(usage, pa.concat_tables(tables))
        yield manifest_batch(merged)

    frames = [blocks_of(*source) for source in sources if files.get(source[0])]
    if not frames:
        return []
    blocks = reduce(lambda one, other: one.union(other), frames)
    return decode_manifests(shuffle_by_bucket(blocks, merge, MANIFESTS), _Merged)


def _overlapping_chunks(chunks: Sequence[ChunkManifest]) -> set[int]:
    """Indices of the chunks that share final seconds with others: files of one broker overlap, or are out of order.

    Rows of the same second, client and key must then be added up.
    """
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for chunk in chunks:
        of_broker = spans[chunk.broker_id]
        if chunk.final is None:
            of_broker += [chunk.open] if chunk.open else []
            continue
        final_from, final_to = chunk.final
        open_from, open_to = chunk.open or chunk.final
        around = [(open_from, final_from - 1), chunk.final, (final_to + 1, open_to)]
        of_broker += [(start, end) for start, end in around if start <= end]
    starts = {broker: sorted(start for start, _ in of_broker) for broker, of_broker in spans.items()}
    ends = {broker: sorted(end for _, end in of_broker) for broker, of_broker in spans.items()}
    mixed = set()
    for index, chunk in enumerate(chunks):
        if chunk.final is None:
            continue
        begun = bisect_right(starts[chunk.broker_id], chunk.final[1])
        over = bisect_left(ends[chunk.broker_id], chunk.final[0])
        if begun - over > 1:  # more than the chunk's own
            mixed.add(index)
    return mixed


def number_rejected(run: Run, chunks: Sequence[ChunkManifest], splits: Sequence[InputSplit], cluster: str) -> None:
    """Add `rejected` to the run: rejected lines with their file and their number in it."""
    files = files_by_kind(chunks)["rejected"]
    writer = run.writer("rejected")
    paths = [split.path for split in splits]
    before = _lines_before(chunks, splits)

    def to_rejected(batch: pa.RecordBatch) -> pa.Table:
        indices = batch.column("split").to_pylist()
        columns = {
            "cluster": pa.repeat(cluster, len(indices)),
            "file": pa.array([paths[index] for index in indices], pa.string()),
            "line": pc.add(batch.column("line"), pa.array([before[index] for index in indices], pa.int64())),
            "reason": batch.column("reason"),
            "sample": batch.column("sample"),
        }
        return decode_dictionaries(pa.table(columns))

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        buffered: list[pa.Table] = []
        for batch in batches:
            buffered.append(to_rejected(batch))
            if sum(table.num_rows for table in buffered) >= _FILE_ROWS:
                yield manifest_batch(writer.write(pa.concat_tables(buffered)))
                buffered.clear()
        if buffered:
            yield manifest_batch(writer.write(pa.concat_tables(buffered)))

    run.add("rejected")
    if files:
        written = decode_manifests(
            run.temporary_source(REJECTED_SCHEMA, files).mapInArrow(work, MANIFESTS), list[DataFile]
        )
        run.add("rejected", [file for files in written for file in files])


def _lines_before(chunks: Iterable[ChunkManifest], splits: Sequence[InputSplit]) -> list[int]:
    """By split how many lines its file has before it."""
    lines = Counter[int]()
    for chunk in chunks:
        lines[chunk.split] += chunk.counts.lines
    before: list[int] = []
    for index, split in enumerate(splits):
        follows = index > 0 and splits[index - 1].file == split.file
        before.append(before[index - 1] + lines[index - 1] if follows else 0)
    return before
