"""CustomQuotaCallbackTest: tenants that share a limit, which is split by the partitions that a broker leads.

With traffic, step by step, and how often the callback was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType, Cluster, DefaultQuotaCallback, KafkaPrincipal
from kquota.metering.engine import QuotaManagers
from kquota.metering.loading import load_callback
from kquota.metering.partitions import PartitionQuotaCallback
from kquota.metering.requests import RequestQuotas
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
LONG_MAX = 2.0**63
PRODUCE, FETCH, REQUEST = ClientQuotaType.PRODUCE, ClientQuotaType.FETCH, ClientQuotaType.REQUEST


class Counting(PartitionQuotaCallback):
    """How often limits were asked for, by type."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[ClientQuotaType]()

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        self.asked[quota_type] += 1
        return super().quota_limit(quota_type, metric_tags)


class Broker:
    """A broker's quotas, and clients that send it ten requests of each kind in ten seconds."""

    def __init__(self, broker_id: int) -> None:
        self.managers = QuotaManagers(BrokerConfig())
        self.requests = RequestQuotas(self.managers)
        self.callback = Counting()
        self.managers.swap_callback(self.callback, {"node.id": str(broker_id)})
        self.now_ms = NOW

    def set(self, user: str, produce: float | None, fetch: float | None) -> None:
        entity = ClientQuotaEntity({"user": user})
        self.managers.update_quota("producer_byte_rate", entity, produce)
        self.managers.update_quota("consumer_byte_rate", entity, fetch)

    def lead(self, *leaders: int, topic: str = "group0_topic") -> None:
        self.managers.update_cluster_metadata(
            Cluster.of_leaders("c", {(topic, n): leader for n, leader in enumerate(leaders)})
        )

    def throttled(self, user: str) -> tuple[bool, bool]:
        """Whether the user's producer was, and its consumer: of 10,000 B/s each, after a minute of silence."""
        self.now_ms += 60_000
        waits = []
        for _ in range(10):
            self.now_ms += 1000
            produced = self.requests.produce(user, "p", 10_000, 0.1, self.now_ms)
            fetched = self.requests.fetch(user, "c", 10_000, 0.1, self.now_ms)
            waits.append((produced.throttle_ms > 0, fetched.throttle_ms > 0))
        return any(wait[0] for wait in waits), any(wait[1] for wait in waits)


def test_overrides_and_defaults_of_a_tenant() -> None:
    broker = Broker(0)
    broker.lead(0, 0)
    broker.set("group0_", 1_000_000, 2_000_000)
    broker.callback.asked.clear()
    assert broker.throttled("group0_user1") == (False, False)
    # Of a new meter once, of fetches for the most that they may get, too.
    assert broker.callback.asked[PRODUCE] == 1
    assert broker.callback.asked[REQUEST] <= 10
    assert broker.callback.asked[FETCH] == 1
    for _ in range(3):
        broker.requests.max_fetch_bytes("group0_user1", "c", 2**31 - 1)
    assert broker.callback.asked[FETCH] > 2
    broker.set("group0_", 9_000, 3_000)
    assert broker.throttled("group0_user1") == (True, True)
    broker.set("_", LONG_MAX, LONG_MAX)
    broker.set("group0_", None, None)
    assert broker.throttled("group0_user1") == (False, False)
    broker.set("_", 8_000, 2_500)
    assert broker.throttled("group0_user1") == (True, True)
    broker.set("group0_", 1_000_000, 2_000_000)
    assert broker.throttled("group0_user1") == (False, False)


def test_partitions_that_others_lead_take_their_share() -> None:
    """One of a hundred is a hundredth, of the tenant's own limit and of the default one, and back again."""
    broker = Broker(0)
    broker.set("group1_", 800_000, 250_000)
    broker.lead(0, topic="group1_topic")
    assert broker.throttled("group1_user") == (False, False)
    broker.lead(0, *[1] * 99, topic="group1_topic")
    limits = broker.managers.produce.limit("group1_user", "p"), broker.managers.fetch.limit("group1_user", "c")
    assert limits == (8_000, 2_500)
    assert broker.throttled("group1_user") == (True, True)
    broker.set("group1_", None, None)
    broker.set("_", 900_000, 300_000)
    limits = broker.managers.produce.limit("group1_user", "p"), broker.managers.fetch.limit("group1_user", "c")
    assert limits == (9_000, 3_000)
    broker.set("group1_", 800_000, 250_000)
    broker.lead()  # the topic is being deleted
    limits = broker.managers.produce.limit("group1_user", "p"), broker.managers.fetch.limit("group1_user", "c")
    assert limits == (800_000, 250_000)
    assert broker.throttled("group1_user") == (False, False)


@pytest.mark.parametrize(("broker_id", "limit"), [(0, 250.0), (1, 750.0), (2, 250.0)])
def test_each_broker_has_its_part(broker_id: int, limit: float) -> None:
    """Who leads none has the part of one; request time is each broker's own."""
    broker = Broker(broker_id)
    broker.set("group0_", 1000, None)
    broker.managers.update_quota("request_percentage", ClientQuotaEntity({"user": "group0_"}), 40)
    broker.lead(0, 1, 1, 1)
    assert broker.managers.produce.limit("group0_user", "c") == limit
    assert broker.managers.request.limit("group0_user", "c") == 40


class WithDefaults(DefaultQuotaCallback):
    """Has a default limit of its own, which may be changed while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.default = 1_000.0
        self._changed: set[ClientQuotaType] = set()

    def set_default(self, default: float) -> None:
        self.default = default
        self._changed = set(ClientQuotaType)

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        return {"user": principal.name}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.default

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        required = quota_type in self._changed
        self._changed.discard(quota_type)
        return required


def test_a_callback_changes_its_limits_by_itself() -> None:
    """The next request of the type, whoever's it is, has all limits asked for again; once."""
    callback = WithDefaults()
    managers = QuotaManagers(BrokerConfig(), callback)
    assert managers.produce.record("alice", "c", 15_000, NOW) is not None
    assert managers.fetch.record("alice", "c", 15_000, NOW) is not None
    callback.set_default(2_000)
    assert managers.produce.record("bob", "c", 1, NOW) is None
    limits = {meter.tags["user"]: meter.limit for meter in managers.produce.meters()}
    assert limits == {"alice": 2_000, "bob": 2_000}
    assert [meter.limit for meter in managers.fetch.meters()] == [1_000]
    assert managers.produce.record("alice", "c", 0, NOW) is None
    assert managers.fetch.record("alice", "c", 0, NOW) is None
    assert not callback.quota_reset_required(PRODUCE)


def test_each_broker_has_a_callback_of_its_own() -> None:
    """Two brokers, two instances."""
    assert load_callback("partitions") is not load_callback("partitions")
