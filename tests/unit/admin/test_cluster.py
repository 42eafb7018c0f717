"""A cluster made from a Metadata answer: as Kafka's client makes one, and as another implementation reads it."""

from __future__ import annotations

import asyncio
from typing import Any

import kafka.cluster
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kquota.admin import AsyncQuotaAdmin, QuotaAdmin
from kquota.admin.cluster import cluster_of
from kquota.errors import ApiFailedError, KafkaErrorCode
from kquota.metering.cluster import Cluster, Node, PartitionInfo
from kquota.wire.apis import METADATA
from kquota.wire.messages.metadata import MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic
from tests.kit.wire_values import kafka_python_class

NO_LEADER = -1
LEADER_NOT_AVAILABLE = 5
ONE, TWO = Node(1, "b1", 9092, "a"), Node(2, "b2", 9093)


def answer_of(*topics: MetadataTopic) -> MetadataResponse:
    brokers = [MetadataBroker(1, "b1", 9092, "a"), MetadataBroker(2, "b2", 9093)]
    return MetadataResponse(0, brokers, "prod", 2, list(topics))


def partition(index: int, leader: int, *, error: int = 0, replicas: tuple[int, ...] = ()) -> MetadataPartition:
    in_sync, offline = ([one for one in replicas if (one < 3) is is_there] for is_there in (True, False))
    return MetadataPartition(error, index, leader, 0, list(replicas), in_sync, offline)


ANSWER = answer_of(
    MetadataTopic(0, "orders", partitions=[partition(0, 1, replicas=(1, 7)), partition(1, 2, replicas=(2, 1))]),
    MetadataTopic(0, "headless", partitions=[partition(0, NO_LEADER, error=LEADER_NOT_AVAILABLE, replicas=(7,))]),
    MetadataTopic(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "being-deleted", partitions=[partition(0, 1)]),
    MetadataTopic(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, "secret"),
    MetadataTopic(KafkaErrorCode.UNKNOWN_TOPIC_ID, None),
)


def test_nodes_leaders_and_replicas() -> None:
    """A replica that is not there is a node without an address; topics with an error are left out."""
    gone = Node(7)
    assert cluster_of(ANSWER) == Cluster(
        "prod",
        (ONE, TWO),
        (
            PartitionInfo("orders", 0, ONE, (ONE, gone), (ONE,), (gone,)),
            PartitionInfo("orders", 1, TWO, (TWO, ONE), (TWO, ONE), ()),
            PartitionInfo("headless", 0, None, (gone,), (), (gone,)),
        ),
        TWO,
    )
    assert cluster_of(MetadataResponse(0, [], None, -1, [])) == Cluster("", (), (), None)


TOPICS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.tuples(st.sampled_from([0, 0, 3]), st.lists(st.sampled_from([-1, 1, 2, 7])))
)


@given(TOPICS)
def test_kafka_python_makes_the_same_of_the_bytes(topics: dict[str, tuple[int, list[int]]]) -> None:
    """What is on the wire has the topics, and the leaders that are known, where both look."""
    answer = answer_of(
        *(
            MetadataTopic(error, name, partitions=[partition(n, leader) for n, leader in enumerate(leaders)])
            for name, (error, leaders) in topics.items()
        )
    )
    codec: Any = METADATA.response_codec(9)
    written = codec.write(answer)
    ours = cluster_of(codec.read(written, 0)[0])
    theirs = kafka.cluster.ClusterMetadata()
    theirs.update_metadata(kafka_python_class(METADATA, "Response").decode(written, version=9))
    assert {(node.id, node.host, node.port, node.rack) for node in ours.nodes} == {
        (one.node_id, one.host, one.port, one.rack) for one in theirs.brokers()
    }
    for name, (error, _) in topics.items():
        known = theirs.partitions_for_topic(name) if not error else None
        assert {one.partition for one in ours.partitions_for_topic(name)} == (known or set())
        for number in known or ():
            leader = ours.leader_for(name, number)
            there = theirs.leader_for_partition(kafka.TopicPartition(name, number))
            # kafka-python also gives the id of a leader that is no node.
            assert there in ((-1, 7, None) if leader is None else (leader.id,))


class OneAnswer:
    """A transport to a cluster that is asked for all its topics."""

    def __init__(self, answer: MetadataResponse) -> None:
        self.answer = answer

    async def send(self, api: Any, body: Any, **_: Any) -> MetadataResponse:
        assert api is METADATA
        assert body.topics is None
        assert not body.allow_auto_topic_creation
        return self.answer

    async def close(self) -> None:
        return


def test_a_cluster_is_asked_for_all_topics() -> None:
    transport: Any = OneAnswer(ANSWER)
    with QuotaAdmin(transport=transport) as admin:
        assert admin.cluster() == cluster_of(ANSWER)
    assert asyncio.run(AsyncQuotaAdmin(transport=transport).cluster()) == cluster_of(ANSWER)


def test_an_answer_that_is_an_error_is_no_cluster() -> None:
    """Since version 13 a broker may answer that this is not the cluster it was."""
    transport: Any = OneAnswer(structs.replace(answer_of(), error_code=129))
    with QuotaAdmin(transport=transport) as admin, pytest.raises(ApiFailedError):
        admin.cluster()
