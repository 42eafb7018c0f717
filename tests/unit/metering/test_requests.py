"""Several quotas on one request, as a broker combines them."""

from __future__ import annotations

import math

import pytest

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType
from kquota.metering.engine import QuotaManagers
from kquota.metering.requests import NO_WAIT, RequestQuotas, Wait
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
ALICE = ClientQuotaEntity({"user": "alice"})


def quotas(**limits: float) -> RequestQuotas:
    managers = QuotaManagers(BrokerConfig())
    for key, value in limits.items():
        managers.update_quota(key, ALICE, value)
    return RequestQuotas(managers)


def throttle_time(found: RequestQuotas, quota_type: ClientQuotaType, now_ms: int) -> float | None:
    meter = found.managers.of(quota_type).meter("alice", "c")
    return None if meter is None else meter.throttle_times.measure(now_ms)


def test_nobody_waits_within_all_quotas() -> None:
    found = quotas(producer_byte_rate=1000, consumer_byte_rate=1000, request_percentage=100)
    assert found.produce("alice", "c", 5000, 1.0, NOW) == NO_WAIT
    assert found.fetch("alice", "c", 5000, 1.0, NOW) == NO_WAIT
    assert found.other("alice", "c", 1.0, NOW) == NO_WAIT


def test_the_longer_wait_counts_and_only_it_is_noted() -> None:
    """RequestQuotaTest: of both violated, only the larger's metric moves."""
    found = quotas(producer_byte_rate=1000, request_percentage=1)
    # 1,050 B/s over 10 s are 500 ms; 11 % of 1 % would be a minute and a half, and is a second at most.
    assert found.produce("alice", "c", 10_500, 110.0, NOW) == Wait(1000, ClientQuotaType.REQUEST)
    assert throttle_time(found, ClientQuotaType.REQUEST, NOW) == 1000
    assert throttle_time(found, ClientQuotaType.PRODUCE, NOW) == pytest.approx(math.nan, nan_ok=True)
    assert found.produce("alice", "c", 10_000, 0.0, NOW) == Wait(10_500, ClientQuotaType.PRODUCE)
    assert throttle_time(found, ClientQuotaType.PRODUCE, NOW) == 10_500


def test_ties_go_to_request_time() -> None:
    found = quotas(producer_byte_rate=1000, request_percentage=10)
    assert found.produce("alice", "c", 11_000, 110.0, NOW) == Wait(1000, ClientQuotaType.REQUEST)


def test_without_an_answer_time_is_exempt() -> None:
    """Acks of 0: only its bytes can make it wait."""
    found = quotas(producer_byte_rate=1000, request_percentage=1)
    assert found.produce("alice", "c", 10_500, 500.0, NOW, acks=0) == Wait(500, ClientQuotaType.PRODUCE)
    assert found.managers.request.exempt_request_time.measure(NOW) == pytest.approx(500 / 30)
    assert found.other("alice", "c", 1.0, NOW) == NO_WAIT


def test_a_fetch_that_waits_is_taken_back() -> None:
    """Also when only the time of it was too much; the same fetch is told the same until it fits."""
    found = quotas(consumer_byte_rate=1000)
    assert found.fetch("alice", "c", 15_000, 0.0, NOW) == Wait(5000, ClientQuotaType.FETCH)
    assert found.fetch("alice", "c", 15_000, 0.0, NOW) == Wait(5000, ClientQuotaType.FETCH)
    assert found.fetch("alice", "c", 10_000, 0.0, NOW) == NO_WAIT
    timed = quotas(consumer_byte_rate=1000, request_percentage=1)
    assert timed.fetch("alice", "c", 10_000, 50.0, NOW) == Wait(1000, ClientQuotaType.REQUEST)
    meter = timed.managers.fetch.meter("alice", "c")
    assert meter is not None
    assert meter.measure(NOW) == 0


def test_the_most_that_a_fetch_gets() -> None:
    """What a whole window allows, where that is less than was asked for."""
    assert quotas().max_fetch_bytes("alice", "c", 2**31 - 1) == 2**31 - 1
    found = quotas(consumer_byte_rate=1000)
    assert found.max_fetch_bytes("alice", "c", 2**31 - 1) == 10_000
    assert found.max_fetch_bytes("alice", "c", 500) == 500
    assert found.max_fetch_bytes("bob", "c", 2**31 - 1) == 2**31 - 1


@pytest.mark.parametrize(
    ("partitions", "percent", "wait"),
    [
        (25, 0.0, Wait(1500, ClientQuotaType.CONTROLLER_MUTATION)),
        (25, 500.0, Wait(1500, ClientQuotaType.CONTROLLER_MUTATION)),
        (23, 500.0, Wait(1000, ClientQuotaType.REQUEST)),
        (22, 0.0, NO_WAIT),
    ],
)
def test_mutations_and_their_time(partitions: int, percent: float, wait: Wait) -> None:
    """KafkaApisTest.testKRaftControllerThrottleTimeEnforced: the longer of both."""
    found = quotas(controller_mutation_rate=2, request_percentage=1)
    throttle = found.managers.controller_mutation.record_permissive("alice", "c", partitions, NOW)
    assert found.mutation("alice", "c", throttle, percent, NOW) == wait


def test_a_strict_rejection_is_told_how_long() -> None:
    found = quotas(controller_mutation_rate=2)
    found.managers.controller_mutation.record_strict("alice", "c", 32, NOW)
    outcome = found.managers.controller_mutation.record_strict("alice", "c", 1, NOW)
    assert outcome.rejected
    assert found.mutation("alice", "c", outcome, 0.0, NOW) == Wait(5000, ClientQuotaType.CONTROLLER_MUTATION)


def test_the_time_of_sending_counts_for_what_comes_after() -> None:
    found = quotas(request_percentage=10)
    found.sent("alice", "c", 200.0, NOW)
    assert found.other("alice", "c", 0.0, NOW) == Wait(1000, ClientQuotaType.REQUEST)
