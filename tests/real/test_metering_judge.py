"""The judge of the metering engine gives the answers that Kafka's own unit tests, and its formulas, expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pytest

from kquota.config import BrokerConfig
from tests.kit.kafka import NEW, needs_compiler, needs_kafka
from tests.kit.metering_differential import metering_judge
from tests.kit.metering_traces import Trace

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PRODUCE, REQUEST, MUTATION = "producer_byte_rate", "request_percentage", "controller_mutation_rate"
ALICE: Mapping[str, str | None] = {"user": "alice"}
NO_QUOTAS: Mapping[str, Any] = {"meter": {}, "limit": None, "value": None, "throttle_ms": 0, "unbounded_throttle_ms": 0}

Operation: TypeAlias = Mapping[str, Any]
Ask: TypeAlias = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Give it operations, and the broker's settings: the answers."""
    jars = needs_kafka(NEW)
    needs_compiler()
    with metering_judge(jars, tmp_path_factory.mktemp("judge") / "errors") as judge:

        def answers(*operations: Operation, **settings: int) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = judge.ask(Trace(1, "", BrokerConfig(**settings), operations).line())
            return found

        yield answers


def quota(key: str, value: float | None, entity: Mapping[str, str | None] = ALICE) -> Operation:
    return {"op": "quota", "entity": entity, "key": key, "value": value}


def record(key: str, after_ms: int, value: float, client: tuple[str, str] = ("alice", "app"), **more: Any) -> Operation:
    client_of = {"user": client[0], "client-id": client[1]}
    return {"op": "record", "t_ms": START_MS + after_ms, **client_of, "key": key, "value": value, **more}


def unrecord(key: str, after_ms: int, value: float, client: tuple[str, str] = ("alice", "app")) -> Operation:
    return {**record(key, after_ms, value, client), "op": "unrecord"}


def column(answers: list[dict[str, Any]], name: str) -> list[Any]:
    return [one[name] for one in answers]


def test_the_whole_answer(ask: Ask) -> None:
    [answer] = ask(quota(PRODUCE, 100), record(PRODUCE, 0, 2_000))
    assert answer == {
        "t_ms": START_MS,
        "meter": {"user": "alice"},
        "limit": 100,
        "value": 200,
        "throttle_ms": 10_000,
        "unbounded_throttle_ms": 10_000,
    }


def test_client_quota_manager_violation(ask: Ask) -> None:
    """ClientQuotaManagerTest.testQuotaViolation: 6,300 bytes in 10.5 s are 600 a second, 100 too many of 500."""
    steady = [record(PRODUCE, 1_000 * second, 400) for second in range(10)]
    # The burst keeps the client throttled until it is out of the windows.
    after = [record(PRODUCE, 10_500 + 1_000 * second, 400) for second in range(1, 12)]
    answers = ask(quota(PRODUCE, 500, {"client-id": None}), *steady, record(PRODUCE, 10_500, 2_300), *after)
    assert column(answers[:10], "throttle_ms") == [0] * 10
    assert (answers[10]["value"], answers[10]["throttle_ms"]) == (600, 2_100)
    assert answers[11]["throttle_ms"] > 0
    assert answers[-1]["throttle_ms"] == 0


def test_a_changed_limit_meets_what_was_recorded(ask: Ask) -> None:
    """ClientQuotaManagerTest.testClientIdQuotaParsing and its like, with its numbers."""
    answers = ask(
        quota(PRODUCE, 2_000),
        record(PRODUCE, 0, 2_500 * 11),
        quota(PRODUCE, 3_000),
        record(PRODUCE, 0, 0),
        quota(PRODUCE, 500),
        record(PRODUCE, 0, 0),
        quota(PRODUCE, None),
        quota(PRODUCE, 4_000, {"user": None}),
        record(PRODUCE, 0, 1_000 * 11),
    )
    assert column(answers, "limit") == [2_000, 3_000, 500, 4_000]
    assert column(answers, "throttle_ms") == [3_750, 0, 45_000, 0]


def test_without_quotas_nothing_is_recorded(ask: Ask) -> None:
    """Not even after the last one was removed (KAFKA-19282), and what was recorded before it stays for an hour."""
    answers = ask(
        record(PRODUCE, 0, 11_000),
        quota(PRODUCE, 10),
        record(PRODUCE, 0, 11_000),
        quota(PRODUCE, None),
        record(PRODUCE, 0, 11_000),
        record(MUTATION, 0, 1, strict=True),
        quota(PRODUCE, 10),
        record(PRODUCE, 0, 0),
    )
    assert column(answers, "throttle_ms") == [0, 1_090_000, 0, 0, 1_090_000]
    assert answers[0] == answers[2] == {"t_ms": START_MS, **NO_QUOTAS}
    assert answers[3] == {"t_ms": START_MS, **NO_QUOTAS, "rejected": False}


@pytest.mark.parametrize(("windows", "seconds", "rate"), [
    (1, 1, 50 / 0.999), (1, 11, 50 / 10.999), (11, 1, 50 / 10.999), (11, 11, 50 / 120.999),
])  # fmt: skip
def test_rate(ask: Ask, windows: int, seconds: int, rate: float) -> None:
    """RateTest.testRateWithNoPriorAvailableSamples: one sample, measured a millisecond before its window ends."""
    settings = {"quota_window_num": windows, "quota_window_size_seconds": seconds}
    answers = ask(quota(PRODUCE, 1), record(PRODUCE, 0, 50), record(PRODUCE, seconds * 1000 - 1, 0), **settings)
    assert answers[-1]["value"] == rate


def test_request_quota_violation(ask: Ask) -> None:
    """ClientRequestQuotaManagerTest.testRequestPercentageQuotaViolation, and the cap of one window on a longer one."""
    steady = [record(REQUEST, 1_000 * second, 0.4) for second in range(10)]
    burst, more = record(REQUEST, 10_500, 6.71), record(REQUEST, 10_500, 10.5)
    answers = ask(quota(REQUEST, 1.0), *steady, burst, more)
    assert column(answers[:10], "throttle_ms") == [0] * 10
    assert column(answers[10:], "throttle_ms") == [210, 1_000]
    assert column(answers[10:], "unbounded_throttle_ms") == [210, 10_710]


@pytest.mark.parametrize(("limit", "unbounded_ms"), [(95, 474), (50, 9_000), (100, 0), (120.4, 0)])
def test_bounded_throttle_time(ask: Ask, limit: float, unbounded_ms: int) -> None:
    """As in QuotaUtilsTest, of 10 samples of 1 s; what is at the limit or below it is no violation to the manager."""
    [answer] = ask(quota(REQUEST, limit), record(REQUEST, 0, 900), quota_window_num=10)
    assert (answer["value"], answer["unbounded_throttle_ms"]) == (100, unbounded_ms)
    assert answer["throttle_ms"] == min(unbounded_ms, 1_000)


def test_token_bucket(ask: Ask) -> None:
    """TokenBucketTest.testRecord: 5 a second, 10 windows of 2 s."""
    settings = {"controller_quota_window_num": 10, "controller_quota_window_size_seconds": 2}
    steps = [record(MUTATION, 0, 0), record(MUTATION, 0, 60), record(MUTATION, 2_000, 5), record(MUTATION, 4_000, 60)]
    answers = ask(quota(MUTATION, 5), *steps, unrecord(MUTATION, 4_000, 1_000), record(MUTATION, 4_000, 0), **settings)
    assert column(answers, "value") == [100, 40, 45, -5, 100]
    assert column(answers, "throttle_ms") == [0, 0, 0, 1_000, 0]


def test_the_burst_of_the_token_bucket_s_comment(ask: Ask) -> None:
    [answer] = ask(quota(MUTATION, 5), record(MUTATION, 0, 560), controller_quota_window_num=100)
    assert (answer["value"], answer["throttle_ms"]) == (-60, 12_000)


def test_controller_mutation_throttle_time(ask: Ask) -> None:
    """ControllerMutationQuotaManagerTest.testThrottleTime, of a limit of 10."""
    answers = ask(quota(MUTATION, 10), record(MUTATION, 0, 110), record(MUTATION, 0, 5), record(MUTATION, 0, 5))
    assert column(answers, "value") == [0, -5, -10]
    assert column(answers, "throttle_ms") == [0, 500, 1_000]


def test_a_strict_mutation(ask: Ask) -> None:
    """SensorTest.testStrictQuotaEnforcementWithTokenBucket: what empties the bucket is accepted, the next is not."""
    answers = ask(
        quota(MUTATION, 2),
        *(record(MUTATION, after_ms, 30, strict=True) for after_ms in (0, 0, 5_000, 9_999)),
        controller_quota_window_num=10,
    )
    assert column(answers, "rejected") == [False, True, False, True]
    assert column(answers, "throttle_ms") == [0, 5_000, 0, 10_001]
    assert column(answers, "value") == [-10, -10, -30, pytest.approx(-20.002)]


def test_a_bucket_is_filled_whenever_it_is_looked_at(ask: Ask) -> None:
    """Each time rounds a little: at once there are no tokens missing after 5 s, in two steps there are, for 0 ms."""
    strict = [record(MUTATION, after_ms, 30, strict=True) for after_ms in (0, 4_999, 5_000)]
    answers = ask(quota(MUTATION, 2), *strict, controller_quota_window_num=10)
    assert column(answers, "rejected") == [False, True, True]
    assert column(answers, "throttle_ms") == [0, 1, 0]
    assert -1e-12 < answers[-1]["value"] < 0


def test_a_throttle_time_has_32_bits(ask: Ask) -> None:
    """A cast cuts the upper bits off, and a rounded double ends at 2^63 - 1."""
    answers = ask(quota(PRODUCE, 1), record(PRODUCE, 0, 3_000_000), record(PRODUCE, 0, 10**18))
    assert column(answers, "throttle_ms") == [-1_294_977_296, -1]
    assert column(answers, "unbounded_throttle_ms") == [2_999_990_000, 2**63 - 1]
    [answer] = ask(quota(MUTATION, 1), record(MUTATION, 0, 3_000_000))
    assert (answer["throttle_ms"], answer["unbounded_throttle_ms"]) == (0, 2_999_989_000)


def test_who_shares_a_meter(ask: Ask) -> None:
    """By the levels that there are, and with more than one of them by the entities; names as they came."""
    odd = ("O=A client,CN=*", "<default>")
    client = {"user": odd[0], "client-id": odd[1]}
    answers = ask(
        *(quota(PRODUCE, 1, {"client-id": "other"}), record(PRODUCE, 0, 1, odd)),
        *(
            quota(PRODUCE, None, {"client-id": "other"}),
            quota(PRODUCE, 1, {"user": "other"}),
            record(PRODUCE, 0, 1, odd),
        ),
        *(quota(PRODUCE, 2, {"client-id": None}), record(PRODUCE, 0, 1, odd)),
        *(quota(PRODUCE, 3, {"user": odd[0], "client-id": None}), record(PRODUCE, 0, 1, odd)),
    )
    by_client = {"client-id": odd[1]}
    assert column(answers, "meter") == [by_client, {"user": odd[0]}, by_client, client]
    assert column(answers, "limit") == [None, None, 2, 3]


def test_taken_back_without_quotas(ask: Ask) -> None:
    """Takes from the client id's meter all the same: what no quota let anybody record."""
    answers = ask(unrecord(PRODUCE, 0, 50), quota(PRODUCE, 1, {"client-id": None}), record(PRODUCE, 0, 10))
    assert column(answers, "value") == [-4]


@pytest.mark.parametrize(("idle_ms", "dropped"), [
    (HOUR_MS + 29_999, False), (HOUR_MS + 30_000, True), (HOUR_MS + 45_000, True),
])  # fmt: skip
def test_an_idle_meter_is_dropped(ask: Ask, idle_ms: int, dropped: bool) -> None:
    """After more than an hour without a record, by the next of the sweeps; a rejected record is none."""
    answers = ask(
        quota(MUTATION, 1),
        record(MUTATION, 0, 1_000_000),
        record(MUTATION, 60_000, 1, strict=True),
        record(MUTATION, idle_ms, 0),
    )
    assert column(answers, "throttle_ms")[:2] == [999_989_000, 999_929_000]
    assert (answers[-1]["value"] == 11) is dropped
