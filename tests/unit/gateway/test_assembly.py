"""What a gateway is assembled from."""

from __future__ import annotations

import asyncio

import pytest

from kquota.admin.properties import load_client_properties
from kquota.config import BrokerConfig
from kquota.gateway.assembly import (
    RECONNECT_BACKOFF_MAX_MS,
    _admin_settings,
    _by_turns,
    _in_force,
)
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.quotas import ClientQuotaEntity


def test_the_gateway_tries_again_soon_to_reach_a_broker() -> None:
    """However long it was away: with the 30 s of a client, quotas would stay old for as long after it is back."""
    settings = _admin_settings(load_client_properties(None))
    assert settings["reconnect_backoff_max_ms"] == RECONNECT_BACKOFF_MAX_MS <= 1_000
    assert settings["client_id"] == "kquota-gateway"


def test_the_loop_turns_while_changes_are_put_in_force() -> None:
    """At most one broker in each turn, and what changes meanwhile comes after it; one that fails delays no other."""

    async def in_force_by_turns() -> list[list[float | None]]:
        quotas = BrokerQuotas(BrokerConfig())
        brokers = [quotas.of(node_id).managers.fetch for node_id in (1, 2, 3)]
        apply = _by_turns(quotas)
        alice = ClientQuotaEntity({"user": "alice"})
        apply([("consumer_byte_rate", alice, 1.0)])
        apply([("no such key", alice, 1.0)])
        apply([("consumer_byte_rate", alice, 2.0)])
        found = []
        while quotas.is_behind:
            found.append([one.limit("alice", "c") for one in brokers])
            await asyncio.sleep(0)
        return [*found, [one.limit("alice", "c") for one in brokers]]

    failures = []

    async def main() -> list[list[float | None]]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        return await in_force_by_turns()

    one, two = 1.0, 2.0
    assert asyncio.run(main()) == [
        [one, None, None],
        [one, one, None],
        *[[one, one, one]] * 4,
        [two, one, one],
        [two, two, one],
        [two, two, two],
    ]
    assert [type(error) for error in failures] == [KeyError] * 3


class Feed:
    def __init__(self, *, is_caught_up: bool) -> None:
        self.is_caught_up = is_caught_up

    def catch_up(self, timeout_ms: float) -> bool:
        assert timeout_ms in (1, 60_000)
        return self.is_caught_up


@pytest.mark.parametrize("is_caught_up", [True, False])
def test_who_altered_quotas_waits_until_they_are_in_force_at_every_broker(is_caught_up: bool) -> None:
    async def work() -> None:
        quotas = BrokerQuotas(BrokerConfig())
        brokers = [quotas.of(node_id).managers.fetch for node_id in (1, 2, 3)]
        alice = ClientQuotaEntity({"user": "alice"})
        _by_turns(quotas)([("consumer_byte_rate", alice, 1.0)])
        assert quotas.is_behind
        assert await _in_force(Feed(is_caught_up=is_caught_up), quotas, 60_000) is is_caught_up
        assert [one.limit("alice", "c") for one in brokers] == [1.0] * 3

    asyncio.run(work())


def test_nobody_waits_for_longer_where_changes_never_end() -> None:
    async def work() -> None:
        quotas = BrokerQuotas(BrokerConfig())
        quotas.of(1)
        quotas.queue([("consumer_byte_rate", ClientQuotaEntity({"user": "alice"}), 1.0)])
        assert await _in_force(Feed(is_caught_up=True), quotas, 1) is False

    asyncio.run(work())
