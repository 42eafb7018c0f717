"""Fair shares: the division itself, the callback on an engine, and tenants who come, go and ask for too much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isclose, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback, KafkaPrincipal, MeterUsage
from kquota.metering.engine import USAGE_EVERY_MS, QuotaManagers
from kquota.metering.fair_share import HEADROOM, FairShareCallback, fair_shares
from kquota.metering.groups import GROUPS_SETTING
from kquota.metering.guard import CallbackGuard
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
WINDOWS = 11
PRODUCE = ClientQuotaType.PRODUCE
KEY = "producer_byte_rate"

amounts = st.floats(1e-3, 1e9)
tenants = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2),
    st.tuples(st.floats(1e-3, 1e6), st.one_of(st.just(0.0), st.just(inf), amounts)),
    min_size=1,
    max_size=8,
)


def divided(capacity: float, given: dict[str, tuple[float, float]]) -> dict[str, float]:
    weights = {name: weight for name, (weight, _) in given.items()}
    return fair_shares(capacity, weights, {name: demand for name, (_, demand) in given.items()})


def at_least(value: float, bound: float) -> bool:
    return value >= bound * (1 - 1e-9)


@given(amounts, tenants)
def test_all_of_the_capacity_is_divided_and_no_more(capacity: float, given: dict[str, tuple[float, float]]) -> None:
    """Work conservation: what is not needed by one is another's, and room to grow where nobody needs it."""
    shares = divided(capacity, given)
    assert shares.keys() == given.keys()
    assert isclose(sum(shares.values()), capacity, rel_tol=1e-9)
    assert all(share >= 0 for share in shares.values())


@given(amounts, tenants)
def test_who_wants_it_has_the_part_of_its_weight(capacity: float, given: dict[str, tuple[float, float]]) -> None:
    shares = divided(capacity, given)
    whole = sum(weight for weight, _ in given.values())
    for name, (weight, demand) in given.items():
        assert at_least(shares[name], min(demand, capacity * weight / whole))


@given(amounts, tenants)
def test_nobody_has_more_than_it_needs_at_the_cost_of_others(
    capacity: float, given: dict[str, tuple[float, float]]
) -> None:
    """Max-min: where somebody lacks, nobody exceeds their demand, and nobody has more for its weight than who lacks."""
    shares = divided(capacity, given)
    lacking = [name for name, (_, demand) in given.items() if not at_least(shares[name], demand)]
    if not lacking:
        return
    for name, (weight, demand) in given.items():
        assert at_least(demand, shares[name])
        for other in lacking:
            assert at_least(shares[other] / given[other][0], shares[name] / weight)


@given(amounts, tenants, st.floats(1, 1000), st.data())
def test_more_weight_is_never_less(
    capacity: float, given: dict[str, tuple[float, float]], factor: float, data: st.DataObject
) -> None:
    one = data.draw(st.sampled_from(sorted(given)))
    weight, demand = given[one]
    assert at_least(divided(capacity, given | {one: (weight * factor, demand)})[one], divided(capacity, given)[one])


@given(amounts, tenants, st.randoms(use_true_random=False))
def test_order_does_not_matter(capacity: float, given: dict[str, tuple[float, float]], random: object) -> None:
    names = list(given)
    random.shuffle(names)  # type: ignore[attr-defined]
    shares, others = divided(capacity, given), divided(capacity, {name: given[name] for name in names})
    assert all(isclose(shares[name], others[name], rel_tol=1e-9, abs_tol=capacity * 1e-12) for name in names)


def test_shares_by_hand() -> None:
    """Three to one; what c does not need goes to the others; what nobody needs to all, by weight."""
    weights = {"a": 3.0, "b": 1.0, "c": 4.0}
    assert fair_shares(80, weights, {"a": inf, "b": inf, "c": inf}) == {"a": 30, "b": 10, "c": 40}
    assert fair_shares(80, weights, {"a": inf, "b": inf, "c": 8}) == {"a": 54, "b": 18, "c": 8}
    assert fair_shares(80, weights, {"a": inf, "b": 2, "c": 8}) == {"a": 70, "b": 2, "c": 8}
    assert fair_shares(80, weights, {"a": 10, "b": 2, "c": 4}) == {"a": 34, "b": 10, "c": 36}
    assert fair_shares(80, {}, {}) == {}


def user(name: str) -> ClientQuotaEntity:
    return ClientQuotaEntity({"user": name})


def managers_with(
    callback: FairShareCallback | CallbackGuard, quotas: Mapping[str, float], groups: str = "{}"
) -> QuotaManagers:
    managers = QuotaManagers(BrokerConfig())
    managers.swap_callback(callback, {GROUPS_SETTING: groups})
    for name, value in quotas.items():
        managers.update_quota(KEY, user(name), value)
    return managers


@dataclass
class Tenant:
    """Sends requests of equal size, and after each waits as it is told: what it is sent is all that it gets."""

    name: str
    bytes_per_s: float
    ready_ms: int = NOW
    sent: float = 0.0
    longest_wait_ms: int = 0


STEP_MS = 50


class Run:
    """Tenants on a broker, step by step."""

    def __init__(self, managers: QuotaManagers, *tenants: Tenant) -> None:
        self.managers = managers
        self.tenants = tenants
        self.now_ms = NOW

    def windows(self, count: int) -> dict[str, float]:
        """Let so many windows of a second pass; what each tenant sent in them, per second."""
        before = {tenant.name: tenant.sent for tenant in self.tenants}
        for _ in range(count * 1000 // STEP_MS):
            for tenant in self.tenants:
                self._send(tenant)
            self.now_ms += STEP_MS
            if (self.now_ms - NOW) % USAGE_EVERY_MS == 0:
                self.managers.update_usage(self.now_ms)
        return {tenant.name: (tenant.sent - before[tenant.name]) / count for tenant in self.tenants}

    def limits(self) -> dict[str, float | None]:
        return {tenant.name: self.managers.produce.limit(tenant.name, "c") for tenant in self.tenants}

    def _send(self, tenant: Tenant) -> None:
        if tenant.bytes_per_s and self.now_ms >= tenant.ready_ms:
            size = tenant.bytes_per_s * STEP_MS / 1000
            throttle = self.managers.produce.record(tenant.name, "c", size, self.now_ms)
            tenant.sent += size
            if throttle is not None and throttle.throttle_ms > 0:
                tenant.ready_ms = self.now_ms + throttle.throttle_ms
                tenant.longest_wait_ms = max(tenant.longest_wait_ms, throttle.throttle_ms)


CAPACITY = 100_000.0


@pytest.fixture
def greedy() -> Run:
    """Two who take whatever they get, three to one, after a minute."""
    managers = managers_with(FairShareCallback(), {"capacity:": CAPACITY, "weight:a": 3})
    run = Run(managers, Tenant("a", 2 * CAPACITY), Tenant("b", 2 * CAPACITY))
    run.windows(60)
    return run


def test_two_greedy_tenants_get_what_their_weights_say(greedy: Run) -> None:
    """And together no more than there is."""
    assert greedy.limits() == {"a": 75_000, "b": 25_000}
    rates = greedy.windows(120)
    assert rates["a"] / rates["b"] == pytest.approx(3, rel=0.05)
    assert CAPACITY * 0.95 <= sum(rates.values()) <= CAPACITY * 1.02


def until(run: Run, expected: dict[str, float]) -> int:
    """After how many windows limits are as expected."""
    for windows in range(1, 100):
        run.windows(1)
        if run.limits() == pytest.approx(expected):
            return windows
    raise AssertionError(run.limits())


def test_what_an_idle_tenant_leaves_is_the_others_within_two_rounds_of_windows(greedy: Run) -> None:
    """One until nothing of its last wait is left in what it is measured by, and no longer than that wait more.

    The limit that the idle one keeps is what it will be entitled to: nobody uses it meanwhile.
    """
    _, idle = greedy.tenants
    idle.bytes_per_s = 0
    waits_for = -(-max(0, idle.ready_ms - greedy.now_ms) // 1000)
    assert until(greedy, {"a": CAPACITY, "b": CAPACITY / 4}) <= waits_for + WINDOWS + 1
    greedy.windows(WINDOWS)
    assert greedy.windows(60)["a"] == pytest.approx(CAPACITY, rel=0.05)


def test_who_comes_back_waits_for_nothing_and_the_others_give_way_within_its_windows(greedy: Run) -> None:
    """As its average grows, so does what is taken from the others: together they have what there is."""
    a, b = greedy.tenants
    b.bytes_per_s = 0
    greedy.windows(4 * WINDOWS)
    assert greedy.limits() == {"a": CAPACITY, "b": CAPACITY / 4}
    b.bytes_per_s, a.longest_wait_ms, b.longest_wait_ms = 24_000, 0, 0
    assert until(greedy, {"a": 75_000, "b": 25_000}) <= WINDOWS + 1
    rates = greedy.windows(60)
    assert rates == pytest.approx({"a": 75_000, "b": 24_000}, rel=0.05)
    assert b.longest_wait_ms == 0
    assert a.longest_wait_ms < 2_000


def test_groups_and_users_are_tenants_and_client_ids_are_not() -> None:
    """What is set on a tenant is the most it gets; whoever is not there yet has a limit, too."""
    groups = '{"payments": {"users": ["pay-*"]}}'
    quotas = {"capacity:": 900, "weight:": 2, "weight:group:payments": 4, "alice": 100}
    managers = managers_with(FairShareCallback(), quotas, groups)
    produce = managers.produce
    assert produce.meter("pay-1", "x") is produce.meter("pay-2", "y")
    assert produce.meter("bob", "x") is produce.meter("bob", "y") is not produce.meter("carol", "x")
    for name in ("pay-1", "alice", "bob", "carol"):
        produce.record_no_throttle(name, "c", 5, NOW)
    managers.update_usage(NOW)
    assert produce.limit("pay-2", "c") == pytest.approx(4 * 90, rel=0.01)
    assert produce.limit("bob", "c") == pytest.approx(2 * 90, rel=0.01)
    assert produce.limit("alice", "c") == 100
    assert produce.limit("new", "c") == 900 * 2 / 12
    assert managers.fetch.limit("bob", "c") is None
    managers.update_quota(KEY, user("weight:bob"), 100)
    assert produce.limit("bob", "c") == pytest.approx(900 * 100 / 108, rel=0.01)


@pytest.mark.parametrize("capacity", [None, nan, inf, 0, -1])
def test_without_a_capacity_it_is_as_with_groups(capacity: float | None) -> None:
    """Nor is one that is no number above zero any."""
    managers = managers_with(
        FairShareCallback(), {"group:payments": 7, "alice": 5}, '{"payments": {"users": ["pay-*"]}}'
    )
    managers.update_quota(KEY, user("capacity:"), 1)
    managers.produce.record_no_throttle("pay-1", "c", 1, NOW)
    managers.update_usage(NOW)
    assert managers.produce.limit("pay-1", "c") == 1
    managers.update_quota(KEY, user("capacity:"), capacity)
    managers.update_usage(NOW)
    assert managers.produce.limit("pay-1", "c") == 7
    assert managers.produce.limit("alice", "c") == 5
    assert managers.produce.limit("bob", "c") is None


@given(
    st.floats(min_value=1e-300),
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e12), st.booleans()), unique_by=lambda one: one[0]),
    st.dictionaries(st.sampled_from("abc"), st.floats(min_value=1e-300)),
)
def test_every_limit_is_a_number_above_zero(
    capacity: float, usage: list[tuple[str, float, bool]], weights: dict[str, float]
) -> None:
    callback = FairShareCallback()
    managers_with(callback, {"capacity:": capacity} | {f"weight:{name}": weight for name, weight in weights.items()})
    tags = {name: callback.quota_metric_tags(PRODUCE, KafkaPrincipal("User", name), "c") for name in "abc"}
    callback.update_usage(PRODUCE, [MeterUsage(tags[name], rate, held) for name, rate, held in usage])
    for name in "abc":
        limit = callback.quota_limit(PRODUCE, tags[name])
        assert limit is None if capacity == inf else limit is not None and 0 < limit < inf


def test_a_satisfied_tenant_may_use_a_little_more() -> None:
    """The one who takes all gets the rest; limits are told to have changed only when they may have."""
    callback = FairShareCallback()
    managers_with(callback, {"capacity:": 1000, "weight:steady": 1, "weight:greedy": 4})
    tags = {
        name: callback.quota_metric_tags(PRODUCE, KafkaPrincipal("User", name), "c") for name in ("steady", "greedy")
    }
    usage = [MeterUsage(tags["steady"], 300, throttled=False), MeterUsage(tags["greedy"], 900, throttled=True)]
    assert callback.update_usage(PRODUCE, usage)
    assert not callback.update_usage(PRODUCE, usage)
    assert callback.quota_limit(PRODUCE, tags["steady"]) == 200
    usage[0] = MeterUsage(tags["steady"], 100, throttled=False)
    assert callback.update_usage(PRODUCE, usage)
    assert callback.quota_limit(PRODUCE, tags["greedy"]) == 1000 - 100 * HEADROOM
    assert callback.quota_limit(PRODUCE, tags["steady"]) == 200


def test_usage_reaches_it_through_a_guard() -> None:
    """And no callback that has not asked for it; one that fails there is counted, and changes nothing."""
    guard = CallbackGuard(FairShareCallback(), monotonic_ms=lambda: 0.0)
    run = Run(managers_with(guard, {"capacity:": CAPACITY, "weight:a": 3}), Tenant("a", CAPACITY * 2), Tenant("b", 1))
    run.windows(2 * WINDOWS)
    assert run.limits() == {"a": pytest.approx(CAPACITY, rel=0.001), "b": CAPACITY / 4}

    class Faulty(FairShareCallback):
        def update_usage(self, quota_type: ClientQuotaType, usage: Iterable[MeterUsage]) -> bool:
            raise RuntimeError("no room")

    guard = CallbackGuard(Faulty(), monotonic_ms=lambda: 0.0)
    run.managers.swap_callback(guard, {})
    run.windows(1)
    assert guard.faults.raised == len(ClientQuotaType)
    assert run.limits() == {"a": CAPACITY, "b": CAPACITY}, "nobody is known to be active"

    def nobody() -> Iterator[MeterUsage]:
        raise AssertionError("was asked for what is used")
        yield

    assert not CallbackGuard(DefaultQuotaCallback(), monotonic_ms=lambda: 0.0).update_usage(PRODUCE, nobody())
    managers = QuotaManagers(BrokerConfig())
    managers.update_quota(KEY, user("a"), 5)
    managers.produce.record("a", "c", 1000, NOW)
    managers.update_usage(NOW + 1000)
    assert managers.produce.limit("a", "c") == 5


def test_a_limit_comes_from_the_capacity_or_from_what_is_set_on_the_tenant() -> None:
    managers = QuotaManagers(BrokerConfig())
    callback = FairShareCallback()
    managers.swap_callback(callback, {})
    tags = {"user": "alice", "client-id": ""}
    managers.update_quota(KEY, user("alice"), 400)
    assert callback.quota_source(PRODUCE, tags) == "user=alice"
    managers.update_quota(KEY, user("capacity:"), 300)
    assert callback.quota_source(PRODUCE, tags) == "user=capacity%3A"
    managers.update_quota(KEY, user("capacity:"), 1_000)
    assert callback.quota_source(PRODUCE, tags) == "user=alice"
    assert callback.quota_source(PRODUCE, {"user": "bob", "client-id": ""}) == "user=capacity%3A"
