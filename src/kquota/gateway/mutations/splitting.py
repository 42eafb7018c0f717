"""A request that a quota refuses in part goes on without the topics that are refused, and the answer to it gets their
results back (KIP-599).

Both are made of the bytes that were there, topic by topic, so that nothing is lost that nobody here knows: the header
with a client id of null, and tagged fields anywhere. Only strict versions refuse, and all of those are flexible
(KIP-482).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import itemgetter
from typing import Final

from msgspec import Struct

from kquota.errors import KafkaErrorCode
from kquota.gateway.mutations.frames import MutationRequest, MutationResponse, TopicKey
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kquota.wire.frames import framed
from kquota.wire.messages.topics import (
    NO_UUID,
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
)
from kquota.wire.primitives import compact_length

__all__ = ["write_answer", "write_request_without"]

_CORRELATION_ID: Final = slice(4, 8)
_NO_TAGS_NO_THROTTLE: Final = bytes(5)
_THROTTLED: Final = int(KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED)


def write_request_without(request: MutationRequest, refused: Collection[TopicKey]) -> bytes:
    """The request as a frame with its size, without these topics; all other bytes are as they were."""
    frame = request.frame
    if not refused:
        return framed(frame)
    assert request.is_flexible
    kept = [frame[topic.start : topic.end] for topic in request.topics if topic.key not in refused]
    return framed(frame[: request.list_at], compact_length(len(kept)), *kept, frame[request.topics[-1].end :])


def write_answer(request: MutationRequest, response: MutationResponse | None, refused: Collection[TopicKey]) -> bytes:
    """The answer to a request as a frame with its size, results in the order of the request if any was refused.

    Its throttle time is the broker's.

    :param response: the broker's; None where nothing was sent to it, as all topics were refused.
    :param refused: the topics that the quota refused. Their results are as brokers write them, with a message of null:
        the client knows the text.
    """
    if response is not None and not refused:
        return framed(response.frame)
    assert request.is_flexible
    place: dict[TopicKey | None, int] = {}
    for topic in request.topics:
        place.setdefault(topic.key, len(place))
    write, result = request.result_codec.write, _REFUSED[request.api.key]
    results = [(place[key], write(result(key))) for key in refused]
    head, tail = request.frame[_CORRELATION_ID] + _NO_TAGS_NO_THROTTLE, b"\0"
    if response is not None:
        frame = response.frame
        results += [(place.get(one.key, len(place)), frame[one.start : one.end]) for one in response.results]
        head, tail = frame[: response.list_at], frame[response.end :]
    results.sort(key=itemgetter(0))
    return framed(head, compact_length(len(results)), *(result for _, result in results), tail)


def _not_created(key: TopicKey) -> CreatableTopicResult:
    assert isinstance(key, str)
    return CreatableTopicResult(key, error_code=_THROTTLED, configs=[])


def _not_extended(key: TopicKey) -> CreatePartitionsTopicResult:
    assert isinstance(key, str)
    return CreatePartitionsTopicResult(key, _THROTTLED, None)


def _not_deleted(key: TopicKey) -> DeletableTopicResult:
    name, topic_id = (key, NO_UUID) if isinstance(key, str) else (None, key)
    return DeletableTopicResult(name, topic_id, _THROTTLED)


_REFUSED: Final[Mapping[int, Callable[[TopicKey], Struct]]] = {
    CREATE_TOPICS.key: _not_created,
    CREATE_PARTITIONS.key: _not_extended,
    DELETE_TOPICS.key: _not_deleted,
}
