"""The callbacks that come with kquota."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kquota.config import BrokerConfig
from kquota.errors import CallbackRefusedError
from kquota.metering.callback import Cluster, DefaultQuotaCallback
from kquota.metering.engine import QuotaManagers
from kquota.metering.groups import GROUPS_SETTING, GroupQuotaCallback
from kquota.metering.partitions import PartitionQuotaCallback
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
GROUPS = {"payments": {"users": ["alice", "pay-*"]}, "nightly": {"users": ["etl"], "client-ids": ["batch-[0-9]"]}}


def user(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity({"user": name})


def managers_of(callback: DefaultQuotaCallback, configs: Mapping[str, str]) -> QuotaManagers:
    managers = QuotaManagers(BrokerConfig())
    managers.swap_callback(callback, configs)
    return managers


def tags(managers: QuotaManagers, name: str, client_id: str = "c") -> dict[str, str]:
    meter = managers.produce.meter(name, client_id)
    assert meter is not None
    return {tag: value for tag, value in meter.tags.items() if value}


def test_members_of_a_group_share_its_limit() -> None:
    """The limit is a quota on a user of its own; who is in no group has Kafka's rules."""
    managers = managers_of(GroupQuotaCallback(), {GROUPS_SETTING: json.dumps(GROUPS)})
    managers.update_quota("producer_byte_rate", user("group:payments"), 1000)
    managers.update_quota("producer_byte_rate", user("bob"), 5)
    assert managers.produce.record("alice", "x", 6000, NOW) is None
    throttle = managers.produce.record("pay-2", "y", 6000, NOW)
    assert throttle is not None
    assert (throttle.value, throttle.limit, dict(throttle.tags)) == (1200.0, 1000, {"group": "payments"})
    assert tags(managers, "bob") == {"user": "bob"}
    assert tags(managers, "pay") == {"user": "pay"}
    managers.update_quota("producer_byte_rate", user("group:payments"), 2000)
    assert managers.produce.record("alice", "x", 0, NOW) is None


def test_a_group_of_pairs_needs_both() -> None:
    """And a group without a limit is none."""
    managers = managers_of(GroupQuotaCallback(), {GROUPS_SETTING: json.dumps(GROUPS)})
    managers.update_quota("producer_byte_rate", user("group:nightly"), 1000)
    assert tags(managers, "etl", "batch-7") == {"group": "nightly"}
    assert "group" not in tags(managers, "etl", "batch-77")
    assert "group" not in tags(managers, "alice", "batch-7")
    managers.update_quota("producer_byte_rate", user("group:nightly"), None)
    assert "group" not in tags(managers, "etl", "batch-7")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "write it as"),
        ('{"a": {}}', "users, client-ids or both"),
        ('{"a": {"topics": ["x"]}}', "users, client-ids or both"),
        ('{"a": {"users": "x"}}', r"a\.users: a list"),
        ('{"a": {"users": []}}', r"a\.users: a list"),
    ],
)
def test_groups_that_cannot_be_read_are_refused(text: str, reason: str) -> None:
    """And the callback before stays."""
    with pytest.raises(CallbackRefusedError, match=reason):
        managers_of(GroupQuotaCallback(), {GROUPS_SETTING: text})


def leaders(**topics: str) -> Cluster:
    """Of each topic the leaders, a digit for each partition, ``-`` for none."""
    return Cluster.of_leaders(
        "c",
        {
            (topic, number): None if leader == "-" else int(leader)
            for topic, digits in topics.items()
            for number, leader in enumerate(digits)
        },
    )


def test_a_tenants_limit_is_split_by_its_leaders() -> None:
    """CustomQuotaCallbackTest: one of a hundred partitions is a hundredth, and it follows the leaders."""
    managers = managers_of(PartitionQuotaCallback(), {"node.id": "1"})
    managers.update_quota("producer_byte_rate", user("acme_"), 800_000)
    managers.update_quota("request_percentage", user("acme_"), 50)
    managers.update_quota("controller_mutation_rate", user("acme_"), 10)
    assert managers.produce.limit("acme_alice", "c") == 800_000
    managers.update_cluster_metadata(leaders(acme_orders="1"))
    assert managers.produce.limit("acme_alice", "c") == 800_000
    assert managers.produce.record("acme_alice", "c", 100_000, NOW) is None
    managers.update_cluster_metadata(leaders(acme_orders="1" + "2" * 99, other_topic="1"))
    throttle = managers.produce.record("acme_bob", "d", 0, NOW)
    assert throttle is not None
    assert (throttle.limit, dict(throttle.tags)) == (8000, {"tenant": "acme"})
    assert managers.request.limit("acme_alice", "c") == 50
    assert managers.controller_mutation.limit("acme_alice", "c") == 10
    managers.update_cluster_metadata(leaders(acme_orders="22-2"))
    assert managers.produce.limit("acme_alice", "c") == 200_000
    managers.update_cluster_metadata(leaders())
    assert managers.produce.limit("acme_alice", "c") == 800_000


def test_tenants_without_a_limit_have_the_default_one() -> None:
    """Set on the separator alone; others have Kafka's rules."""
    managers = managers_of(PartitionQuotaCallback(), {"broker.id": "1", "kquota.tenant.separator": "::"})
    managers.update_quota("producer_byte_rate", user("::"), 1000)
    managers.update_quota("producer_byte_rate", user("plain_user"), 5)
    managers.update_cluster_metadata(leaders(**{"a::x": "12"}))
    assert managers.produce.limit("a::u", "c") == 500
    assert managers.produce.limit("plain_user", "c") == 5
    assert managers.produce.limit("::u", "c") is None


@pytest.mark.parametrize(
    ("configs", "reason"),
    [({}, "number of this broker"), ({"node.id": "x"}, "'x'"), ({"kquota.tenant.separator": ""}, "is empty")],
)
def test_settings_that_cannot_be_used_are_refused(configs: dict[str, str], reason: str) -> None:
    with pytest.raises(CallbackRefusedError, match=reason):
        managers_of(PartitionQuotaCallback(), configs)
