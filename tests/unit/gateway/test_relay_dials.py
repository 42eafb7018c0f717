"""Which broker a client is connected to, where some of them cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from kquota.errors import KquotaError
from kquota.gateway.relay.broker_connection import BrokerConnection
from kquota.gateway.relay.relay import CONNECT_S
from tests.kit.relayed import End, Relayed
from tests.kit.virtual_loop import run_virtually

REACHED: Final = 0.0
HANGS: Final = 1e6
REFUSED: Final = -1.0


class Dialled:
    """A client's way to the brokers, each of which answers after a time, or refuses; all are elsewhere."""

    def __init__(self, relayed: Relayed, brokers: Mapping[int, float]) -> None:
        self.relayed = relayed
        self.answers_after_s = {f"b{one}": after_s for one, after_s in brokers.items()}
        self.tried: list[str] = []
        relayed.topology.learn([(one, f"b{one}", 9092) for one in brokers])
        loop: Any = asyncio.get_running_loop()
        loop.create_connection = self.create_connection

    async def create_connection(
        self, factory: Callable[[], BrokerConnection], host: str, _port: int, **_: Any
    ) -> tuple[End, BrokerConnection]:
        self.tried.append(host)
        after_s = self.answers_after_s[host]
        if after_s == REFUSED:
            raise ConnectionRefusedError("refused")
        await asyncio.sleep(after_s)
        transport, protocol = End(), factory()
        protocol.connection_made(transport)
        return transport, protocol

    async def dial(self, node_id: int | None) -> str:
        """The broker that was reached."""
        await self.relayed.relay.dial(self.relayed.client, node_id)
        assert self.relayed.client.enforcement is self.relayed.quotas.of(int(self.tried[-1][1:]))
        return self.tried[-1]


def dialled(
    brokers: Mapping[int, float], node_id: int | None = None, times: int = 1
) -> tuple[list[str], Dialled, float]:
    async def work() -> tuple[list[str], Dialled, float]:
        loop = asyncio.get_running_loop()
        one, begun = Dialled(Relayed(), brokers), loop.time()
        return [await one.dial(node_id) for _ in range(times)], one, loop.time() - begun

    return run_virtually(work())


def test_brokers_take_turns_for_clients_that_know_none_yet() -> None:
    found, _, _ = dialled({1: REACHED, 2: REACHED, 3: REACHED}, times=6)
    assert sorted(found[:3]) == ["b1", "b2", "b3"]
    assert found[3:] == found[:3]


@pytest.mark.parametrize("trouble", [HANGS, REFUSED])
def test_a_broker_that_cannot_be_reached_costs_those_clients_a_moment_and_not_their_connection(trouble: float) -> None:
    found, one, took_s = dialled({1: REACHED, 2: trouble, 3: trouble}, times=3)
    assert found == ["b1"] * 3
    assert set(one.relayed.relay.stats.failed_dials) == {2, 3}
    assert took_s < 3 * CONNECT_S


def test_all_tries_together_take_no_longer_than_one() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        one, begun = Dialled(Relayed(), dict.fromkeys(range(20), HANGS)), loop.time()
        with pytest.raises(KquotaError, match="did not answer"):
            await one.dial(None)
        assert loop.time() - begun == pytest.approx(CONNECT_S)
        assert one.relayed.relay.stats.failed_dials.total() == len(one.tried) == len(set(one.tried)) >= 5

    run_virtually(work())


def test_the_port_of_a_broker_leads_to_that_broker_alone() -> None:
    async def work() -> None:
        one = Dialled(Relayed(), {1: REACHED, 2: REFUSED})
        with pytest.raises(KquotaError, match="broker 2 at b2:9092 cannot be reached: refused"):
            await one.dial(2)
        assert one.tried == ["b2"]

    run_virtually(work())


def test_without_a_broker_there_is_a_reason() -> None:
    with pytest.raises(KquotaError, match="no broker is known"):
        dialled({})
