"""The calibration on requests that can be checked by hand."""

from typing import TYPE_CHECKING, Any

import pytest

from kquota.config import BrokerConfig
from kquota.metering.meters import RateMeter
from kquota.metering.statistics import Windows
from kquota.pipeline.calibration.broker_replay import is_close
from kquota.pipeline.calibration.replayed_throttles import to_calibration, to_replayed_throttles
from kquota.pipeline.dataset.tables import CALIBRATION, CLIENTS, REQUESTS
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

START_MS = 1_800_000_000_000.0
APIS = {PRODUCER_BYTE_RATE: 0, CONSUMER_BYTE_RATE: 1, CONTROLLER_MUTATION_RATE: 19, REQUEST_PERCENTAGE: 3}
Line = dict[str, Any]


def line(at_ms: float, amount: float | None, logged_ms: int = 0, **changes: Any) -> Line:
    """A row of `requests`, a minute and more after the log began, of a producer alice."""
    return {"at_ms": at_ms + 60_000, "amount": amount, "throttle_ms": logged_ms} | changes


def requests(spark: "SparkSession", *lines: Line) -> "DataFrame":
    rows = []
    begin = line(-60_000, 1.0, user="first", connection="0")
    for seq, one in enumerate((begin, *lines)):
        defaults = {
            "cluster": "",
            "broker_id": 0,
            "connection": "c",
            "seq": seq,
            # The broker writes a line a little later.
            "end_ms": START_MS + one["at_ms"] + 0.4,
            "record_ms": START_MS + one["at_ms"] + 0.4,
            "api_key": APIS[one.get("key", PRODUCER_BYTE_RATE)],
            "api_version": 7,
            "user": "alice",
            "client_id": "etl",
            "ip": None,
            "key": PRODUCER_BYTE_RATE,
            "local_ms": 0.1,
            "remote_ms": 0.0,
            "listener": "CLIENT",
        }
        row = defaults | one
        rows.append(tuple(row[name] for name in REQUESTS.columns))
    return spark.createDataFrame(rows, REQUESTS.schema)


def clients(spark: "SparkSession", *limits: dict[str, Any]) -> "DataFrame":
    rows = []
    for one in limits:
        defaults = {
            "cluster": "",
            "user": "alice",
            "client_id": "etl",
            "ip": None,
            "key": PRODUCER_BYTE_RATE,
            "amount": 1.0,
            "requests": 1,
            "throttled_requests": 1,
            "throttle_ms": 1,
            "unknown_amounts": 0,
            "limit": 1_000.0,
            "limit_source": "user=alice",
            "level": 3,
            "meter": "user=alice",
        }
        rows.append(tuple((defaults | one)[name] for name in CLIENTS.columns))
    return spark.createDataFrame(rows, CLIENTS.schema)


def calibrated(requests: "DataFrame", clients: "DataFrame") -> "list[Row]":
    table = to_calibration(to_replayed_throttles(requests, clients, BrokerConfig()))
    assert table.columns == CALIBRATION.columns
    return table.orderBy("broker_id", "meter", "key").collect()


def test_a_wait_that_kafka_tells_is_reproduced_and_the_others_are_counted(spark: "SparkSession") -> None:
    frame = requests(
        spark,
        line(0, 12_000.0, 2_000),  # as Kafka does it
        line(40_000, 12_000.0, 0),  # the broker did not
        line(80_000, 5.0, 900),  # the broker did, and nothing says why
        line(120_000, 13_000.0, 2_500),  # another wait than Kafka's 3,000
    )
    [row] = calibrated(frame, clients(spark, {}))
    assert (row.broker_id, row.meter, row.key) == (0, "user=alice", PRODUCER_BYTE_RATE)
    assert (row.throttled_requests, row.predicted_requests, row.false_negatives, row.false_positives) == (3, 3, 1, 1)
    assert row.within_5ms_or_5pct == 0.25
    assert (row.throttle_ms_logged, row.throttle_ms_predicted) == (5_400, 7_000)
    assert row.error_p50_ms == 700.0
    assert row.not_compared == 0


def test_a_throttled_fetch_would_have_brought_what_the_next_of_its_connection_brings(spark: "SparkSession") -> None:
    """It stands with nothing in the log; an answer without records tells nothing, and other connections neither."""
    fetch: Any = {"key": CONSUMER_BYTE_RATE}
    frame = requests(
        spark,
        line(0, 9_000.0, connection="a", **fetch),
        line(100, 0.0, 2_000, connection="a", **fetch),
        line(200, 500.0, connection="b", **fetch),
        line(2_100, 16.0, connection="a", **fetch),
        line(12_500, 3_000.0, connection="a", **fetch),
        # The last of a connection: as much as the one before.
        line(12_600, 0.0, 0, connection="b", **fetch),
        line(13_000, 0.0, 400, connection="a", **fetch),
    )
    meter = RateMeter({}, 1_000.0, Windows(), None)
    meter.record(9_000.0, 60_000)
    first = meter.record(3_000.0, 60_100)
    assert first is not None
    [row] = calibrated(frame, clients(spark, {"key": CONSUMER_BYTE_RATE}))
    assert first.throttle_ms == 1_900
    assert (row.throttled_requests, row.false_negatives, row.false_positives) == (2, 1, 0)
    assert row.throttle_ms_predicted == first.throttle_ms


def test_what_a_limit_of_request_time_may_have_told_is_not_held_against_another(spark: "SparkSession") -> None:
    """The longer of two waits is told, and one for request time is a second at most."""
    timed: Any = {"key": REQUEST_PERCENTAGE, "limit": 2.0}
    frame = requests(
        spark,
        line(0, 12_000.0, 2_000, seq=1),  # too long for request time: compared
        line(0, 0.1, seq=1, key=REQUEST_PERCENTAGE, api_key=0),
        line(40_000, 5.0, 300, seq=3),
        line(40_000, 0.1, seq=3, key=REQUEST_PERCENTAGE, api_key=0),
        line(80_000, 0.1, 200, key=REQUEST_PERCENTAGE),
    )
    time, rate = sorted(calibrated(frame, clients(spark, {}, timed)), key=lambda row: row.key, reverse=True)
    assert (rate.throttled_requests, rate.not_compared, rate.within_5ms_or_5pct) == (1, 1, 1.0)
    # The 300 ms may be either's, and 200 ms were told on a request that nothing else limits.
    assert (time.throttled_requests, time.not_compared, time.throttle_ms_logged) == (1, 2, 200)
    assert time.within_5ms_or_5pct is time.false_negatives is time.false_positives is time.error_p50_ms is None
    assert time.predicted_low_ms <= time.throttle_ms_predicted <= time.predicted_high_ms


def test_mutations_are_counted_by_the_controller_for_all_brokers(spark: "SparkSession") -> None:
    changes: Any = {"key": CONTROLLER_MUTATION_RATE}
    frame = requests(
        spark,
        line(0, 20.0, **changes),
        line(1_040, 0.0, 7_980, broker_id=1, remote_ms=40.0, **changes),
        line(1_000, 30.0, broker_id=1, user="unlimited", **changes),
    )
    rows = calibrated(frame, clients(spark, changes | {"limit": 1.0}))
    [row] = [row for row in rows if row.throttled_requests]
    assert (row.broker_id, row.throttle_ms_predicted, row.within_5ms_or_5pct) == (1, 7_980, 1.0)


def test_what_was_counted_before_the_log_began_is_not_known(spark: "SparkSession") -> None:
    [row] = calibrated(requests(spark, line(-55_000, 5.0, 700)), clients(spark, {}))
    assert (row.throttled_requests, row.not_compared, row.within_5ms_or_5pct) == (0, 1, None)


def test_meters_without_waits_and_clients_without_limits_are_left_out(spark: "SparkSession") -> None:
    frame = requests(spark, line(0, 5.0), line(10, 10_000_000.0, 5_000, user="bob"))
    assert calibrated(frame, clients(spark, {})) == []


@pytest.mark.parametrize(("remote_ms", "is_reproduced"), [(1.5, True), (400.0, False)])
def test_an_answer_that_waited_was_counted_at_its_end(
    spark: "SparkSession", remote_ms: float, is_reproduced: bool
) -> None:
    """A short time between handler and answer is the sending; a long one was spent waiting before the count."""
    meter = RateMeter({}, 1_000.0, Windows(), None)
    meter.record(9_000.0, 60_000)
    counted_at_ms = 60_600
    throttle = meter.record(3_000.0, counted_at_ms)
    assert throttle is not None
    frame = requests(
        spark,
        line(0, 9_000.0),
        line(600 + remote_ms, 3_000.0, throttle.throttle_ms, remote_ms=remote_ms),
    )
    [row] = calibrated(frame, clients(spark, {}))
    assert (row.within_5ms_or_5pct == 1.0) == is_reproduced


def test_the_columns_rule_of_what_is_close_is_the_scalar_one(spark: "SparkSession") -> None:
    """At and around both bounds: 5 ms up to a wait of 100 ms, 5 % beyond."""
    told = [1, 50, 99, 100, 101, 119, 120, 121, 200, 1_000, 2_001, 100_000]
    pairs = [(ms, ms + off) for ms in told for off in (0, 4, 5, 6, 7, 10, 11, 50, 51, 100, 101, 5_000, 5_001)]
    waits = [
        ("", f"user={number}", PRODUCER_BYTE_RATE, 0, 0.0, ms, predicted_ms, predicted_ms, 0, 0, True)
        for number, (ms, predicted_ms) in enumerate(pairs)
    ]
    columns = (
        "cluster string, meter string, key string, broker_id int, at_ms double, logged_ms long, predicted_ms long, "
        "unguided_ms long, low_ms long, high_ms long, is_compared boolean"
    )
    found = {
        row.meter: row.within_5ms_or_5pct for row in to_calibration(spark.createDataFrame(waits, columns)).collect()
    }
    assert found == {f"user={number}": float(is_close(predicted, ms)) for number, (ms, predicted) in enumerate(pairs)}
