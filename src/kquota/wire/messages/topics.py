"""CreateTopics (19), DeleteTopics (20) and CreatePartitions (37), in all versions.

Kafka 4 speaks CreateTopics from version 2 on and DeleteTopics from 1 on (KIP-896), and so does our client; the versions
before can be read and written, as brokers and clients up to 3.9 speak them.
"""

from typing import Annotated

from msgspec import Struct

from kquota.wire.schema import Boolean, Int8, Int16, Int32, String, Uuid, Versions

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
]

NO_UUID = bytes(16)
UNKNOWN = -1


class CreatableReplicaAssignment(Struct, frozen=True, gc=False):
    """The brokers of one partition."""

    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct, frozen=True, gc=False):
    """A setting that a new topic is to have."""

    name: String
    value: String | None


class CreatableTopic(Struct, frozen=True, gc=False):
    """A new topic. -1 partitions or replicas leave the number to the brokers, or to the assignments."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Struct, frozen=True, gc=False):
    """Topics to be created."""

    topics: list[CreatableTopic]
    timeout_ms: Int32
    validate_only: Annotated[Boolean, Versions(since=1)] = False


class CreatableTopicConfigs(Struct, frozen=True, gc=False):
    """A setting that a new topic has."""

    name: String
    value: String | None
    read_only: Boolean
    config_source: Int8
    is_sensitive: Boolean


class CreatableTopicResult(Struct, frozen=True, gc=False):
    """How it went for one topic. What a client may not see, or an old version does not have, is -1 or null."""

    name: String
    topic_id: Annotated[Uuid, Versions(since=7)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, Versions(since=1)] = None
    num_partitions: Annotated[Int32, Versions(since=5)] = UNKNOWN
    replication_factor: Annotated[Int16, Versions(since=5)] = UNKNOWN
    configs: Annotated[list[CreatableTopicConfigs] | None, Versions(since=5)] = None


class CreateTopicsResponse(Struct, frozen=True, gc=False):
    """One result per topic."""

    throttle_time_ms: Annotated[Int32, Versions(since=2)] = 0
    topics: list[CreatableTopicResult] = []


class DeleteTopicState(Struct, frozen=True, gc=False):
    """A topic to be deleted, by name or id."""

    name: String | None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(Struct, frozen=True, gc=False):
    """Topics to be deleted: `topics` since version 6, `topic_names` before."""

    topics: Annotated[list[DeleteTopicState], Versions(since=6)] = []
    topic_names: Annotated[list[String], Versions(until=5)] = []
    timeout_ms: Int32 = 60_000


class DeletableTopicResult(Struct, frozen=True, gc=False):
    """How it went for one topic."""

    name: Annotated[String | None, Versions(nullable_since=6)]
    topic_id: Annotated[Uuid, Versions(since=6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, Versions(since=5)] = None


class DeleteTopicsResponse(Struct, frozen=True, gc=False):
    """One result per topic."""

    throttle_time_ms: Annotated[Int32, Versions(since=1)] = 0
    responses: list[DeletableTopicResult] = []


class CreatePartitionsAssignment(Struct, frozen=True, gc=False):
    """The brokers of one partition that is added."""

    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct, frozen=True, gc=False):
    """A topic, and how many partitions it is to have in all. Null assignments leave the places to the brokers."""

    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(Struct, frozen=True, gc=False):
    """Topics that are to have more partitions."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Boolean


class CreatePartitionsTopicResult(Struct, frozen=True, gc=False):
    """How it went for one topic."""

    name: String
    error_code: Int16
    error_message: String | None


class CreatePartitionsResponse(Struct, frozen=True, gc=False):
    """One result per topic."""

    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]
