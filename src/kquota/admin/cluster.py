"""What a Metadata answer says of a cluster, as quota callbacks are given it (KIP-257).

Source: ``MetadataResponse.buildCluster``, ``MetadataResponse.toPartitionInfo``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kquota.metering.cluster import Cluster, Node, PartitionInfo
from kquota.wire.messages.metadata import MetadataPartition, MetadataResponse

__all__ = ["cluster_of"]


def cluster_of(answer: MetadataResponse) -> Cluster:
    """The nodes and partitions of a Metadata answer.

    Topics with an error are left out: unknown ones, those that are being deleted, those that the client may not see. A
    partition with an error stays, for its topic is there; it has a leader if the answer names one that is a node.
    """
    nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in answer.brokers}
    return Cluster(
        answer.cluster_id or "",
        tuple(nodes.values()),
        tuple(
            _partition(topic.name, partition, nodes)
            for topic in answer.topics
            if not topic.error_code and topic.name is not None
            for partition in topic.partitions
        ),
        nodes.get(answer.controller_id),
    )


def _partition(topic: str, partition: MetadataPartition, nodes: Mapping[int, Node]) -> PartitionInfo:
    def nodes_of(ids: Iterable[int]) -> tuple[Node, ...]:
        return tuple(nodes.get(node_id, Node(node_id)) for node_id in ids)

    return PartitionInfo(
        topic,
        partition.partition_index,
        nodes.get(partition.leader_id),
        nodes_of(partition.replica_nodes),
        nodes_of(partition.isr_nodes),
        nodes_of(partition.offline_replicas),
    )
