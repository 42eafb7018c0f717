"""One range of a request log, read line by line into files: what a worker does.

Counted are the requests that Kafka itself would count on a client quota: followers' fetches and the controller's
copies of forwarded requests are left out. A bad line is put aside with its number and reason and costs only itself.
"""

from __future__ import annotations

import gc
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from kquota.pipeline.sources.cells import CELL_KEYS, CellBlock, split_by_date
from kquota.pipeline.sources.charges import PERCENT_SECONDS_PER_MS, PERCENTAGE, charge_of
from kquota.pipeline.sources.log_files import LogRange, read_lines
from kquota.pipeline.sources.mutated_topics import MutatedTopic, MutationLine, mutated_topics, told_throttle_ms
from kquota.pipeline.sources.request_line import FetchLine, LogLine, RejectedLineError, decode_line
from kquota.pipeline.sources.staging import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    REQUESTS_SCHEMA,
    StagedFile,
    Stretch,
    write_staged,
)

__all__ = ["IngestOptions", "read_range"]

SETTLING_SECONDS: Final = 5
"""How much earlier than its line a request may have been recorded (slow sends) and still be in a final cell."""

STRETCH_LINES: Final = 131_072
"""A worker hands over its rows after about this many lines, whatever the size of the file."""

_SAMPLE_BYTES: Final = 200
_CONNECTION: Final = re.compile(r".*:\d+-(?P<ip>.*):\d+(?:-\d+)+")
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What every worker needs to know. `timezone` is an IANA name; `default_partitions` is ``num.partitions``."""

    staging: str
    cluster: str
    timezone: str
    keep_requests: bool
    default_partitions: int


def read_range(index: int, piece: LogRange, options: IngestOptions) -> Iterator[Stretch]:
    """Read one range; a manifest for each stretch of at most about STRETCH_LINES lines."""
    # No cycles are made per line, and a collection would walk all cells each time.
    gc.disable()
    try:
        reader = RangeReader(index, piece, options)
        try:
            for lines in read_lines(piece):
                reader.read(lines)
                if reader.stretch_lines >= STRETCH_LINES:
                    yield reader.hand_over()
        except (EOFError, zlib.error) as error:
            reader.reject_tail(f"broken compressed file: {error}")
        yield reader.hand_over()
    finally:
        gc.enable()


class RangeReader:
    """State of reading one range: its clock, and what the current stretch has gathered."""

    def __init__(self, index: int, piece: LogRange, options: IngestOptions) -> None:
        self._index = index
        self._piece = piece
        self._options = options
        self._zone = ZoneInfo(options.timezone)
        self._epoch_ms: dict[bytes, float] = {}
        self._line = 0
        self._begin()

    def _begin(self) -> None:
        self.stretch_lines = 0
        self._blank = self._forwarded = self._followers = self._unknown = 0
        self._first_ms = math.inf
        self._last_ms = -math.inf
        self._block = CellBlock()
        self._clients: dict[tuple[str, str | None], int] = {}
        self._connections: dict[str, int] = {}
        self._versions: dict[tuple[int, int], int] = {}
        self._requests: list[tuple[object, ...]] = []
        self._mutations: list[tuple[object, ...]] = []
        self._rejected: list[tuple[int, int, str, str]] = []

    def reject_tail(self, reason: str) -> None:
        """Count what is left of a broken compressed file as one rejected line."""
        self._line += 1
        self.stretch_lines += 1
        self._reject(b"", reason)

    def _reject(self, line: bytes, reason: str) -> None:
        sample = line[:_SAMPLE_BYTES].decode("utf-8", "backslashreplace")
        sample = _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), sample)
        self._rejected.append((self._index, self._line, reason, sample))

    def read(self, lines: list[bytes]) -> None:
        """Count a block of lines."""
        self.stretch_lines += len(lines)
        for line in lines:
            self._line += 1
            try:
                second, millisecond, request = decode_line(line)
                end_ms = self._epoch_ms.get(second)
                if end_ms is None:
                    end_ms = self._read_second(second)
                self._count(end_ms + millisecond, request)
            except RejectedLineError as error:
                if line.strip():
                    self._reject(line, str(error))
                else:
                    self._blank += 1

    def _count(self, end_ms: float, request: LogLine) -> None:
        """Count one request, wholly or (where it is refused) not at all.

        :raises RejectedLineError: the line says something impossible.
        """
        header = request.requestHeader
        record_ms = end_ms - request.sendTimeMs - request.responseQueueTimeMs
        second = int(record_ms // 1000)
        if second < 0:
            raise RejectedLineError("impossible times: recorded before 1970")
        client = self._clients.get((request.principal, header.clientId))
        if client is None:
            client = self._new_client(request.principal, header.clientId)
        key, charged, timed = charge_of(request)

        # From here on nothing refuses the line.
        self._first_ms = min(self._first_ms, end_ms)
        self._last_ms = max(self._last_ms, end_ms)
        version = (header.requestApiKey, header.requestApiVersion)
        self._versions[version] = self._versions.get(version, 0) + 1
        if request.isForwarded:
            self._forwarded += 1
            return
        connection = self._connections.get(request.connection)
        if connection is None:
            connection = self._block.add_connection(request.connection, second)
            self._connections[request.connection] = connection
        throttle_ms = request.throttleTimeMs
        if key is not None:
            if isinstance(request, FetchLine) and request.is_follower:
                self._followers += 1
                return
            self._unknown += charged is None
            self._block.add(second, client, key, charged, throttle_ms, connection)
            if self._options.keep_requests:
                self._keep(request, end_ms, record_ms, key, charged, throttle_ms)
            throttle_ms = 0
        elif isinstance(request, MutationLine):
            self._add_mutation(request, end_ms, record_ms)
            throttle_ms = 0
        if timed:
            used = request.localTimeMs * PERCENT_SECONDS_PER_MS
            self._block.add(second, client, PERCENTAGE, used, throttle_ms, connection)
            if self._options.keep_requests:
                self._keep(request, end_ms, record_ms, PERCENTAGE, used, throttle_ms)

    def _keep(
        self,
        request: LogLine,
        end_ms: float,
        record_ms: float,
        key: int,
        charged: float | None,
        throttle_ms: int,
    ) -> None:
        header = request.requestHeader
        self._requests.append(
            (
                request.connection,
                self._index << 32 | self._line,
                end_ms,
                record_ms,
                header.requestApiKey,
                header.requestApiVersion,
                _user(request.principal),
                header.clientId or "",
                CELL_KEYS[key],
                charged,
                request.localTimeMs,
                request.remoteTimeMs,
                throttle_ms,
                request.listener,
            )
        )

    def _add_mutation(self, request: MutationLine, end_ms: float, record_ms: float) -> None:
        """Put the topics of a mutation aside: what they cost can depend on lines that other workers read."""
        header = request.requestHeader
        nothing = MutatedTopic(None, "none", None)
        for topic in mutated_topics(request, default_partitions=self._options.default_partitions) or [nothing]:
            self._mutations.append(
                (
                    request.connection,
                    self._index << 32 | self._line,
                    end_ms,
                    record_ms,
                    header.requestApiKey,
                    header.requestApiVersion,
                    _user(request.principal),
                    header.clientId or "",
                    request.localTimeMs,
                    request.remoteTimeMs,
                    told_throttle_ms(request),
                    request.listener,
                    *topic,
                )
            )

    def _read_second(self, second: bytes) -> float:
        """Epoch milliseconds of a logged second, e.g. ``2026-01-02 03:04:05`` or the same with ``+01:00``."""
        try:
            text = second.decode("ascii")
            zone = self._zone if len(text) == 19 else _offset(text[19:])
            epoch_ms = datetime.fromisoformat(text[:19]).replace(tzinfo=zone).timestamp() * 1000
        except (ValueError, OverflowError, OSError):
            raise RejectedLineError("impossible time before `Completed request:`") from None
        self._epoch_ms[second] = epoch_ms
        return epoch_ms

    def _new_client(self, principal: str, client_id: str | None) -> int:
        client = self._clients.get((principal, client_id or ""))
        if client is None:
            client = self._block.add_client(_user(principal), client_id or "")
        self._clients[principal, client_id] = self._clients[principal, client_id or ""] = client
        return client

    def hand_over(self) -> Stretch:
        """Write what the stretch gathered and begin the next one."""
        files: list[StagedFile] = []
        stretch = self._write(files)
        self._begin()
        return stretch

    def _write(self, files: list[StagedFile]) -> Stretch:
        folder, cluster, broker = self._options.staging, self._options.cluster, self._piece.broker_id
        seconds = self._block.seconds
        inner_from = inner_to = None
        inner: list[int] = []
        if seconds:
            # A neighbour may hold more of the first second, and of the last ones.
            lower = int(self._first_ms // 1000) + 1
            upper = int(self._last_ms // 1000) - 1 - SETTLING_SECONDS
            inner = [second for second in seconds if lower <= second <= upper]
            if inner:
                inner_from, inner_to = lower, upper
        for day, of_day in split_by_date(inner).items():
            usage = self._block.usage(of_day, cluster=cluster, broker_id=broker)
            files.append(write_staged(folder, "usage", usage, partition=f"date={day.isoformat()}"))
        edges = list(set(seconds).difference(inner))
        if edges:
            files.append(write_staged(folder, "edges", self._block.edges(edges, cluster=cluster, broker_id=broker)))
        files.extend(self._write_rows(folder, cluster, broker))
        return Stretch(
            range=self._index,
            broker_id=broker,
            lines=self.stretch_lines,
            good=self.stretch_lines - len(self._rejected) - self._blank,
            rejected=len(self._rejected),
            blank=self._blank,
            forwarded=self._forwarded,
            followers=self._followers,
            unknown_amounts=self._unknown,
            versions={f"{api}:{version}": count for (api, version), count in self._versions.items()},
            files=files,
            inner_from=inner_from,
            inner_to=inner_to,
            seen_from=min(seconds, default=None),
            seen_to=max(seconds, default=None),
        )

    def _write_rows(self, folder: str, cluster: str, broker: int) -> Iterator[StagedFile]:
        if self._requests:
            connection, *middle, key, charged, local, remote, throttle, listener = zip(*self._requests, strict=True)
            count = len(self._requests)
            columns = [(cluster,) * count, (broker,) * count, connection, *middle, (None,) * count, key, charged]
            yield write_staged(
                folder, "requests", _table([*columns, local, remote, throttle, listener], REQUESTS_SCHEMA)
            )
        if self._mutations:
            count = len(self._mutations)
            columns = [(cluster,) * count, (broker,) * count, *zip(*self._mutations, strict=True)]
            yield write_staged(folder, "mutations", _table(columns, MUTATIONS_SCHEMA))
        if self._connections:
            names, seconds = zip(*self._block.connections, strict=True)
            columns = [(broker,) * len(names), names, tuple(map(_remote_ip, names)), seconds]
            yield write_staged(folder, "connections", _table(columns, CONNECTIONS_SCHEMA))
        if self._rejected:
            yield write_staged(folder, "rejected", _table(list(zip(*self._rejected, strict=True)), REJECTED_SCHEMA))


def _user(principal: str) -> str:
    """The principal's name: quotas do not look at its type.

    :raises RejectedLineError: it has none.
    """
    kind, colon, name = principal.partition(":")
    if not kind or not colon:
        raise RejectedLineError("not the request that Kafka logs: `principal` has no type")
    return name


def _table(columns: Sequence[object], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]  # type: ignore[call-overload]
    return pa.table(arrays, schema=schema)


def _remote_ip(connection: str) -> str | None:
    match = _CONNECTION.fullmatch(connection)
    return match["ip"] if match else None


def _offset(text: str) -> tzinfo:
    """A UTC offset as ISO 8601 writes it: ``Z``, ``+01:00`` or ``+0100``."""
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=hours, minutes=minutes))
