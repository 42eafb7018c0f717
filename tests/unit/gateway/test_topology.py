"""The ports that brokers have at the gateway, where there can be none."""

from __future__ import annotations

import pytest

from kquota.errors import InputError
from kquota.gateway.topology import NodePorts, Topology


def test_a_port_after_the_last_one_there_is_is_a_reason_and_no_crash() -> None:
    topology = Topology(
        NodePorts(65535), "127.0.0.1", "gateway", backlog=1, opened=lambda _node, _sockets: None, trouble=lambda _: None
    )
    topology.learn([(1, "b1", 9092)])
    [(node_id, reason)] = topology.refused
    assert node_id == 1
    assert "65536 is none" in reason
    assert topology.address_of(1, "b1", 9092) is None


@pytest.mark.parametrize("text", ["9193", "9193-929²", "9193-9292-9393", "0-9", "9193-65536", "9292-9193"])
def test_a_range_of_ports_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="`node_ports`"):
        NodePorts.parse(text)
