"""A broker that creates and deletes topics as it is asked in frames."""

from __future__ import annotations

import struct
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kquota.errors import KafkaErrorCode
from kquota.wire.apis import CREATE_TOPICS, DELETE_TOPICS, TOPIC_APIS, read_header, skip_header_tags, write_response
from kquota.wire.messages.metadata import MetadataPartition, MetadataRequestTopic, MetadataTopic
from kquota.wire.messages.topics import (
    NO_UUID,
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from tests.kit.manual_clock import ManualClock

T = TypeVar("T")

MUTATION_APIS = {api.key: api for api in TOPIC_APIS}


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never has to wait: quicker than a loop for each."""
    try:
        work.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    raise AssertionError("it waits")


def metadata_topic(name: str, partitions: int, topic_id: bytes = NO_UUID, error_code: int = 0) -> MetadataTopic:
    """A topic as Metadata gives it."""
    found = [MetadataPartition(0, index, 1, 0, [1], [1], []) for index in range(partitions)]
    return MetadataTopic(error_code, name, topic_id, partitions=found)


@dataclass
class MutationBroker:
    """Each request takes `latency_ms`; what is in `errors` is not done. It has no quota of its own."""

    clock: ManualClock
    topics: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    default_partitions: int = 1
    latency_ms: int = 0
    throttle_ms: int = 0
    frames: list[bytes] = field(default_factory=list)
    """What was forwarded, sizes included."""
    fetches: list[list[str | bytes]] = field(default_factory=list)
    in_metadata: dict[str, int] | None = None
    """The topics that it shows, as after a change it does not yet show those that there are; None where it does."""
    changed: int = 0
    """Partitions that were created or deleted."""

    @staticmethod
    def topic_id(name: str) -> bytes:
        return name.encode().ljust(16, b"\1")[:16]

    async def fetch(self, topics: Sequence[MetadataRequestTopic]) -> Iterable[MetadataTopic]:
        """Metadata of some topics. Where one is asked for by its id, names are passed over, as by a real broker
        (``KafkaApis.handleTopicMetadataRequest``).
        """
        self.fetches.append([topic.topic_id if topic.name is None else topic.name for topic in topics])
        shown = self.topics if self.in_metadata is None else self.in_metadata
        by_id = [topic for topic in topics if topic.name is None]
        asked = {topic.name or self._name(topic.topic_id) or "" for topic in by_id or topics}
        return [
            metadata_topic(name, shown[name], self.topic_id(name))
            if name in shown
            else metadata_topic(name, 0, error_code=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in asked
        ]

    async def forward(self, frame: bytes) -> bytes:
        """Take a frame with its size, and give the answer without."""
        self.frames.append(frame)
        assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
        header, at = read_header(frame[4:])
        api, version = MUTATION_APIS[header.api_key], header.api_version
        if api.is_flexible(version):
            at = skip_header_tags(frame[4:], at)
        body, end = api.request_codec(version).read(frame[4:], at)
        assert end == len(frame) - 4
        self.clock.advance(self.latency_ms)
        response: Any
        if api is CREATE_TOPICS:
            response = CreateTopicsResponse(
                self.throttle_ms, [self._create(one, body) for one in _distinct(body.topics)]
            )
        elif api is DELETE_TOPICS:
            keys = [one.name if one.name is not None else one.topic_id for one in body.topics] + body.topic_names
            response = DeleteTopicsResponse(self.throttle_ms, [self._delete(key) for key in dict.fromkeys(keys)])
        else:
            results = [self._extend(one, body) for one in _distinct(body.topics)]
            response = CreatePartitionsResponse(self.throttle_ms, results)
        return write_response(api, version, header.correlation_id, response)[4:]

    def _create(self, topic: Any, body: Any) -> CreatableTopicResult:
        count = len(topic.assignments) or topic.num_partitions
        count = self.default_partitions if count == -1 else count
        wrong = KafkaErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topics else 0
        code = self.errors.get(topic.name, KafkaErrorCode.INVALID_PARTITIONS if count < 1 else wrong)
        if code:
            return CreatableTopicResult(topic.name, error_code=code, error_message="no", configs=[])
        self._change(topic.name, count, validate_only=body.validate_only)
        return CreatableTopicResult(topic.name, self.topic_id(topic.name), 0, None, count, 1, [])

    def _extend(self, topic: Any, body: Any) -> CreatePartitionsTopicResult:
        now = self.topics.get(topic.name)
        wrong = 0 if now is not None else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if now is not None and topic.count <= now:
            wrong = KafkaErrorCode.INVALID_PARTITIONS
        code = self.errors.get(topic.name, wrong)
        if not code:
            self._change(topic.name, topic.count, validate_only=body.validate_only)
        return CreatePartitionsTopicResult(topic.name, code, None)

    def _delete(self, key: str | bytes) -> DeletableTopicResult:
        name = self._name(key) if isinstance(key, bytes) else key
        if name is None or name not in self.topics:
            by_id = isinstance(key, bytes)
            code = KafkaErrorCode.UNKNOWN_TOPIC_ID if by_id else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return DeletableTopicResult(name, key if isinstance(key, bytes) else NO_UUID, code)
        code = KafkaErrorCode(self.errors.get(name, 0))
        if not code:
            self._change(name, 0)
            del self.topics[name]
        return DeletableTopicResult(name, self.topic_id(name), code)

    def _change(self, name: str, count: int, *, validate_only: bool = False) -> None:
        self.changed += abs(count - self.topics.get(name, 0))
        if not validate_only:
            self.topics[name] = count

    def _name(self, topic_id: bytes) -> str | None:
        return next((name for name in self.topics if self.topic_id(name) == topic_id), None)


def _distinct(topics: Iterable[Any]) -> Iterable[Any]:
    found: Mapping[str, Any] = {topic.name: topic for topic in topics}
    return found.values()
