"""``quota.producer.default`` and ``quota.consumer.default``: level 9 under every callback with Kafka's rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaCallback, ClientQuotaType, DefaultQuotaCallback, KafkaPrincipal
from kquota.metering.callback_conformance import ConformanceCheck, TrafficRecord
from kquota.metering.callback_probe import CallbackProbe, Observations
from kquota.metering.engine import QuotaManagers
from kquota.metering.guard import CallbackGuard
from kquota.metering.loading import load_callback
from kquota.metering.replay import Replay
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
CONFIG = BrokerConfig(quota_producer_default=1000, quota_consumer_default=2000)
SETTINGS = {"node.id": "1", "kquota.groups": json.dumps({"pay": {"users": ["alice"]}})}
INSTALLED = ("default", "groups", "partitions", "fair-share")


class WithItsOwn(DefaultQuotaCallback):
    """Neither calls the constructor with anything, nor the base's `configure`."""

    def __init__(self) -> None:
        super().__init__()
        self.prefix = ""

    def configure(self, configs: Mapping[str, str]) -> None:
        self.prefix = "prefix:"


def guarded(callback: ClientQuotaCallback) -> ClientQuotaCallback:
    probe = CallbackProbe(callback, Observations(), monotonic_ms=lambda: 0.0)
    return CallbackGuard(probe, monotonic_ms=lambda: 0.0)


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("name", [*INSTALLED, f"{__name__}:WithItsOwn"])
def test_static_defaults_hold_under_every_callback(name: str, is_guarded: bool) -> None:
    """Counted per client-id, and below any quota that is set."""
    managers = QuotaManagers(CONFIG)
    callback = load_callback(name)
    managers.swap_callback(guarded(callback) if is_guarded else callback, SETTINGS)
    assert managers.produce.limit("alice", "c") == 1000
    assert managers.fetch.limit("alice", "c") == 2000
    assert managers.request.limit("alice", "c") is None
    throttle = managers.produce.record("alice", "c", 24_000, NOW)
    assert throttle is not None
    assert (throttle.throttle_ms, dict(throttle.tags)) == (14_000, {"user": "", "client-id": "c"})
    managers.update_quota("producer_byte_rate", ClientQuotaEntity({"user": "alice"}), 5)
    assert managers.produce.limit("alice", "c") == 5


@pytest.mark.parametrize("name", [None, *INSTALLED])
def test_a_trace_gives_the_same_with_and_without_a_named_callback(name: str | None) -> None:
    record = {"op": "record", "t_ms": NOW, "user": "u", "client-id": "c", "key": "producer_byte_rate", "value": 24_000}
    named = {} if name is None else {"client.quota.callback.class": name}
    [answer] = Replay(CONFIG, {**SETTINGS, **named}, guard=guarded).answers([record])
    assert (answer["limit"], answer["throttle_ms"], answer["meter"]) == (1000, 14_000, {"client-id": "c"})
    swap = {"op": "callback", "class": name}
    [answer] = Replay(CONFIG, SETTINGS, guard=guarded).answers([swap, record])
    assert (answer["limit"], answer["throttle_ms"], answer["meter"]) == (1000, 14_000, {"client-id": "c"})


@pytest.mark.parametrize("name", INSTALLED)
def test_a_trial_on_recorded_traffic_has_them(name: str) -> None:
    """As Kafka's own rules beside it."""
    check = ConformanceCheck(lambda: load_callback(name), SETTINGS, {}, CONFIG, monotonic_ms=lambda: 0.0)
    check.broker(1, [TrafficRecord(NOW, ClientQuotaType.PRODUCE, "u", "c", 24_000.0)])
    [meter] = check.meters()
    assert (meter.lowest_limit, meter.callback.total_ms, meter.kafka.total_ms) == (1000, 14_000, 14_000)


def test_a_callback_without_kafkas_rules_has_none() -> None:
    """What it says is all that there is."""

    class Unlimited:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("use_"):
                raise AttributeError(name)
            return lambda *_: None

        def quota_metric_tags(self, quota_type: Any, principal: KafkaPrincipal, client_id: str) -> dict[str, str]:
            return {"user": principal.name}

    managers = QuotaManagers(CONFIG)
    managers.swap_callback(guarded(Unlimited()), {})
    assert managers.produce.limit("alice", "c") is None
