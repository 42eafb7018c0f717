"""The managers: Kafka's own tests of theirs, with a clock by hand."""

from __future__ import annotations

import math
from sys import float_info

import pytest

from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback
from kquota.metering.managers import INACTIVE_MS, REMEMBERED_CLIENTS, MutationQuotaManager, RateQuotaManager
from kquota.metering.meters import UNLIMITED, ThrottleTimes
from kquota.metering.requests import Charged
from kquota.metering.statistics import Windows
from kquota.quotas import ClientQuotaEntity, MeterKey
from tests.kit.mutations import charge_mutation

NOW = 1_700_000_000_000


def entity(text: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.from_text(text)


@pytest.fixture
def produce() -> RateQuotaManager:
    return RateQuotaManager(ClientQuotaType.PRODUCE, Windows(), DefaultQuotaCallback())


@pytest.fixture
def mutations() -> MutationQuotaManager:
    return MutationQuotaManager(Windows(10, 1000), DefaultQuotaCallback())


@pytest.mark.parametrize(
    ("first", "second", "default", "clients"),
    [
        ("client-id=p1", "client-id=p2", "client-id=<default>", (("a", "p1"), ("b", "p2"), ("c", "p3"))),
        ("user=a", "user=b", "user=<default>", (("a", "p1"), ("b", "p2"), ("c", "p3"))),
        (
            "user=a,client-id=p1",
            "user=b,client-id=p2",
            "user=<default>,client-id=<default>",
            (("a", "p1"), ("b", "p2"), ("c", "p3")),
        ),
    ],
    ids=["client-id", "user", "user-client-id"],
)
def test_limits_follow_changes_at_once(
    first: str, second: str, default: str, clients: tuple[tuple[str, str], ...], produce: RateQuotaManager
) -> None:
    """ClientQuotaManagerTest.testClientIdQuotaParsing and the others of its kind."""
    one, two, other = clients
    produce.update_quota(entity(first), 2000)
    produce.update_quota(entity(second), 4000)
    assert [produce.limit(*client) for client in clients] == [2000, 4000, None]
    assert produce.record(*one, 2500 * 11, NOW) is not None
    produce.update_quota(entity(first), 3000)
    assert produce.limit(*one) == 3000
    assert produce.record(*one, 0, NOW) is None
    produce.update_quota(entity(first), 500)
    assert produce.record(*one, 0, NOW) is not None
    produce.update_quota(entity(default), 4000)
    produce.update_quota(entity(first), None)
    assert [produce.limit(*client) for client in clients] == [4000, 4000, 4000]
    assert produce.record(*one, 1000 * 11, NOW) is None
    assert produce.record(*other, 1, NOW) is None
    assert two


def test_the_most_that_one_fetch_can_use() -> None:
    """testGetMaxValueInQuotaWindowWithNonDefaultQuotaWindow."""
    fetch = RateQuotaManager(ClientQuotaType.FETCH, Windows(4, 1000), DefaultQuotaCallback())
    assert fetch.max_value_in_quota_window("a", "c") == float_info.max
    fetch.update_quota(entity("user=<default>"), 10)
    assert fetch.max_value_in_quota_window("a", "c") == 30


def test_a_violation_and_its_end(produce: RateQuotaManager) -> None:
    """testQuotaViolation: ten seconds of 400 under 500, then 2300 at once: 2.1 s."""
    produce.update_quota(entity("client-id=<default>"), 500)
    now_ms = NOW
    for _ in range(10):
        assert produce.record("", "c", 400, now_ms) is None
        now_ms += 1000
    now_ms += 500
    throttle = produce.record("", "c", 2300, now_ms)
    assert throttle is not None
    assert (throttle.throttle_ms, throttle.value, throttle.limit) == (2100, 600.0, 500.0)
    assert MeterKey(throttle.tags) == MeterKey({"client-id": "c"})
    # The samples before the burst are forgotten one by one meanwhile, so that there is a rest to wait for.
    rest = produce.record("", "c", 0, now_ms + 2100)
    assert rest is not None
    assert rest.throttle_ms == 400
    assert produce.record("", "c", 0, now_ms + 10_000) is None


def test_nothing_is_counted_where_nothing_is_limited(produce: RateQuotaManager) -> None:
    """The mask of a broker is zero, and it keeps no meters."""
    assert produce.record("a", "c", 1e12, NOW) is None
    produce.record_no_throttle("a", "c", 1e12, NOW)
    assert list(produce.meters()) == []


def test_who_shares_a_meter(produce: RateQuotaManager) -> None:
    """User limits are shared by the user's clients, client-id limits by users; others are counted without a limit."""
    produce.update_quota(entity("user=a"), 1000)
    produce.update_quota(entity("client-id=shared"), 1000)
    for user, client_id in (("a", "x"), ("a", "shared"), ("b", "shared"), ("c", "shared"), ("d", "own")):
        produce.record(user, client_id, 1, NOW)
    assert {(meter.key.to_text(), meter.limit) for meter in produce.meters()} == {
        ("user=a", 1000.0),
        ("client-id=shared", 1000.0),
        ("client-id=own", UNLIMITED),
    }


def test_clients_that_make_up_names_do_not_fill_the_memory(produce: RateQuotaManager) -> None:
    """They share their user's meter, and are not remembered for ever."""
    produce.update_quota(entity("user=a"), 1000)
    for number in range(REMEMBERED_CLIENTS + 10):
        produce.record("a", f"c{number}", 0, NOW)
    assert len(produce._by_client) == 10
    assert len(list(produce.meters())) == 1


def test_what_was_not_sent_is_taken_back(produce: RateQuotaManager) -> None:
    """As a throttled fetch is: the next one of the same size is told the same."""
    produce.update_quota(entity("user=a"), 100)
    first = produce.record("a", "c", 5000, NOW)
    assert first is not None
    produce.unrecord("a", "c", 5000, NOW)
    assert produce.record("a", "c", 0, NOW) is None
    assert produce.record("a", "c", 5000, NOW) == first


def test_request_time_waits_for_a_window_at_most() -> None:
    """ClientRequestQuotaManager: the told time is bounded, what it would be is told too."""
    request = RateQuotaManager(ClientQuotaType.REQUEST, Windows(), DefaultQuotaCallback(), bound_ms=1000)
    request.update_quota(entity("user=a"), 1)
    throttle = request.record("a", "c", 50, NOW)
    assert throttle is not None
    assert (throttle.throttle_ms, throttle.unbounded_ms) == (1000, 40_000)


def test_a_wait_beyond_what_an_answer_holds_is_the_longest(produce: RateQuotaManager) -> None:
    """Kafka cuts it to 32 bits, and makes no wait of it."""
    produce.update_quota(entity("user=a"), 1)
    throttle = produce.record("a", "c", 3_000_000, NOW)
    assert throttle is not None
    assert (throttle.throttle_ms, throttle.unbounded_ms) == (2**31 - 1, 2_999_990_000)


def test_idle_meters_are_dropped(produce: RateQuotaManager) -> None:
    """After an hour without a record, and made anew by the next one."""
    produce.update_quota(entity("user=a"), 100)
    produce.record("a", "c", 900, NOW)
    produce.expire(NOW + INACTIVE_MS)
    assert len(list(produce.meters())) == 1
    produce.expire(NOW + INACTIVE_MS + 1)
    assert list(produce.meters()) == []
    assert produce.record("a", "c", 1, NOW + INACTIVE_MS + 1) is None


def test_strict_mutations_reject_only_when_tokens_are_missing(mutations: MutationQuotaManager) -> None:
    """The one that exhausts the bucket is accepted, however large, and nobody waits for it; nothing is counted then."""
    mutations.update_quota(entity("user=a"), 2)
    assert charge_mutation(mutations, "a", "c", 30, NOW, strict=True) == Charged(None)
    throttle, accepted = charge_mutation(mutations, "a", "c", 30, NOW, strict=True)
    assert not accepted
    assert throttle is not None
    assert (throttle.throttle_ms, throttle.value) == (5000, -10.0)
    assert not charge_mutation(mutations, "a", "c", 30, NOW + 4000, strict=True).accepted
    assert charge_mutation(mutations, "a", "c", 30, NOW + 5000, strict=True) == Charged(None)
    meter = mutations.meter("a", "c")
    assert meter is not None
    assert meter.measure(NOW + 5000) == -30


def test_permissive_mutations_are_done_and_told_to_wait(mutations: MutationQuotaManager) -> None:
    """All is taken, and the wait grows."""
    mutations.update_quota(entity("user=a"), 2)
    waits = [charge_mutation(mutations, "a", "c", partitions, NOW, strict=False) for partitions in (25, 5)]
    assert [one.throttle and one.throttle.throttle_ms for one in waits] == [2500, 5000]


def test_a_strict_client_that_is_only_rejected_starts_anew_after_an_hour(mutations: MutationQuotaManager) -> None:
    """A rejection is no record: the meter is idle, and its successor is full."""
    mutations.update_quota(entity("user=a"), 0.001)
    charge_mutation(mutations, "a", "c", 100, NOW, strict=True)
    assert not charge_mutation(mutations, "a", "c", 1, NOW + INACTIVE_MS, strict=True).accepted
    mutations.expire(NOW + INACTIVE_MS + 1)
    assert charge_mutation(mutations, "a", "c", 1, NOW + INACTIVE_MS + 1, strict=True).accepted


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_never_break_it(value: float, produce: RateQuotaManager) -> None:
    """They are over the limit or under it; what follows is forgotten with the windows."""
    produce.update_quota(entity("user=a"), 100)
    produce.record("a", "c", value, NOW)
    produce.record("a", "c", 1, NOW + 1)
    assert produce.record("a", "c", 1, NOW + 30_000) is None


def test_throttle_times_are_averaged() -> None:
    """Over the last minute or so; not a number before the first."""
    times = ThrottleTimes()
    assert math.isnan(times.measure(NOW))
    times.record(100, NOW)
    times.record(200, NOW + 1000)
    assert times.measure(NOW + 2000) == 150
    assert math.isnan(times.measure(NOW + 120_000))
