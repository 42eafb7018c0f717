"""Waits computed anew from what a log says, checked against meters whose every millisecond is known."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.metering.meters import BucketMeter, RateMeter
from kquota.metering.statistics import SampledRate, Windows
from kquota.pipeline.calibration.broker_replay import (
    LOGGING_MS,
    BucketReplay,
    ComparedThrottle,
    LoggedRequest,
    RateReplay,
    is_close,
)
from kquota.pipeline.calibration.meters import MeterRequest, replay_meters
from kquota.quotas import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE

START_MS = 1_800_000_000_000
WINDOWS = Windows()


def recorded(at_ms: float, amount: float, logged_ms: int, **more: object) -> LoggedRequest:
    """A request counted at `at_ms`, as a log tells of it that is exact."""
    given = {"jitter_ms": 0.0, **more}
    return LoggedRequest(at_ms=at_ms + LOGGING_MS, amount=amount, logged_ms=logged_ms, **given)  # type: ignore[arg-type]


def told(meter: RateMeter | BucketMeter, amount: float, at_ms: int) -> int:
    throttle = meter.record(amount, at_ms)
    return 0 if throttle is None else throttle.throttle_ms


def replayed(requests: list[LoggedRequest], limit: float, *, follow: bool = True) -> list[ComparedThrottle]:
    replay = RateReplay(limit, WINDOWS, follow=follow)
    waits = [wait for request in requests for wait in replay.feed(request)]
    return [*waits, *replay.finish()]


def share_close(waits: list[ComparedThrottle]) -> float:
    return sum(is_close(wait.predicted_ms, wait.logged_ms) for wait in waits) / len(waits)


def greedy(limit: float, seconds: float, *, seed: int) -> list[tuple[int, float, int]]:
    """(when, how much, told) of a fetcher that asks again as soon as it may: its waits end where samples do."""
    chance = random.Random(seed)
    meter = RateMeter({}, limit, WINDOWS, None)
    now_ms, requests = START_MS, []
    while now_ms < START_MS + seconds * 1000:
        amount = limit / 8
        wait_ms = told(meter, amount, now_ms)
        if wait_ms:
            meter.record_unchecked(-amount, now_ms)
        requests.append((now_ms, amount, wait_ms))
        now_ms += wait_ms + chance.choice((0, 1, 1, 2, 3))
    return requests


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.floats(0, 5_000)), max_size=60),
    st.floats(10, 2_000),
    st.booleans(),
)
def test_where_the_log_is_exact_every_wait_is_the_meters(
    steps: list[tuple[int, float]], limit: float, follow: bool
) -> None:
    meter = RateMeter({}, limit, WINDOWS, None)
    now_ms, requests = START_MS, []
    for step_ms, amount in steps:
        now_ms += step_ms
        requests.append(recorded(now_ms, amount, told(meter, amount, now_ms)))
    waits = replayed(requests, limit, follow=follow)
    assert [wait.logged_ms for wait in waits] == [request.logged_ms for request in requests if request.logged_ms]
    assert all(wait.unguided_ms == wait.predicted_ms == wait.logged_ms and wait.is_compared for wait in waits)


@pytest.mark.parametrize("seed", range(5))
def test_a_throttled_fetch_is_taken_back(seed: int) -> None:
    requests = greedy(10_000, 60, seed=seed)
    waits = replayed([recorded(at, amount, ms, is_refunded=ms > 0) for at, amount, ms in requests], 10_000)
    assert [wait.predicted_ms for wait in waits] == [ms for _, _, ms in requests if ms]


@pytest.mark.parametrize("seed", range(8))
def test_a_log_in_whole_milliseconds_that_runs_late_is_seen_through(seed: int) -> None:
    """Each line up to two milliseconds late: as it stands many waits are missed, with what came later few."""
    chance = random.Random(seed)
    late = []
    before_ms = 0.0
    for at, amount, ms in greedy(10_000, 180, seed=seed):
        before_ms = max(before_ms, at + chance.choice((0.0, 0.0, 0.0, 0.9, 1.8)))  # one connection: in order
        late.append(recorded(before_ms, amount, ms, is_refunded=ms > 0, jitter_ms=2.0))
    waits = replayed(late, 10_000)
    assert len(waits) > 100
    assert share_close(waits) >= 0.9
    plain = sum(is_close(wait.unguided_ms, wait.logged_ms) for wait in waits) / len(waits)
    assert plain < 0.9


def test_two_connections_within_a_millisecond_may_have_been_counted_in_either_order() -> None:
    meter = RateMeter({}, 1_000, WINDOWS, None)
    meter.record(9_500, START_MS)
    # At the broker: the small one first, which passes, then the large one, which waits.
    assert told(meter, 400, START_MS + 20) == 0
    waited_ms = told(meter, 3_000, START_MS + 20)
    assert waited_ms > 0
    logged = [
        recorded(START_MS, 9_500, 0, connection="a"),
        recorded(START_MS + 20, 3_000, waited_ms, connection="b"),
        recorded(START_MS + 20.3, 400, 0, connection="c"),
        recorded(START_MS + 900, 1, told(meter, 1, START_MS + 900), connection="a"),
    ]
    waits = replayed(logged, 1_000)
    assert sorted((wait.logged_ms, wait.predicted_ms) for wait in waits[:2]) == [(0, 0), (waited_ms, waited_ms)]
    # In the log's own order the large one waits less, and the small one waits, too.
    assert sorted(wait.unguided_ms for wait in waits[:2]) == [waited_ms - 400, waited_ms]


def test_one_connections_requests_keep_their_order() -> None:
    meter = RateMeter({}, 1_000, WINDOWS, None)
    amounts = (9_500, 3_000, 400)
    logged = [
        recorded(START_MS + place * 0.1, amount, told(meter, amount, START_MS), connection="a")
        for place, amount in enumerate(amounts)
    ]
    assert [wait.predicted_ms for wait in replayed(logged, 1_000)] == [request.logged_ms for request in logged[1:]]


def test_a_wait_that_another_limit_may_have_told_is_compared_only_where_this_one_explains_it() -> None:
    meter = RateMeter({}, 1_000, WINDOWS, None)
    predicted = told(meter, 10_300, START_MS), told(meter, 100, START_MS + 100)
    logged = [
        recorded(START_MS, 10_300, predicted[0] + 500, is_upper_bound=True),  # told by the other
        recorded(START_MS + 100, 100, predicted[1], is_upper_bound=True),
        recorded(START_MS + 60_000, 100, 700, is_upper_bound=True),  # nothing here to wait for
    ]
    waits = replayed(logged, 1_000)
    assert [wait.is_compared for wait in waits] == [False, True, False]


def test_what_is_not_known_to_be_whole_is_not_compared() -> None:
    [wait] = replayed([recorded(START_MS, 20_000, 3, is_known=False)], 1_000)
    assert not wait.is_compared
    assert wait.logged_ms == 3
    assert wait.predicted_ms == 10_000


@given(st.lists(st.tuples(st.integers(0, 1_500), st.floats(-100, 1_000)), max_size=40), st.integers(0, 39))
def test_a_copy_of_a_rate_goes_on_as_the_rate_does_and_apart_from_it(
    steps: list[tuple[int, float]], place: int
) -> None:
    rate, now_ms = SampledRate(WINDOWS), START_MS
    for step_ms, value in steps[:place]:
        now_ms += step_ms
        rate.add(value, now_ms)
    other, third = rate.copy(), rate.copy()
    assert rate.state() == other.state()
    third.add(5.0, now_ms)
    for step_ms, value in steps[place:]:
        now_ms += step_ms
        assert rate.add(value, now_ms) == other.add(value, now_ms)
        assert rate.state() == other.state()


@given(st.lists(st.tuples(st.integers(1, 3_000), st.floats(0, 100)), min_size=1, max_size=40))
def test_between_its_edges_a_rate_cares_for_milliseconds_only_as_time_that_passes(
    steps: list[tuple[int, float]],
) -> None:
    """An event before both edges neither begins a sample nor forgets one, and one at an edge does."""
    rate, now_ms = SampledRate(WINDOWS), START_MS
    for step_ms, value in steps:
        now_ms += step_ms
        begins_ms, forgets_ms = rate.edges_ms()
        before = rate.copy()
        rate.add(value, now_ms)
        begun = rate.edges_ms()[0] != begins_ms
        assert begun == (now_ms >= begins_ms or not before.state()[0])
        if now_ms < min(begins_ms, forgets_ms):
            assert rate.state()[0] == before.state()[0]


def mutation(at_ms: float, amount: float, logged_ms: int) -> LoggedRequest:
    return recorded(START_MS + at_ms, amount, logged_ms)


def test_mutations_wait_for_tokens_less_what_their_answer_took() -> None:
    """Strict: the request that empties the bucket passes, the next is refused; the told time has the commit in it."""
    replay = BucketReplay(2.0, WINDOWS)
    waits = [
        wait
        for request, strict, controller_ms in (
            (mutation(0, 30, 0), True, 0.0),  # 22 tokens: now 8 are missing
            (mutation(100, 0, 3_900), True, 0.0),
            (mutation(100, 0, 3_880), True, 40.0),  # refused at once, and half of the time was the way back
            (mutation(4_000, 1, 0), True, 0.0),
            (mutation(4_000, 4, 2_500), False, 0.0),  # an older client: counted, and told
            (mutation(4_001, 0, 2_400), False, 198.0),
            (mutation(8_000, 10, 0), True, 0.0),
            (mutation(8_001, 3, 3_499), True, 0.0),  # some topics went through before the others were refused
        )
        for wait in replay.feed(request, strict=strict, controller_ms=controller_ms)
    ]
    waits += replay.finish()
    assert [(wait.predicted_ms, wait.unguided_ms) for wait in waits] == [
        (wait.logged_ms, wait.logged_ms) for wait in waits
    ]
    assert [wait.logged_ms for wait in waits] == [3_900, 3_880, 2_500, 2_400, 3_499]


@given(st.integers(0, 64), st.integers(1, 6))
def test_when_a_controller_took_the_first_tokens_shows_in_later_waits(counted_after_ms: int, limit: int) -> None:
    """The broker waited 64 ms for it. A full bucket gains nothing until some are taken: all later waits show when."""
    meter = BucketMeter({}, limit, WINDOWS)
    replay = BucketReplay(limit, WINDOWS)
    first = limit * 11 + 40
    meter.record_unchecked(first, START_MS + counted_after_ms)
    waits = list(replay.feed(mutation(0, first, 0), strict=True, controller_ms=64.0))
    for at_ms in range(200, 4_000, 100):
        throttle = meter.check(START_MS + at_ms)
        assert throttle is not None
        waits += replay.feed(mutation(at_ms, 0, throttle.throttle_ms), strict=True, controller_ms=0.0)
    waits += replay.finish()
    assert len(waits) == 38
    assert all(abs(wait.predicted_ms - wait.logged_ms) <= 3 for wait in waits)
    assert all(wait.unguided_ms == pytest.approx(wait.logged_ms - counted_after_ms, abs=1) for wait in waits)


FIRST_MS = {("", 1): START_MS - 60_000.0, ("", 2): START_MS - 60_000.0}


def request(at_ms: float, amount: float, logged_ms: int = 0, **changes: object) -> tuple[object, ...]:
    given = {
        "cluster": "", "meter": "user=a", "key": "producer_byte_rate", "counting_broker_id": 1, "broker_id": 1,
        "limit": 1_000.0, "is_throttled": True, "is_ambiguous": False, "connection": "c", "api_key": 0,
        "api_version": 9, "at_ms": START_MS + at_ms + LOGGING_MS, "jitter_ms": 0.0, "amount": amount,
        "logged_ms": logged_ms, "is_refunded": False, "remote_ms": 0.0,
    }  # fmt: skip
    return tuple(MeterRequest(**(given | changes)))  # type: ignore[arg-type]


def test_meters_one_after_the_other_have_nothing_to_do_with_each_other() -> None:
    rows = [
        request(0, 20_000, 10_000),
        request(0, 20_000, 10_000, meter="user=b"),
        request(0, 20_000, 10_000, meter="user=b", counting_broker_id=2, broker_id=2),
    ]
    waits = list(replay_meters(rows, BrokerConfig(), FIRST_MS))
    assert [(one.meter, one.broker_id, one.logged_ms, one.predicted_ms) for one in waits] == [
        ("user=a", 1, 10_000, 10_000),
        ("user=b", 1, 10_000, 10_000),
        ("user=b", 2, 10_000, 10_000),
    ]


def test_the_first_windows_of_a_log_are_not_compared() -> None:
    """What was counted before the log began is not known."""
    rows = [request(0, 20_000, 10_000), request(21_500, 30_000, 9_000), request(22_500, 30_000, 9_000)]
    waits = replay_meters(rows, BrokerConfig(), {("", 1): float(START_MS)})
    assert [one.is_compared for one in waits] == [False, False, True]


def test_mutations_of_all_brokers_are_counted_together_and_told_apart() -> None:
    rows = [request(0, 20), request(1_000, 0, 8_000, broker_id=2)]
    of_controller = {
        "key": CONTROLLER_MUTATION_RATE,
        "counting_broker_id": -1,
        "limit": 1.0,
        "api_key": 19,
        "api_version": 7,
    }
    mutations = [MeterRequest._make(row)._replace(**of_controller) for row in rows]  # type: ignore[arg-type]
    [wait] = replay_meters(mutations, BrokerConfig(), FIRST_MS)
    assert (wait.broker_id, wait.logged_ms, wait.predicted_ms) == (2, 8_000, 8_000)


def test_request_time_is_an_estimate_between_two() -> None:
    """The log has half of the time or nine tenths: at the one it is over the limit, at the other it is not."""
    rows = [request(place * 1_000, 0.7, key=REQUEST_PERCENTAGE, limit=1.0) for place in range(30)]
    waits = list(replay_meters(rows, BrokerConfig(), FIRST_MS))
    assert waits
    assert all(one.low_ms == 0 and 0 <= one.predicted_ms <= one.high_ms <= 1_000 for one in waits)
    assert max(one.high_ms for one in waits) > 0


def test_replays_of_a_stretch_and_of_the_whole_agree_where_they_overlap() -> None:
    """After two windows nothing is left of how a replay began."""
    requests = greedy(10_000, 120, seed=3)
    logged = [recorded(at, amount, ms, is_refunded=ms > 0) for at, amount, ms in requests]
    whole = {wait.at_ms: wait for wait in replayed(logged, 10_000)}
    later = [one for one in logged if one.at_ms > START_MS + 40_000]
    settled = [wait for wait in replayed(later, 10_000) if wait.at_ms > START_MS + 70_000]
    assert len(settled) > 20
    assert share_close([wait._replace(logged_ms=whole[wait.at_ms].predicted_ms) for wait in settled]) > 0.9
    assert all(first.at_ms <= second.at_ms for first, second in pairwise(settled))
