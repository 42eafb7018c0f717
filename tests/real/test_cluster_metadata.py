"""What a real cluster's metadata is to callbacks: topics come with their leaders, and go when they are deleted."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from examples.capture.broker import Broker
from kquota.admin import NewTopic, QuotaAdmin
from kquota.cli import run
from kquota.metering.cluster import PartitionInfo
from tests.kit.eventually import eventually
from tests.kit.kafka import VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_with_their_leaders(
    version: str, broker: Callable[[str], Broker], capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of its partitions is led by the only broker there is, which has all replicas."""
    address, name = broker(version).plaintext, "acme_cluster-metadata"
    with QuotaAdmin(address, timeout_ms=30_000) as admin:
        admin.topics.create_topics([NewTopic(name, num_partitions=3)]).all()

        def led() -> list[tuple[int, bool]]:
            return [(one.partition, one.leader is not None) for one in admin.cluster().partitions_for_topic(name)]

        eventually(lambda: sorted(led()), [(number, True) for number in range(3)])
        cluster = admin.cluster()
        [node] = cluster.nodes
        assert f"{node.host}:{node.port}" == address
        assert (cluster.cluster_id, cluster.controller) == (admin.cluster_id(), node)
        assert sorted(cluster.partitions_for_topic(name)) == [
            PartitionInfo(name, number, node, (node,), (node,), ()) for number in range(3)
        ]
        capfd.readouterr()
        assert run(["callback", "cluster", "--bootstrap-server", address]) == 0
        written = json.loads(capfd.readouterr().out)
        assert {"topic": name, "partition": 2, "leader": node.id} in [
            {field: one[field] for field in ("topic", "partition", "leader")} for one in written["partitions"]
        ]
        admin.topics.delete_topics([name]).all()
        eventually(lambda: name in admin.cluster().topics, expected=False)
