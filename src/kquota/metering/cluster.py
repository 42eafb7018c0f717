"""What a broker knows of its cluster: nodes, and partitions with their leaders and replicas.

Source: ``org.apache.kafka.common.Cluster``, of it what a broker fills for callbacks; ``Node``, ``PartitionInfo``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

__all__ = ["Cluster", "Node", "PartitionInfo"]


class Node(NamedTuple):
    """A broker. One that is a replica, and not there now, has an id alone."""

    id: int
    host: str = ""
    port: int = -1
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """A partition, who leads it, and who has it."""

    topic: str
    partition: int
    leader: Node | None
    """None while it has none."""
    replicas: Sequence[Node] = ()
    """The preferred leader first."""
    in_sync_replicas: Sequence[Node] = ()
    offline_replicas: Sequence[Node] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The metadata of a cluster. Topics that are being deleted are not in it."""

    cluster_id: str = ""
    nodes: Sequence[Node] = ()
    partitions: Sequence[PartitionInfo] = ()
    controller: Node | None = None
    _by_topic: Mapping[str, Sequence[PartitionInfo]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_topic: dict[str, list[PartitionInfo]] = {}
        for one in self.partitions:
            by_topic.setdefault(one.topic, []).append(one)
        object.__setattr__(self, "_by_topic", by_topic)

    @classmethod
    def of_leaders(cls, cluster_id: str, leaders: Mapping[tuple[str, int], int | None]) -> Self:
        """One of which no more is known than which node, by id, leads which partition."""
        ids = sorted({leader for leader in leaders.values() if leader is not None})
        return cls(
            cluster_id,
            [Node(leader) for leader in ids],
            [
                PartitionInfo(topic, partition, None if leader is None else Node(leader))
                for (topic, partition), leader in leaders.items()
            ],
        )

    @property
    def topics(self) -> Iterable[str]:
        """The names of the topics that have partitions here."""
        return self._by_topic.keys()

    def node_by_id(self, node_id: int) -> Node | None:
        """The node, if it is there."""
        return next((node for node in self.nodes if node.id == node_id), None)

    def partitions_for_topic(self, topic: str) -> Sequence[PartitionInfo]:
        """Those of a topic; none if it is not known."""
        return self._by_topic.get(topic, ())

    def leader_for(self, topic: str, partition: int) -> Node | None:
        """Who leads a partition; None where nobody does, and for one that is not known."""
        return next((one.leader for one in self.partitions_for_topic(topic) if one.partition == partition), None)

    def partitions_for_node(self, node_id: int) -> Sequence[PartitionInfo]:
        """Those that a node leads."""
        return [one for one in self.partitions if one.leader is not None and one.leader.id == node_id]
