"""One line of Kafka's JSON request log, decoded to exactly the fields that the pipeline needs.

The logger ``kafka.request.logger`` writes one line a request (KIP-673, Kafka 2.8 and later)::

    [2026-01-02 03:04:05,678] DEBUG Completed request:{...} (kafka.request.logger)

Decoding is by API: a typed decoder takes the wanted fields and skips the rest of the line without building it. A
line that does not decode, or lacks or mistypes a needed field, raises :class:`RejectedLineError` and costs nothing
but itself.
"""

from __future__ import annotations

import re
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
    "decode_line",
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
    """A request of an API whose body does not matter to any quota."""


class ProducePartition(Struct, frozen=True, gc=False):
    """Records for one partition."""

    recordsSizeInBytes: _Size | None | UnsetType = UNSET
    records: str | None | UnsetType = UNSET


class ProduceTopic(Struct, frozen=True, gc=False):
    """`name` up to version 12, `topicId` since."""

    partitionData: list[ProducePartition]
    name: str | None = None
    topicId: str | None = None


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
    topicId: str | None = None


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
    """The throttle time stands here and not on the line."""

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
    """The throttle time stands here and not on the line."""

    results: list[TopicResult]
    throttleTimeMs: _Size = 0


class CreatePartitionsLine(LogLine, frozen=True, gc=False, kw_only=True):
    """API 37."""

    request: CreatePartitionsRequest
    response: CreatePartitionsResponse | _Absent


class DeleteTopicsResponse(Struct, frozen=True, gc=False):
    """The throttle time stands here and not on the line."""

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
_DECODERS: Final = {api_key: msgspec.json.Decoder(line).decode for api_key, line in _LINES.items()}
_DECODE_OTHER: Final = msgspec.json.Decoder(OtherLine).decode
_DECODE_HEADER: Final = msgspec.json.Decoder(_HeaderOnly).decode

# The fixed parts of an ordinary line, by position: `[`, 23 characters of time, then _BEFORE, JSON, _AFTER.
_BEFORE: Final = b"] DEBUG Completed request:"
_AFTER: Final = b" (kafka.request.logger)"
_JSON_AT: Final = 24 + len(_BEFORE)
_JSON_HEAD: Final = b'{"isForwarded":false,"requestHeader":{"requestApiKey":'
_ORDINARY: Final = _BEFORE + _JSON_HEAD
_API_AT: Final = _JSON_AT + len(_JSON_HEAD)
# The three bytes after _JSON_HEAD name the API: one digit and `,"`, two digits and `,`, or three digits.
_DECODERS_BY_BYTES: Final = {(str(key).encode() + b',"')[:3]: decode for key, decode in _DECODERS.items()}

_COMPLETED: Final = b"Completed request:"
_BEFORE_2_8: Final = b"Completed request:RequestHeader("
_TEXT_FORMAT: Final = "text format of Kafka before 2.8: only the JSON request log can be read"
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_LOGGER: Final = re.compile(rb"\s*(?:\([\w.$]*\))?\s*")


def decode_line(line: bytes) -> tuple[bytes, int, LogLine]:
    """Decode one line (without its line ending).

    :returns: the completion time to the second as logged (``b"2026-01-02 03:04:05"``, with an offset such as
        ``+01:00`` appended where the line has one), its milliseconds, and the request.
    :raises RejectedLineError: the line is not a completed request, is broken, or lacks or mistypes a needed field.
    """
    try:
        if line[24:_API_AT] == _ORDINARY and line[-23:] == _AFTER:
            decode = _DECODERS_BY_BYTES.get(line[_API_AT : _API_AT + 3], _DECODE_OTHER)
            return line[1:20], int(line[21:24]), decode(line[_JSON_AT:-23])
        second, millisecond, body = _take_apart(line)
        return second, millisecond, _decoder_of(body)(body)
    except msgspec.ValidationError as error:
        raise RejectedLineError(f"not the request that Kafka logs: {error}") from None
    except msgspec.DecodeError as error:
        if _BEFORE_2_8 in line:
            raise RejectedLineError(_TEXT_FORMAT) from None
        raise RejectedLineError(f"broken JSON: {error}") from None
    except UnicodeDecodeError:
        raise RejectedLineError("broken JSON: not UTF-8") from None
    except RecursionError:
        raise RejectedLineError("broken JSON: nested too deeply") from None


def _decoder_of(body: bytes):  # type: ignore[no-untyped-def]  # a msgspec decoder: bytes -> some LogLine
    return _DECODERS.get(_DECODE_HEADER(body).requestHeader.requestApiKey, _DECODE_OTHER)


def _take_apart(line: bytes) -> tuple[bytes, int, bytes]:
    """Split a line whose layout is not the default one into second, millisecond and JSON."""
    at = line.find(_COMPLETED)
    if at < 0:
        raise RejectedLineError("not a line of the request log (no `Completed request:`)")
    body = line[at + len(_COMPLETED) :].lstrip()
    if line.startswith(_BEFORE_2_8, at):
        raise RejectedLineError(_TEXT_FORMAT)
    if not body.startswith(b"{"):
        raise RejectedLineError("broken JSON: no object after `Completed request:`")
    end = body.rfind(b"}") + 1
    if not end or _LOGGER.fullmatch(body[end:]) is None:
        raise RejectedLineError("broken JSON: the line ends within it")
    time = _TIME.search(line[:at])
    if time is None:
        raise RejectedLineError("no time before `Completed request:`")
    date, clock, fraction, offset = time.groups()
    return date + b" " + clock + (offset or b""), int((fraction or b"0").ljust(3, b"0")[:3]), body[:end]
