"""What the broker charged for a logged request, computed exactly from the fields of its line.

Produce: the request frame without its four size bytes (header and body). Fetch and share fetch: four plus the
response body as answered (``FetchSession.getResponseSize`` adds the four). The log has no sizes but those of the
records, so the rest of the message is counted field by field; ``tests`` hold these sums against real frames and
against an independent encoder for every version.
"""

from __future__ import annotations

from base64 import b64decode
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from kquota.pipeline.ingest.request_log.line import (
        FetchPartition,
        FetchResponse,
        FetchTopic,
        NodeEndpoint,
        ProducePartition,
        ProduceRequest,
        ShareFetchResponse,
        SharePartition,
    )

__all__ = ["fetch_charge", "produce_charge", "share_fetch_charge"]

_PRODUCE_FLEXIBLE = 9
_PRODUCE_TOPIC_IDS = 13
_FETCH_FLEXIBLE = 12
_FETCH_TOPIC_IDS = 13
_UUID_BYTES = 16


def _uvarint_size(value: int) -> int:
    if value < 0x80:
        return 1
    return (value.bit_length() + 6) // 7


@lru_cache(maxsize=65536)
def _utf8_size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _string_size(text: str | None, *, flexible: bool) -> int:
    """A nullable string with its length: two bytes, or an unsigned varint of length + 1 in flexible versions."""
    size = 0 if text is None else _utf8_size(text)
    return size + (_uvarint_size(size + 1) if flexible else 2)


@lru_cache(maxsize=65536)
def _produce_head_size(api_version: int, client_id: str | None, transactional_id: str | None) -> int:
    """Request header and the fixed part of the body, with the length of an array of fewer than 127 topics."""
    flexible = api_version >= _PRODUCE_FLEXIBLE
    header = 8 + _string_size(client_id, flexible=False) + (1 if flexible else 0)
    body = 2 + 4 + (2 if flexible else 4)
    if api_version >= 3:
        body += _string_size(transactional_id, flexible=flexible)
    return header + body


_TOPIC_BY_ID_SIZE = _UUID_BYTES + 1


@lru_cache(maxsize=65536)
def _compact_topic_size(name: str | None) -> int:
    """A topic's name and its tag section in flexible versions; without the length of its partition array."""
    return _string_size(name, flexible=True) + 1


def _records_size(partition: ProducePartition | FetchPartition | SharePartition) -> int | None:
    """Bytes of the partition's records, None where it has none.

    The JSON says ``recordsSizeInBytes``, or ``records``: null, or base64 where Kafka used its default converter.
    """
    if not isinstance(partition.recordsSizeInBytes, UnsetType):
        return partition.recordsSizeInBytes
    if not isinstance(partition.records, UnsetType):
        return None if partition.records is None else len(b64decode(partition.records, validate=True))
    older = getattr(partition, "recordSetSizeInBytes", UNSET)
    if older is UNSET:
        raise ValueError("a partition has no `recordsSizeInBytes`")
    return cast("int | None", older)


def produce_charge(request: ProduceRequest, api_version: int, client_id: str | None) -> int:
    """Bytes recorded on ``producer_byte_rate`` for a produce request (``Request.sizeInBytes``).

    :raises ValueError: a partition has no record size.
    """
    size = _produce_head_size(api_version, client_id, request.transactionalId)
    topics = request.topicData
    if api_version < _PRODUCE_FLEXIBLE:
        for topic in topics:
            size += _string_size(topic.name, flexible=False) + 4
            for partition in topic.partitionData:
                size += 8 + (_records_size(partition) or 0)
        return size
    by_id = api_version >= _PRODUCE_TOPIC_IDS
    if len(topics) >= 0x7F:
        size += _uvarint_size(len(topics) + 1) - 1
    for topic in topics:
        partitions = topic.partitionData
        size += _TOPIC_BY_ID_SIZE if by_id else _compact_topic_size(topic.name)
        size += 1 if len(partitions) < 0x7F else _uvarint_size(len(partitions) + 1)
        for partition in partitions:
            records = partition.recordsSizeInBytes
            if records.__class__ is not int:
                records = _records_size(partition)
            # index, length and records, tag section
            size += 6 if records is None else 5 + _uvarint_size(records + 1) + records
    return size


@lru_cache(maxsize=64)
def _fetch_layout(api_version: int) -> tuple[int, int, bool, bool]:
    """Bytes of the fixed part of the body and of each partition; whether flexible; whether topics go by id."""
    flexible = api_version >= _FETCH_FLEXIBLE
    # The four, throttle time (v1+), error and session (v7+), tag section (flexible).
    body = 4 + (4 if api_version >= 1 else 0) + (6 if api_version >= 7 else 0) + (1 if flexible else 0)
    # Index, error, high watermark, last stable offset (v4+), log start (v5+), preferred replica (v11+), tags.
    partition = 14 + (8 if api_version >= 4 else 0) + (8 if api_version >= 5 else 0) + (4 if api_version >= 11 else 0)
    return body, partition + (1 if flexible else 0), flexible, api_version >= _FETCH_TOPIC_IDS


def fetch_charge(response: FetchResponse, api_version: int) -> int:
    """Bytes recorded on ``consumer_byte_rate`` for a fetch response, before a throttled one is taken back.

    :raises ValueError: a partition has no record size.
    """
    size, fixed, flexible, by_id = _fetch_layout(api_version)
    topics = response.responses
    if response.nodeEndpoints is not UNSET:
        endpoints = _endpoints_size(response.nodeEndpoints)
        size += 1 + _uvarint_size(endpoints) + endpoints
    if not flexible:
        return size + 4 + sum(_fetched_topic_size(topic, api_version, fixed) for topic in topics)
    size += 1 if len(topics) < 0x7F else _uvarint_size(len(topics) + 1)
    for topic in topics:
        partitions = topic.partitions
        if partitions is UNSET:
            partitions = _older_partitions(topic)
        size += _TOPIC_BY_ID_SIZE if by_id else _compact_topic_size(topic.topic)
        size += 1 if len(partitions) < 0x7F else _uvarint_size(len(partitions) + 1)
        for partition in partitions:
            records = partition.recordsSizeInBytes
            if records.__class__ is not int:
                records = _records_size(partition)
            size += fixed + (1 if records is None else _uvarint_size(records + 1) + records)
            aborted = partition.abortedTransactions
            size += 1 if not aborted else _uvarint_size(len(aborted) + 1) + 17 * len(aborted)
            if not (partition.divergingEpoch is partition.currentLeader is partition.snapshotId is UNSET):
                size += _partition_tags_size(partition)
    return size


def _fetched_topic_size(topic: FetchTopic, api_version: int, fixed: int) -> int:
    """A topic of an answer before the flexible versions."""
    partitions = topic.partitions
    if partitions is UNSET:
        partitions = _older_partitions(topic)
    size = _string_size(topic.topic, flexible=False) + 4
    for partition in partitions:
        size += fixed + 4 + (_records_size(partition) or 0)
        if api_version >= 4:
            size += 4 + 16 * len(partition.abortedTransactions or ())
    return size


def _older_partitions(topic: FetchTopic) -> list[FetchPartition]:
    if topic.partitionResponses is UNSET:
        raise ValueError("a topic has no `partitions`")
    return topic.partitionResponses


def _partition_tags_size(partition: FetchPartition) -> int:
    """Tagged fields of a fetched partition beyond the count byte: each is tag, size, fields and a tag section."""
    size = 0
    if partition.divergingEpoch is not UNSET:
        size += 2 + 4 + 8 + 1
    if partition.currentLeader is not UNSET:
        size += 2 + 4 + 4 + 1
    if partition.snapshotId is not UNSET:
        size += 2 + 8 + 4 + 1
    return size


def _endpoints_size(endpoints: list[NodeEndpoint]) -> int:
    """A compact array of node endpoints (KIP-951): id, host, port, rack, tag section each."""
    size = _uvarint_size(len(endpoints) + 1)
    for endpoint in endpoints:
        size += 4 + _string_size(endpoint.host, flexible=True) + 4 + _string_size(endpoint.rack, flexible=True) + 1
    return size


def share_fetch_charge(response: ShareFetchResponse, api_version: int) -> int:
    """Bytes recorded on ``consumer_byte_rate`` for a share fetch response (KIP-932).

    :raises ValueError: a partition has no record size.
    """
    topics = response.responses
    # The four, throttle time, error, message, lock timeout (v1+), topics, endpoints, tag section.
    size = 4 + 4 + 2 + _string_size(response.errorMessage, flexible=True) + (4 if api_version >= 1 else 0)
    size += _uvarint_size(len(topics) + 1) + _endpoints_size(response.nodeEndpoints) + 1
    for topic in topics:
        size += _UUID_BYTES + _uvarint_size(len(topic.partitions) + 1) + 1
        for partition in topic.partitions:
            records = _records_size(partition)
            acquired = len(partition.acquiredRecords)
            size += 4 + 2 + _string_size(partition.errorMessage, flexible=True)
            size += 2 + _string_size(partition.acknowledgeErrorMessage, flexible=True)
            size += 9  # leader id, leader epoch, tag section
            size += 1 if records is None else _uvarint_size(records + 1) + records
            size += _uvarint_size(acquired + 1) + 19 * acquired + 1
    return size
