"""Metadata (3), versions 9 to 13: the brokers, their addresses, and the topics."""

from typing import Annotated

from msgspec import Struct

from kquota.wire.schema import Boolean, Int16, Int32, String, Uuid, Versions

__all__ = [
    "MetadataBroker",
    "MetadataPartition",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataTopic",
]

NO_UUID = bytes(16)
UNKNOWN_OPERATIONS = -(2**31)


class MetadataRequestTopic(Struct, frozen=True, gc=False):
    """A topic that is asked for, by name or id."""

    topic_id: Annotated[Uuid, Versions(since=10)] = NO_UUID
    name: Annotated[String | None, Versions(nullable_since=10)] = None


class MetadataRequest(Struct, frozen=True, gc=False):
    """Null topics are all topics, none are none."""

    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: Boolean = False
    include_cluster_authorized_operations: Annotated[Boolean, Versions(until=10)] = False
    include_topic_authorized_operations: Boolean = False


class MetadataBroker(Struct, frozen=True, gc=False):
    """Where a broker can be reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


class MetadataPartition(Struct, frozen=True, gc=False):
    """Who leads a partition."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32]


class MetadataTopic(Struct, frozen=True, gc=False):
    """A topic, or why it is not there."""

    error_code: Int16
    name: Annotated[String | None, Versions(nullable_since=12)]
    topic_id: Annotated[Uuid, Versions(since=10)] = NO_UUID
    is_internal: Boolean = False
    partitions: list[MetadataPartition] = []
    topic_authorized_operations: Int32 = UNKNOWN_OPERATIONS


class MetadataResponse(Struct, frozen=True, gc=False):
    """What a client needs to know to reach everything."""

    throttle_time_ms: Int32
    brokers: list[MetadataBroker]
    cluster_id: String | None
    controller_id: Int32
    topics: list[MetadataTopic]
    cluster_authorized_operations: Annotated[Int32, Versions(until=10)] = UNKNOWN_OPERATIONS
    error_code: Annotated[Int16, Versions(since=13)] = 0
