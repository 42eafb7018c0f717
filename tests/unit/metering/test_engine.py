"""Traces replayed: what is answered, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kquota.cli import run
from kquota.config import CALLBACK_SETTING, BrokerConfig
from kquota.errors import InputError
from kquota.metering.replay import Replay, replay

NOW = 1_700_000_000_000
PRODUCE, MUTATION = "producer_byte_rate", "controller_mutation_rate"


def quota(entity: Mapping[str, str | None], value: float | None, key: str = PRODUCE) -> dict[str, Any]:
    return {"op": "quota", "entity": entity, "key": key, "value": value}


def record(t_ms: int, value: float, key: str = PRODUCE, op: str = "record", **more: Any) -> dict[str, Any]:
    return {"op": op, "t_ms": t_ms, "user": "alice", "client-id": "etl", "key": key, "value": value, **more}


def answers(*operations: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(replay(operations, BrokerConfig()))


def test_a_record_tells_its_meter_limit_and_wait() -> None:
    assert answers(quota({"user": "alice"}, 1000), record(NOW, 25_000), record(NOW + 5000, 0, op="unrecord")) == [
        {
            "t_ms": NOW,
            "meter": {"user": "alice"},
            "limit": 1000,
            "value": 2500.0,
            "throttle_ms": 15_000,
            "unbounded_throttle_ms": 15_000,
        }
    ]


def test_without_quotas_nothing_is_known() -> None:
    [answer] = answers(record(NOW, 5))
    assert answer == {
        "t_ms": NOW, "meter": {}, "limit": None, "value": None, "throttle_ms": 0, "unbounded_throttle_ms": 0,
    }  # fmt: skip


def test_what_is_not_limited_is_counted_all_the_same() -> None:
    """Where others are."""
    [answer] = answers(quota({"user": "bob"}, 1), record(NOW, 50))
    assert (answer["meter"], answer["limit"], answer["value"]) == ({"user": "alice"}, None, 5.0)


def test_a_static_default_limits_by_client_id() -> None:
    config = BrokerConfig(quota_producer_default=10)
    [answer] = replay([record(NOW, 500)], config)
    assert (answer["meter"], answer["limit"], answer["throttle_ms"]) == ({"client-id": "etl"}, 10, 40_000)


def test_strict_mutations_say_whether_they_were_rejected() -> None:
    limit = quota({"user": "alice"}, 2, MUTATION)
    found = answers(limit, record(NOW, 30, MUTATION, strict=True), record(NOW + 1000, 1, MUTATION, strict=True))
    assert [(one["rejected"], one["value"], one["throttle_ms"]) for one in found] == [(False, -8, 0), (True, -6, 3000)]
    [permissive] = answers(limit, record(NOW, 30, MUTATION))
    assert ("rejected" in permissive, permissive["throttle_ms"]) == (False, 4000)


@pytest.mark.parametrize(
    ("statistic", "values", "waits"),
    [("token-bucket", [-60, -55, 0], [0, 11_000, 0]), ("spread-rate", [5.6, 5.55, 5], [0, 11_000, 0])],
)
def test_the_two_statistics_of_kip_599(
    statistic: str, values: list[float], waits: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A burst of 560 under 5 per second over 100 s is admitted, and the next change after 12 s."""
    trace = tmp_path / "trace.jsonl"
    changes = [(0, 560), (1000, 1), (12_000, 0)]
    lines = [
        quota({"user": "alice"}, 5, MUTATION),
        *(record(NOW + at_ms, partitions, MUTATION, strict=True) for at_ms, partitions in changes),
        {"op": "quota", "entity": {"user": "alice"}, "key": MUTATION, "value": None},
        {"op": "quota", "entity": {"user": "bob"}, "key": MUTATION, "value": 1},
        record(NOW + 13_000, 1_000_000, MUTATION),
        record(NOW + 13_000, 1, MUTATION, op="unrecord"),
        {"op": "metrics", "t_ms": NOW + 13_000},
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    windows = ["-D", "controller.quota.window.num=100", "--mutation-statistic", statistic]
    assert run(["engine", "replay", str(trace), *windows]) == 0
    *found, metrics = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["rejected"] for one in found[:3]] == [False, True, False]
    assert [one["value"] for one in found[:3]] == pytest.approx(values)
    assert [one["throttle_ms"] for one in found[:3]] == waits
    assert (found[3]["limit"], found[3]["throttle_ms"]) == (None, 0)
    names = {one["name"] for one in metrics["metrics"] if one["group"] == "ControllerMutation"}
    assert ("tokens" in names, "mutation-rate" in names) == (statistic == "token-bucket", True)


@pytest.mark.parametrize(("wait_ms", "throttle_ms"), [(3_629_999, 36_000_000 - 3_629_999), (3_630_000, 0)])
def test_idle_meters_begin_anew(wait_ms: int, throttle_ms: int) -> None:
    """At the first half minute of the trace's time that comes more than an hour after the last record."""
    limit = quota({"user": "alice"}, 1, MUTATION)
    first, second = answers(limit, record(NOW, 36_011, MUTATION), record(NOW + wait_ms, 0, MUTATION))
    assert first["throttle_ms"] == 36_000_000
    assert second["throttle_ms"] == throttle_ms


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({}, "op is None"),
        ({"op": "erase"}, "op is 'erase'"),
        ({"op": "time"}, "t_ms is missing"),
        ({"op": "time", "t_ms": "now"}, "t_ms cannot be 'now'"),
        (record(NOW, True), "value cannot be True"),
        (record(NOW, 1, "connection_creation_rate"), "ip is missing"),
        (record(NOW, 1, "connection_creation_rate", op="unrecord"), "not one of users and client ids"),
        (record(NOW, 2, "connection_creation_rate", ip="::1"), "value cannot be 2: connections are counted one by one"),
        (record(NOW, 1, "connection_creation_rate", ip="1:2"), "ip cannot be '1:2': an address is expected"),
        (record(NOW, 1, "connection_creation_rate", ip="::1", listener=""), "listener cannot be ''"),
        (quota({"user": "a"}, 1, "connection_creation_rate"), "set on an ip alone"),
        (record(NOW, 1, MUTATION, op="record_no_throttle"), "never recorded without a look at the limit"),
        ({"op": "exempt", "t_ms": NOW}, "value is missing"),
        (record(NOW, 10**400), "value cannot be 1000"),
        ({"op": "time", "t_ms": 2**63}, "t_ms cannot be 9223372036854775808"),
        (record(NOW, 1, strict=True), "strict goes with controller_mutation_rate"),
        (quota({"user": "a"}, 1, "nonsense"), "key nonsense"),
        (
            {"op": "callback", "class": None, "configs": {"quota.producer.default": "1"}},
            "configs cannot have quota.producer.default: it is the broker's",
        ),
    ],
)
def test_what_is_no_operation_is_refused(operation: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=f"operation 2: .*{reason}"):
        answers({"op": "time", "t_ms": NOW}, operation)


def test_the_command_reads_and_writes_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers plain, and numbers that are none as texts, both ways."""
    trace = tmp_path / "trace.jsonl"
    lines = [quota({"user": None}, 1000), {}, record(NOW, 1e22), {**record(NOW, 0), "value": "NaN"}]
    trace.write_text("\n".join([json.dumps(line) if line else "" for line in lines]))
    assert run(["engine", "replay", str(trace)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert '"value": 1000000000000000000000, ' in first
    assert '"value": "NaN", "throttle_ms": 0' in second


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "trace.jsonl:1: this is not JSON"),
        ("\n[1]", "trace.jsonl:2: an object is expected"),
        ('{"op": "record", "value": "many"}', "trace.jsonl:1: value: a number is expected, not 'many'"),
    ],
)
def test_the_command_names_the_line(
    content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(content)
    assert run(["engine", "replay", str(trace)]) == 2
    assert reason in capsys.readouterr().err
    assert run(["engine", "replay", str(tmp_path / "missing")]) == 2


GROUPS = {"kquota.groups": json.dumps({"pay": {"users": ["alice", "bob"]}})}


def test_a_trace_names_its_callback_and_swaps_it() -> None:
    """Meters keep what was counted on them: alice's own is as it was when Kafka's rules come back."""
    found = answers(
        quota({"user": "group:pay"}, 1_000),
        quota({"user": "alice"}, 5_000),
        record(NOW, 50_000),
        {"op": "callback", "class": "groups", "configs": GROUPS},
        record(NOW + 1, 12_000),
        {"op": "callback", "class": None},
        record(NOW + 1, 0),
    )
    assert [answer["meter"] for answer in found] == [{"user": "alice"}, {"group": "pay"}, {"user": "alice"}]
    assert [answer["limit"] for answer in found] == [5_000, 1_000, 5_000]
    assert found[1]["throttle_ms"] == 2_000
    assert found[2]["value"] == pytest.approx(50_000 / 10.001)


def test_a_brokers_settings_name_the_first_callback() -> None:
    replayed = Replay(BrokerConfig(), {CALLBACK_SETTING: "groups", **GROUPS})
    [answer] = replayed.answers([quota({"user": "group:pay"}, 1_000), record(NOW, 12_000)])
    assert answer["meter"] == {"group": "pay"}


def test_a_callback_that_cannot_be_set_up_is_told_of_and_the_one_before_it_stays() -> None:
    told: list[str] = []
    replayed = Replay(BrokerConfig(), {CALLBACK_SETTING: "groups", **GROUPS}, report=told.append)
    broken = {"op": "callback", "class": "groups", "configs": {"kquota.groups": "["}}
    [answer] = replayed.answers([quota({"user": "group:pay"}, 1_000), broken, record(NOW, 12_000)])
    assert answer["meter"] == {"group": "pay"}
    assert len(told) == 1
    assert "kquota.groups: this is not JSON" in told[0]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "callback"},
        {"op": "callback", "class": 5},
        {"op": "callback", "class": "nobody"},
        {"op": "callback", "class": "groups", "configs": []},
        {"op": "callback", "class": "groups", "configs": {"kquota.groups": 5}},
    ],
)
def test_an_operation_that_names_no_callback_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        answers(operation)


def test_a_first_callback_that_cannot_be_set_up_is_refused() -> None:
    with pytest.raises(InputError, match="not JSON"):
        Replay(BrokerConfig(), {CALLBACK_SETTING: "groups", "kquota.groups": "["})


def test_a_callback_that_follows_usage_is_told_of_it_each_second() -> None:
    """What the idle one leaves is the other's."""
    settings = {CALLBACK_SETTING: "fair-share"}
    operations = [quota({"user": "capacity:"}, 1_000), record(NOW, 100), {**record(NOW, 100), "user": "bob"}]
    operations += [record(NOW + second * 1_000, 2_000) for second in range(1, 40)]
    found = list(Replay(BrokerConfig(), settings).answers(operations))
    assert found[2]["limit"] < 1_000
    assert found[-1]["limit"] == 1_000


def test_a_swap_that_is_refused_is_told_after_any_number_of_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mute_callback.py").write_text(
        "from kquota.metering.callback import DefaultQuotaCallback\n"
        "class Mute(DefaultQuotaCallback):\n"
        "    def quota_metric_tags(self, quota_type, principal, client_id):\n"
        "        raise ValueError('no tags today')\n"
    )
    trace = tmp_path / "trace.jsonl"
    swap = {"op": "callback", "class": "groups", "configs": {"kquota.groups": "[]"}}
    lines = [quota({"user": "alice"}, 1_000), *(record(NOW + at, 1) for at in range(20)), swap]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(sys, "path", [*sys.path])
        assert run(["engine", "replay", str(trace), "-D", "client.quota.callback.class=mute_callback:Mute"]) == 0
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("kquota: callback groups: the callback could not be set up, the one before it stays: ")


def test_faults_of_a_callback_are_told_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken_callback.py").write_text(
        "from kquota.metering.callback import DefaultQuotaCallback\n"
        "class Broken(DefaultQuotaCallback):\n"
        "    def quota_metric_tags(self, quota_type, principal, client_id):\n"
        "        raise ValueError('no tags today')\n"
    )
    trace = tmp_path / "trace.jsonl"
    lines = [quota({"user": "alice"}, 1_000), *(record(NOW + at, 1) for at in range(20))]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(sys, "path", [*sys.path])
        named = "client.quota.callback.class=broken_callback:Broken"
        assert run(["engine", "replay", str(trace), "-D", named]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 20
    assert "no tags today" in printed.err
    assert printed.err.count("kquota: ") == 11
    assert "more faults" in printed.err
