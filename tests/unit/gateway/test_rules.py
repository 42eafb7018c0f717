"""Throttles are counted by the rule that limits, as they are decided, and in shadow mode as well."""

from __future__ import annotations

import pytest

from kquota.config import BrokerConfig
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.gateway.quotas.enforcement import Client
from kquota.gateway.quotas.request_time import RequestTimes
from kquota.gateway.quotas.rules import ThrottleCounts
from kquota.quotas import ClientQuotaEntity
from tests.kit.charged import fetched, produced

NOW = 1_700_000_000_000
ALICE = Client("alice", "etl")
Counted = dict[tuple[str, str | None], tuple[int, int]]


def quotas_of(*quotas: tuple[str, dict[str, str | None], float], is_shadow: bool = False) -> BrokerQuotas:
    found = BrokerQuotas(BrokerConfig(), is_shadow=is_shadow)
    found.apply([(key, ClientQuotaEntity(on), value) for key, on, value in quotas])
    return found


def counted(throttles: ThrottleCounts) -> Counted:
    return {(quota_type, rule): (one.requests, one.throttle_ms) for quota_type, rule, one in throttles}


@pytest.mark.parametrize("is_shadow", [False, True])
def test_each_kind_of_throttle_is_counted_under_its_rule(is_shadow: bool) -> None:
    quotas = quotas_of(
        ("producer_byte_rate", {"user": "alice"}, 1000),
        ("consumer_byte_rate", {"user": None}, 1000),
        ("controller_mutation_rate", {"client-id": None}, 1),
        ("connection_creation_rate", {"ip": None}, 1),
        is_shadow=is_shadow,
    )
    one = quotas.of(1)
    throttle = produced(one, ALICE, 20_000, NOW)
    fetch_ms = fetched(one, ALICE, 30_000, NOW)
    controller = quotas.controller
    mutations = controller.requests.mutate(*ALICE, [30.0], NOW, strict=False)
    mutation_ms = controller.complete_mutation(ALICE, mutations.throttle, NOW)
    delays = [one.accept("PLAINTEXT", "10.0.0.7", NOW) for _ in range(30)]
    found = counted(quotas.throttles)
    assert {key: requests for key, (requests, _) in found.items() if key[0] != "Connection"} == {
        ("Produce", "user=alice"): 1,
        ("Fetch", "user=<default>"): 1,
        ("ControllerMutation", "client-id=<default>"): 1,
    }
    assert all(throttle_ms > 0 for _, throttle_ms in found.values())
    assert found["Connection", "ip=<default>"][0] > 0
    if is_shadow:
        assert (throttle, fetch_ms, mutation_ms, set(delays)) == (None, 0, 0, {None})
        assert len(one.managers.produce.delays) == 0
    else:
        assert throttle is not None
        assert found["Produce", "user=alice"][1] == throttle.throttle_ms
        assert found["Fetch", "user=<default>"][1] == fetch_ms
        assert len(one.managers.produce.delays) == 1


def test_in_shadow_mode_a_produce_counts_where_time_is_estimated_too() -> None:
    """There the answer would decide; in shadow mode nothing of it is left for the answer."""
    quotas = BrokerQuotas(BrokerConfig(), request_times=RequestTimes(), is_shadow=True)
    quotas.apply([("producer_byte_rate", ClientQuotaEntity({"user": "alice"}), 1000.0)])
    assert produced(quotas.of(1), ALICE, 20_000, NOW) is None
    assert list(counted(quotas.throttles)) == [("Produce", "user=alice")]


def test_in_shadow_mode_topics_that_would_be_refused_are_not_charged() -> None:
    charged = []
    for is_shadow in (False, True):
        quotas = quotas_of(("controller_mutation_rate", {"user": "alice"}, 1), is_shadow=is_shadow)
        found = quotas.controller.requests.mutate(*ALICE, [30.0, 5.0, 7.0], NOW, strict=True)
        [meter] = quotas.controller.managers.controller_mutation.meters()
        charged.append((found.accepted, meter.measure(NOW)))
    assert charged[0] == charged[1]
    assert charged[0][0] == (True, False, False)


def test_nobody_who_is_within_the_limit_is_counted() -> None:
    quotas = quotas_of(("producer_byte_rate", {"user": None}, 1000))
    produced(quotas.of(1), ALICE, 100, NOW)
    assert counted(quotas.throttles) == {}


def test_another_rule_with_the_same_limit_counts_from_its_change_on() -> None:
    quotas = quotas_of(("producer_byte_rate", {"user": None}, 1000))
    produced(quotas.of(1), ALICE, 20_000, NOW)
    quotas.apply([("producer_byte_rate", ClientQuotaEntity({"user": "alice"}), 1000.0)])
    produced(quotas.of(1), ALICE, 20_000, NOW)
    assert list(counted(quotas.throttles)) == [("Produce", "user=<default>"), ("Produce", "user=alice")]


def test_all_brokers_count_together() -> None:
    quotas = quotas_of(("producer_byte_rate", {"user": "alice"}, 1000))
    for node_id in (1, 2):
        produced(quotas.of(node_id), ALICE, 20_000, NOW)
    assert counted(quotas.throttles)["Produce", "user=alice"][0] == 2


def test_rules_beyond_the_most_are_counted_together_and_no_count_ever_falls() -> None:
    throttles = ThrottleCounts(most_rules=2)
    for rule in ("a", "b", "c", "d", "a", "c"):
        throttles.note("Produce", rule, 10)
    throttles.note("Fetch", "c", 5)
    assert counted(throttles) == {
        ("Produce", "a"): (2, 20),
        ("Produce", "b"): (1, 10),
        ("Produce", None): (3, 30),
        ("Fetch", "c"): (1, 5),
    }
