"""Metrics by Kafka's names, and the limits beside them. Their values are compared with Kafka's own in tests/real."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from kquota.config import BrokerConfig
from kquota.metering.callback import CallbackQuotaEntity, ClientQuotaCallback, ClientQuotaType, DefaultQuotaCallback
from kquota.metering.engine import QuotaManagers
from kquota.metering.groups import GROUPS_SETTING, GroupQuotaCallback
from kquota.metering.guard import CallbackGuard
from kquota.metering.metrics import Limit, Metric, read_limits, read_metrics
from kquota.metering.partitions import PartitionQuotaCallback
from kquota.metering.requests import RequestQuotas
from kquota.quotas import ClientQuotaEntity
from tests.kit.mutations import charge_mutation

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
PRODUCE, FETCH, REQUEST, MUTATION = (one.key for one in ClientQuotaType)


def entity(**parts: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity({name.replace("_", "-"): value for name, value in parts.items()})


def managers_of(*quotas: tuple[str, ClientQuotaEntity, float], **settings: int) -> QuotaManagers:
    managers = QuotaManagers(BrokerConfig(**settings))
    for key, on, value in quotas:
        managers.update_quota(key, on, value)
    return managers


def metrics(managers: QuotaManagers, now_ms: int = NOW) -> dict[tuple[str, str], Metric]:
    """By MBean and attribute."""
    found = list(read_metrics(managers, now_ms))
    by_name = {(one.object_name, one.name): one for one in found}
    assert len(by_name) == len(found)
    return by_name


def with_client_tags(managers: QuotaManagers, now_ms: int = NOW) -> set[tuple[str, str]]:
    """MBean and attribute of those that have tags."""
    return {name for name, one in metrics(managers, now_ms).items() if one.tags}


def test_a_broker_without_traffic_has_its_own() -> None:
    """What belongs to no client is always there."""
    assert {name: one.value for name, one in metrics(managers_of()).items()} == {
        ("kafka.server:type=Produce", "queue-size"): 0,
        ("kafka.server:type=Fetch", "queue-size"): 0,
        ("kafka.server:type=Request", "queue-size"): 0,
        ("kafka.server:type=ControllerMutation", "queue-size"): 0,
        ("kafka.server:type=Request", "exempt-request-time"): 0,
        ("kafka.server:type=socket-server-metrics", "broker-connection-accept-rate"): 0,
    }


def test_a_client_has_its_rate_and_its_throttle_time() -> None:
    alice = entity(user="alice", client_id="etl")
    found = managers_of((PRODUCE, alice, 1000), (FETCH, alice, 1000), (REQUEST, alice, 10), (MUTATION, alice, 2))
    requests = RequestQuotas(found)
    assert requests.produce("alice", "etl", 20_000, 5.0, NOW).throttle_ms == 10_000
    assert requests.fetch("alice", "etl", 500, 5.0, NOW).throttle_ms == 0
    charge_mutation(found.controller_mutation, "alice", "etl", 6, NOW, strict=False)
    found.request.record_exempt(30.0, NOW)
    shown = metrics(found)
    values = {
        (name.removeprefix("kafka.server:type="), attribute): one.value for (name, attribute), one in shown.items()
    }
    produce, fetch, request, mutation = (
        f"{one}{',user=alice,client-id=etl'}" for one in ("Produce", "Fetch", "Request", "ControllerMutation")
    )
    assert values[produce, "byte-rate"] == 2000
    assert values[produce, "throttle-time"] == 10_000
    assert values[fetch, "byte-rate"] == 50
    assert math.isnan(values[fetch, "throttle-time"])
    assert values[request, "request-time"] == 1
    assert values[mutation, "tokens"] == 22 - 6
    assert values[mutation, "mutation-rate"] == pytest.approx(6 / 30)
    assert values["Request", "exempt-request-time"] == 1
    assert sum(bool(one.tags) for one in shown.values()) == 4 + 5


def test_the_user_is_encoded_and_the_client_id_is_quoted() -> None:
    found = managers_of((PRODUCE, entity(user=None, client_id=None), 10))
    found.produce.record("O=A client,CN=*", 'a*"b', 1, NOW)
    shown = metrics(found)
    name = r'kafka.server:type=Produce,user=O%3DA%20client%2CCN%3D%2A,client-id="a\*\"b"'
    assert {one.sensor for (mbean, _), one in shown.items() if mbean == name} == {
        'Produce-O%3DA%20client%2CCN%3D%2A:a*"b',
        'ProduceThrottleTime-O%3DA%20client%2CCN%3D%2A:a*"b',
    }


def test_an_empty_tag_is_left_out_of_the_mbean() -> None:
    found = managers_of((PRODUCE, entity(client_id="etl"), 10))
    found.produce.record("alice", "etl", 1, NOW)
    metric = metrics(found)["kafka.server:type=Produce,client-id=etl", "byte-rate"]
    assert (dict(metric.tags), metric.sensor) == ({"user": "", "client-id": "etl"}, "Produce-:etl")


def test_delayed_channels_are_counted_until_they_are_released() -> None:
    found = managers_of()
    for channel in ("a", "b"):
        found.fetch.delays.add(channel, 100, NOW)
    assert metrics(found)["kafka.server:type=Fetch", "queue-size"].value == 2
    found.fetch.delays.release(NOW + 100)
    assert metrics(found)["kafka.server:type=Fetch", "queue-size"].value == 0


def test_reading_is_no_use() -> None:
    """A meter that is only read is dropped as one that is not."""
    found = managers_of((PRODUCE, entity(user="alice"), 10))
    found.produce.record("alice", "c", 1, NOW)
    for minutes in range(61):
        assert len(with_client_tags(found, NOW + minutes * 60_000)) == 2
    found.expire(NOW + HOUR_MS + 1)
    assert with_client_tags(found, NOW + HOUR_MS + 1) == set()


def test_the_throttle_time_of_an_idle_hour_is_gone_until_the_next_request() -> None:
    """It is a sensor of its own, that each request asks for and only a throttle uses."""
    mbean = "kafka.server:type=Produce,user=alice"
    found = managers_of((PRODUCE, entity(user="alice"), 10))
    for minutes in range(61):
        found.produce.record("alice", "c", 1, NOW + minutes * 60_000)
        found.expire(NOW + minutes * 60_000 + 30_000)
    assert with_client_tags(found, NOW + HOUR_MS + 30_000) == {(mbean, "byte-rate")}
    found.produce.record("alice", "c", 1, NOW + HOUR_MS + 40_000)
    assert with_client_tags(found, NOW + HOUR_MS + 40_000) == {(mbean, "byte-rate"), (mbean, "throttle-time")}


def test_throttle_times_outlive_a_meter_whose_requests_are_all_rejected() -> None:
    """A rejected mutation keeps no meter alive, and its throttle is noted all the same."""
    mbean = "kafka.server:type=ControllerMutation,user=alice"
    found = managers_of((MUTATION, entity(user="alice"), 1))
    charge_mutation(found.controller_mutation, "alice", "c", 10_000, NOW, strict=True)
    last_ms = NOW + HOUR_MS - 1000
    outcome = charge_mutation(found.controller_mutation, "alice", "c", 1, last_ms, strict=True)
    assert not outcome.accepted
    assert outcome.throttle is not None
    found.controller_mutation.note_throttle("alice", "c", outcome.throttle.throttle_ms, last_ms)
    found.expire(NOW + HOUR_MS + 1000)
    told = metrics(found, NOW + HOUR_MS + 1000)[mbean, "throttle-time"].value
    assert told == outcome.throttle.throttle_ms
    assert with_client_tags(found, NOW + HOUR_MS + 1000) == {(mbean, "throttle-time")}
    # The bucket is a new one, and the average goes on.
    assert charge_mutation(found.controller_mutation, "alice", "c", 1, NOW + HOUR_MS + 2000, strict=True).accepted
    shown = metrics(found, NOW + HOUR_MS + 2000)
    assert (shown[mbean, "tokens"].value, shown[mbean, "throttle-time"].value) == (10, told)
    found.expire(last_ms + HOUR_MS + 1)
    assert (mbean, "throttle-time") not in with_client_tags(found, last_ms + HOUR_MS + 1)


def test_connections() -> None:
    found = managers_of(("connection_creation_rate", entity(ip="::1"), 1), quota_window_num=2)
    for _ in range(3):
        found.connections.accept("PLAINTEXT", "0:0::1", NOW)
    found.connections.accept("TLS", "10.0.0.7", NOW)
    group = "kafka.server:type=socket-server-metrics"
    shown = {name: one for name, one in metrics(found).items() if one.group == "socket-server-metrics"}
    assert {name: one.value for name, one in shown.items() if not math.isnan(one.value)} == {
        (group, "broker-connection-accept-rate"): 2,
        (f"{group},listener=PLAINTEXT", "connection-accept-rate"): 1,
        (f"{group},listener=PLAINTEXT", "ip-connection-accept-throttle-time"): 1000,
        (f"{group},listener=TLS", "connection-accept-rate"): 1,
        (f'{group},ip="0:0:0:0:0:0:0:1"', "connection-accept-rate"): 1,
    }
    assert shown[f'{group},ip="0:0:0:0:0:0:0:1"', "connection-accept-rate"].sensor == (
        "Connection-Accept-Rate-0:0:0:0:0:0:0:1"
    )
    assert list(read_limits(found)) == [
        Limit("socket-server-metrics", {"ip": "0:0:0:0:0:0:0:1"}, 1, "ip=%3A%3A1"),
    ]


class TestSources:
    """Where the limit of a meter is set, in canonical text."""

    @staticmethod
    def source(callback: ClientQuotaCallback | None, *quotas: tuple[ClientQuotaEntity, float], **configs: str) -> Limit:
        managers = QuotaManagers(BrokerConfig(quota_producer_default=7))
        if callback is not None:
            managers.swap_callback(callback, configs)
        for on, value in quotas:
            managers.update_quota(PRODUCE, on, value)
        managers.produce.record("alice", "etl", 1, NOW)
        [limit] = read_limits(managers)
        return limit

    @pytest.mark.parametrize(
        ("on", "source"),
        [
            (entity(user="alice", client_id=None), "user=alice,client-id=<default>"),
            (entity(user=None), "user=<default>"),
            (entity(client_id="etl"), "client-id=etl"),
        ],
    )
    def test_an_entity(self, on: ClientQuotaEntity, source: str) -> None:
        found = self.source(None, (on, 100))
        assert (found.group, found.limit, found.source) == ("Produce", 100, source)

    def test_the_broker_s_settings(self) -> None:
        assert self.source(None) == Limit("Produce", {"user": "", "client-id": "etl"}, 7, "static")

    def test_a_user_without_a_limit_has_none(self) -> None:
        managers = managers_of((PRODUCE, entity(user="bob"), 5))
        managers.produce.record("alice", "etl", 1, NOW)
        assert list(read_limits(managers)) == []

    def test_a_group(self) -> None:
        configs = {GROUPS_SETTING: '{"payments": {"users": ["alice"]}}'}
        limit = self.source(GroupQuotaCallback(), (entity(user="group:payments"), 100), **configs)
        assert (limit.tags, limit.source) == ({"group": "payments"}, "user=group%3Apayments")
        assert self.source(GroupQuotaCallback(), (entity(user="alice"), 3), **configs).source == "user=alice"

    def test_a_tenant(self) -> None:
        def tenant(**quotas: float) -> Any:
            managers = QuotaManagers(BrokerConfig())
            managers.swap_callback(PartitionQuotaCallback(), {"node.id": "1"})
            for name, value in quotas.items():
                managers.update_quota(PRODUCE, entity(user=name), value)
            managers.produce.record("acme_app", "c", 1, NOW)
            return [(dict(one.tags), one.limit, one.source) for one in read_limits(managers)]

        assert tenant(acme_=100, _=7) == [({"tenant": "acme"}, 100, "user=acme_")]
        assert tenant(_=7) == [({"tenant": "acme"}, 7, "user=_")]
        assert tenant(acme_app=3) == [({"user": "acme_app", "client-id": ""}, 3, "user=acme_app")]

    def test_behind_a_guard_it_is_asked_for_as_well(self) -> None:
        guard = CallbackGuard(DefaultQuotaCallback(), monotonic_ms=lambda: 0.0)
        assert self.source(guard, (entity(user="alice"), 100)).source == "user=alice"

    def test_a_callback_that_cannot_say_is_the_source_itself(self) -> None:
        """One made from Kafka's own, too: what it has overridden, nobody else knows."""

        class Halves(DefaultQuotaCallback):
            def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
                limit = super().quota_limit(quota_type, metric_tags)
                return None if limit is None else limit / 2

        found = self.source(Halves(), (entity(user="alice"), 100))
        assert (found.limit, found.source) == (50, "callback")

    @pytest.mark.parametrize("answer", [5, ["user=alice"]])
    def test_nonsense_is_no_source(self, answer: object) -> None:
        class Odd(DefaultQuotaCallback):
            def quota_source(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> Any:
                return answer

        guard = CallbackGuard(Odd(), monotonic_ms=lambda: 0.0)
        assert self.source(guard, (entity(user="alice"), 100)).source == "callback"
        assert guard.faults.nonsense == 1

    def test_a_resting_guard_asks_nobody(self) -> None:
        class Broken(DefaultQuotaCallback):
            def update_quota(
                self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, value: float
            ) -> None:
                super().update_quota(quota_type, quota_entity, value)
                raise RuntimeError

        guard = CallbackGuard(Broken(), monotonic_ms=lambda: 0.0, breaker_after=1)
        guard.update_quota(ClientQuotaType.PRODUCE, CallbackQuotaEntity(entity(user="alice")), 5)
        assert guard.is_open
        assert guard.quota_source(ClientQuotaType.PRODUCE, {"user": "alice", "client-id": ""}) is None
        assert guard.faults.not_asked == 1


def test_tags_of_a_callback_s_own_are_left_as_they_are() -> None:
    class ByPrefix(DefaultQuotaCallback):
        def quota_metric_tags(self, quota_type: ClientQuotaType, principal: Any, client_id: str) -> Mapping[str, str]:
            return {"user": principal.name, "prefix": client_id.partition("-")[0]}

    found = managers_of()
    found.swap_callback(ByPrefix(), {})
    found.produce.record("a b", "etl-1", 1, NOW)
    metric = metrics(found)["kafka.server:type=Produce,user=a b,prefix=etl", "byte-rate"]
    assert (dict(metric.tags), metric.sensor) == ({"user": "a b", "prefix": "etl"}, "Produce-a b:etl")
