"""CreateTopics, CreatePartitions and DeleteTopics as bytes: what they ask of each topic, and what is answered.

Topics are read one at a time, and of each is kept what its cost follows from, and where it is in the frame: so memory
is a few hundred bytes for each topic, whatever settings and assignments come with it, and a frame can be split between
topics (:mod:`kquota.gateway.mutations.splitting`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from struct import Struct as Layout
from typing import Any, Final, NamedTuple

from msgspec import Struct

from kquota.errors import MalformedMessageError, TooManyElementsError, UnsupportedVersionError
from kquota.metering.requests import STRICT_SINCE
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, Api, read_header, skip_header_tags
from kquota.wire.messages.topics import (
    NO_UUID,
    UNKNOWN,
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicState,
)
from kquota.wire.primitives import AS_JAVA, read_compact_length
from kquota.wire.schema import Codec, codec

__all__ = [
    "MutationRequest",
    "MutationResponse",
    "TopicAsked",
    "TopicKey",
    "TopicResult",
    "read_mutation_request",
    "read_mutation_response",
]

_INT32: Final = Layout(">i")

_DELETED_BY_ID_SINCE: Final = 6
_NAMELESS: Final = ""

TopicKey = str | bytes
"""A topic's name, or the 16 bytes of its id where it has no name; '' where it has neither."""


class TopicAsked(NamedTuple):
    """One topic of a request."""

    key: TopicKey
    partitions: int
    """As many as it is to have: -1 leaves the number to the broker, 0 where it is deleted."""
    start: int
    end: int


class TopicResult(NamedTuple):
    """What an answer says about one topic."""

    key: TopicKey | None
    """That of the request; None where it is about none of its topics."""
    topic_id: bytes
    error_code: int
    partitions: int
    """As many as it was created with; -1 where the answer does not say."""
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MutationRequest:
    """A request that was read, without its size."""

    frame: bytes
    api: Api
    version: int
    topics: list[TopicAsked]
    validate_only: bool
    list_at: int
    """Where the topics begin, with their count."""

    @property
    def is_strict(self) -> bool:
        """Whether topics over the quota are refused, instead of done with a wait afterwards."""
        return self.version >= STRICT_SINCE[self.api.key]

    @property
    def is_flexible(self) -> bool:
        """Whether it has compact lengths and tagged fields."""
        return self.api.is_flexible(self.version)

    @property
    def result_codec(self) -> Codec[Any]:
        """Of one topic's result in the answer."""
        return _codec(_SHAPES[self.api.key].result, self.api, self.version)


@dataclass(frozen=True, slots=True)
class MutationResponse:
    """A broker's answer, without its size."""

    frame: bytes
    results: list[TopicResult]
    list_at: int
    """Where they begin, with their count."""
    end: int
    """Where the results end."""


def read_mutation_request(frame: bytes, *, max_elements: int = sys.maxsize) -> MutationRequest:
    """Read a request, in any version.

    :param frame: without its size.
    :param max_elements: the most topics, and the most that the lists of one topic may have together.
    :raises UnsupportedVersionError: it is a request of another API, or of a version that is not known.
    :raises TooManyElementsError: it has more.
    :raises MalformedMessageError: these bytes are no such request.
    """
    header, at = read_header(frame)
    shape, version = _SHAPES.get(header.api_key), header.api_version
    if shape is None or not 0 <= version <= shape.api.max_version:
        raise UnsupportedVersionError(header.api_key, version, header.correlation_id)
    flexible = shape.api.is_flexible(version)
    if flexible:
        at = skip_header_tags(frame, at)
    list_at = at
    count, at = _count(frame, at, flexible=flexible)
    if count > max_elements:
        raise TooManyElementsError(max_elements)
    read = _topic_reader(shape, version)
    topics = []
    for _ in range(count):
        start = at
        key, partitions, at = read(frame, at, max_elements)
        topics.append(TopicAsked(key, partitions, start, at))
    validate_at = at + _INT32.size  # behind the timeout
    has_validate_only = version >= shape.validate_only_since
    if len(frame) < validate_at + has_validate_only:
        raise MalformedMessageError(f"{shape.api.name}Request ends too early")
    validate_only = has_validate_only and frame[validate_at] != 0
    return MutationRequest(frame, shape.api, version, topics, validate_only, list_at)


def read_mutation_response(
    request: MutationRequest, frame: bytes, refused: Collection[TopicKey] = ()
) -> MutationResponse:
    """Read the answer to a request.

    :param frame: without its size.
    :param refused: the topics that the request was forwarded without. No result is about them.
    :raises MalformedMessageError: these bytes are no such answer.
    """
    list_at = skip_header_tags(frame, _INT32.size) if request.is_flexible else _INT32.size
    if request.version >= _SHAPES[request.api.key].throttle_since:
        list_at += _INT32.size
    count, at = _count(frame, list_at, flexible=request.is_flexible)
    keys = {topic.key for topic in request.topics if topic.key not in refused}
    read = request.result_codec.read
    results = []
    for _ in range(count):
        start = at
        one: Any
        one, at = read(frame, at)
        topic_id, partitions = getattr(one, "topic_id", NO_UUID), getattr(one, "num_partitions", UNKNOWN)
        name = _NAMELESS if one.name is None else one.name
        # A topic that was asked for by its id has its name in the answer, too, if the client may see it.
        key = topic_id if topic_id in keys else name if name in keys else None
        results.append(TopicResult(key, topic_id, one.error_code, partitions, start, at))
    return MutationResponse(frame, results, list_at, at)


@dataclass(frozen=True, slots=True)
class _Shape:
    """One API: where in its messages is what, and the first versions that have it."""

    api: Api
    topic: type[Struct]
    asked: Callable[[Any], tuple[TopicKey, int]]
    result: type[Struct]
    throttle_since: int
    validate_only_since: int


def _created(topic: CreatableTopic) -> tuple[TopicKey, int]:
    return topic.name, len(topic.assignments) or topic.num_partitions


def _extended(topic: CreatePartitionsTopic) -> tuple[TopicKey, int]:
    return topic.name, topic.count


def _deleted(topic: DeleteTopicState) -> tuple[TopicKey, int]:
    if topic.name is not None:
        return topic.name, 0
    return (topic.topic_id if any(topic.topic_id) else _NAMELESS), 0


_NEVER: Final = 32767

_SHAPES: Final = {
    shape.api.key: shape
    for shape in (
        _Shape(CREATE_TOPICS, CreatableTopic, _created, CreatableTopicResult, 2, 1),
        _Shape(CREATE_PARTITIONS, CreatePartitionsTopic, _extended, CreatePartitionsTopicResult, 0, 0),
        _Shape(DELETE_TOPICS, DeleteTopicState, _deleted, DeletableTopicResult, 1, _NEVER),
    )
}


def _codec(message: type[Struct], api: Api, version: int) -> Codec[Any]:
    """Of a struct that stands in a message of the API."""
    return codec(message, version, flexible=api.is_flexible(version))


def _topic_reader(shape: _Shape, version: int) -> Callable[[bytes, int, int], tuple[TopicKey, int, int]]:
    """What reads one topic: its key, its partitions, and the position after it."""
    flexible = shape.api.is_flexible(version)
    if shape.api is DELETE_TOPICS and version < _DELETED_BY_ID_SINCE:
        return lambda frame, at, _: _name(frame, at, flexible=flexible)
    read, asked = _codec(shape.topic, shape.api, version).read, shape.asked

    def topic(frame: bytes, at: int, max_elements: int) -> tuple[TopicKey, int, int]:
        one, end = read(frame, at, max_elements=max_elements)
        return *asked(one), end

    return topic


def _name(frame: bytes, at: int, *, flexible: bool) -> tuple[TopicKey, int, int]:
    """A topic to be deleted in the versions that have names alone: no struct, so that no tags follow."""
    try:
        size, at = read_compact_length(frame, at) if flexible else _int16(frame, at)
    except IndexError:
        raise MalformedMessageError("DeleteTopicsRequest ends too early") from None
    end = at + size
    if size < 0 or end > len(frame):
        raise MalformedMessageError("the name of a topic is null, or ends after the request")
    return frame[at:end].decode("utf-8", AS_JAVA), 0, end


def _count(frame: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """How many elements a list has, and where they begin. Each of them takes a byte at least."""
    try:
        count, at = read_compact_length(frame, at) if flexible else _int32(frame, at)
    except IndexError:
        raise MalformedMessageError("the message ends before its topics") from None
    if not 0 <= count <= len(frame) - at:
        raise MalformedMessageError(f"a list of {count} topics in {len(frame) - at} bytes")
    return count, at


def _int16(frame: bytes, at: int) -> tuple[int, int]:
    end = at + 2
    return int.from_bytes(frame[at:end], "big", signed=True), end  # too short a frame ends before `end`


def _int32(frame: bytes, at: int) -> tuple[int, int]:
    end = at + _INT32.size
    if end > len(frame):
        raise MalformedMessageError("the message ends too early")
    return _INT32.unpack_from(frame, at)[0], end
