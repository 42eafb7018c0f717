"""The cluster as callbacks are given it, and as traces and files write it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kquota.config import BrokerConfig
from kquota.errors import InputError
from kquota.metering.cluster import Cluster, Node, PartitionInfo
from kquota.metering.cluster_json import cluster_from_json, cluster_to_json
from kquota.metering.replay import Replay

NOW = 1_700_000_000_000
ONE, TWO, GONE = Node(1, "b1", 9092, "a"), Node(2, "b2", 9093), Node(7)
CLUSTER = Cluster(
    "prod",
    (ONE, TWO),
    (
        PartitionInfo("acme_orders", 0, ONE, (ONE, GONE), (ONE,), (GONE,)),
        PartitionInfo("acme_orders", 1, TWO, (TWO, ONE), (TWO, ONE)),
        PartitionInfo("other", 0, None, (GONE,), (), (GONE,)),
    ),
    TWO,
)


def test_what_kafkas_class_answers() -> None:
    """Under the same names."""
    assert list(CLUSTER.topics) == ["acme_orders", "other"]
    assert [one.partition for one in CLUSTER.partitions_for_topic("acme_orders")] == [0, 1]
    assert CLUSTER.partitions_for_topic("unknown") == ()
    assert CLUSTER.leader_for("acme_orders", 1) == TWO
    assert CLUSTER.leader_for("other", 0) is CLUSTER.leader_for("other", 1) is CLUSTER.leader_for("no", 0) is None
    assert CLUSTER.partitions_for_node(1) == [CLUSTER.partitions[0]]
    assert (CLUSTER.node_by_id(2), CLUSTER.node_by_id(7)) == (TWO, None)


def test_leaders_alone_make_a_cluster() -> None:
    leaders = Cluster.of_leaders("c", {("t", 0): 2, ("t", 1): None, ("u", 0): 1})
    assert leaders.nodes == [Node(1), Node(2)]
    assert [(one.topic, one.partition, one.leader) for one in leaders.partitions] == [
        ("t", 0, Node(2)),
        ("t", 1, None),
        ("u", 0, Node(1)),
    ]


def test_an_object_of_json_is_the_same_cluster() -> None:
    assert cluster_from_json(json.loads(json.dumps(cluster_to_json(CLUSTER)))) == CLUSTER
    assert cluster_from_json(cluster_to_json(Cluster())) == Cluster()


def test_nodes_may_be_left_out() -> None:
    """Then there are those that are named."""
    found = cluster_from_json(
        {"partitions": [{"topic": "t", "partition": 0, "leader": 3, "replicas": [3, 1], "in_sync_replicas": [3]}]}
    )
    assert found.nodes == (Node(1), Node(3))
    assert found.partitions == (PartitionInfo("t", 0, Node(3), (Node(3), Node(1)), (Node(3),)),)


LED = {"topic": "t", "partition": 0, "leader": 1}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"partitions": [{"topic": "t", "partition": 0}]}, "`leader`"),
        ({"partitions": [{**LED, "leader": "1"}]}, r"`\$\.partitions\[0\]\.leader`"),
        ({"partitions": [{**LED, "isr": [1]}]}, "unknown field `isr`"),
        ({"partitions": [LED, LED]}, "partition 0 of t is given twice"),
        ({"partitions": [LED], "nodes": [{"id": 2}]}, "node 1 leads partition 0 of t, and is not among the nodes"),
        ({"partitions": [], "topics": []}, "unknown field `topics`"),
    ],
)
def test_what_is_no_cluster_is_refused(fields: dict[str, Any], reason: str) -> None:
    """In a trace with the operation's number."""
    with pytest.raises(InputError, match=f"^this is no cluster: .*{reason}"):
        cluster_from_json(fields)
    with pytest.raises(InputError, match=f"^operation 1: this is no cluster: .*{reason}"):
        list(Replay(BrokerConfig()).answers([{"op": "cluster", **fields}]))


def test_limits_in_a_trace_follow_the_leaders() -> None:
    """KIP-257's example: the limit of a tenant on a broker is the share of the partitions that it leads there."""
    record = {"op": "record", "t_ms": NOW, "user": "acme_a", "client-id": "c", "key": "producer_byte_rate", "value": 1}

    def led_by(*leaders: int | None) -> dict[str, Any]:
        partitions = [
            {"topic": "acme_orders", "partition": number, "leader": leader} for number, leader in enumerate(leaders)
        ]
        return {"op": "cluster", "partitions": partitions}

    answers = Replay(BrokerConfig(), {"client.quota.callback.class": "partitions", "node.id": "1"}).answers(
        [
            {"op": "quota", "entity": {"user": "acme_"}, "key": "producer_byte_rate", "value": 800_000},
            record,
            led_by(1, 2, 2, 3),
            record,
            led_by(1, 1, 2, None),
            record,
            {"op": "callback", "class": "partitions", "configs": {"node.id": "3"}},
            record,
        ]
    )
    assert [answer["limit"] for answer in answers] == [800_000, 200_000, 400_000, 200_000]
