"""Kafka's request log to staged usage: what each worker does with its byte ranges, line by line.

Counted are the requests that Kafka itself would count on a client quota: followers' fetches and the controller's
copies of forwarded requests are left out. A bad line is put aside with its number and reason and costs only itself.
"""

from __future__ import annotations

import gc
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa

from kquota.pipeline.sources.cells import CELL_KEYS, CellBlock, split_by_date
from kquota.pipeline.sources.charged_size import fetch_charge, produce_charge, share_fetch_charge
from kquota.pipeline.sources.log_files import LogRange, read_lines
from kquota.pipeline.sources.request_line import (
    CreatePartitionsLine,
    CreatePartitionsResponse,
    CreateTopicsLine,
    CreateTopicsResponse,
    DeleteTopicsLine,
    DeleteTopicsResponse,
    FetchLine,
    FetchResponse,
    LogLine,
    OtherLine,
    ProduceLine,
    RejectedLineError,
    ShareFetchLine,
    ShareFetchResponse,
    decode_line,
)
from kquota.pipeline.sources.staging import (
    CONNECTIONS_SCHEMA,
    MUTATIONS_SCHEMA,
    REJECTED_SCHEMA,
    REQUESTS_SCHEMA,
    StagedFile,
    Stretch,
    write_staged,
)

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

__all__ = ["IngestOptions", "stage_request_logs"]

PRODUCER, CONSUMER, PERCENTAGE = range(len(CELL_KEYS))

PERCENT_SECONDS_PER_MS: Final = 0.1
"""One thread busy for 10 ms is one per cent of a second (ClientRequestQuotaManager)."""

SETTLING_SECONDS: Final = 5
"""How much earlier than its line a request may have been recorded (slow sends) and still be in a final cell."""

STRETCH_LINES: Final = 131_072
"""A worker hands over its rows after this many lines, whatever the size of the file."""

# Not counted on request_percentage (KafkaApis, ControllerApis, RequestHandlerHelper): traffic between brokers and
# controllers; envelopes are counted as what is inside. Exempt produce (acks=0) and followers' fetches are told apart
# by their bodies.
EXEMPT_APIS: Final = frozenset({4, 5, 6, 7, 27, 52, 53, 54, 55, 56, 58, 59, 80, 81, 82})

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


def stage_request_logs(
    spark: SparkSession,
    ranges: Sequence[LogRange],
    tasks: Sequence[Sequence[int]],
    options: IngestOptions,
    *,
    lines_read: Accumulator[int],
) -> list[Stretch]:
    """Read the ranges on Spark's workers into files under ``options.staging``.

    :param tasks: indices of `ranges`, by task.
    :param lines_read: grows while workers read.
    :returns: the manifests, some per range; their number is bounded by the bytes read, not by what is in them.
    """
    ranges, tasks = tuple(ranges), tuple(map(tuple, tasks))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for index in tasks[task]:
                    for stretch in _read_range(index, ranges[index], options):
                        lines_read.add(stretch.lines)
                        manifest = msgspec.json.encode(stretch).decode()
                        yield pa.RecordBatch.from_pydict({"manifest": [manifest]})

    frame = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(work, "manifest string")
    decoder = msgspec.json.Decoder(Stretch)
    return [decoder.decode(row.manifest) for row in frame.collect()]


def _read_range(index: int, piece: LogRange, options: IngestOptions) -> Iterator[Stretch]:
    """Read one range; a manifest for each stretch of at most about STRETCH_LINES lines."""
    # No cycles are made per line, and a collection would walk all cells each time.
    gc.disable()
    try:
        reader = _RangeReader(index, piece, options)
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


class _RangeReader:
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
        self._first_ms: float | None = None
        self._last_ms = 0.0
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
        api_version = header.requestApiVersion
        record_ms = end_ms - request.sendTimeMs - request.responseQueueTimeMs
        second = int(record_ms // 1000)
        client = self._clients.get((request.principal, header.clientId))
        if client is None:
            client = self._new_client(request.principal, header.clientId)
        if second < 0:
            raise RejectedLineError("impossible times: recorded before 1970")

        line_class = request.__class__
        throttle_ms = request.throttleTimeMs
        percentage = True
        key = charged = None
        follower = False
        if request.isForwarded:
            pass
        elif line_class is ProduceLine:
            key = PRODUCER
            charged = _charge(produce_charge, request.request, api_version, header.clientId)
            percentage = request.request.acks != 0
        elif line_class is FetchLine:
            key = CONSUMER
            follower = request.is_follower
            if throttle_ms:
                charged = 0  # taken back: the client is sent an empty answer
            elif request.response.__class__ is FetchResponse:
                charged = _charge(fetch_charge, request.response, api_version)
        elif line_class is OtherLine:
            percentage = header.requestApiKey not in EXEMPT_APIS
        elif line_class is ShareFetchLine:
            key = CONSUMER
            if throttle_ms:
                charged = 0
            elif request.response.__class__ is ShareFetchResponse:
                charged = _charge(share_fetch_charge, request.response, api_version)
        else:
            throttle_ms = 0  # counted with the mutation

        # From here on nothing refuses the line.
        if self._first_ms is None:
            self._first_ms = end_ms
        if end_ms > self._last_ms:
            self._last_ms = end_ms
        version = (header.requestApiKey, api_version)
        self._versions[version] = self._versions.get(version, 0) + 1
        if request.isForwarded:
            self._forwarded += 1
            return
        connection = self._connections.get(request.connection)
        if connection is None:
            connection = self._block.add_connection(request.connection, second)
            self._connections[request.connection] = connection
        if follower:
            self._followers += 1
            return
        if key is not None:
            self._block.add(second, client, key, charged, throttle_ms, connection)
            if charged is None:
                self._unknown += 1
            if self._options.keep_requests:
                self._keep(request, end_ms, record_ms, CELL_KEYS[key], charged, throttle_ms)
            throttle_ms = 0
        elif line_class is not OtherLine:
            self._add_mutation(request, end_ms, record_ms)
        if percentage:
            used = request.localTimeMs * PERCENT_SECONDS_PER_MS
            self._block.add(second, client, PERCENTAGE, used, throttle_ms, connection)
            if self._options.keep_requests:
                self._keep(request, end_ms, record_ms, CELL_KEYS[PERCENTAGE], used, throttle_ms)

    def _keep(
        self,
        request: LogLine,
        end_ms: float,
        record_ms: float,
        key: str,
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
                key,
                charged,
                request.localTimeMs,
                request.remoteTimeMs,
                throttle_ms,
                request.listener,
            )
        )

    def _add_mutation(
        self, request: CreateTopicsLine | CreatePartitionsLine | DeleteTopicsLine, end_ms: float, record_ms: float
    ) -> None:
        """Put the topics of a mutation aside: what they cost can depend on lines that other workers read.

        The line's own throttle time is 0 for these, because the controller computed it; the answer has it.
        """
        header = request.requestHeader
        told = request.throttleTimeMs
        if not isinstance(request.response, str | None):
            told = max(told, request.response.throttleTimeMs)
        checked_only = not isinstance(request, DeleteTopicsLine) and request.request.validateOnly
        topics = _mutated_topics(request, self._options.default_partitions) or [(None, "none", None)]
        for topic, operation, partitions in topics:
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
                    told,
                    request.listener,
                    topic,
                    operation,
                    partitions,
                    checked_only,
                )
            )

    def _read_second(self, second: bytes) -> float:
        """Epoch milliseconds of a logged second, e.g. ``2026-01-02 03:04:05`` or the same with ``+01:00``."""
        try:
            text = second.decode("ascii")
            time = datetime.strptime(text[:19], "%Y-%m-%d %H:%M:%S")
            zone = self._zone if len(text) == 19 else _offset(text[19:])
            epoch_ms = time.replace(tzinfo=zone).timestamp() * 1000
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
        if self._first_ms is not None:
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
            yield write_staged(folder, "requests", _table([*columns, local, remote, throttle, listener], REQUESTS_SCHEMA))
        if self._mutations:
            count = len(self._mutations)
            columns = [(cluster,) * count, (broker,) * count, *zip(*self._mutations, strict=True)]
            yield write_staged(folder, "mutations", _table(columns, MUTATIONS_SCHEMA))
        if self._connections:
            names, seconds = zip(*self._block.connections, strict=True)
            columns = [(broker,) * len(names), names, [_remote_ip(name) for name in names], seconds]
            yield write_staged(folder, "connections", _table(columns, CONNECTIONS_SCHEMA))
        if self._rejected:
            yield write_staged(folder, "rejected", _table(list(zip(*self._rejected, strict=True)), REJECTED_SCHEMA))


def _charge(charge: Callable[..., int], body: object, api_version: int, *client_id: str | None) -> int:
    try:
        return charge(body, api_version, *client_id)
    except ValueError as error:
        raise RejectedLineError(f"not the request that Kafka logs: {error}") from None


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


def _mutated_topics(
    request: CreateTopicsLine | CreatePartitionsLine | DeleteTopicsLine, default_partitions: int
) -> list[tuple[str | None, str, int | None]]:
    """(topic, operation, partitions afterwards) in request order; operation is ``none`` where the topic was refused.

    A topic that fails costs nothing: permits are taken after all other checks (ReplicationControlManager).
    """
    response = request.response
    match request, response:
        case CreateTopicsLine(), CreateTopicsResponse():
            asked = {topic.name: topic for topic in request.request.topics}
            created: list[tuple[str | None, str, int | None]] = []
            for result in response.topics:
                topic = asked.get(result.name or "")
                partitions: int | None = result.numPartitions
                if result.numPartitions < 0:
                    partitions = None
                    if topic is not None:
                        partitions = len(topic.assignments) or topic.numPartitions
                        partitions = partitions if partitions >= 0 else default_partitions
                created.append((result.name, "none" if result.errorCode else "create", partitions))
            return created
        case CreatePartitionsLine(), CreatePartitionsResponse():
            counts = {topic.name: topic.count for topic in request.request.topics}
            return [
                (result.name, "none" if result.errorCode else "grow", counts.get(result.name or ""))
                for result in response.results
            ]
        case DeleteTopicsLine(), DeleteTopicsResponse():
            return [(result.name, "none" if result.errorCode else "delete", None) for result in response.responses]
        case _:
            return []


def _remote_ip(connection: str) -> str | None:
    match = _CONNECTION.fullmatch(connection)
    return match["ip"] if match else None


def _offset(text: str) -> timezone:
    """A UTC offset as ISO 8601 writes it: ``Z``, ``+01:00`` or ``+0100``."""
    if text == "Z":
        return timezone.utc
    hours, minutes = int(text[1:3]), int(text[-2:])
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=hours, minutes=minutes))
