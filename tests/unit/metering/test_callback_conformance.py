"""What is found out about a callback on recorded traffic: each fault by one that has it, and what comes of limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.errors import InputError
from kquota.metering import callback_conformance, callback_probe
from kquota.metering.callback import (
    ClientQuotaCallback,
    ClientQuotaType,
    Cluster,
    DefaultQuotaCallback,
    MeterUsage,
)
from kquota.metering.callback_conformance import ConformanceCheck, MeterOutcome, TrafficRecord
from kquota.metering.callback_probe import CallTimes, Fault
from kquota.metering.fair_share import FairShareCallback
from kquota.metering.groups import GROUPS_SETTING, GroupQuotaCallback
from kquota.metering.partitions import PartitionQuotaCallback
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
PRODUCE, FETCH = ClientQuotaType.PRODUCE, ClientQuotaType.FETCH
MUTATION = ClientQuotaType.CONTROLLER_MUTATION
QUOTAS = {
    ClientQuotaEntity({"user": "alice"}): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0},
    ClientQuotaEntity({"user": "group:team"}): {"producer_byte_rate": 500.0},
    ClientQuotaEntity({"user": "capacity:"}): {"request_percentage": 100.0},
    ClientQuotaEntity({"ip": "10.0.0.1"}): {"connection_creation_rate": 5.0},
}
TRAFFIC = [
    TrafficRecord(NOW + second * 1000 + number, quota_type, user, "c", 300.0)
    for second in range(20)
    for quota_type in (PRODUCE, FETCH)
    for number, user in enumerate(("alice", "bob", "carol"))
]


class Clock:
    """Moved by hand, by callbacks that take their time."""

    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def checked(
    make: Callable[[], ClientQuotaCallback],
    traffic: Iterable[TrafficRecord] = TRAFFIC,
    *,
    clock: Clock | None = None,
    configs: Mapping[str, str] | None = None,
    **options: Any,
) -> ConformanceCheck:
    check = ConformanceCheck(
        make, configs or {}, options.pop("quotas", QUOTAS), BrokerConfig(), monotonic_ms=clock or Clock(), **options
    )
    check.broker(1, traffic)
    return check


def faults(make: Callable[[], ClientQuotaCallback], **options: Any) -> list[tuple[str, Fault]]:
    return [(finding.method, finding.fault) for finding in checked(make, **options).findings()]


@pytest.mark.parametrize("kind", [DefaultQuotaCallback, GroupQuotaCallback, PartitionQuotaCallback, FairShareCallback])
def test_those_that_come_along_keep_their_contract(kind: type[DefaultQuotaCallback]) -> None:
    check = checked(kind, configs={GROUPS_SETTING: '{"team": {"users": ["bob", "carol"]}}'})
    assert check.findings() == []
    assert check.records == len(TRAFFIC)
    assert sum(meter.requests for meter in check.meters()) == len(TRAFFIC)


class Faulty(DefaultQuotaCallback):
    """The default one, but for what a test changes."""

    calls = count()


class Raises(Faulty):
    def quota_metric_tags(self, quota_type: Any, principal: Any, client_id: Any) -> Any:
        raise ValueError("broken")


class NoTags(Faulty):
    def quota_metric_tags(self, quota_type: Any, principal: Any, client_id: Any) -> Any:
        return None


class Turning(Faulty):
    def quota_metric_tags(self, quota_type: Any, principal: Any, client_id: Any) -> Any:
        return {"turn": str(next(self.calls))}


class Writes(Faulty):
    def __init__(self) -> None:
        super().__init__()
        self.tags = {"user": ""}

    def quota_metric_tags(self, quota_type: Any, principal: Any, client_id: Any) -> Any:
        self.tags["user"] = principal.name
        return self.tags


class NanLimit(Faulty):
    def quota_limit(self, quota_type: Any, metric_tags: Any) -> Any:
        return math.nan


class RaisesLimit(Faulty):
    def quota_limit(self, quota_type: Any, metric_tags: Any) -> Any:
        raise ValueError("broken")


class Flapping(Faulty):
    def quota_limit(self, quota_type: Any, metric_tags: Any) -> Any:
        return 1000.0 + next(self.calls)


class Stuck(Faulty):
    def quota_reset_required(self, quota_type: Any) -> Any:
        return True


class NoFlag(Faulty):
    def quota_reset_required(self, quota_type: Any) -> Any:
        return 1

    def update_cluster_metadata(self, cluster: Any) -> Any:
        return None


class SilentUsage(Faulty):
    """Limits follow what is used, and it never says so."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = dict.fromkeys(ClientQuotaType, 1e9)

    def quota_limit(self, quota_type: Any, metric_tags: Any) -> Any:
        return self.limits[quota_type]

    def update_usage(self, quota_type: Any, usage: Iterable[MeterUsage]) -> bool:
        self.limits[quota_type] -= sum(one.rate for one in usage)
        return False


class Close(Faulty):
    def close(self) -> None:
        raise OSError("disk full")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Raises, [("quota_metric_tags", Fault.RAISED)]),
        (NoTags, [("quota_metric_tags", Fault.NO_TAGS)]),
        (Turning, [("quota_metric_tags", Fault.TAGS_CHANGED)]),
        (Writes, [("quota_metric_tags", Fault.TAGS_WRITTEN)]),
        (NanLimit, [("quota_limit", Fault.NO_LIMIT)]),
        (RaisesLimit, [("quota_limit", Fault.RAISED)]),
        (Flapping, [("quota_limit", Fault.LIMIT_CHANGED)]),
        (Stuck, [("quota_reset_required", Fault.RESET_STAYS)]),
        (NoFlag, [("quota_reset_required", Fault.NO_FLAG), ("update_cluster_metadata", Fault.NO_FLAG)]),
        (SilentUsage, [("quota_limit", Fault.LIMIT_CHANGED)]),
        (Close, [("close", Fault.RAISED)]),
    ],
)
def test_each_fault_is_found_and_no_other(kind: type[Faulty], expected: list[tuple[str, Fault]]) -> None:
    assert faults(kind) == expected


def test_a_finding_has_the_first_question_that_showed_it() -> None:
    [finding] = checked(NanLimit).findings()
    assert finding.question == "quota_limit(PRODUCE, {'user': 'alice', 'client-id': ''})"
    assert finding.answer == "answered nan"
    assert finding.count >= len(TRAFFIC)
    [finding] = checked(Raises).findings()
    assert (finding.question, finding.answer) == (
        "quota_metric_tags(PRODUCE, 'alice', 'c')",
        "raised ValueError('broken')",
    )


def test_the_worst_comes_first() -> None:
    class Several(Turning, NanLimit, Stuck, Close):
        pass

    assert [fault for _, fault in faults(Several)] == [
        Fault.RAISED,
        Fault.NO_LIMIT,
        Fault.RESET_STAYS,
    ], "tags that turn are explained by the flag"


def test_tags_are_asked_again_at_the_end() -> None:
    """Even where each client came once."""
    single = [TrafficRecord(NOW, PRODUCE, f"u{number}", "c", 1.0) for number in range(5)]
    assert faults(Turning, traffic=single) == [("quota_metric_tags", Fault.TAGS_CHANGED)]


class Announcing(Flapping):
    """Another limit with each question, and always says so, once."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: set[ClientQuotaType] = set()

    def quota_limit(self, quota_type: Any, metric_tags: Any) -> Any:
        self.raised.add(quota_type)
        return super().quota_limit(quota_type, metric_tags)

    def quota_reset_required(self, quota_type: Any) -> Any:
        was = quota_type in self.raised
        self.raised.discard(quota_type)
        return was


def test_a_limit_may_change_where_the_callback_says_so() -> None:
    """By the flag, however it is asked; by what it answers about the cluster, or about usage."""
    assert faults(Announcing) == []

    class Says(SilentUsage):
        def update_usage(self, quota_type: Any, usage: Iterable[MeterUsage]) -> bool:
            super().update_usage(quota_type, usage)
            return True

    assert faults(Says) == []


def test_the_engine_is_told_of_a_flag_that_the_probe_saw_first() -> None:
    """Once, and only for that type."""

    class OnceAtThird(Faulty):
        asked, raised, limit = 0, False, 1000.0

        def quota_limit(self, quota_type: Any, metric_tags: Any) -> Any:
            self.asked += 1
            if self.asked == 4:
                self.limit, self.raised = 10.0, True
            return self.limit

        def quota_reset_required(self, quota_type: Any) -> Any:
            was, self.raised = self.raised, False
            return was

    check = checked(OnceAtThird, [TrafficRecord(NOW + n, PRODUCE, "alice", "c", 100.0) for n in range(6)])
    assert check.findings() == []
    [meter] = check.meters()
    assert meter.callback.count == 3, "throttled as soon as the lower limit is in force"


def test_a_callback_that_cannot_be_configured() -> None:
    """Settings that it refuses are the user's to put right; anything else is a fault of its own."""

    class Broken(Faulty):
        def configure(self, configs: Mapping[str, str]) -> None:
            raise KeyError("region")

    assert faults(Broken) == [("configure", Fault.RAISED)]
    with pytest.raises(InputError, match="not JSON"):
        checked(GroupQuotaCallback, configs={GROUPS_SETTING: "{"})


def test_slow_calls_are_a_fault_where_there_are_many() -> None:
    """One in fifty is; two in all may be the machine's doing. The clock is whoever asks' own."""

    def slow_every(number: int) -> tuple[Callable[[], ClientQuotaCallback], Clock]:
        clock = Clock()

        class Slow(Faulty):
            asked = 0

            def quota_metric_tags(self, quota_type: Any, principal: Any, client_id: Any) -> Any:
                Slow.asked += 1
                clock.now_ms += 5 if Slow.asked % number == 0 else 0.25
                return super().quota_metric_tags(quota_type, principal, client_id)

        return Slow, clock

    make, clock = slow_every(50)
    check = checked(make, clock=clock)
    assert check.findings() == [], "two of 125"
    times = check.times["quota_metric_tags"]
    assert (times.over_budget, times.max_ms) == (2, 5)
    assert times.percentile_ms(0.5) == pytest.approx(0.25, rel=0.1)
    make, clock = slow_every(10)
    [finding] = checked(make, clock=clock).findings()
    assert (finding.fault, finding.answer) == (Fault.SLOW, "took 5.0 ms, 1 ms are the budget")
    make, clock = slow_every(10)
    assert checked(make, clock=clock, budget_ms=6).findings() == []


@given(st.lists(st.floats(1e-4, 1e5), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_right_to_a_tenth(times_ms: list[float], share: float) -> None:
    times = CallTimes()
    for took_ms in times_ms:
        times.add(took_ms, 1.0, ())
    exact = sorted(times_ms)[max(0, math.ceil(len(times_ms) * share - 1e-9) - 1)]
    assert exact * (1 - 1e-9) <= times.percentile_ms(share) <= exact * 1.1


def test_what_it_would_have_done_beside_kafkas_rules_and_the_log() -> None:
    """Bob and carol as a group are over its limit; Kafka's rules limit neither, and alice as they always did."""
    traffic = [one._replace(throttled_requests=1, throttle_ms=7, throttle_max_ms=7) for one in TRAFFIC]
    check = checked(GroupQuotaCallback, traffic, configs={GROUPS_SETTING: '{"team": {"users": ["bob", "carol"]}}'})
    by_tags = {(one.tags.get("group") or one.tags["user"], one.quota_type): one for one in check.meters()}
    team = by_tags["team", PRODUCE]
    assert (team.requests, team.amount, team.lowest_limit, team.highest_limit) == (40, 12_000, 500, 500)
    assert team.callback.count > 0
    assert team.callback.longest_ms == pytest.approx(3200, rel=0.01), "eleven windows of 600 bytes in ten seconds"
    assert team.kafka.count == 0
    assert (team.logged.count, team.logged.total_ms, team.logged.longest_ms) == (40, 280, 7)
    assert check.meters()[0] is team
    assert (check.first_ms, check.last_ms) == (NOW, NOW + 19_002)


def outcome(traffic: Iterable[TrafficRecord], **quotas: float) -> MeterOutcome:
    limits = {ClientQuotaEntity({"user": "alice"}): quotas}
    [meter] = checked(DefaultQuotaCallback, traffic, quotas=limits).meters()
    assert meter.callback == meter.kafka
    return meter


def test_a_fetch_that_waits_is_taken_back() -> None:
    """Its answer goes out empty, so the ones after it wait no longer."""
    records = [TrafficRecord(NOW + n, FETCH, "alice", "c", 11_000.0) for n in range(3)]
    assert outcome(records, consumer_byte_rate=1000).callback.longest_ms == 1000
    records = [one._replace(quota_type=PRODUCE) for one in records]
    assert outcome(records, producer_byte_rate=1000).callback.longest_ms > 20_000


def test_mutations_that_can_be_rejected_wait_for_those_before_them() -> None:
    """And are counted all the same."""
    records = [TrafficRecord(NOW + n * 10, MUTATION, "alice", "c", 30.0, strict=True) for n in range(2)]
    strict = outcome(records, controller_mutation_rate=2).callback
    assert (strict.count, strict.total_ms) == (1, 3990)
    records = [one._replace(strict=False) for one in records]
    assert outcome(records, controller_mutation_rate=2).callback.count == 2


def test_a_callback_is_made_for_each_broker_and_told_which_it_is() -> None:
    """As a user's own setting says, if there is one."""
    made: list[Mapping[str, str]] = []

    class Tells(Faulty):
        def configure(self, configs: Mapping[str, str]) -> None:
            made.append(configs)

    check = ConformanceCheck(Tells, {"a": "b"}, {}, BrokerConfig(), monotonic_ms=Clock())
    check.broker(1, TRAFFIC)
    check.broker(7, TRAFFIC)
    assert made == [{"broker.id": text, "node.id": text, "a": "b"} for text in ("1", "7")]
    assert {meter.broker_id for meter in check.meters()} == {1, 7}


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_conformance, "KEPT_METERS", 3)
    monkeypatch.setattr(callback_probe, "REMEMBERED", 3)
    check = checked(Turning)
    assert len(check.meters()) == 3 + 2, "one more of each type"
    assert sum(meter.requests for meter in check.meters()) == len(TRAFFIC)
    assert any(meter.tags == callback_conformance.OTHER_METERS for meter in check.meters())


def test_usage_is_told_by_the_time_of_the_traffic() -> None:
    """Every second; where nothing came for long, once."""
    told: list[ClientQuotaType] = []

    class Told(Faulty):
        def update_usage(self, quota_type: ClientQuotaType, usage: Iterable[MeterUsage]) -> bool:
            told.append(quota_type)
            return False

    seconds = [0, 0.5, 1, 2, 60]
    checked(Told, [TrafficRecord(NOW + int(second * 1000), PRODUCE, "a", "c", 1.0) for second in seconds])
    assert told == list(ClientQuotaType) * 3


def test_a_cluster_is_told_of_without_partitions() -> None:
    clusters: list[Cluster] = []

    class Seen(Faulty):
        def update_cluster_metadata(self, cluster: Cluster) -> bool:
            clusters.append(cluster)
            return False

    checked(Seen, [])
    assert clusters == [Cluster()]


def test_limits_follow_a_cluster_that_is_given() -> None:
    """Each broker is its own part of it."""
    entity = ClientQuotaEntity({"user": "acme_"})
    check = ConformanceCheck(
        PartitionQuotaCallback,
        {},
        {entity: {"producer_byte_rate": 800.0}},
        BrokerConfig(),
        cluster=Cluster.of_leaders("c", {("acme_t", 0): 1, ("acme_t", 1): 2, ("acme_t", 2): 2, ("acme_t", 3): 2}),
        monotonic_ms=lambda: 0.0,
    )
    for broker_id in (1, 2):
        check.broker(broker_id, [TrafficRecord(NOW, PRODUCE, "acme_a", "c", 1.0)])
    assert {meter.broker_id: meter.highest_limit for meter in check.meters()} == {1: 200.0, 2: 600.0}
