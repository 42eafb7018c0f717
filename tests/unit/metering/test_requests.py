"""Several quotas on one request, as a broker combines them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType
from kquota.metering.engine import QuotaManagers
from kquota.metering.requests import NOT_THROTTLED, RequestQuotas, RequestThrottle
from kquota.quotas import ClientQuotaEntity
from tests.kit.mutations import charge_mutation

NOW = 1_700_000_000_000
MUTATION, REQUEST = ClientQuotaType.CONTROLLER_MUTATION, ClientQuotaType.REQUEST
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
    assert found.produce("alice", "c", 5000, 1.0, NOW) == NOT_THROTTLED
    assert found.fetch("alice", "c", 5000, 1.0, NOW) == NOT_THROTTLED
    assert found.complete("alice", "c", REQUEST, None, 1.0, NOW) == NOT_THROTTLED


def test_the_longer_wait_counts_and_only_it_is_noted() -> None:
    """RequestQuotaTest: of both violated, only the larger's metric moves."""
    found = quotas(producer_byte_rate=1000, request_percentage=1)
    # 1,050 B/s over 10 s are 500 ms; 11 % of 1 % would be a minute and a half, and is a second at most.
    assert found.produce("alice", "c", 10_500, 110.0, NOW) == RequestThrottle(1000, REQUEST)
    assert throttle_time(found, ClientQuotaType.REQUEST, NOW) == 1000
    assert throttle_time(found, ClientQuotaType.PRODUCE, NOW) == pytest.approx(math.nan, nan_ok=True)
    assert found.produce("alice", "c", 10_000, 0.0, NOW) == RequestThrottle(10_500, ClientQuotaType.PRODUCE)
    assert throttle_time(found, ClientQuotaType.PRODUCE, NOW) == 10_500


def test_ties_go_to_request_time() -> None:
    found = quotas(producer_byte_rate=1000, request_percentage=10)
    assert found.produce("alice", "c", 11_000, 110.0, NOW) == RequestThrottle(1000, REQUEST)


def test_without_an_answer_time_is_exempt() -> None:
    """Acks of 0: only its bytes can make it wait."""
    found = quotas(producer_byte_rate=1000, request_percentage=1)
    assert found.produce("alice", "c", 10_500, 500.0, NOW, acks=0) == RequestThrottle(500, ClientQuotaType.PRODUCE)
    assert found.managers.request.exempt_request_time.measure(NOW) == pytest.approx(500 / 30)
    assert found.complete("alice", "c", REQUEST, None, 1.0, NOW) == NOT_THROTTLED


def test_a_fetch_that_waits_is_taken_back() -> None:
    """Also when only the time of it was too much; the same fetch is told the same until it fits."""
    found = quotas(consumer_byte_rate=1000)
    assert found.fetch("alice", "c", 15_000, 0.0, NOW) == RequestThrottle(5000, ClientQuotaType.FETCH)
    assert found.fetch("alice", "c", 15_000, 0.0, NOW) == RequestThrottle(5000, ClientQuotaType.FETCH)
    assert found.fetch("alice", "c", 10_000, 0.0, NOW) == NOT_THROTTLED
    timed = quotas(consumer_byte_rate=1000, request_percentage=1)
    assert timed.fetch("alice", "c", 10_000, 50.0, NOW) == RequestThrottle(1000, REQUEST)
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
        (25, 0.0, RequestThrottle(1500, MUTATION)),
        (25, 500.0, RequestThrottle(1500, MUTATION)),
        (23, 500.0, RequestThrottle(1000, REQUEST)),
        (22, 0.0, NOT_THROTTLED),
    ],
)
def test_mutations_and_their_time(partitions: int, percent: float, wait: RequestThrottle) -> None:
    """KafkaApisTest.testKRaftControllerThrottleTimeEnforced: the longer of both."""
    found = quotas(controller_mutation_rate=2, request_percentage=1)
    throttle = charge_mutation(found.managers.controller_mutation, "alice", "c", partitions, NOW, strict=False).throttle
    assert found.complete("alice", "c", MUTATION, throttle, percent, NOW) == wait


def test_a_strict_rejection_is_told_how_long() -> None:
    found = quotas(controller_mutation_rate=2)
    charge_mutation(found.managers.controller_mutation, "alice", "c", 32, NOW, strict=True)
    outcome = charge_mutation(found.managers.controller_mutation, "alice", "c", 1, NOW, strict=True)
    assert not outcome.accepted
    assert found.complete("alice", "c", MUTATION, outcome.throttle, 0.0, NOW) == RequestThrottle(5000, MUTATION)


def test_the_time_of_sending_counts_for_what_comes_after() -> None:
    found = quotas(request_percentage=10)
    found.managers.request.record_no_throttle("alice", "c", 200.0, NOW)
    assert found.complete("alice", "c", REQUEST, None, 0.0, NOW) == RequestThrottle(1000, REQUEST)


def tokens(found: RequestQuotas, now_ms: int) -> float:
    meter = found.managers.controller_mutation.meter("alice", "c")
    assert meter is not None
    return meter.measure(now_ms)


def test_a_request_is_settled_later_than_its_bytes_were_counted() -> None:
    """As a gateway does, which knows a produce request's size from its header."""
    found = quotas(producer_byte_rate=1000, request_percentage=1)
    own = found.record_produce("alice", "c", 10_500, NOW)
    assert own is not None
    assert throttle_time(found, ClientQuotaType.PRODUCE, NOW) == pytest.approx(math.nan, nan_ok=True)
    wait = found.complete("alice", "c", ClientQuotaType.PRODUCE, own, 1.0, NOW + 40)
    assert wait == RequestThrottle(500, ClientQuotaType.PRODUCE)
    assert throttle_time(found, ClientQuotaType.PRODUCE, NOW + 40) == 500
    assert throttle_time(found, ClientQuotaType.REQUEST, NOW + 40) == pytest.approx(math.nan, nan_ok=True)


def test_time_that_is_not_known_is_not_counted() -> None:
    found = quotas(producer_byte_rate=1000, consumer_byte_rate=1000, controller_mutation_rate=1, request_percentage=1)
    assert found.produce("alice", "c", 10_500, None, NOW) == RequestThrottle(500, ClientQuotaType.PRODUCE)
    assert found.produce("alice", "c", 500, None, NOW, acks=0) == RequestThrottle(1000, ClientQuotaType.PRODUCE)
    assert found.fetch("alice", "c", 10_500, None, NOW) == RequestThrottle(500, ClientQuotaType.FETCH)
    assert found.complete("alice", "c", MUTATION, None, None, NOW) == NOT_THROTTLED
    assert found.complete("alice", "c", REQUEST, None, None, NOW) == NOT_THROTTLED
    assert list(found.managers.request.meters()) == []
    assert found.managers.request.exempt_request_time.measure(NOW) == 0


def test_a_fetch_that_was_answered_stays_counted() -> None:
    found = quotas(consumer_byte_rate=1000)
    assert found.fetch("alice", "c", 15_000, None, NOW, is_answered=True) == RequestThrottle(
        5000, ClientQuotaType.FETCH
    )
    assert found.fetch("alice", "c", 15_000, None, NOW, is_answered=True) == RequestThrottle(
        20_000, ClientQuotaType.FETCH
    )
    timed = quotas(consumer_byte_rate=1000, request_percentage=1)
    assert timed.fetch("alice", "c", 10_000, 50.0, NOW, is_answered=True) == RequestThrottle(1000, REQUEST)
    meter = timed.managers.fetch.meter("alice", "c")
    assert meter is not None
    assert meter.measure(NOW) == 1000


def test_the_topic_that_takes_the_last_tokens_is_accepted_and_those_after_it_are_refused() -> None:
    """Kafka's ControllerMutationQuotaTest: 30 partitions at 2 a second, of a bucket of 22."""
    found = quotas(controller_mutation_rate=2)
    accepted, throttle = found.mutate("alice", "c", [1, 31, 1, 0, 5], NOW, strict=True)
    assert accepted == (True, True, False, False, False)
    assert throttle is not None
    assert throttle.throttle_ms == 5000
    assert tokens(found, NOW) == -10
    assert found.complete("alice", "c", MUTATION, throttle, None, NOW) == RequestThrottle(5000, MUTATION)


def test_a_strict_request_that_takes_more_than_there_is_is_not_throttled_itself() -> None:
    found = quotas(controller_mutation_rate=2)
    assert found.mutate("alice", "c", [32], NOW, strict=True) == ((True,), None)
    accepted, throttle = found.mutate("alice", "c", [0], NOW + 4_750, strict=True)
    assert (accepted, throttle is None) == ((False,), False)
    assert found.mutate("alice", "c", [0, 1], NOW + 5_000, strict=True) == ((True, True), None)  # 0 tokens are enough


def test_before_topics_were_refused_all_are_accepted_and_charged() -> None:
    found = quotas(controller_mutation_rate=2)
    assert found.mutate("alice", "c", [20, 2], NOW, strict=False) == ((True, True), None)
    accepted, throttle = found.mutate("alice", "c", [3, 0, 7], NOW, strict=False)
    assert accepted == (True, True, True)
    assert throttle is not None
    assert throttle.throttle_ms == 5000
    assert tokens(found, NOW) == -10
    accepted, throttle = found.mutate("alice", "c", [0], NOW + 1000, strict=False)
    assert accepted == (True,)
    assert throttle is not None
    assert throttle.throttle_ms == 4000


@pytest.mark.parametrize("strict", [True, False])
def test_mutations_without_a_quota_are_accepted_and_not_counted(strict: bool) -> None:
    found = quotas()
    assert found.mutate("alice", "c", [10**6, 1], NOW, strict=strict) == ((True, True), None)
    assert found.mutate("alice", "c", [], NOW, strict=strict) == ((), None)
    found.refund("alice", "c", 10**6, NOW)
    assert list(found.managers.controller_mutation.meters()) == []


def test_what_failed_is_given_back() -> None:
    found = quotas(controller_mutation_rate=2)
    found.mutate("alice", "c", [20, 12], NOW, strict=True)
    assert found.mutate("alice", "c", [1], NOW, strict=True).accepted == (False,)
    found.refund("alice", "c", 12, NOW)
    assert tokens(found, NOW) == 2
    assert found.mutate("alice", "c", [1], NOW, strict=True) == ((True,), None)


def test_a_refund_never_lifts_a_bucket_above_what_it_holds() -> None:
    found = quotas(controller_mutation_rate=2)
    found.mutate("alice", "c", [10], NOW, strict=True)
    found.refund("alice", "c", 10, NOW + 4_000)  # 8 of them have come back already
    assert tokens(found, NOW + 4_000) == 22
    found.refund("alice", "c", 10**9, NOW + 4_000)
    assert tokens(found, NOW + 4_000) == 22


def test_a_refund_of_nothing_is_none() -> None:
    """Not even a sign of life: a meter that nothing is charged to is dropped after an hour."""
    found = quotas(controller_mutation_rate=2)
    found.mutate("alice", "c", [10], NOW, strict=True)
    for partitions in (0, -5):
        found.refund("alice", "c", partitions, NOW + 1_000)
    [meter] = found.managers.controller_mutation.meters()
    assert (meter.last_ms, meter.measure(NOW)) == (NOW, 12)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=5), st.booleans(), st.integers(0, 9_000)), max_size=15),
)
def test_each_topic_is_judged_by_the_tokens_before_it(steps: list[tuple[list[int], bool, int]]) -> None:
    """KIP-599 by its own words, with the bucket's arithmetic done by hand."""
    found, now_ms, left = quotas(controller_mutation_rate=4), NOW, 44.0
    for costs, strict, pause_ms in steps:
        accepted, throttle = found.mutate("alice", "c", costs, now_ms, strict=strict)
        wanted = []
        for cost in costs:
            wanted.append(not strict or left >= 0)
            left -= cost if wanted[-1] else 0
        assert accepted == tuple(wanted)
        is_over = not all(wanted) if strict else bool(costs) and left < 0
        assert (throttle is not None) == is_over
        if throttle is not None:
            assert throttle.throttle_ms == pytest.approx(-left / 4 * 1000, abs=1)
        now_ms += pause_ms // 250 * 250  # one token every 250 ms: no sum has to be rounded
        left = min(44.0, left + pause_ms // 250)
