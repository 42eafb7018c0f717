"""A worker reads splits of a request log line by line, and writes files.

It counts the requests that Kafka itself would count on a client quota: not followers' fetches, and not the controller's
copies of forwarded requests. A bad line is rejected with its number and reason; it does not affect others.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.ingest.chunks import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    ChunkManifest,
    RowWriter,
    to_table,
    write_usage,
)
from kquota.pipeline.ingest.counts import LineCounts
from kquota.pipeline.ingest.decompression import BrokenFileError
from kquota.pipeline.ingest.request_log.cells import Floats, to_cells
from kquota.pipeline.ingest.request_log.charges import MUTATION
from kquota.pipeline.ingest.request_log.clock import LogClock, LogTimes
from kquota.pipeline.ingest.request_log.envelope import why_rejected
from kquota.pipeline.ingest.request_log.line import LogLine, RejectedLineError, decode_lines
from kquota.pipeline.ingest.request_log.log_files import InputSplit, read_blocks
from kquota.pipeline.ingest.request_log.mutated_topics import (
    MutatedTopic,
    MutationLine,
    logged_throttle_ms,
    mutated_topics,
)
from kquota.pipeline.ingest.request_log.origins import Names, OriginIds, client_of
from kquota.pipeline.ingest.request_log.rows import COLUMNS, FirstSeconds, Rows, to_rows
from kquota.pipeline.ingest.request_log.watermark import SecondWatermark, WatermarkedCharges
from kquota.pipeline.ingest.samples import printable

__all__ = ["CHUNK_LINES", "ReadOptions", "SplitReader", "read_splits"]

CHUNK_LINES: Final = 524_288
"""A worker writes its rows after about this many lines, whatever the size of the file."""

MAX_ORIGINS: Final = 262_144
"""A worker forgets the clients and connections that it has seen when there are more."""

_CONNECTION: Final = re.compile(r"(?P<address>.*:\d+)-(?P<ip>.*):\d+(?:-\d+)+")
_KEY: Final = COLUMNS.index("key")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What every worker needs. `timezone` is an IANA name; `default_partitions` is the brokers' ``num.partitions``."""

    writers: Mapping[str, RowWriter]
    """By kind of rows: `usage`, `requests`, `edges`, `mutations`, `connections`, `rejected`. Others are not wanted."""
    cluster: str
    timezone: str
    keep_requests: bool
    default_partitions: int


def read_splits(splits: Sequence[tuple[int, InputSplit]], options: ReadOptions) -> Iterator[ChunkManifest]:
    """Read splits with their indices one after the other, preferably in order of time.

    :returns: a manifest for each chunk of at most about CHUNK_LINES lines; each lies in one split.
    """
    # No cycles are made per line, and a collection would walk all rows each time.
    gc.disable()
    try:
        reader = SplitReader(options)
        for position, (index, split) in enumerate(splits, 1):
            has_more = position < len(splits) and splits[position][1].broker_id == split.broker_id
            reader.enter(index, split)
            try:
                for block in read_blocks(split):
                    reader.read(block)
                    if reader.chunk_lines >= CHUNK_LINES:
                        yield reader.flush(has_more=True)
            except BrokenFileError as error:
                reader.reject_tail(f"broken compressed file: {error}")
            yield reader.flush(has_more=has_more)
    finally:
        gc.enable()


class SplitReader:
    """Reads lines in order; its state is the clock, the names seen, and the current chunk.

    A block of lines becomes columns of numbers, and every later step works on whole columns: most of the time of the
    whole pipeline is spent here.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = LogClock(ZoneInfo(options.timezone))
        self._forget_names()
        self._begin_chunk()

    def enter(self, index: int, split: InputSplit) -> None:
        """Begin a split; `index` is its place among all splits."""
        self._index = index
        self._broker_id = split.broker_id
        self._before_ms = split.before_ms
        self._envelope = split.envelope
        self._line = 0

    def _forget_names(self) -> None:
        self._watermark = SecondWatermark()
        self._origins = OriginIds()
        self._reported_connections = set[int]()
        self._address_of = dict[int, str]()

    def _begin_chunk(self) -> None:
        self.chunk_lines = 0
        self._blank = 0
        self._blocks: list[Floats] = []
        self._listeners: list[str] = []
        self._mutations: list[tuple[object, ...]] = []
        self._rejected: list[tuple[int, int, str, str]] = []

    def reject_tail(self, reason: str) -> None:
        """Count what is left of a broken compressed file as one rejected line."""
        self._pass(1)
        self._reject(b"", reason)

    def _pass(self, lines: int) -> None:
        self._line += lines
        self.chunk_lines += lines

    def _reject(self, line: bytes, reason: str) -> None:
        self._rejected.append((self._index, self._line, reason, printable(line)))

    def read(self, block: bytes) -> None:
        """Take in a block of whole lines. A block with a bad line is halved until that line is alone."""
        if not block:
            return
        try:
            self._take(block)
        except RejectedLineError as error:
            if middle := _middle_line(block):
                self.read(block[:middle])
                self.read(block[middle:])
                return
            self._pass(1)
            if block.strip():
                self._reject(block.removesuffix(b"\n"), why_rejected(block, self._envelope) or str(error))
            else:
                self._blank += 1

    def _take(self, block: bytes) -> None:
        """Take in good lines, all or none.

        :raises RejectedLineError: one of them is not good.
        """
        times, requests = decode_lines(block)
        end_ms = self._clock.epoch_ms(times, self._before_ms)
        rows = to_rows(requests, end_ms, self._origins, first_line=self._line + 1)
        # From here on nothing refuses the lines.
        self._before_ms = float(end_ms[-1])
        for at in np.flatnonzero(rows[_KEY] == MUTATION).tolist():
            self._add_mutation(requests[at], dict(zip(COLUMNS, rows[:, at].tolist(), strict=True)))
        if self._options.keep_requests:
            self._listeners += [request.listener for request in requests]
        self._blocks.append(rows)
        self._pass(len(requests))

    def _add_mutation(self, request: LogLine, row: Mapping[str, float]) -> None:
        """Buffer the topics of a mutation: their cost can depend on lines that other workers read."""
        assert isinstance(request, MutationLine)
        header = request.requestHeader
        user, client_id = client_of(request.principal, header.clientId)
        nothing = MutatedTopic(None, "none", None)
        for topic in mutated_topics(request, default_partitions=self._options.default_partitions) or [nothing]:
            self._mutations.append(
                (
                    self._options.cluster,
                    self._broker_id,
                    request.connection,
                    self._index << 32 | int(row["line"]),
                    row["end_ms"],
                    row["record_ms"],
                    header.requestApiKey,
                    header.requestApiVersion,
                    user,
                    client_id,
                    request.localTimeMs,
                    request.remoteTimeMs,
                    logged_throttle_ms(request),
                    request.listener,
                    *topic,
                )
            )

    def flush(self, *, has_more: bool) -> ChunkManifest:
        """Write the rows of the chunk and begin the next one.

        :param has_more: the next chunk is of the same broker and follows in time.
        """
        has_more = has_more and len(self._origins) < MAX_ORIGINS
        rows = Rows(self._blocks, self._origins)
        seen = rows.first_seconds()
        watermarked = self._watermark.advance(rows.charges, rows.floats("end_ms"), has_more=has_more)
        counts = LineCounts(
            lines=self.chunk_lines,
            good=self.chunk_lines - len(self._rejected) - self._blank,
            rejected=len(self._rejected),
            blank=self._blank,
            forwarded=rows.forwarded,
            followers=rows.followers,
            unknown_amounts=rows.unknown_amounts,
            versions=rows.versions(),
        )
        chunk = ChunkManifest(
            split=self._index,
            broker_id=self._broker_id,
            counts=counts,
            files=self._write(rows, seen, watermarked),
            seen=rows.seconds_seen(),
            final=watermarked.final_seconds,
            open=watermarked.open_seconds,
            times=LogTimes.of(rows.floats("end_ms")),
            addresses=self._addresses(seen),
        )
        self._begin_chunk()
        if not has_more:
            self._forget_names()
        return chunk

    def _write(self, rows: Rows, seen: FirstSeconds, watermarked: WatermarkedCharges) -> dict[str, list[DataFile]]:
        writers, cluster, broker = self._options.writers, self._options.cluster, self._broker_id
        names, files = self._origins.names, dict[str, list[DataFile]]()
        if "usage" in writers:
            usage = to_cells(watermarked.final).usage(names, cluster=cluster, broker_id=broker)
            files["usage"] = write_usage(writers["usage"], usage)
        for kind, table in self._tables(rows, seen, watermarked, names):
            if kind in writers:
                files[kind] = writers[kind].write(table)
        return files

    def _tables(
        self, rows: Rows, seen: FirstSeconds, watermarked: WatermarkedCharges, names: Names
    ) -> Iterator[tuple[str, pa.Table]]:
        """All other rows to be written, by kind of file."""
        cluster, broker = self._options.cluster, self._broker_id
        if len(watermarked.open) and "edges" in self._options.writers:
            edges = to_cells(watermarked.open, by_connection=True)
            yield "edges", edges.edges(names, cluster=cluster, broker_id=broker)
        if self._options.keep_requests:
            yield (
                "requests",
                rows.requests(names, self._listeners, cluster=cluster, broker_id=broker, split=self._index),
            )
        if self._mutations:
            yield "mutations", to_table(self._mutations, MUTATIONS_SCHEMA)
        if connections := self._new_connections(seen, names):
            yield "connections", to_table(connections, CONNECTIONS_SCHEMA)
        if self._rejected:
            yield "rejected", to_table(self._rejected, REJECTED_SCHEMA)

    def _addresses(self, seen: FirstSeconds) -> list[str]:
        """Addresses of the broker, as connections name them."""
        names = self._origins.names.connections
        for number, _ in seen:
            if number not in self._address_of:
                match = _CONNECTION.fullmatch(names[number])
                self._address_of[number] = match["address"] if match else ""
        return sorted({self._address_of[number] for number, _ in seen} - {""})

    def _new_connections(self, seen: FirstSeconds, names: Names) -> list[tuple[int, str, str | None, int]]:
        """Connections that no earlier chunk had: broker id, name, ip, and the second that it was first seen in."""
        new = [(number, second) for number, second in seen if number not in self._reported_connections]
        self._reported_connections.update(number for number, _ in new)
        named = ((names.connections[number], second) for number, second in new)
        return [(self._broker_id, name, _remote_ip(name), second) for name, second in named]


def _middle_line(block: bytes) -> int:
    """Where a line near the middle of a block begins; 0 where the block is one line."""
    middle, last = len(block) // 2, len(block) - 1
    return block.find(b"\n", middle, last) + 1 or block.rfind(b"\n", 0, middle) + 1


def _remote_ip(connection: str) -> str | None:
    match = _CONNECTION.fullmatch(connection)
    return match["ip"] if match else None
