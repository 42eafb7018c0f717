"""What a limit does to recorded requests: examples that can be followed by hand, and laws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.metering.callback import ClientQuotaType
from kquota.metering.statistics import Windows
from kquota.pipeline.simulation.arrivals import Outcome
from kquota.pipeline.simulation.limiters import CallbackLimiter, Connection, Limiter, MeterLimiter
from kquota.pipeline.simulation.requests import ChargedRequest, charged_requests, simulate_requests
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from tests.kit.one_quota import CLIENT, OneQuota

KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
START_MS = 1_760_000_000_000.0


def replay(
    connections: list[Connection],
    limit: float | None,
    *,
    key: str = PRODUCER_BYTE_RATE,
    in_flight: int = 0,
    s: float = 60,
) -> Outcome:
    limiter = MeterLimiter(key, limit, Windows())
    [meter] = simulate_requests(connections, limiter, in_flight=in_flight, end_ms=START_MS + s * 1000)
    return meter.outcome


def charged(connection: Connection, limit: float, *, in_flight: int = 0, s: float = 60) -> list[ChargedRequest]:
    limiter = MeterLimiter(PRODUCER_BYTE_RATE, limit, Windows())
    return list(charged_requests([connection], limiter, in_flight=in_flight, end_ms=START_MS + s * 1000))


def at(*seconds: float) -> list[float]:
    return [START_MS + second * 1000 for second in seconds]


def test_a_request_over_the_limit_mutes_its_connection_and_the_next_waits() -> None:
    # 2,000 bytes over 10 s are 200 B/s, twice the limit: 10 s. Then the first is not forgotten yet, and 2,050 bytes are
    # told to wait 10.5 s.
    found = replay([Connection(at(0, 1), [2000.0, 50.0])], 100.0)
    assert (found.amount, found.throttled_requests, found.throttled_ms) == (2050.0, 2, 20_500.0)
    assert found.max_delay_ms == found.total_delay_ms == 9_000.0
    assert found.backlog_max == 50.0


def test_what_waits_goes_out_joined_up_to_the_largest_request() -> None:
    connection = Connection(at(0, 1, 2, 3), [2000.0, 800.0, 800.0, 800.0])
    turns = charged(connection, 100.0)
    assert [turn.amount for turn in turns] == [2000.0, 1600.0, 800.0]
    assert [len(turn.arrived_ms) for turn in turns] == [1, 2, 1]
    # 2,000 + 1,600 bytes, less the envelope that two have in common, over 10 s: 24.8 s too many. Then 800 more.
    assert [turn.throttle_ms for turn in turns] == [10_000, 24_800, 0]


def test_a_throttled_fetch_brings_nothing_and_comes_again() -> None:
    found = replay([Connection(at(0, 1), [900.0, 900.0])], 100.0, key=CONSUMER_BYTE_RATE)
    # 1,800 bytes over 10 s are 8 s too many, after a second and after nine; after 17 s the first are forgotten.
    assert (found.amount, found.throttled_requests, found.max_delay_ms) == (1800.0, 2, 16_000.0)


def test_a_fetch_brings_at_most_what_a_whole_window_lets_pass() -> None:
    found = replay([Connection(at(0), [5000.0])], 100.0, key=CONSUMER_BYTE_RATE, s=600)
    assert found.amount == 5000.0
    assert found.max_delay_ms > 40_000


def test_mutations_are_refused_and_repeated_until_there_are_tokens() -> None:
    # A bucket of 11 holds 1 a second: 20 at once leave 9 missing, and the next is done when they have come back.
    found = replay([Connection(at(0, 1), [20.0, 1.0])], 1.0, key=CONTROLLER_MUTATION_RATE)
    assert (found.amount, found.throttled_requests, found.max_delay_ms) == (21.0, 1, 8_000.0)


def test_a_mutation_of_an_old_client_is_done_and_waited_for() -> None:
    found = replay([Connection(at(0, 1), [20.0, 1.0], is_strict=False)], 1.0, key=CONTROLLER_MUTATION_RATE)
    assert (found.amount, found.throttled_requests) == (21.0, 2)
    assert found.throttled_ms == 9_000 + 1_000


def test_nobody_waits_for_request_time_for_longer_than_a_window() -> None:
    found = replay([Connection(at(0, 0.1), [5000.0, 1.0])], 1.0, key=REQUEST_PERCENTAGE)
    assert found.max_delay_ms == 900.0


def test_a_client_that_waits_for_its_answers_comes_later_with_all_that_follows() -> None:
    connection = Connection(at(0, 0.5, 20, 40), [2000.0, 10.0, 10.0, 10.0])
    turns = charged(connection, 100.0, in_flight=1, s=100)
    # The second came 0.5 s after the answer to the first, and waited for the mute of 10 s; all that
    # follows is as much later.
    assert [(turn.at_ms - START_MS) / 1000 for turn in turns] == [0.0, 10.0, 29.5, 49.5]


def test_a_client_with_several_in_flight_sends_them_without_answers() -> None:
    connection = Connection(at(0, 0.001, 0.002, 20), [2000.0, 10.0, 10.0, 10.0])
    turns = charged(connection, 100.0, in_flight=5, s=100)
    assert [round(turn.arrived_ms[0] - START_MS) for turn in turns[:3]] == [0, 1, 2]
    # The last had all the answers in hand, so it comes as long after the last of them as it did.
    assert turns[3].at_ms - turns[2].at_ms == pytest.approx(19_998, abs=1)


def test_without_a_limit_all_is_as_it_was() -> None:
    assert replay([Connection(at(0, 1), [1e9, 1e9])], None) == Outcome(2e9, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_connection_without_amounts_is_a_member_of_the_meter_that_it_would_be_charged_to() -> None:
    """Its requests are counted in the log, and their amounts may be unknown."""
    connections = [Connection(at(0, 1), [2000.0, 50.0], client=CLIENT), Connection([], [], client=CLIENT)]
    managers = OneQuota(ClientQuotaType.PRODUCE, 100.0).quotas.managers
    limiters: list[Limiter] = [
        MeterLimiter(PRODUCER_BYTE_RATE, 100.0, Windows()),
        MeterLimiter(PRODUCER_BYTE_RATE, None, Windows()),
        CallbackLimiter(PRODUCER_BYTE_RATE, managers),
    ]
    for limiter in limiters:
        [meter] = simulate_requests(connections, limiter, in_flight=0, end_ms=START_MS + 60_000)
        assert list(meter.connections) == [0, 1]


def test_a_limit_of_zero_lets_one_request_through_and_then_none() -> None:
    found = replay([Connection(at(0, 1, 2), [10.0, 10.0, 10.0])], 0.0)
    assert found.amount == 10.0
    assert found.muted_ms == 60_000.0


@st.composite
def recordings(draw: st.DrawFn, longest_ms: float = 4e6) -> list[Connection]:
    connections = []
    for _ in range(draw(st.integers(1, 3))):
        pauses = st.sampled_from([0.0, 1.0, 40.0, 990.0, 1_000.0, 12_000.0, longest_ms])
        gaps = draw(st.lists(pauses, min_size=1, max_size=20))
        amounts = draw(st.lists(st.integers(1, 5_000), min_size=len(gaps), max_size=len(gaps)))
        times = accumulate(gaps, initial=START_MS)
        connections.append(Connection(list(times)[1:], [float(amount) for amount in amounts]))
    return connections


@given(recordings(), st.sampled_from(KEYS), st.sampled_from([0.5, 20.0, 400.0, 1e5]), st.sampled_from([0, 1, 5]))
def test_all_work_is_done_in_the_end_and_none_is_made_up(
    connections: list[Connection], key: str, limit: float, in_flight: int
) -> None:
    found = replay(connections, limit, key=key, in_flight=in_flight, s=1e9)
    assert found.amount == pytest.approx(sum(sum(one.amounts) for one in connections))
    assert found.total_delay_ms >= found.max_delay_ms >= 0
    assert (found.throttled_requests > 0) == (found.throttled_ms > 0)


@given(recordings(), st.sampled_from(KEYS), st.sampled_from([0.5, 20.0, 400.0]), st.sampled_from([0, 1, 5]))
def test_nobody_goes_before_coming_and_connections_keep_their_order(
    connections: list[Connection], key: str, limit: float, in_flight: int
) -> None:
    limiter = MeterLimiter(key, limit, Windows())
    last = dict.fromkeys(range(len(connections)), 0.0)
    before = 0.0
    for turn in charged_requests(connections, limiter, in_flight=in_flight, end_ms=START_MS + 1e8):
        assert turn.at_ms >= before
        before = turn.at_ms
        for arrived_ms in turn.arrived_ms:
            assert last[turn.connection] <= arrived_ms <= turn.at_ms
            last[turn.connection] = arrived_ms


def test_a_meter_that_is_far_below_is_not_replayed_and_says_the_same() -> None:
    connection = Connection(at(*range(30)), [100.0] * 30)
    far = replay([connection], 1_000.0)
    assert far.amount == sum(turn.amount for turn in charged(connection, 1_000.0))
    assert far.throttled_requests == 0


@given(recordings(), st.sampled_from(KEYS), st.sampled_from([0.5, 20.0, 400.0]), st.booleans())
def test_each_request_is_charged_as_by_a_broker(
    connections: list[Connection], key: str, limit: float, is_strict: bool
) -> None:
    """But that who is refused for less than half a millisecond comes again after one."""
    for connection in (one._replace(is_strict=is_strict) for one in connections):
        limiter = MeterLimiter(key, limit, Windows())
        broker = OneQuota(ClientQuotaType.of_key(key), limit)
        for at_ms, amount in zip(connection.at_ms, connection.amounts, strict=True):
            counted = limiter.charge(connection, amount, int(at_ms))
            throttle_ms, accepted = broker.request(amount, int(at_ms), strict=is_strict)
            assert counted[:2] == (max(throttle_ms, int(not accepted)), accepted)


class InReach(MeterLimiter):
    """Simulates what is far below its limit, too."""

    def is_out_of_reach(self, connections: Sequence[Connection]) -> bool:
        del connections
        return False


@given(
    recordings(longest_ms=12_000.0),
    st.sampled_from(KEYS),
    st.sampled_from([0.5, 20.0, 400.0]),
    st.sampled_from([0, 1, 5]),
    st.booleans(),
)
def test_kafkas_rules_as_a_callback_do_what_the_limit_does(
    connections: list[Connection], key: str, limit: float, in_flight: int, is_strict: bool
) -> None:
    """Within an hour: a meter that is idle for longer is dropped."""
    connections = [one._replace(is_strict=is_strict, client=CLIENT) for one in connections]
    end_ms = START_MS + 3e6
    managers = OneQuota(ClientQuotaType.of_key(key), limit).quotas.managers
    limiters: list[Limiter] = [CallbackLimiter(key, managers), InReach(key, limit, Windows(), meter="user=alice")]
    [[by_callback], [by_limit]] = (
        list(simulate_requests(connections, limiter, in_flight=in_flight, end_ms=end_ms)) for limiter in limiters
    )
    assert by_callback == by_limit
