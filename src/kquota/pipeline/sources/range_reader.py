"""One range of a request log, read line by line into files: what a worker does.

Counted are the requests that Kafka itself would count on a client quota: followers' fetches and the controller's
copies of forwarded requests are left out. A bad line is put aside with its number and reason and costs only itself.
"""

from __future__ import annotations

import gc
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kquota.pipeline.sources.cells import Bools, Charges, Names, to_cells
from kquota.pipeline.sources.charges import MUTATION, charge_of
from kquota.pipeline.sources.log_files import LogRange, read_lines
from kquota.pipeline.sources.mutated_topics import MutatedTopic, MutationLine, mutated_topics, told_throttle_ms
from kquota.pipeline.sources.request_line import LogLine, RejectedLineError, decode_line
from kquota.pipeline.sources.rows import FORWARDED, Rows, pack_row
from kquota.pipeline.sources.staging import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    StagedFile,
    Stretch,
    write_staged,
)

__all__ = ["IngestOptions", "read_range"]

SETTLING_SECONDS: Final = 2
"""How much earlier than its line a request may have been recorded (slow sends) and still be in a final cell."""

STRETCH_LINES: Final = 524_288
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
    """State of reading one range: its clock, and what the current stretch has gathered.

    Lines become rows of numbers, and every other step works on whole columns of them: this is where the time goes.
    """

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
        self._blank = 0
        self._blocks: list[bytes] = []
        self._clients: dict[tuple[str, str | None], int] = {}
        self._client_names: list[tuple[str, str]] = []
        self._connections: dict[str, int] = {}
        self._connection_seconds: list[int] = []
        self._listeners: list[str] = []
        self._mutations: list[tuple[object, ...]] = []
        self._rejected: list[tuple[int, int, str, str]] = []

    def reject_tail(self, reason: str) -> None:
        """Count what is left of a broken compressed file as one rejected line."""
        self._line += 1
        self.stretch_lines += 1
        self._reject(self._line, b"", reason)

    def _reject(self, number: int, line: bytes, reason: str) -> None:
        sample = line[:_SAMPLE_BYTES].decode("utf-8", "backslashreplace")
        sample = _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), sample)
        self._rejected.append((self._index, number, reason, sample))

    def read(self, lines: list[bytes]) -> None:
        """Take in a block of lines."""
        rows: list[bytes] = []
        number = self._line
        epoch_ms, clients, connections = self._epoch_ms.get, self._clients.get, self._connections.get
        keep = self._options.keep_requests
        for line in lines:
            number += 1
            try:
                logged, millisecond, request = decode_line(line)
                second_ms = epoch_ms(logged)
                end_ms = (self._read_second(logged) if second_ms is None else second_ms) + millisecond
                record_ms = end_ms - request.sendTimeMs - request.responseQueueTimeMs
                if record_ms < 0:
                    raise RejectedLineError("impossible times: recorded before 1970")
                header = request.requestHeader
                client = clients((request.principal, header.clientId))
                if client is None:
                    client = self._new_client(request.principal, header.clientId)
                key, charged, timed = charge_of(request)
            except RejectedLineError as error:
                if line.strip():
                    self._reject(number, line, str(error))
                else:
                    self._blank += 1
                continue
            # From here on nothing refuses the line.
            connection = 0
            if request.isForwarded:
                key = FORWARDED
            else:
                connection = connections(request.connection, -1)
                if connection < 0:
                    connection = self._new_connection(request.connection, record_ms)
            if key == MUTATION:
                self._add_mutation(request, number, end_ms, record_ms)
            if keep:
                self._listeners.append(request.listener)
            rows.append(
                pack_row(
                    number,
                    end_ms,
                    record_ms,
                    client,
                    header.requestApiKey,
                    header.requestApiVersion,
                    connection,
                    key,
                    charged,
                    timed,
                    request.throttleTimeMs,
                    request.localTimeMs,
                    request.remoteTimeMs,
                )
            )
        self._line = number
        self.stretch_lines += len(lines)
        self._blocks.append(b"".join(rows))

    def _add_mutation(self, request: LogLine, number: int, end_ms: float, record_ms: float) -> None:
        """Put the topics of a mutation aside: what they cost can depend on lines that other workers read."""
        assert isinstance(request, MutationLine)
        header = request.requestHeader
        nothing = MutatedTopic(None, "none", None)
        for topic in mutated_topics(request, default_partitions=self._options.default_partitions) or [nothing]:
            self._mutations.append(
                (
                    request.connection,
                    self._index << 32 | number,
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
            client = len(self._client_names)
            self._client_names.append((_user(principal), client_id or ""))
        self._clients[principal, client_id] = self._clients[principal, client_id or ""] = client
        return client

    def _new_connection(self, connection: str, record_ms: float) -> int:
        self._connections[connection] = len(self._connection_seconds)
        self._connection_seconds.append(int(record_ms // 1000))
        return self._connections[connection]

    def hand_over(self) -> Stretch:
        """Write what the stretch gathered and begin the next one."""
        rows = Rows(self._blocks)
        charges = rows.charges
        seconds = charges.second
        inner = np.zeros(len(seconds), np.bool_)
        inner_from = inner_to = None
        if len(seconds):
            # A neighbour may hold more of the first second, and of the last ones.
            lower = int(rows.floats("end_ms").min() // 1000) + 1
            upper = int(rows.floats("end_ms").max() // 1000) - 1 - SETTLING_SECONDS
            inner = (seconds >= lower) & (seconds <= upper)
            if inner.any():
                inner_from, inner_to = lower, upper
        seen = rows.seconds_seen()
        stretch = Stretch(
            range=self._index,
            broker_id=self._piece.broker_id,
            lines=self.stretch_lines,
            good=self.stretch_lines - len(self._rejected) - self._blank,
            rejected=len(self._rejected),
            blank=self._blank,
            forwarded=rows.forwarded,
            followers=rows.followers,
            unknown_amounts=rows.unknown_amounts,
            versions=rows.versions(),
            files=list(self._write(rows, charges, inner)),
            inner_from=inner_from,
            inner_to=inner_to,
            seen_from=min(seen, default=None),
            seen_to=max(seen, default=None),
        )
        self._begin()
        return stretch

    def _write(self, rows: Rows, charges: Charges, inner: Bools) -> Iterator[StagedFile]:
        folder, cluster, broker = self._options.staging, self._options.cluster, self._piece.broker_id
        names = Names(self._client_names, list(self._connections))
        final = to_cells(charges.where(inner))
        for day, usage in final.usage(names, cluster=cluster, broker_id=broker):
            yield write_staged(folder, "usage", usage, partition=f"date={day.isoformat()}")
        if not inner.all():
            edges = to_cells(charges.where(~inner), by_connection=True)
            yield write_staged(folder, "edges", edges.edges(names, cluster=cluster, broker_id=broker))
        if self._options.keep_requests:
            requests = rows.requests(names, self._listeners, cluster=cluster, broker_id=broker, range_index=self._index)
            if requests.num_rows:
                yield write_staged(folder, "requests", requests)
        if self._mutations:
            count = len(self._mutations)
            columns = [(cluster,) * count, (broker,) * count, *zip(*self._mutations, strict=True)]
            yield write_staged(folder, "mutations", _table(columns, MUTATIONS_SCHEMA))
        if self._connections:
            seen = [
                (broker, name, _remote_ip(name), second)
                for name, second in zip(self._connections, self._connection_seconds, strict=True)
            ]
            yield write_staged(folder, "connections", _table(list(zip(*seen, strict=True)), CONNECTIONS_SCHEMA))
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
