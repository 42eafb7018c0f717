"""Enforced rates, utilisation and throttled episodes on rows that can be checked by hand."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException

from kquota.config import BrokerConfig
from kquota.pipeline.dataset.tables import USAGE, SchemaMismatchError
from kquota.pipeline.limits.clients import with_limits
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.meters.episodes import AMBIGUOUS, MAX_CLIENTS, UNEXPLAINED, to_throttled
from kquota.pipeline.meters.rates import enforced_rates, to_utilisation
from kquota.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotaEntity,
)
from tests.kit.pipeline_rows import START_MS
from tests.kit.pipeline_rows import usage_rows as usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

START = START_MS // 1000
PLAIN = BrokerConfig()


def told(second: int, ms: int, **changes: Any) -> dict[str, Any]:
    """A cell with one throttled request."""
    return {"second": second, "throttled_requests": 1, "throttle_ms": ms, "throttle_max_ms": ms} | changes


def resolved(frame: "DataFrame", rules: dict[str, dict[str, float]]) -> "DataFrame":
    """Clients of `frame` under rules by user (every user of the rules has that rule)."""
    snapshot = {ClientQuotaEntity({USER: user}): values for user, values in rules.items()}
    return with_limits(to_client_totals(frame), snapshot)


def rates(frame: "DataFrame", rules: dict[str, dict[str, float]], config: BrokerConfig = PLAIN) -> "list[Row]":
    return enforced_rates(frame, resolved(frame, rules), config).orderBy("meter", "key", "cell_start_ms").collect()


def test_the_rate_is_that_of_the_last_eleven_seconds(spark: "SparkSession") -> None:
    """At the end of second t: what was counted from t-10 to t, over 11 seconds."""
    frame = usage(spark, *({"second": second, "amount": 110.0} for second in (0, 1, 10, 11, 40)))
    found = rates(frame, {"alice": {PRODUCER_BYTE_RATE: 15.0}})
    assert [(row.cell_start_ms // 1000 - START, row.rate) for row in found] == [
        (0, 10.0),
        (1, 20.0),
        (10, 30.0),
        (11, 30.0),
        (40, 10.0),
    ]
    clients = resolved(frame, {"alice": {PRODUCER_BYTE_RATE: 15.0}})
    [line] = to_utilisation(frame, clients, PLAIN).collect()
    assert (line.rate_mean, line.rate_p50, line.rate_max, line.peak_1s) == (20.0, 20.0, 30.0, 110.0)
    assert (line.seconds_active, line.seconds_over_80, line.seconds_over_100, line.requests) == (5, 3, 3, 5)
    assert (line.meter, line.limit_source, line["limit"]) == ("user=alice", "user=alice", 15.0)


@pytest.mark.parametrize(
    ("key", "config", "expected"),
    [
        (PRODUCER_BYTE_RATE, BrokerConfig(quota_window_num=3), [20.0, 40.0, 40.0]),
        (PRODUCER_BYTE_RATE, BrokerConfig(quota_window_num=2, quota_window_size_seconds=2), [15.0, 30.0, 30.0]),
        (CONTROLLER_MUTATION_RATE, BrokerConfig(quota_window_num=3, controller_quota_window_num=1), [60.0, 60.0, 60.0]),
        (REQUEST_PERCENTAGE, BrokerConfig(controller_quota_window_num=1), [60 / 11, 120 / 11, 180 / 11]),
    ],
)
def test_the_window_is_the_brokers(
    spark: "SparkSession", key: str, config: BrokerConfig, expected: list[float]
) -> None:
    """Number and size of the windows come from the broker's settings; mutations have their own."""
    frame = usage(spark, *({"second": second, "amount": 60.0, "key": key} for second in (0, 2, 4)))
    assert [row.rate for row in rates(frame, {"alice": {key: 1.0}}, config)] == pytest.approx(expected)


def test_clients_of_one_meter_are_added_up_and_brokers_are_not(spark: "SparkSession") -> None:
    """All clients of a user-level meter count together, on each broker for itself."""
    frame = usage(
        spark,
        {"second": 0, "client_id": "a", "amount": 11.0},
        {"second": 0, "client_id": "b", "amount": 22.0},
        {"second": 0, "client_id": "a", "amount": 44.0, "broker_id": 1},
        {"second": 0, "user": "bob", "amount": 99.0},
    )
    found = rates(frame, {"alice": {PRODUCER_BYTE_RATE: 100.0}})
    assert {(row.broker_id, row.meter, row.rate) for row in found} == {(0, "user=alice", 3.0), (1, "user=alice", 4.0)}


def test_unknown_amounts_are_no_zero_for_the_sum_and_no_error(spark: "SparkSession") -> None:
    """A second whose amount is unknown is active and adds nothing."""
    frame = usage(
        spark,
        {"second": 0, "amount": None, "requests": 2, "unknown_amounts": 2, "key": CONTROLLER_MUTATION_RATE},
        {"second": 1, "amount": 22.0, "requests": 2, "unknown_amounts": 1, "key": CONTROLLER_MUTATION_RATE},
    )
    rules = {"alice": {CONTROLLER_MUTATION_RATE: 1.0}}
    assert [(row.rate, row.unknown_amounts) for row in rates(frame, rules)] == [(0.0, 2), (2.0, 1)]
    clients = resolved(frame, rules)
    assert [(row.amount, row.unknown_amounts) for row in clients.collect()] == [(22.0, 3)]
    [line] = to_utilisation(frame, clients, PLAIN).collect()
    assert (line.requests, line.unknown_amounts) == (4, 3)


def throttled(frame: "DataFrame", rules: dict[str, dict[str, float]], config: BrokerConfig = PLAIN) -> "list[Row]":
    clients = resolved(frame, rules)
    return to_throttled(frame, clients, config).orderBy("start_ms", "meter", "key").collect()


def with_percentage(*cells: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Each cell, and that of the same request on request_percentage."""
    plain = {"throttled_requests": 0, "throttle_ms": 0, "throttle_max_ms": 0, "key": REQUEST_PERCENTAGE}
    return tuple(row for cell in cells for row in (cell, cell | plain))


def test_an_episode_ends_after_eleven_quiet_seconds(spark: "SparkSession") -> None:
    """Throttled requests belong together while fewer than 11 seconds lie between them."""
    frame = usage(spark, told(0, 100), told(10, 300), told(21, 50), told(33, 70))
    episodes = throttled(frame, {"alice": {PRODUCER_BYTE_RATE: 1.0}})
    assert [
        (row.start_ms // 1000 - START, row.end_ms // 1000 - START, row.requests, row.throttle_ms, row.throttle_max_ms)
        for row in episodes
    ] == [
        (0, 22, 3, 450, 300),
        (33, 34, 1, 70, 70),
    ]
    assert {(row.meter, row.key, row.cause) for row in episodes} == {
        ("user=alice", PRODUCER_BYTE_RATE, PRODUCER_BYTE_RATE)
    }
    assert episodes[0].clients == ["user=alice,client-id=etl"]


def test_the_cause_is_the_only_limit_that_could_apply(spark: "SparkSession") -> None:
    """A produce throttle of a client with only a request percentage is the request percentage's."""
    frame = usage(spark, *with_percentage(told(0, 800)))
    [episode] = throttled(frame, {"alice": {REQUEST_PERCENTAGE: 1.0, CONSUMER_BYTE_RATE: 5.0}})
    assert (episode.meter, episode.key, episode.cause) == ("user=alice", REQUEST_PERCENTAGE, REQUEST_PERCENTAGE)


def test_two_limits_are_ambiguous_and_both_are_named(spark: "SparkSession") -> None:
    """Where the byte rate and the request percentage are limited, the log does not say which it was."""
    frame = usage(spark, *with_percentage(told(0, 800)))
    episodes = throttled(frame, {"alice": {REQUEST_PERCENTAGE: 1.0, PRODUCER_BYTE_RATE: 5.0}})
    assert [(row.key, row.cause, row.throttle_ms) for row in episodes] == [
        (PRODUCER_BYTE_RATE, AMBIGUOUS, 800),
        (REQUEST_PERCENTAGE, AMBIGUOUS, 800),
    ]


def test_a_throttle_longer_than_a_window_is_no_request_percentage(spark: "SparkSession") -> None:
    """Kafka caps a request percentage's throttle at one window, so a longer one is the byte rate's."""
    rules = {"alice": {REQUEST_PERCENTAGE: 1.0, PRODUCER_BYTE_RATE: 5.0}}
    [episode] = throttled(usage(spark, *with_percentage(told(0, 1001))), rules)
    assert (episode.key, episode.cause) == (PRODUCER_BYTE_RATE, PRODUCER_BYTE_RATE)
    both = throttled(usage(spark, *with_percentage(told(0, 1900, throttled_requests=2, throttle_max_ms=1001))), rules)
    assert [(row.key, row.cause) for row in both] == [
        (PRODUCER_BYTE_RATE, PRODUCER_BYTE_RATE),
        (REQUEST_PERCENTAGE, AMBIGUOUS),
    ]
    two_seconds = BrokerConfig(quota_window_size_seconds=2)
    assert len(throttled(usage(spark, *with_percentage(told(0, 1001))), rules, two_seconds)) == 2


def test_what_no_limit_explains_is_said(spark: "SparkSession") -> None:
    """A throttle without any limit means that these are not the quotas that were in force."""
    [episode] = throttled(usage(spark, *with_percentage(told(0, 800))), {"bob": {PRODUCER_BYTE_RATE: 5.0}})
    assert (episode.meter, episode.key, episode.cause) == (None, PRODUCER_BYTE_RATE, UNEXPLAINED)


def test_clients_brokers_and_clusters_of_episodes(spark: "SparkSession") -> None:
    """A meter's clients share its episodes; brokers and clusters have their own."""
    frame = usage(
        spark,
        told(0, 10, client_id="c"),
        told(1, 20, client_id="b"),
        told(1, 30, client_id="b"),
        told(5, 40, client_id="a"),
        told(2, 50, client_id="d", broker_id=1),
        told(2, 60, client_id="d", cluster="west"),
        told(3, 70, client_id="", user="bob"),
        {"second": 3, "client_id": "e"},
    )
    episodes = throttled(frame, {"alice": {PRODUCER_BYTE_RATE: 1.0}, "bob": {PRODUCER_BYTE_RATE: 1.0}})
    found = [(row.cluster, row.broker_id, row.meter, row.throttle_ms, row.requests, row.clients) for row in episodes]
    assert sorted(found) == [
        ("", 0, "user=alice", 100, 4, ["user=alice,client-id=a", "user=alice,client-id=b", "user=alice,client-id=c"]),
        ("", 0, "user=bob", 70, 1, ["user=bob"]),
        ("", 1, "user=alice", 50, 1, ["user=alice,client-id=d"]),
        ("west", 0, "user=alice", 60, 1, ["user=alice,client-id=d"]),
    ]


def test_only_so_many_clients_are_listed(spark: "SparkSession") -> None:
    """An episode of more clients than a row should hold lists the first of them."""
    names = [f"c{number:04}" for number in range(MAX_CLIENTS + 1)]
    [episode] = throttled(
        usage(spark, *(told(0, 1, client_id=name) for name in reversed(names))), {"alice": {PRODUCER_BYTE_RATE: 1.0}}
    )
    assert episode.requests == MAX_CLIENTS + 1
    assert episode.clients == [f"user=alice,client-id={name}" for name in names[:-1]]


def test_mutations_have_a_window_of_their_own(spark: "SparkSession") -> None:
    """What separates episodes of mutations is ``controller.quota.window.num`` x size."""
    frame = usage(spark, *(told(second, 100, key=CONTROLLER_MUTATION_RATE) for second in (0, 12, 24)))
    rules = {"alice": {CONTROLLER_MUTATION_RATE: 1.0}}
    assert len(throttled(frame, rules)) == 3
    assert len(throttled(frame, rules, BrokerConfig(controller_quota_window_num=20))) == 1


def test_clients_have_to_be_those_of_the_usage(spark: "SparkSession") -> None:
    """A throttled client that was not resolved is an error, not a throttle that vanishes."""
    clients = resolved(usage(spark, told(0, 100, user="bob")), {})
    with pytest.raises(PythonException, match="resolve the clients of this usage"):
        to_throttled(usage(spark, told(0, 100)), clients, PLAIN).collect()


def test_no_throttles_give_an_empty_table(spark: "SparkSession") -> None:
    """Without throttled requests there are no episodes."""
    assert throttled(usage(spark, {"second": 0}), {"alice": {PRODUCER_BYTE_RATE: 5.0}}) == []


def test_a_table_must_have_its_columns(spark: "SparkSession") -> None:
    """A frame that is not the table it is meant to be says which columns differ."""
    frame = spark.createDataFrame([(1,)], "amount int")
    with pytest.raises(SchemaMismatchError, match="amount: int, expected double"):
        USAGE.conform(frame)


def told_rate(second: int, rate: float, seconds: int, **changes: Any) -> dict[str, Any]:
    """A cell of a broker's metrics: `rate` over `seconds`; nothing was counted."""
    unknown = dict.fromkeys(("amount_max", "requests", "throttled_requests", "throttle_ms", "throttle_max_ms"))
    metered = {"second": second, "cell_ms": seconds * 1000, "amount": rate * seconds, "source": "jmx"}
    return unknown | metered | {"grain": "user", "client_id": None} | changes


def test_rates_that_a_broker_told_are_taken_as_they_are(spark: "SparkSession") -> None:
    """A gauge is Kafka's sampled rate already, and stands for its whole cell; idle cells are not active."""
    cells = [told_rate(0, 5.0, 1), told_rate(1, 25.0, 1), told_rate(2, 9.0, 60), told_rate(62, 0.0, 60)]
    frame = usage(spark, *cells)
    rules = {"alice": {PRODUCER_BYTE_RATE: 10.0}}
    found = rates(frame, rules)
    assert [row.rate for row in found] == [5.0, 25.0, 9.0, 0.0]
    assert [row.requests for row in found] == [None] * 4
    [line] = to_utilisation(frame, resolved(frame, rules), PLAIN).collect()
    assert (line.rate_p50, line.rate_p99, line.rate_max, line.peak_1s) == (9.0, 25.0, 25.0, None)
    assert line.rate_mean == pytest.approx((5 + 25 + 9 * 60) / 62)
    assert (line.seconds_active, line.seconds_over_80, line.seconds_over_100) == (62, 61, 1)
    assert (line.requests, line.throttled_requests, line.throttle_ms) == (None, None, None)
    assert line.meter == "user=alice"


def test_a_meter_that_is_never_active_has_no_rate(spark: "SparkSession") -> None:
    """Idle cells are its own: it has nothing of the meters beside it."""
    users = {name: {PRODUCER_BYTE_RATE: 10.0} for name in ("alice", "bob", "carol")}
    rates_of = {"alice": 5.0, "bob": 0.0, "carol": 7.0}
    frame = usage(spark, *(told_rate(0, rate, 60, user=user) for user, rate in rates_of.items()))
    table = {row.meter: row for row in to_utilisation(frame, resolved(frame, users), PLAIN).collect()}
    for user, rate in rates_of.items():
        row = table[f"user={user}"]
        assert (row.rate_mean, row.rate_p50, row.rate_p99, row.rate_max) == (rate,) * 4
    assert (table["user=bob"].seconds_active, table["user=bob"].seconds_over_80) == (0, 0)


def test_a_log_and_metrics_of_one_meter_are_not_mixed_in_one_window(spark: "SparkSession") -> None:
    """Seconds of a log are taken over eleven of them; a cell of metrics beside them keeps its rate."""
    cells = [told_rate(-60, 7.0, 60), {"second": 0, "amount": 110.0}, {"second": 1, "amount": 110.0}]
    frame = usage(spark, *cells)
    rules = {"alice": {PRODUCER_BYTE_RATE: 10.0}}
    assert [row.rate for row in rates(frame, rules)] == [7.0, 10.0, 20.0]
    [line] = to_utilisation(frame, resolved(frame, rules), PLAIN).collect()
    assert (line.peak_1s, line.requests, line.seconds_active) == (110.0, 2, 62)


def test_cells_longer_than_the_window_stand_for_their_own_mean(spark: "SparkSession") -> None:
    cells = [{"second": 0, "cell_ms": 60_000, "amount": 600.0}, {"second": 60, "cell_ms": 5_000, "amount": 110.0}]
    found = rates(usage(spark, *cells), {"alice": {PRODUCER_BYTE_RATE: 1.0}})
    assert [row.rate for row in found] == [10.0, 10.0]


def test_meters_with_several_series_are_added_up_by_time(spark: "SparkSession") -> None:
    """Pairs that count on one meter under other rules than those in force: their rates at one time are added."""
    pair = {"grain": "client", "client_id": "b"}
    cells = [told_rate(0, 1.0, 60, **pair), told_rate(60, 2.0, 60, **pair), told_rate(90, 5.0, 30)]
    assert [row.rate for row in rates(usage(spark, *cells), {"alice": {PRODUCER_BYTE_RATE: 1.0}})] == [1.0, 7.0]


def test_metrics_say_of_which_limit_a_throttle_was(spark: "SparkSession") -> None:
    """But how many requests and how long in all they do not say."""
    cells = [
        told_rate(0, 5.0, 15, throttle_max_ms=800),
        told_rate(15, 5.0, 15, throttle_max_ms=900),
        told_rate(30, 5.0, 15, throttle_max_ms=0),
        told_rate(0, 5.0, 15, key=REQUEST_PERCENTAGE, throttle_max_ms=0),
    ]
    rules = {"alice": {PRODUCER_BYTE_RATE: 1.0, REQUEST_PERCENTAGE: 1.0}}
    [episode] = throttled(usage(spark, *cells), rules)
    assert (episode.key, episode.cause, episode.clients) == (PRODUCER_BYTE_RATE, PRODUCER_BYTE_RATE, ["user=alice"])
    assert (episode.requests, episode.throttle_ms, episode.throttle_max_ms) == (None, None, 900)
    assert (episode.end_ms - episode.start_ms) == 30_000


def test_a_throttled_mutation_stands_under_request_time_in_metrics(spark: "SparkSession") -> None:
    """As on a broker: the mutation's limit is the cause where no other can be, and may be where one can."""
    cells = [
        told_rate(0, 0.1, 15, key=REQUEST_PERCENTAGE, throttle_max_ms=800),
        told_rate(0, 5.0, 15, key=CONTROLLER_MUTATION_RATE, throttle_max_ms=0),
    ]
    [episode] = throttled(usage(spark, *cells), {"alice": {CONTROLLER_MUTATION_RATE: 1.0}})
    assert (episode.key, episode.cause) == (CONTROLLER_MUTATION_RATE, CONTROLLER_MUTATION_RATE)
    both = {"alice": {CONTROLLER_MUTATION_RATE: 1.0, REQUEST_PERCENTAGE: 1.0}}
    assert {(row.key, row.cause) for row in throttled(usage(spark, *cells), both)} == {
        (CONTROLLER_MUTATION_RATE, AMBIGUOUS),
        (REQUEST_PERCENTAGE, AMBIGUOUS),
    }
    cells[0]["throttle_max_ms"] = 1800  # longer than a request percentage throttles
    [episode] = throttled(usage(spark, *cells), both)
    assert (episode.key, episode.cause) == (CONTROLLER_MUTATION_RATE, CONTROLLER_MUTATION_RATE)
