"""One line of Kafka's JSON request log, decoded to exactly the fields that the pipeline needs.

The logger ``kafka.request.logger`` writes one line a request (KIP-673, Kafka 2.8 and later)::

    [2026-01-02 03:04:05,678] DEBUG Completed request:{...} (kafka.request.logger)

Decoding is by API: a typed decoder takes the fields that are needed and skips the rest of the line without building
it. A line that does not decode, or lacks or mistypes a needed field, raises :class:`RejectedLineError` and affects no
other line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

__all__ = [
    "CreatePartitionsLine",
    "CreateTopicsLine",
    "DeleteTopicsLine",
    "FetchLine",
    "FetchPartition",
    "FetchResponse",
    "LogLine",
    "OtherLine",
    "ProduceLine",
    "ProduceRequest",
    "RejectedLineError",
    "RequestHeader",
    "ShareFetchLine",
    "ShareFetchResponse",
    "decode_lines",
]

PRODUCE: Final = 0
FETCH: Final = 1
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
SHARE_FETCH: Final = 78

_Size = Annotated[int, Meta(ge=0)]
_Ms = Annotated[float, Meta(ge=0)]
# Kafka before 3.x writes `""` where a body is absent, later versions `null`.
_Absent = str | None


class RejectedLineError(ValueError):
    """An input line that cannot be used; the message is the reason, for people."""


class RequestHeader(Struct, frozen=True, gc=False):
    """Who asks for what. A null client id counts as an empty one."""

    requestApiKey: int
    requestApiVersion: int
    clientId: str | None


class LogLine(Struct, frozen=True, gc=False, kw_only=True):
    """The fields that every logged request has; times are in milliseconds."""

    isForwarded: bool
    requestHeader: RequestHeader
    connection: str
    remoteTimeMs: _Ms
    localTimeMs: _Ms
    responseQueueTimeMs: _Ms
    sendTimeMs: _Ms
    throttleTimeMs: _Size
    principal: str
    listener: str


class OtherLine(LogLine, frozen=True, gc=False, kw_only=True):
    """A request of an API with a body that does not matter to any quota."""


class ProducePartition(Struct, frozen=True, gc=False):
    """Records for one partition."""

    recordsSizeInBytes: _Size | None | UnsetType = UNSET
    records: str | None | UnsetType = UNSET


class ProduceTopic(Struct, frozen=True, gc=False):
    """Versions from 13 have an id of constant size instead of the name."""

    partitionData: list[ProducePartition]
    name: str | None = None


class ProduceRequest(Struct, frozen=True, gc=False):
    """`acks` 0 is exempt from the request quota and has no response."""

    acks: int
    topicData: list[ProduceTopic]
    transactionalId: str | None = None


class ProduceLine(LogLine, frozen=True, gc=False, kw_only=True):
    """API 0."""

    request: ProduceRequest


class NodeEndpoint(Struct, frozen=True, gc=False):
    """A new leader (KIP-951)."""

    host: str
    rack: str | None = None


class FetchPartition(Struct, frozen=True, gc=False):
    """`recordSetSizeInBytes` is what Kafka 2.8 calls `recordsSizeInBytes`."""

    recordsSizeInBytes: _Size | None | UnsetType = UNSET
    recordSetSizeInBytes: _Size | None | UnsetType = UNSET
    records: str | None | UnsetType = UNSET
    abortedTransactions: list[msgspec.Raw] | None = None
    divergingEpoch: msgspec.Raw | UnsetType = UNSET
    currentLeader: msgspec.Raw | UnsetType = UNSET
    snapshotId: msgspec.Raw | UnsetType = UNSET


class FetchTopic(Struct, frozen=True, gc=False):
    """`partitionResponses` is what Kafka 2.8 calls `partitions`."""

    partitions: list[FetchPartition] | UnsetType = UNSET
    partitionResponses: list[FetchPartition] | UnsetType = UNSET
    topic: str | None = None


class FetchResponse(Struct, frozen=True, gc=False):
    """What was answered; throttled fetches have no topics."""

    responses: list[FetchTopic]
    nodeEndpoints: list[NodeEndpoint] | UnsetType = UNSET


class ReplicaState(Struct, frozen=True, gc=False):
    """The follower, since version 15."""

    replicaId: int = -1


class FetchRequest(Struct, frozen=True, gc=False):
    """`replicaId` up to version 14."""

    replicaId: int = -1
    replicaState: ReplicaState | None = None


class FetchLine(LogLine, frozen=True, gc=False, kw_only=True):
    """API 1."""

    request: FetchRequest
    response: FetchResponse | _Absent

    @property
    def is_follower(self) -> bool:
        """A fetch by another broker: replication, which no client quota counts."""
        state = self.request.replicaState
        return self.request.replicaId >= 0 or (state is not None and state.replicaId >= 0)


class SharePartition(Struct, frozen=True, gc=False):
    """Records of one partition for a share group (KIP-932)."""

    acquiredRecords: list[msgspec.Raw]
    errorMessage: str | None = None
    acknowledgeErrorMessage: str | None = None
    recordsSizeInBytes: _Size | None | UnsetType = UNSET
    records: str | None | UnsetType = UNSET


class ShareTopic(Struct, frozen=True, gc=False):
    """A topic of a share fetch."""

    partitions: list[SharePartition]


class ShareFetchResponse(Struct, frozen=True, gc=False):
    """What was answered."""

    responses: list[ShareTopic]
    nodeEndpoints: list[NodeEndpoint]
    errorMessage: str | None = None


class ShareFetchLine(LogLine, frozen=True, gc=False, kw_only=True):
    """API 78."""

    response: ShareFetchResponse | _Absent


class CreatedTopic(Struct, frozen=True, gc=False):
    """`numPartitions` is -1 with assignments, or for the broker's default."""

    name: str
    numPartitions: int
    assignments: list[msgspec.Raw] = []


class CreateTopicsRequest(Struct, frozen=True, gc=False):
    """Topics to create."""

    topics: list[CreatedTopic]
    validateOnly: bool = False


class TopicResult(Struct, frozen=True, gc=False):
    """How it went for one topic; `numPartitions` in answers to CreateTopics since version 5."""

    errorCode: int
    name: str | None = None
    numPartitions: int = -1


class CreateTopicsResponse(Struct, frozen=True, gc=False):
    """The throttle time is here and not on the line."""

    topics: list[TopicResult]
    throttleTimeMs: _Size = 0


class CreateTopicsLine(LogLine, frozen=True, gc=False, kw_only=True):
    """API 19."""

    request: CreateTopicsRequest
    response: CreateTopicsResponse | _Absent


class GrownTopic(Struct, frozen=True, gc=False):
    """`count` is the new number of partitions."""

    name: str
    count: int


class CreatePartitionsRequest(Struct, frozen=True, gc=False):
    """Topics to grow."""

    topics: list[GrownTopic]
    validateOnly: bool = False


class CreatePartitionsResponse(Struct, frozen=True, gc=False):
    """The throttle time is here and not on the line."""

    results: list[TopicResult]
    throttleTimeMs: _Size = 0


class CreatePartitionsLine(LogLine, frozen=True, gc=False, kw_only=True):
    """API 37."""

    request: CreatePartitionsRequest
    response: CreatePartitionsResponse | _Absent


class DeleteTopicsResponse(Struct, frozen=True, gc=False):
    """The throttle time is here and not on the line."""

    responses: list[TopicResult]
    throttleTimeMs: _Size = 0


class DeleteTopicsLine(LogLine, frozen=True, gc=False, kw_only=True):
    """API 20."""

    response: DeleteTopicsResponse | _Absent


class _HeaderOnly(Struct, frozen=True, gc=False):
    requestHeader: RequestHeader


_LINES: Final = {
    PRODUCE: ProduceLine,
    FETCH: FetchLine,
    CREATE_TOPICS: CreateTopicsLine,
    DELETE_TOPICS: DeleteTopicsLine,
    CREATE_PARTITIONS: CreatePartitionsLine,
    SHARE_FETCH: ShareFetchLine,
}
_Decode = Callable[[bytes], LogLine]
_DECODERS: Final[dict[int, _Decode]] = {key: msgspec.json.Decoder(line).decode for key, line in _LINES.items()}
_DECODE_OTHER: Final[_Decode] = msgspec.json.Decoder(OtherLine).decode
_DECODE_HEADER: Final = msgspec.json.Decoder(_HeaderOnly).decode


def _decode_any(body: bytes) -> LogLine:
    """Decode a body that does not begin as usual: find out the API first."""
    return _DECODERS.get(_DECODE_HEADER(body).requestHeader.requestApiKey, _DECODE_OTHER)(body)


# How the JSON of nearly every line begins; the next three bytes are the API: `0,"`, `12,` or `105`.
_USUAL_HEAD: Final = b'{"isForwarded":false,"requestHeader":{"requestApiKey":'
_HEAD_SIZE: Final = len(_USUAL_HEAD) + 3


class _DecodersByHead(dict[bytes, _Decode]):
    """Decoder by the first bytes of a body."""

    def __missing__(self, head: bytes) -> _Decode:
        if not head.startswith(_USUAL_HEAD):
            return _decode_any
        return self.setdefault(head, _DECODE_OTHER)  # at most a thousand


_DECODERS_BY_HEAD: Final = _DecodersByHead(
    {_USUAL_HEAD + (str(key).encode() + b',"')[:3]: decode for key, decode in _DECODERS.items()}
)

# An ordinary line: `[`, 23 characters of time, _BEFORE, JSON, _AFTER.
_BEFORE: Final = b"] DEBUG Completed request:"
_AFTER: Final = b" (kafka.request.logger)\n"
_JSON_AT: Final = 24 + len(_BEFORE)
# What is between the JSON of one ordinary line and that of the next, around the time of the next.
_BETWEEN: Final = re.compile(re.escape(_AFTER) + rb"\[(.{23})" + re.escape(_BEFORE))

_COMPLETED: Final = b"Completed request:"
_BODY_BEFORE_2_8: Final = b"RequestHeader("
_TEXT_FORMAT: Final = "text format of Kafka before 2.8: only the JSON request log can be read"
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_LOGGER: Final = re.compile(rb"\s*(?:\([\w.$]*\))?\s*")


def decode_lines(block: bytes) -> tuple[list[bytes], list[LogLine]]:
    """Decode the lines of a block, all or none; the last may lack its line feed.

    :returns: by line, the completion time as logged, ``b"2026-01-02 03:04:05,678"``, with an offset before the comma
        where the line has one (``b"2026-01-02 03:04:05+01:00,678"``), and the request.
    :raises RejectedLineError: one of the lines is not a completed request, is broken, or lacks or mistypes a needed
        field.
    """
    times, bodies = _take_apart_ordinary(block) or _take_apart_any(block)
    try:
        return times, [_DECODERS_BY_HEAD[body[:_HEAD_SIZE]](body) for body in bodies]
    except msgspec.ValidationError as error:
        raise RejectedLineError(f"not the request that Kafka logs: {error}") from None
    except msgspec.DecodeError as error:
        if any(body.startswith(_BODY_BEFORE_2_8) for body in bodies):
            raise RejectedLineError(_TEXT_FORMAT) from None
        raise RejectedLineError(f"broken JSON: {error}") from None
    except UnicodeDecodeError:
        raise RejectedLineError("broken JSON: not UTF-8") from None
    except RecursionError:
        raise RejectedLineError("broken JSON: nested too deeply") from None


def _take_apart_ordinary(block: bytes) -> tuple[list[bytes], list[bytes]] | None:
    """Times and JSON of the lines of a block; None where not all are laid out as Kafka's own configuration does."""
    if block[24:_JSON_AT] != _BEFORE or not block.endswith(_AFTER):
        return None
    parts = _BETWEEN.split(block)
    bodies, times = parts[::2], [block[1:24], *parts[1::2]]
    bodies[0] = bodies[0][_JSON_AT:]
    bodies[-1] = bodies[-1][: -len(_AFTER)]
    return (times, bodies) if len(bodies) == block.count(b"\n") else None


def _take_apart_any(block: bytes) -> tuple[list[bytes], list[bytes]]:
    parts = [_take_apart(line) for line in block.removesuffix(b"\n").split(b"\n")]
    return [time for time, _ in parts], [body for _, body in parts]


def _take_apart(line: bytes) -> tuple[bytes, bytes]:
    """Split a line of any layout into time and JSON."""
    at = line.find(_COMPLETED)
    if at < 0:
        raise RejectedLineError("not a line of the request log (no `Completed request:`)")
    body = line[at + len(_COMPLETED) :].lstrip()
    if body.startswith(_BODY_BEFORE_2_8):
        raise RejectedLineError(_TEXT_FORMAT)
    if not body.startswith(b"{"):
        raise RejectedLineError("broken JSON: no object after `Completed request:`")
    end = body.rfind(b"}") + 1
    if not end or _LOGGER.fullmatch(body[end:]) is None:
        raise RejectedLineError("broken JSON: the line ends within it")
    time = _first_time(line[:at])
    if time is None:
        raise RejectedLineError("no time before `Completed request:`")
    return time, body[:end]


def logged_time(line: bytes) -> bytes | None:
    """The completion time of a line as :func:`decode_lines` gives it; None where it has none."""
    at = line.find(_COMPLETED)
    return _first_time(line[:at]) if at >= 0 else None


def _first_time(text: bytes) -> bytes | None:
    time = _TIME.search(text)
    if time is None:
        return None
    date, clock, fraction, offset = time.groups(b"")
    return b"%b %b%b,%b" % (date, clock, offset, fraction[:3].ljust(3, b"0"))
