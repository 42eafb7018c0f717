"""The one rule of charge: all who count requests say what a broker says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback
from kquota.metering.callback_conformance import ConformanceCheck, TrafficRecord
from kquota.metering.meters import BucketMeter, RateMeter
from kquota.metering.replay import Replay
from kquota.metering.requests import STRICT_SINCE, Charged, charge, is_strict
from kquota.metering.statistics import Windows
from tests.kit.one_quota import ALICE, CLIENT, Answer, OneQuota

NOW = 1_700_000_000_000
PRODUCE, FETCH = ClientQuotaType.PRODUCE, ClientQuotaType.FETCH
REQUEST, MUTATION = ClientQuotaType.REQUEST, ClientQuotaType.CONTROLLER_MUTATION


class Traffic(NamedTuple):
    """Requests of one client on one quota: when each came, and what it used."""

    quota_type: ClientQuotaType
    limit: float
    requests: list[tuple[int, int]]
    strict: bool


@st.composite
def traffic(draw: st.DrawFn) -> Traffic:
    """From far below the limit to far above, with pauses in which rates are forgotten and buckets fill."""
    quota_type = draw(st.sampled_from(ClientQuotaType))
    limit = draw(st.sampled_from([0.5, 20.0, 400.0]))
    gaps = draw(st.lists(st.sampled_from([0, 1, 40, 990, 1_000, 12_000, 600_000]), min_size=1, max_size=40))
    amounts = [draw(st.sampled_from([0, 1, 30, 500, 9_000])) for _ in gaps]
    times = [NOW + sum(gaps[: number + 1]) for number in range(len(gaps))]
    return Traffic(quota_type, limit, list(zip(times, amounts, strict=True)), draw(st.booleans()))


def broker_answers(found: Traffic) -> list[Answer]:
    broker = OneQuota(found.quota_type, found.limit)
    return [broker.request(amount, now_ms, strict=found.strict) for now_ms, amount in found.requests]


def throttled(answers: list[Answer]) -> list[int]:
    return [answer.throttle_ms for answer in answers if answer.throttle_ms > 0]


@given(traffic())
def test_a_meter_alone_is_charged_as_by_a_broker(found: Traffic) -> None:
    broker = OneQuota(found.quota_type, found.limit)
    meter: BucketMeter | RateMeter
    if found.quota_type is MUTATION:
        meter = BucketMeter({}, found.limit, Windows())
    else:
        meter = RateMeter({}, found.limit, Windows(), 1000 if found.quota_type is REQUEST else None)
    for now_ms, amount in found.requests:
        throttle, accepted = charge(meter, found.quota_type, amount, now_ms, strict=found.strict)
        throttle_ms = 0 if throttle is None else throttle.throttle_ms
        assert broker.request(amount, now_ms, strict=found.strict) == (throttle_ms, accepted)
        brokers = broker.quotas.managers.of(found.quota_type).meter(*CLIENT)
        assert brokers is not None
        assert meter.measure(now_ms) == brokers.measure(now_ms)


@given(traffic())
def test_a_trace_is_answered_as_by_a_broker(found: Traffic) -> None:
    """One that takes back what a throttled fetch was charged."""
    replay = Replay(BrokerConfig())
    client = {"user": CLIENT[0], "client-id": CLIENT[1], "key": found.quota_type.key}
    quota = {"op": "quota", "entity": ALICE.entries, "key": found.quota_type.key, "value": found.limit}
    assert list(replay.answers([quota])) == []
    for (now_ms, amount), answer in zip(found.requests, broker_answers(found), strict=True):
        record = {"op": "record", "t_ms": now_ms, "value": amount, **client}
        if found.quota_type is MUTATION:
            record["strict"] = found.strict
        [replayed] = replay.answers([record])
        assert replayed["throttle_ms"] == answer.throttle_ms
        assert replayed.get("rejected", False) == (found.quota_type is MUTATION and not answer.accepted)
        if found.quota_type is FETCH and not answer.accepted:
            assert list(replay.answers([{**record, "op": "unrecord"}])) == []


@given(traffic().filter(lambda found: not found.strict))
def test_a_callback_is_tried_as_by_a_broker(found: Traffic) -> None:
    """Strict mutations it counts as the log says, though they be refused."""
    check = ConformanceCheck(
        DefaultQuotaCallback, {}, {ALICE: {found.quota_type.key: found.limit}}, BrokerConfig(), monotonic_ms=lambda: 0.0
    )
    check.broker(0, [TrafficRecord(now_ms, found.quota_type, *CLIENT, amount) for now_ms, amount in found.requests])
    [meter] = check.meters()
    wanted = throttled(broker_answers(found))
    for waits in (meter.callback, meter.kafka):
        assert (waits.count, waits.total_ms) == (len(wanted), sum(wanted))


def test_a_mutation_that_was_accepted_then_is_counted_though_it_be_refused_now() -> None:
    check = ConformanceCheck(
        DefaultQuotaCallback, {}, {ALICE: {MUTATION.key: 1.0}}, BrokerConfig(), monotonic_ms=lambda: 0.0
    )
    check.broker(0, [TrafficRecord(NOW, MUTATION, *CLIENT, 20.0, strict=True) for _ in range(3)])
    [meter] = check.meters()
    # 11 tokens: 9 are missing after the first, and 29 after the second.
    assert (meter.callback.count, meter.callback.total_ms) == (2, 9_000 + 29_000)


def test_where_nothing_is_limited_nothing_is_charged() -> None:
    for quota_type in ClientQuotaType:
        assert charge(None, quota_type, 1e9, NOW) == Charged(throttle=None, accepted=True)


@pytest.mark.parametrize("is_answered", [False, True])
def test_the_bytes_of_a_throttled_fetch_stay_where_its_answer_went_out(is_answered: bool) -> None:
    meter = RateMeter({}, 100.0, Windows(), None)
    throttle, accepted = charge(meter, FETCH, 2000.0, NOW, is_answered=is_answered)
    assert throttle is not None
    assert (throttle.throttle_ms, accepted) == (10_000, is_answered)
    assert meter.measure(NOW) == (200.0 if is_answered else 0.0)


def test_a_produce_request_over_the_limit_is_charged() -> None:
    meter = RateMeter({}, 100.0, Windows(), None)
    assert charge(meter, PRODUCE, 2000.0, NOW).accepted
    assert meter.measure(NOW) == 200.0


def test_which_versions_are_strict() -> None:
    for api_key, since in STRICT_SINCE.items():
        assert is_strict(api_key, since)
        assert is_strict(api_key, since + 1)
        assert not is_strict(api_key, since - 1)
    assert not is_strict(0, 99)  # Produce


def test_the_example_of_the_page_says_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "metering.md"
    [(program, output)] = re.findall("```python\n(.*?)```\n\n```text\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    exec(compile(program, str(page), "exec"), {})
    assert capsys.readouterr().out == output
