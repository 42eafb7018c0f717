"""What Kafka's own tests of its quota managers expect, where it is not in the tests of the part itself.

Sequences that are longer are written traces, to which Kafka's classes themselves gave the answers.
"""

from __future__ import annotations

import math
from sys import float_info

import pytest

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback
from kquota.metering.engine import QuotaManagers
from kquota.metering.managers import INACTIVE_MS, MutationQuotaManager, RateQuotaManager
from kquota.metering.meters import UNLIMITED, RateMeter, Throttle, ThrottleTimes
from kquota.metering.requests import NOT_THROTTLED, Charged, RequestQuotas, RequestThrottle
from kquota.metering.statistics import SampledRate, Windows
from kquota.metering.throttling import rate_throttle_ms
from kquota.quotas import ClientQuotaEntity, MeterKey, is_same_value
from tests.kit.mutations import charge_mutation

NOW = 1_700_000_000_000


def entity(text: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.from_text(text)


def produce_manager() -> RateQuotaManager:
    return RateQuotaManager(ClientQuotaType.PRODUCE, Windows(), DefaultQuotaCallback())


def mutation_manager(limit: float | None = None) -> MutationQuotaManager:
    """As ControllerMutationQuotaTest has it: ten windows of a second."""
    manager = MutationQuotaManager(Windows(10, 1000), DefaultQuotaCallback())
    if limit is not None:
        manager.update_quota(entity("user=throttled"), limit)
    return manager


def request_quotas(**limits: float) -> RequestQuotas:
    managers = QuotaManagers(BrokerConfig())
    for key, value in limits.items():
        managers.update_quota(key, entity("user=alice"), value)
    return RequestQuotas(managers)


class TestQuotaUtils:
    """A rate that is fresh covers all windows but one."""

    @pytest.mark.parametrize("samples", [10, 11])
    @pytest.mark.parametrize(("rate", "limit"), [(16.5, 16.5), (18.2, 18.2)])
    def test_at_the_limit_there_is_no_wait(self, rate: float, limit: float, samples: int) -> None:
        covered_ms = SampledRate(Windows(samples, 1000)).covered_ms(NOW)
        assert covered_ms == (samples - 1) * 1000
        assert rate_throttle_ms(rate, limit, covered_ms) == 0

    @pytest.mark.parametrize(("rate", "limit", "throttle_ms"), [(16.5, 20.4, -1721), (16.5, 22.4, -2371)])
    def test_below_the_limit_it_is_negative(self, rate: float, limit: float, throttle_ms: int) -> None:
        assert rate_throttle_ms(rate, limit, SampledRate(Windows(10, 1000)).covered_ms(NOW)) == throttle_ms

    @pytest.mark.parametrize(("bound_ms", "told_ms"), [(500, 500), (9_000, 9_000), (20_000, 9_000), (None, 9_000)])
    def test_above_it_is_bounded(self, bound_ms: int | None, told_ms: int) -> None:
        """Of 100 against 50, with ten samples: nine seconds, or as long as may be told."""
        throttle = RateMeter({}, 50.0, Windows(10, 1000), bound_ms).record(900, NOW)
        assert throttle is not None
        assert (throttle.value, throttle.throttle_ms, throttle.unbounded_ms) == (100, told_ms, 9_000)


class TestSensors:
    def test_what_violates_counts_all_the_same(self) -> None:
        """MetricsTest.testQuotas: an upper limit of 5, violated by 6, and 6 it is afterwards; 5 itself is within."""
        meter = RateMeter({}, 5.0, Windows(2, 1000), None)
        assert meter.record(5, NOW) is None
        throttle = meter.record(1, NOW)
        assert throttle is not None
        assert throttle.value == meter.measure(NOW) == 6


class TestClientQuotaManager:
    @pytest.mark.parametrize("where", ["user=a", "user=a,client-id=c", "user=<default>", "client-id=<default>"])
    def test_set_and_removed(self, where: str) -> None:
        """testSetAndRemoveUserQuota, ...DefaultUserQuota, ...UserClientQuota: as if it had never been."""
        produce = produce_manager()
        produce.update_quota(entity(where), 10)
        assert produce.limit("a", "c") == 10
        assert produce.max_value_in_quota_window("a", "c") == 100
        assert produce.record("a", "c", 11_000, NOW) is not None
        produce.update_quota(entity(where), None)
        assert produce.limit("a", "c") is None
        assert produce.max_value_in_quota_window("a", "c") == float_info.max
        assert produce.record("a", "c", 11_000, NOW) is None
        assert not produce.is_enabled()

    def test_dropped_meters_are_made_again(self) -> None:
        """testExpireThrottleTimeSensor, testExpireQuotaSensors: neither is missed by the next record."""
        found = request_quotas(producer_byte_rate=100)
        produce = found.managers.produce
        assert found.produce("alice", "client1", 5_000, 0.0, NOW).throttle_ms == 40_000
        first = produce.meter("alice", "client1")
        assert first is not None
        first.throttle_times = ThrottleTimes()
        assert found.produce("alice", "client1", 0, 0.0, NOW).throttle_ms == 40_000
        assert first.throttle_times.measure(NOW) == 40_000
        later_ms = NOW + INACTIVE_MS + 1
        produce.expire(later_ms)
        assert list(produce.meters()) == []
        assert found.produce("alice", "client1", 5_000, 0.0, later_ms).throttle_ms == 40_000
        [second] = produce.meters()
        assert second is not first
        assert second.throttle_times.measure(later_ms) == 40_000

    def test_a_client_id_is_counted_as_it_came(self) -> None:
        """testClientIdNotSanitized."""
        produce = produce_manager()
        produce.update_quota(entity("client-id=<default>"), 10)
        produce.record("", "client@#$%", 1, NOW)
        [meter] = produce.meters()
        assert meter.key == MeterKey({"client-id": "client@#$%"})


class TestMutations:
    """ControllerMutationQuotaManagerTest and ControllerMutationQuotaTest."""

    def test_set_and_unset(self) -> None:
        """testSetUnsetQuota."""
        mutations = mutation_manager()
        assert mutations.limit("throttled", "c") is None
        mutations.update_quota(entity("user=throttled"), 1.5)
        assert mutations.limit("throttled", "c") == 1.5
        mutations.update_quota(entity("user=throttled"), None)
        assert mutations.limit("throttled", "c") is None

    def test_a_meter_comes_with_the_first_mutation(self) -> None:
        """testQuotaMetric: with its limit and windows; a change of the limit finds it."""
        mutations = mutation_manager(2.0)
        assert list(mutations.meters()) == []
        charge_mutation(mutations, "throttled", "c", 1, NOW, strict=True)
        [meter] = mutations.meters()
        assert (meter.limit, meter.bucket.windows) == (2.0, Windows(10, 1000))
        mutations.update_quota(entity("user=throttled"), 4.0)
        assert meter.limit == 4.0

    def test_nobody_is_bound_where_nothing_is_set(self) -> None:
        """testNew{Strict,Permissive}QuotaFor...WhenQuotaIsDisabled: no meter, never exceeded, no wait."""
        mutations = mutation_manager()
        for _ in range(3):
            assert charge_mutation(mutations, "throttled", "c", 500, NOW, strict=True) == Charged(None)
            assert charge_mutation(mutations, "throttled", "c", 500, NOW, strict=False) == Charged(None)
        assert list(mutations.meters()) == []

    def test_others_are_unbounded_where_something_is(self) -> None:
        """testUnbounded{CreateTopics,DeleteTopics,CreatePartitions}Request: both topics, and no wait."""
        mutations = mutation_manager(2.0)
        for _ in range(2):
            assert charge_mutation(mutations, "unbounded", "c", 30, NOW, strict=True) == Charged(None)
            assert charge_mutation(mutations, "unbounded", "c", 30, NOW, strict=False) == Charged(None)
        [meter] = mutations.meters()
        assert meter.limit == UNLIMITED

    @pytest.mark.parametrize(
        ("controller_ms", "local_ms", "told_ms"), [(0, 1_500, 1_500), (1_500, 0, 1_500), (3_000, 1_000, 3_000)]
    )
    def test_the_longer_of_the_controllers_wait_and_the_brokers_own(
        self, controller_ms: int, local_ms: int, told_ms: int
    ) -> None:
        """KafkaApisTest.testKRaftControllerThrottleTimeEnforced."""
        managers = QuotaManagers(BrokerConfig(quota_window_num=11, quota_window_size_seconds=2))
        managers.update_quota("request_percentage", entity("user=alice"), 10)
        controller = Throttle(controller_ms, controller_ms, -1.0, 1.0, {}) if controller_ms else None
        handler_percent = 10 * 20 + local_ms / 1000 * 10
        own_type = ClientQuotaType.CONTROLLER_MUTATION
        wait = RequestQuotas(managers).complete("alice", "c", own_type, controller, handler_percent, NOW)
        assert wait.throttle_ms == told_ms

    def test_of_ten_partitions_at_a_time(self) -> None:
        """controller_mutation_quota_test.py: 10 created, 10 added, 20 deleted, and no more after that."""
        mutations = mutation_manager(2.1)  # 21 at once: more than 20, and less than 40
        for partitions in (10, 10, 20):
            assert charge_mutation(mutations, "throttled", "c", partitions, NOW, strict=True).accepted
        assert not charge_mutation(mutations, "throttled", "c", 10, NOW, strict=True).accepted


class TestConfigChanges:
    """DynamicConfigChangeTest: what is set at a level is what a client of it has."""

    @pytest.mark.parametrize(
        ("where", "client"),
        [
            ("user=u", ("u", "other")),
            ("client-id=c", ("other", "c")),
            ("user=u,client-id=c", ("u", "c")),
            ("user=<default>", ("anybody", "any")),
            ("client-id=<default>", ("anybody", "any")),
            ("user=<default>,client-id=<default>", ("anybody", "any")),
        ],
    )
    def test_each_level(self, where: str, client: tuple[str, str]) -> None:
        managers = QuotaManagers(BrokerConfig())
        managers.update_quota("producer_byte_rate", entity(where), 1000)
        managers.update_quota("consumer_byte_rate", entity(where), 2000)
        assert (managers.produce.limit(*client), managers.fetch.limit(*client)) == (1000, 2000)
        assert not managers.request.is_enabled()
        managers.update_quota("producer_byte_rate", entity(where), None)
        managers.update_quota("consumer_byte_rate", entity(where), None)
        assert (managers.produce.limit(*client), managers.fetch.limit(*client)) == (None, None)

    def test_the_narrower_level_wins(self) -> None:
        """As what was set before a broker starts is loaded: 100,000 for the pair, 10,000 and 1,000 for its halves."""
        produce = produce_manager()
        for where, value in (("client-id=c", 1_000), ("user=u", 10_000), ("user=u,client-id=c", 100_000)):
            produce.update_quota(entity(where), value)
        assert [produce.limit("u", "c"), produce.limit("u", "x"), produce.limit("x", "c")] == [100_000, 10_000, 1_000]


class TestRequests:
    """RequestQuotaTest."""

    def test_exempt_requests_raise_only_the_exempt_time(self) -> None:
        found = request_quotas(request_percentage=1)
        found.managers.request.record_exempt(250.0, NOW)
        assert found.managers.request.exempt_request_time.measure(NOW) == pytest.approx(250 / 30)
        assert list(found.managers.request.meters()) == []
        assert found.complete("alice", "c", ClientQuotaType.REQUEST, None, 1.0, NOW) == NOT_THROTTLED
        assert found.complete("alice", "c", ClientQuotaType.REQUEST, None, 100.0, NOW) == RequestThrottle(
            1000, ClientQuotaType.REQUEST
        )
        assert found.managers.request.exempt_request_time.measure(NOW) == pytest.approx(250 / 30)

    @pytest.mark.parametrize(
        ("fetched", "percent", "moves"),
        [(40_000, 15.0, ClientQuotaType.FETCH), (10_100, 200.0, ClientQuotaType.REQUEST)],
    )
    def test_only_the_larger_metric_moves(self, fetched: int, percent: float, moves: ClientQuotaType) -> None:
        """Both quotas are violated, and one throttle time is noted."""
        found = request_quotas(consumer_byte_rate=1000, request_percentage=1)
        wait = found.fetch("alice", "c", fetched, percent, NOW)
        assert wait.quota_type is moves
        for quota_type in (ClientQuotaType.FETCH, ClientQuotaType.REQUEST):
            meter = found.managers.of(quota_type).meter("alice", "c")
            assert meter is not None
            expected = wait.throttle_ms if quota_type is moves else math.nan
            assert is_same_value(meter.throttle_times.measure(NOW), expected)
