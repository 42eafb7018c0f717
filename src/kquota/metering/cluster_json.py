"""A cluster as an object of JSON: in traces, and in files beside recorded traffic.

    {"cluster_id": "prod", "nodes": [{"id": 1, "host": "b1", "port": 9092, "rack": "a"}],
     "partitions": [{"topic": "orders", "partition": 0, "leader": 1, "replicas": [1], "in_sync_replicas": [1]}]}

``leader`` is null where there is none. Only ``partitions`` are needed, each with topic, partition and leader; without
``nodes`` there are those that the partitions name.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, ValidationError, convert

from kquota.errors import InputError
from kquota.metering.cluster import Cluster, Node, PartitionInfo

__all__ = ["cluster_from_json", "cluster_to_json"]


class _Node(Struct, forbid_unknown_fields=True):
    id: int
    host: str = ""
    port: int = -1
    rack: str | None = None


class _Partition(Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    leader: int | None
    replicas: list[int] = []
    in_sync_replicas: list[int] = []
    offline_replicas: list[int] = []


class _Cluster(Struct, forbid_unknown_fields=True):
    partitions: list[_Partition]
    cluster_id: str = ""
    nodes: list[_Node] | None = None
    controller: int | None = None


def cluster_from_json(fields: object) -> Cluster:
    """The cluster that an object of JSON describes.

    :raises InputError: a field is missing, unknown or of another type, a partition is given twice, or its leader is not
        among the nodes that are given.
    """
    try:
        found = convert(fields, _Cluster)
    except ValidationError as error:
        raise InputError(f"this is no cluster: {error}") from None
    if found.nodes is None:
        named = {found.controller, *(one.leader for one in found.partitions)}
        for one in found.partitions:
            named.update(one.replicas, one.in_sync_replicas, one.offline_replicas)
        nodes = {node_id: Node(node_id) for node_id in sorted(one for one in named if one is not None)}
    else:
        nodes = {one.id: Node(one.id, one.host, one.port, one.rack) for one in found.nodes}
    seen: set[tuple[str, int]] = set()
    for one in found.partitions:
        if (one.topic, one.partition) in seen:
            raise InputError(f"this is no cluster: partition {one.partition} of {one.topic} is given twice")
        seen.add((one.topic, one.partition))
        if one.leader is not None and one.leader not in nodes:
            raise InputError(
                f"this is no cluster: node {one.leader} leads partition {one.partition} of {one.topic}, and is not "
                "among the nodes"
            )

    def nodes_of(ids: list[int]) -> tuple[Node, ...]:
        return tuple(nodes.get(node_id, Node(node_id)) for node_id in ids)

    return Cluster(
        found.cluster_id,
        tuple(nodes.values()),
        tuple(
            PartitionInfo(
                one.topic,
                one.partition,
                None if one.leader is None else nodes[one.leader],
                nodes_of(one.replicas),
                nodes_of(one.in_sync_replicas),
                nodes_of(one.offline_replicas),
            )
            for one in found.partitions
        ),
        None if found.controller is None else nodes.get(found.controller),
    )


def cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    """The object that :func:`cluster_from_json` reads."""
    return {
        "cluster_id": cluster.cluster_id,
        "controller": None if cluster.controller is None else cluster.controller.id,
        "nodes": [node._asdict() for node in cluster.nodes],
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "leader": None if one.leader is None else one.leader.id,
                "replicas": [node.id for node in one.replicas],
                "in_sync_replicas": [node.id for node in one.in_sync_replicas],
                "offline_replicas": [node.id for node in one.offline_replicas],
            }
            for one in cluster.partitions
        ],
    }
