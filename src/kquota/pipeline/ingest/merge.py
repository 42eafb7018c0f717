"""What workers wrote, put together: cells that stand in two pieces of a log, connections, mutations, rejected lines.

All of it is small beside the log: the cells of most seconds are final where a worker wrote them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.ingest.chunks import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    ChunkManifest,
    write_usage,
    written,
)
from kquota.pipeline.ingest.request_log.cells import CELL_MS, EDGE_SCHEMA, USAGE_SCHEMA
from kquota.pipeline.ingest.request_log.log_files import InputSplit
from kquota.pipeline.ingest.request_log.usage_rows import (
    charge_mutations,
    connection_usage,
    merge_cells,
    mutation_costs,
    mutation_usage,
    to_mergeable,
)
from kquota.pipeline.limits.identities import decode_dictionaries
from kquota.pipeline.spark.shuffle import BLOCKS, bucket_count, from_blocks, shuffle_by_bucket, to_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.spark.parquet_source import Batches, ParquetSource

__all__ = ["merge_usage", "number_rejected"]

_Ints = npt.NDArray[np.int64]
_FILE_ROWS: Final = 262_144
_MANIFEST: Final = from_arrow_schema(pa.schema([("manifest", pa.string())]))


class _Part(msgspec.Struct, frozen=True):
    """What a worker made of one bucket."""

    usage: list[DataFile]
    requests: list[DataFile] = []
    unknown: int = 0
    """Requests that cost an amount that is not known."""


def merge_usage(
    run: Run,
    chunks: Sequence[ChunkManifest],
    *,
    cluster: str,
    topics: Mapping[str, int],
    keep_requests: bool,
) -> int:
    """Make `usage` (and `requests`) of what workers wrote; returns how many mutations cost an unknown amount."""
    mixed = _overlapping_chunks(chunks)
    files = written(chunk.files for chunk in chunks)
    by_chunk = [chunk.files.get("usage", []) for chunk in chunks]
    twice = [file for index, those in enumerate(by_chunk) if index in mixed for file in those]
    once = [file for index, those in enumerate(by_chunk) if index not in mixed for file in those]
    # Three small jobs: together they keep more cores busy.
    with ThreadPoolExecutor(3, "ingest") as pool:
        merged = pool.submit(_merge_edge_cells, run, files["edges"], twice)
        counted = pool.submit(_count_connections, run, files["connections"], cluster)
        charged = pool.submit(_charge_mutations, run, files["mutations"], topics, keep_requests=keep_requests)
    parts = [*merged.result(), *counted.result(), *charged.result()]
    run.add("usage", [*once, *(file for part in parts for file in part.usage)])
    if keep_requests:
        run.add("requests", [*files["requests"], *(file for part in parts for file in part.requests)])
    return sum(part.unknown for part in parts)


def _merge_edge_cells(run: Run, edges: Sequence[DataFile], mixed: Sequence[DataFile]) -> list[_Part]:
    """Cells of open seconds: a small part of all, unless files of one broker overlap."""
    if not edges and not mixed:
        return []
    buckets, usage = bucket_count(run.spark), run.writer("usage")

    def deal(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = to_mergeable(decode_dictionaries(batch))
            yield to_blocks(rows, rows["cell_start_ms"].to_numpy() // CELL_MS % buckets)

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        yield _manifest(_Part(write_usage(usage, merge_cells(from_blocks(blocks)))))

    dealt = run.temporary_source(EDGE_SCHEMA, edges).mapInArrow(deal, BLOCKS)
    if mixed:
        dealt = dealt.union(run.temporary_source(USAGE_SCHEMA, mixed).mapInArrow(deal, BLOCKS))
    return _parts(shuffle_by_bucket(dealt, work, _MANIFEST))


def _count_connections(run: Run, files: Sequence[DataFile], cluster: str) -> list[_Part]:
    if not files:
        return []
    usage = run.writer("usage")

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        yield _manifest(_Part(write_usage(usage, connection_usage(from_blocks(blocks), cluster=cluster))))

    dealt = _dealt_by(run.temporary_source(CONNECTIONS_SCHEMA, files), "ip", bucket_count(run.spark))
    return _parts(shuffle_by_bucket(dealt, work, _MANIFEST))


def _charge_mutations(
    run: Run, files: Sequence[DataFile], topics: Mapping[str, int], *, keep_requests: bool
) -> list[_Part]:
    """What a topic had before is told by the rows of that topic, and what a request cost by those of that request."""
    if not files:
        return []
    buckets, usage, requests = bucket_count(run.spark), run.writer("usage"), run.writer("requests")

    def cost(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        costs = mutation_costs(from_blocks(blocks), topics)
        yield to_blocks(costs, np.floor(costs["record_ms"].to_numpy() / CELL_MS).astype(np.int64) % buckets)

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        charged = charge_mutations(from_blocks(blocks))
        yield _manifest(
            _Part(
                write_usage(usage, mutation_usage(charged)),
                requests.write(charged) if keep_requests else [],
                charged["amount"].null_count,
            )
        )

    dealt = _dealt_by(run.temporary_source(MUTATIONS_SCHEMA, files), "topic", buckets)
    return _parts(shuffle_by_bucket(shuffle_by_bucket(dealt, cost, BLOCKS), work, _MANIFEST))


def _overlapping_chunks(chunks: Sequence[ChunkManifest]) -> set[int]:
    """Stretches whose final cells may also stand elsewhere: files of one broker overlap in time, or are out of order.

    Then rows of the same second, client and key have to be added up, instead of standing side by side.
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


def number_rejected(run: Run, chunks: Sequence[ChunkManifest], ranges: Sequence[InputSplit], cluster: str) -> None:
    """Make `rejected` of what workers wrote: give lines their file and their number in it."""
    files = written(chunk.files for chunk in chunks)["rejected"]
    writer = run.writer("rejected")
    paths = [piece.path for piece in ranges]
    before = _lines_before(chunks, ranges)

    def place(batch: pa.RecordBatch) -> pa.Table:
        numbers = batch.column("range").to_pylist()
        columns = {
            "cluster": pa.repeat(cluster, len(numbers)),
            "file": pa.array([paths[number] for number in numbers], pa.string()),
            "line": pc.add(batch.column("line"), pa.array([before[number] for number in numbers], pa.int64())),
            "reason": batch.column("reason"),
            "sample": batch.column("sample"),
        }
        return decode_dictionaries(pa.table(columns))

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.Table] = []
        for batch in batches:
            waiting.append(place(batch))
            if sum(table.num_rows for table in waiting) >= _FILE_ROWS:
                yield _manifest(writer.write(pa.concat_tables(waiting)))
                waiting.clear()
        if waiting:
            yield _manifest(writer.write(pa.concat_tables(waiting)))

    run.add("rejected")
    if files:
        numbered = run.temporary_source(REJECTED_SCHEMA, files).mapInArrow(work, _MANIFEST).collect()
        run.add(
            "rejected", [file for row in numbered for file in msgspec.json.decode(row.manifest, type=list[DataFile])]
        )


def _lines_before(chunks: Iterable[ChunkManifest], ranges: Sequence[InputSplit]) -> list[int]:
    """By range how many lines its file has before it."""
    lines_of_range = Counter[int]()
    for chunk in chunks:
        lines_of_range[chunk.range] += chunk.lines
    before: list[int] = []
    for index, piece in enumerate(ranges):
        follows = index > 0 and ranges[index - 1].file == piece.file
        before.append(before[index - 1] + lines_of_range[index - 1] if follows else 0)
    return before


def _dealt_by(source: ParquetSource, column: str, buckets: int) -> DataFrame:
    """The rows in blocks, those with the same text in a column in the same bucket."""

    def deal(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = decode_dictionaries(batch)
            yield to_blocks(rows, _bucket_by_text(rows[column], buckets))

    return source.mapInArrow(deal, BLOCKS)


def _bucket_by_text(column: pa.ChunkedArray, buckets: int) -> _Ints:
    """The same bucket for the same text, whichever worker asks."""
    encoded = column.combine_chunks().dictionary_encode()
    bucket_of = np.array([crc32(text.encode()) % buckets for text in encoded.dictionary.to_pylist()] + [0], np.int64)
    numbers: _Ints = encoded.indices.fill_null(len(bucket_of) - 1).to_numpy(zero_copy_only=False)
    return bucket_of[numbers]


def _manifest(found: _Part | list[DataFile]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"manifest": [msgspec.json.encode(found).decode()]})


def _parts(manifests: DataFrame) -> list[_Part]:
    """At most one per bucket, or per task."""
    decoder = msgspec.json.Decoder(_Part)
    return [decoder.decode(row.manifest) for row in manifests.collect()]
