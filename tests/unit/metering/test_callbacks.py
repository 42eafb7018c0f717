"""Callbacks: the contract as KIP-257 has it, swapped while traffic runs, and kept from stopping it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from kquota.cli import run
from kquota.config import BrokerConfig
from kquota.errors import CallbackRefusedError, InputError
from kquota.metering.callback import (
    CallbackQuotaEntity,
    ClientQuotaType,
    Cluster,
    ConfigEntity,
    ConfigEntityType,
    DefaultQuotaCallback,
    KafkaPrincipal,
    Principal,
)
from kquota.metering.engine import QuotaManagers
from kquota.metering.fair_share import FairShareCallback
from kquota.metering.groups import GroupQuotaCallback
from kquota.metering.guard import KEPT_ANSWERS, CallbackGuard
from kquota.metering.loading import ENTRY_POINTS, load_callback
from kquota.metering.partitions import PartitionQuotaCallback
from kquota.metering.replay import Replay
from kquota.metering.requests import RequestQuotas
from kquota.quotas import ClientQuotaEntity, MeterKey
from tests.kit.mutations import charge_mutation

NOW = 1_700_000_000_000
PRODUCE = ClientQuotaType.PRODUCE
ALICE = KafkaPrincipal("User", "alice")


class Groups(DefaultQuotaCallback):
    """One limit for all users of a group, whose name stands before the first underscore; tells what it was called."""

    def __init__(self, limit: float = 100.0) -> None:
        super().__init__()
        self.limit = limit
        self.calls: list[tuple[Any, ...]] = []

    def configure(self, configs: Mapping[str, str]) -> None:
        self.calls.append(("configure", dict(configs)))

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        return {"group": principal.name.partition("_")[0]}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.limit

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, new_value: float) -> None:
        self.calls.append(("update_quota", quota_type, quota_entity.entity.to_text(), new_value))

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        self.calls.append(("update_cluster_metadata", cluster.cluster_id))
        return True

    def close(self) -> None:
        self.calls.append(("close",))


PAGES = sorted((Path(__file__).parents[3] / "docs" / "callbacks").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_examples_of_the_documentation(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They run, and print what the page says that they print."""
    examples = re.findall("```python\n(.*?)```\n\n```text\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for program, printed in examples:
        exec(program, {"__name__": "example"})
        assert capsys.readouterr().out == printed


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_traces_of_the_documentation(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run as the page says, and print what it shows."""
    monkeypatch.chdir(PAGES[0].parents[2])
    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"```console\n\$ kquota (engine replay .*?)\n(.*?)```", text, re.DOTALL)
    assert bool(commands) == (page.stem == "partitions")
    for command, printed in commands:
        assert run(shlex.split(command)) == 0
        assert capsys.readouterr().out == printed


def test_every_callback_that_comes_along_has_a_page() -> None:
    """But the default, whose rules are Kafka's."""
    installed = {point.name for point in entry_points(group=ENTRY_POINTS) if point.module.startswith("kquota.")}
    assert {page.stem for page in PAGES} == installed - {"default"} | {"README"}


def test_entities_as_callbacks_see_them() -> None:
    """The user first; a default has an empty name, as the KIP says."""
    both = CallbackQuotaEntity(ClientQuotaEntity({"client-id": "etl", "user": None}))
    assert both.config_entities() == [
        ConfigEntity("", ConfigEntityType.DEFAULT_USER),
        ConfigEntity("etl", ConfigEntityType.CLIENT_ID),
    ]
    [one] = CallbackQuotaEntity(ClientQuotaEntity({"client-id": None})).config_entities()
    assert one == ConfigEntity("", ConfigEntityType.DEFAULT_CLIENT_ID)


def test_a_swapped_callback_knows_everything_before_it_is_asked() -> None:
    """Settings, all quotas, the cluster; then the one before it is closed."""
    managers = QuotaManagers(BrokerConfig())
    alice = ClientQuotaEntity({"user": "alice"})
    managers.update_quota("producer_byte_rate", alice, 10)
    managers.update_quota("request_percentage", alice, 20)
    managers.update_quota("request_percentage", alice, None)
    managers.update_cluster_metadata(Cluster("c1"))
    first, second = Groups(), Groups()
    managers.swap_callback(first, {"a": "b"})
    assert first.calls == [
        ("configure", {"a": "b"}),
        ("update_quota", PRODUCE, "user=alice", 10),
        ("update_cluster_metadata", "c1"),
    ]
    managers.swap_callback(second, {})
    assert first.calls[-1] == ("close",)


def test_meters_with_equal_tags_keep_what_was_counted() -> None:
    """Across a swap; the limit is the new one's at once."""
    managers = QuotaManagers(BrokerConfig(), Groups(1e9))
    assert managers.produce.record("team_a", "c", 50_000, NOW) is None
    managers.swap_callback(Groups(1000), {})
    throttle = managers.produce.record("team_b", "c", 0, NOW)
    assert throttle is not None
    assert (throttle.value, throttle.limit, dict(throttle.tags)) == (5000.0, 1000, {"group": "team"})
    managers.swap_callback(DefaultQuotaCallback(), {})
    assert managers.produce.record("team_a", "c", 1e12, NOW) is None


class ByType(DefaultQuotaCallback):
    """One limit for all service accounts, and Kafka's rules for everybody else."""

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        if isinstance(principal, Employee):
            return {"department": principal.department}
        if principal.principal_type == "ServiceAccount":
            return {"type": principal.principal_type}
        return super().quota_metric_tags(quota_type, principal, client_id)

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return 10.0 if "user" not in metric_tags else super().quota_limit(quota_type, metric_tags)


@dataclass(frozen=True)
class Employee(KafkaPrincipal):
    """What a broker's own principal builder may make."""

    department: str


@pytest.mark.parametrize("is_guarded", [False, True])
def test_the_principal_reaches_the_callback_as_it_is(is_guarded: bool) -> None:
    """Its type and its class; a name alone is a principal of the type User."""
    callback = CallbackGuard(ByType(), monotonic_ms=Clock()) if is_guarded else ByType()
    managers = QuotaManagers(BrokerConfig(), callback)

    def tags(user: Principal) -> dict[str, str]:
        for manager in (managers.produce, managers.fetch, managers.request):
            manager.record(user, "c", 1, NOW)
            manager.record_no_throttle(user, "c", 1, NOW)
            manager.unrecord(user, "c", 1, NOW)
            manager.note_throttle(user, "c", 1, NOW)
        charge_mutation(managers.controller_mutation, user, "c", 1, NOW, strict=True)
        charge_mutation(managers.controller_mutation, user, "c", 1, NOW, strict=False)
        managers.controller_mutation.unrecord(user, "c", 1, NOW)
        RequestQuotas(managers).produce(user, "c", 1, 0.1, NOW)
        found = [managers.of(quota_type).meter(user, "c") for quota_type in ClientQuotaType]
        assert len({meter.key for meter in found if meter is not None}) == 1
        assert found[0] is not None
        return {tag: value for tag, value in found[0].tags.items() if value}

    assert tags("bob") == tags(KafkaPrincipal("User", "bob")) == {"client-id": "c"}
    assert tags(KafkaPrincipal("ServiceAccount", "bob")) == {"type": "ServiceAccount"}
    assert tags(Employee("User", "bob", "sales")) == {"department": "sales"}
    assert tags(Employee("User", "bob", "legal")) == {"department": "legal"}
    assert managers.produce.limit(KafkaPrincipal("ServiceAccount", "eve"), "d") == 10


def test_kafkas_rules_look_at_the_name_alone() -> None:
    managers = QuotaManagers(BrokerConfig())
    managers.update_quota("producer_byte_rate", ClientQuotaEntity({"user": "bob"}), 5)
    meter = managers.produce.meter("bob", "c")
    assert meter is not None
    assert managers.produce.meter(KafkaPrincipal("ServiceAccount", "bob"), "c") is meter


def test_a_trace_says_of_which_type_a_principal_is() -> None:
    settings = {"client.quota.callback.class": f"{__name__}:ByType"}
    record = {"op": "record", "t_ms": NOW, "user": "u", "client-id": "c", "key": "producer_byte_rate", "value": 1}
    of_type = {**record, "principal-type": "ServiceAccount"}
    is_refunded = {**of_type, "op": "unrecord"}
    answers = list(Replay(BrokerConfig(), settings).answers([record, of_type, is_refunded, of_type]))
    assert [(answer["meter"], answer["value"]) for answer in answers] == [
        ({"client-id": "c"}, 0.1),
        ({"type": "ServiceAccount"}, 0.1),
        ({"type": "ServiceAccount"}, 0.1),
    ]
    with pytest.raises(InputError, match="operation 1: principal-type cannot be ''"):
        list(Replay(BrokerConfig()).answers([{**record, "principal-type": ""}]))


def test_equal_tags_are_one_meter_in_any_order() -> None:
    class Turning(Groups):
        def quota_metric_tags(self, quota_type: Any, principal: Any, client_id: Any) -> Mapping[str, str]:
            tags = [("group", "g"), ("region", "eu")]
            return dict(tags if client_id == "a" else reversed(tags))

    managers = QuotaManagers(BrokerConfig(), Turning())
    assert managers.produce.meter("u", "a") is managers.produce.meter("u", "b")


def test_a_callback_that_cannot_be_set_up_changes_nothing() -> None:
    """The one before it goes on, and is not closed."""

    class Broken(Groups):
        def update_quota(self, quota_type: Any, quota_entity: Any, new_value: float) -> None:
            raise RuntimeError("no room")

    before = Groups(10)
    managers = QuotaManagers(BrokerConfig(), before)
    managers.update_quota("producer_byte_rate", ClientQuotaEntity({"user": None}), 5)
    with pytest.raises(CallbackRefusedError, match="no room"):
        managers.swap_callback(Broken(), {})
    assert ("close",) not in before.calls
    assert managers.produce.record("team_a", "c", 1000, NOW) is not None


class Stubborn(Groups):
    """Raises in one of its methods, from the call on that is given; tells what it was called."""

    def __init__(self, method: str, limit: float = 1.0, after: int = 0) -> None:
        super().__init__(limit)
        self.method, self.after = method, after

    def __getattribute__(self, name: str) -> Any:
        if name in ("method", "after", "calls") or name != self.method:
            return super().__getattribute__(name)
        original = super().__getattribute__(name)

        def call(*arguments: Any) -> Any:
            answer = original(*arguments)
            self.after -= 1
            if self.after < 0:
                raise LookupError(f"no {name}")
            return answer

        return call


def limits(managers: QuotaManagers) -> list[float]:
    return [meter.limit for quota_type in ClientQuotaType for meter in managers.of(quota_type).meters()]


def managers_with_meters(callback: Groups) -> QuotaManagers:
    """Of two groups, on two types, under a quota and in a cluster."""
    managers = QuotaManagers(BrokerConfig(), callback)
    managers.update_quota("producer_byte_rate", ClientQuotaEntity({"user": "a"}), 5)
    managers.update_cluster_metadata(Cluster("c1"))
    for name in ("one_a", "two_a"):
        assert managers.produce.record(name, "c", 1, NOW) is None
        assert managers.fetch.record(name, "c", 1, NOW) is None
    return managers


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("method", ["configure", "update_quota", "update_cluster_metadata", "quota_limit"])
def test_a_swap_is_all_or_nothing(method: str, after: int, is_guarded: bool) -> None:
    """Whatever the new one raises in, and when: the one before stays with all limits, and the new one is closed."""
    before, new = Groups(10), Stubborn(method, after=after)
    managers = managers_with_meters(before)
    callback = CallbackGuard(new, monotonic_ms=Clock()) if is_guarded else new
    if after and method != "quota_limit":
        assert managers.swap_callback(callback, {}) is None
        assert limits(managers) == [1] * 4
        return
    with pytest.raises(CallbackRefusedError, match=f"the one before it stays: .*no {method}"):
        managers.swap_callback(callback, {})
    assert limits(managers) == [10] * 4
    assert ("close",) not in before.calls
    assert new.calls[-1] == ("close",)
    managers.update_quota("producer_byte_rate", ClientQuotaEntity({"user": "b"}), 6)
    assert before.calls[-1] == ("update_quota", PRODUCE, "user=b", 6)
    assert not (isinstance(callback, CallbackGuard) and callback.faults.raised)


def test_a_guarded_callback_that_answers_nonsense_is_not_used() -> None:
    """It has no last right answer yet, so that all would be without a limit."""
    managers = managers_with_meters(Groups(10))
    guard = CallbackGuard(Groups(math.nan), monotonic_ms=Clock())
    with pytest.raises(CallbackRefusedError, match="quota_limit answered nan"):
        managers.swap_callback(guard, {})
    assert limits(managers) == [10] * 4


@pytest.mark.parametrize("is_guarded", [False, True])
def test_one_that_cannot_be_closed_is_replaced_all_the_same(is_guarded: bool) -> None:
    """And the caller is given what it raised; behind a guard, it is one of its faults."""
    before, words = Stubborn("close", 10), list[str]()
    managers = managers_with_meters(before)
    if is_guarded:
        managers.swap_callback(CallbackGuard(before, monotonic_ms=Clock(), report=words.append), {})
    closing = managers.swap_callback(Groups(20), {})
    told = words if is_guarded else [f"close raised {closing!r}"]
    assert told == ["close raised LookupError('no close')"]
    assert limits(managers) == [20] * 4


def test_a_new_one_that_can_neither_be_used_nor_closed() -> None:
    """Both are told."""

    class Hopeless(Stubborn):
        def configure(self, configs: Mapping[str, str]) -> None:
            raise InputError("no settings")

    managers = managers_with_meters(Groups(10))
    with pytest.raises(CallbackRefusedError, match=r"no settings; nor could it be closed: LookupError\('no close'\)"):
        managers.swap_callback(Hopeless("close"), {})
    assert limits(managers) == [10] * 4


def test_limits_that_cannot_be_asked_for_again_stay() -> None:
    """All of a type, and not those alone that come after the fault."""
    callback = Stubborn("quota_limit", 10, after=5)  # four for the new meters
    managers = managers_with_meters(callback)
    callback.limit = 20
    with pytest.raises(LookupError):
        managers.produce.refresh()
    assert limits(managers) == [10] * 4


class Faulty(Groups):
    """Answers what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Any = {"group": "g"}
        self.answer: Any = 5.0

    def quota_metric_tags(self, quota_type: Any, principal: Any, client_id: Any) -> Any:
        self.calls.append(("tags",))
        return self.tags() if callable(self.tags) else self.tags

    def quota_limit(self, quota_type: Any, metric_tags: Any) -> Any:
        return self.answer() if callable(self.answer) else self.answer


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def raising() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("tags", [raising, None, "text", {"user": None}, {1: "a"}, ["a"]])
def test_without_tags_a_request_is_counted_on_itself(tags: Any) -> None:
    """Or on the last tags that there were."""
    callback = Faulty()
    guard = CallbackGuard(callback, monotonic_ms=Clock())
    callback.tags = tags
    assert guard.quota_metric_tags(PRODUCE, ALICE, "c") == {"user": "alice", "client-id": "c"}
    callback.tags = {"group": "g"}
    assert guard.quota_metric_tags(PRODUCE, ALICE, "c") == {"group": "g"}
    callback.tags = tags
    assert guard.quota_metric_tags(PRODUCE, ALICE, "c") == {"group": "g"}
    assert guard.faults.raised + guard.faults.nonsense == 2


@pytest.mark.parametrize("answer", [raising, 0, -1, math.nan, "5", True, []])
def test_a_limit_that_is_none_throttles_nobody(answer: Any) -> None:
    """The last right one goes on."""
    callback = Faulty()
    guard = CallbackGuard(callback, monotonic_ms=Clock())
    callback.answer = answer
    assert guard.quota_limit(PRODUCE, {"group": "g"}) is None
    callback.answer = 7.0
    assert guard.quota_limit(PRODUCE, {"group": "g"}) == 7.0
    callback.answer = answer
    assert guard.quota_limit(PRODUCE, {"group": "g"}) == 7.0
    callback.answer = None
    assert guard.quota_limit(PRODUCE, {"group": "g"}) is None


def test_faults_in_a_row_open_the_breaker() -> None:
    """The callback is left alone for a while; one fault after that, and it is again. Updates are told it always."""
    clock, callback, words = Clock(), Faulty(), list[str]()
    guard = CallbackGuard(callback, monotonic_ms=clock, breaker_after=3, rest_ms=1000, report=words.append)

    def slow() -> dict[str, str]:
        clock.now_ms += 5
        return {"group": "slow"}

    callback.tags = slow
    for _ in range(3):
        assert guard.quota_metric_tags(PRODUCE, ALICE, "c") == {"group": "slow"}
    assert guard.is_open
    asked = len(callback.calls)
    assert guard.quota_metric_tags(PRODUCE, ALICE, "c") == {"group": "slow"}
    assert guard.quota_metric_tags(PRODUCE, KafkaPrincipal("User", "bob"), "c") == {"user": "bob", "client-id": "c"}
    assert not guard.quota_reset_required(PRODUCE)
    assert len(callback.calls) == asked
    guard.update_quota(PRODUCE, CallbackQuotaEntity(ClientQuotaEntity({"user": "a"})), 1.0)
    assert callback.calls[-1] == ("update_quota", PRODUCE, "user=a", 1.0)
    assert (guard.faults.slow, guard.faults.not_asked) == (3, 3)
    clock.now_ms += 1000
    callback.tags = raising
    assert guard.quota_metric_tags(PRODUCE, ALICE, "c") == {"group": "slow"}
    assert guard.is_open
    clock.now_ms += 1000
    callback.tags = {"group": "well"}
    assert guard.quota_metric_tags(PRODUCE, ALICE, "c") == {"group": "well"}
    assert not guard.is_open
    assert "took 5.0 ms" in words[0]
    assert "3 faults in a row" in words[3]


def test_a_right_answer_ends_a_row_of_faults() -> None:
    callback = Faulty()
    guard = CallbackGuard(callback, monotonic_ms=Clock(), breaker_after=2)
    for tags in (raising, {"a": "b"}) * 5:
        callback.tags = tags
        guard.quota_metric_tags(PRODUCE, ALICE, "c")
    assert not guard.is_open
    assert guard.faults.raised == 5


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fair-share", FairShareCallback),
        ("groups", GroupQuotaCallback),
        ("partitions", PartitionQuotaCallback),
        ("kquota.metering.callback:DefaultQuotaCallback", DefaultQuotaCallback),
    ],
)
def test_a_callback_by_its_name(name: str, kind: type[DefaultQuotaCallback]) -> None:
    """As an installed one, or as a class."""
    assert type(load_callback(name)) is kind


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nonsense", "name one that is installed: default, fair-share, groups, partitions"),
        ("no.such.module:Class", "no such class"),
        ("kquota.metering.callback:Missing", "no such class"),
        (":Class", "no such class"),
        ("kquota.metering.callback:KafkaPrincipal", "it cannot be made"),
        ("kquota.metering.meters:ThrottleTimes", "no callback: there is no configure, quota_metric_tags"),
    ],
)
def test_what_is_no_callback_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        load_callback(name)


def test_what_is_remembered_is_bounded() -> None:
    guard = CallbackGuard(Faulty(), monotonic_ms=Clock())
    for number in range(KEPT_ANSWERS + 10):
        guard.quota_metric_tags(PRODUCE, ALICE, str(number))
    assert len(guard._tags) <= KEPT_ANSWERS


def test_a_guarded_callback_serves_traffic_whatever_it_does() -> None:
    """Requests are counted, and nobody waits because of a fault."""
    callback = Faulty()
    managers = QuotaManagers(BrokerConfig(), CallbackGuard(callback, monotonic_ms=Clock()))
    callback.answer = callback.tags = raising
    assert managers.produce.record("alice", "c", 1e9, NOW) is None
    [meter] = managers.produce.meters()
    assert meter.key == MeterKey({"user": "alice", "client-id": "c"})
