"""Limits that change while the log runs: every column is that of the limit in force at the time of its row."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.metering.meters import BucketMeter, RateMeter
from kquota.metering.statistics import Windows
from kquota.pipeline.calibration.replayed_throttles import to_calibration, to_replayed_throttles
from kquota.pipeline.limits.clients import CLIENT_TEXT, KAFKA_METER, Period, with_limits, with_limits_over_time
from kquota.pipeline.limits.periods import IS_LATEST, VALID_FROM_MS, VALID_TO_MS
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.meters.episodes import AMBIGUOUS, UNEXPLAINED, to_throttled
from kquota.pipeline.meters.rates import enforced_rates, to_utilisation
from kquota.pipeline.meters.worst_meters import worst_meters
from kquota.quotas import (
    CLIENT_ID,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotaEntity,
    MeterKey,
    QuotaResolver,
    QuotaSnapshot,
)
from tests.kit.pipeline_rows import usage_rows as usage
from tests.spark.test_calibration import START_MS, line, requests
from tests.spark.test_limits import IDENTITIES, defaults, snapshots
from tests.spark.test_utilisation import START, told, told_rate

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

PLAIN = BrokerConfig()
ALICE, ETL = ClientQuotaEntity({USER: "alice"}), ClientQuotaEntity({CLIENT_ID: "etl"})
BOTH = ClientQuotaEntity({USER: "alice", CLIENT_ID: "etl"})
SPARK_TESTS = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Known = dict[ClientQuotaEntity, dict[str, float]] | None


def periods(*known: tuple[int | None, Known]) -> list[Period]:
    """Quotas by the second, counted from START, at which they came into force."""
    return [Period(None if second is None else (START + second) * 1000, snapshot) for second, snapshot in known]


def in_force(some: Sequence[Period], at_ms: int) -> QuotaSnapshot | None:
    """What holds at a time, found as plainly as can be."""
    return [one.snapshot for one in some if one.valid_from_ms is None or one.valid_from_ms <= at_ms][-1]


@SPARK_TESTS
@given(st.lists(st.none() | snapshots, min_size=1, max_size=4), defaults)
def test_at_every_time_the_limit_is_that_of_the_scalar_resolver(
    spark: "SparkSession", known: list[Known], static: dict[str, float]
) -> None:
    """The stretches of each client and key follow each other without a gap, and differ; one of them is the last."""
    some = periods(*((second * 10 if second else None, snapshot) for second, snapshot in enumerate(known)))
    frame = spark.createDataFrame(IDENTITIES, "user string, client_id string, ip string, key string")
    by_identity: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in with_limits_over_time(frame, some, static_defaults=static).collect():
        by_identity[row.user, row.client_id, row.ip, row.key].append(row)
    assert by_identity.keys() == set(IDENTITIES)
    resolvers = [None if one is None else QuotaResolver(one, static_defaults=static) for one in known]
    for (user, client_id, ip, key), rows in by_identity.items():
        rows.sort(key=lambda row: row[VALID_FROM_MS] or 0)
        assert (rows[0][VALID_FROM_MS], rows[-1][VALID_TO_MS]) == (None, None)
        for one, following in pairwise(rows):
            assert one[VALID_TO_MS] == following[VALID_FROM_MS]
            assert outcome(one) != outcome(following)
        limited = [number for number, row in enumerate(rows) if row["limit"] is not None]
        assert [number for number, row in enumerate(rows) if row[IS_LATEST]] == [
            limited[-1] if limited else len(rows) - 1
        ]
        for period, resolver in zip(some, resolvers, strict=True):
            row = [one for one in rows if (one[VALID_FROM_MS] or 0) <= (period.valid_from_ms or 0)][-1]
            if resolver is None:
                assert (row["limit"], row.level, row.limit_source, row.meter, row[KAFKA_METER]) == (None,) * 5
                continue
            found = resolver.resolve("", "", ip)[key] if ip is not None else resolver.resolve_key(key, user, client_id)
            assert (row["limit"], row.level) == (found.value, found.level)
            assert row.limit_source == (None if found.source is None else found.source.to_text())
            assert row.meter == (None if found.meter is None else found.meter.to_text())


def outcome(row: "Row") -> tuple[Any, ...]:
    return row["limit"], row.limit_source, row.level, row.meter, row[CLIENT_TEXT], row[KAFKA_METER]


cells = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(["alice", "bob"]),
        st.sampled_from(["etl", "web"]),
        st.integers(0, 2000).map(float),
    ),
    min_size=1,
    max_size=30,
)
small = st.dictionaries(
    st.sampled_from([ALICE, ETL, BOTH, ClientQuotaEntity({USER: None})]),
    st.fixed_dictionaries({PRODUCER_BYTE_RATE: st.integers(1, 300).map(float)}),
    max_size=3,
)


@SPARK_TESTS
@given(
    cells, st.lists(st.tuples(st.integers(1, 40), st.none() | small), max_size=3, unique_by=lambda one: one[0]), small
)
def test_seconds_are_counted_against_the_limit_in_force(
    spark: "SparkSession",
    cells: list[tuple[int, str, str, float]],
    changes: list[tuple[int, Known]],
    first: dict[ClientQuotaEntity, dict[str, float]],
) -> None:
    """As a plain model has it, which goes through the seconds one by one, and counts on meters as Kafka does."""
    some = periods((None, first), *sorted(changes, key=lambda one: one[0]))
    frame = usage(
        spark,
        *({"second": at, "user": user, "client_id": client, "amount": amount} for at, user, client, amount in cells),
    )
    clients = with_limits_over_time(to_client_totals(frame), some).persist()
    amounts: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for second, user, client_id, amount in cells:
        snapshot = in_force(some, (START + second) * 1000)
        if snapshot:
            amounts[QuotaResolver(snapshot).tags(PRODUCER_BYTE_RATE, user, client_id)][second] += amount
    expected: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for tags, by_second in amounts.items():
        for second in sorted(by_second):
            rule = QuotaResolver(in_force(some, (START + second) * 1000) or {}).rule_of_tags(PRODUCER_BYTE_RATE, *tags)
            if rule is not None:
                rate = sum(amount for at, amount in by_second.items() if second - 11 < at <= second) / 11
                meter = MeterKey(dict(zip((USER, CLIENT_ID), tags, strict=True))).to_text()
                expected[meter].append((second, rate, rule.value))
    rates = enforced_rates(frame, clients, PLAIN).orderBy("cell_start_ms").collect()
    found: dict[str, list[tuple[int, Any, float]]] = defaultdict(list)
    for row in rates:
        found[row.meter].append((row.cell_start_ms // 1000 - START, pytest.approx(row.rate), row["limit"]))
    assert found == expected
    table = {row.meter: row for row in to_utilisation(frame, clients, PLAIN).collect()}
    assert table.keys() == expected.keys()
    for meter, seconds in expected.items():
        row = table[meter]
        assert row.seconds_active == len(seconds)
        assert row.seconds_over_80 == sum(rate > 0.8 * limit for _, rate, limit in seconds)
        assert row.seconds_over_100 == sum(rate > limit for _, rate, limit in seconds)
        assert row.rate_max == pytest.approx(max(rate for _, rate, _ in seconds))


def test_one_period_is_as_no_period(spark: "SparkSession") -> None:
    """The same rows as without any past."""
    frame = usage(spark, *({"second": second, "amount": 50.0 * second} for second in range(9)))
    totals = to_client_totals(frame)
    alone, over_time = (
        with_limits(totals, {ALICE: {PRODUCER_BYTE_RATE: 10.0}}),
        with_limits_over_time(totals, periods((None, {ALICE: {PRODUCER_BYTE_RATE: 10.0}}))),
    )
    assert over_time.select(*alone.columns).collect() == alone.collect()
    assert to_utilisation(frame, over_time, PLAIN).collect() == to_utilisation(frame, alone, PLAIN).collect()


def test_a_meter_that_is_counted_otherwise_from_some_time_on(spark: "SparkSession") -> None:
    """A limit on the user takes over from the one on the client-id: two meters, each for its time."""
    some = periods((None, {ETL: {PRODUCER_BYTE_RATE: 20.0}}), (5, {ALICE: {PRODUCER_BYTE_RATE: 10.0}}))
    frame = usage(spark, *({"second": second, "amount": 110.0} for second in range(8)))
    clients = with_limits_over_time(to_client_totals(frame), some)
    table = {row.meter: row for row in to_utilisation(frame, clients, PLAIN).collect()}
    old, new = table["client-id=etl"], table["user=alice"]
    assert (old["limit"], old.seconds_active, old.rate_max, old.seconds_over_100) == (20.0, 5, 50.0, 3)
    assert (new["limit"], new.seconds_active, new.rate_max, new.seconds_over_100) == (10.0, 3, 30.0, 2)
    [client] = clients.where(IS_LATEST).collect()
    assert (client.meter, client["limit"]) == ("user=alice", 10.0)
    empty = to_throttled(frame, clients, PLAIN)
    lines = worst_meters(to_utilisation(frame, clients, PLAIN), empty, clients, count=5).collect()
    assert {(one.meter, one.level, one.clients) for one in lines} == {("client-id=etl", 7, 1), ("user=alice", 3, 1)}


def test_a_throttle_is_that_of_a_limit_of_its_time(spark: "SparkSession") -> None:
    """Before a limit came and after it went, it explains nothing."""
    some = periods(
        (None, None), (10, {ALICE: {PRODUCER_BYTE_RATE: 1.0}}), (30, {ALICE: {REQUEST_PERCENTAGE: 1.0}}), (50, {})
    )
    frame = usage(spark, *(told(second, 100) for second in (5, 20, 40, 60)))
    frame = frame.union(usage(spark, {"second": 0, "key": REQUEST_PERCENTAGE}))
    episodes = to_throttled(frame, with_limits_over_time(to_client_totals(frame), some), PLAIN).orderBy("start_ms")
    assert [(row.start_ms // 1000 - START, row.meter, row.cause) for row in episodes.collect()] == [
        (5, None, UNEXPLAINED),
        (20, "user=alice", PRODUCER_BYTE_RATE),
        (40, "user=alice", REQUEST_PERCENTAGE),
        (60, None, UNEXPLAINED),
    ]


def test_rates_that_a_broker_told_are_counted_against_the_limit_in_force(spark: "SparkSession") -> None:
    """A cell of metrics has the limit of its start; the user's own meter is that of his rule, whenever it came."""
    some = periods((None, {ALICE: {PRODUCER_BYTE_RATE: 10.0}}), (60, {ALICE: {PRODUCER_BYTE_RATE: 4.0}}), (120, {}))
    frame = usage(spark, *(told_rate(second, 5.0, 15) for second in range(0, 180, 15)))
    clients = with_limits_over_time(to_client_totals(frame), some)
    [line] = to_utilisation(frame, clients, PLAIN).collect()
    assert (line.meter, line["limit"], line.limit_source) == ("user=alice", 4.0, "user=alice")
    assert (line.seconds_active, line.seconds_over_100, line.rate_max, line.requests) == (120, 60, 5.0, None)
    rates = enforced_rates(frame, clients, PLAIN).orderBy("cell_start_ms").collect()
    assert [(row.rate, row["limit"]) for row in rates] == [(5.0, 10.0)] * 4 + [(5.0, 4.0)] * 4


def test_a_throttled_mutation_is_that_of_a_limit_of_its_time(spark: "SparkSession") -> None:
    """Metrics tell it under request time: there only the limits of that time may be the cause."""
    mutation, percentage = {CONTROLLER_MUTATION_RATE: 1.0}, {REQUEST_PERCENTAGE: 1.0}
    some = periods((None, {ALICE: mutation}), (30, {ALICE: percentage}), (60, {ALICE: mutation | percentage}), (90, {}))
    cells = [
        told_rate(second, amount, 15, key=key, throttle_max_ms=ms)
        for second in (0, 30, 60, 90)
        for key, amount, ms in ((REQUEST_PERCENTAGE, 0.1, 800), (CONTROLLER_MUTATION_RATE, 5.0, 0))
    ]
    frame = usage(spark, *cells)
    episodes = to_throttled(frame, with_limits_over_time(to_client_totals(frame), some), PLAIN)
    found = [
        (row.start_ms // 1000 - START, row.key, row.cause) for row in episodes.orderBy("start_ms", "key").collect()
    ]
    assert found == [
        (0, CONTROLLER_MUTATION_RATE, CONTROLLER_MUTATION_RATE),
        (30, REQUEST_PERCENTAGE, REQUEST_PERCENTAGE),
        (60, CONTROLLER_MUTATION_RATE, AMBIGUOUS),
        (60, REQUEST_PERCENTAGE, AMBIGUOUS),
        (90, REQUEST_PERCENTAGE, UNEXPLAINED),
    ]


def replayed(spark: "SparkSession", key: str, lines: list[tuple[float, float, int]], some: list[Period]) -> "Row":
    api = {"key": key, "api_version": 2}
    frame = requests(spark, *(line(at, amount, ms, **api) for at, amount, ms in lines))
    last = [one for one in some if one.snapshot]
    assert last
    totals = spark.createDataFrame(
        [("", "alice", "etl", None, key, 1)],
        "cluster string, user string, client_id string, ip string, key string, throttled_requests long",
    )
    waits = to_replayed_throttles(frame, with_limits_over_time(totals, some), PLAIN)
    plan = waits._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan
    assert "NestedLoop" not in plan
    assert "BatchEvalPython" not in plan
    [row] = to_calibration(waits).collect()
    return row


@pytest.mark.parametrize("key", [PRODUCER_BYTE_RATE, CONTROLLER_MUTATION_RATE])
def test_the_replay_changes_its_limit_when_the_broker_did(spark: "SparkSession", key: str) -> None:
    """Waits that a meter tells whose limit is changed twice, and in between taken away, are all reproduced."""
    limits = [(0, 1_000.0), (30_000, 400.0), (60_000, 2.0**63), (90_000, 700.0)]
    meter = (
        RateMeter({}, 1_000.0, Windows(), None) if key == PRODUCER_BYTE_RATE else BucketMeter({}, 1_000.0, Windows())
    )
    lines = []
    for at in range(0, 120_000, 1_500):
        meter.limit = [limit for since, limit in limits if since <= at][-1]
        throttle = meter.record(1_200.0, int(START_MS) + 60_000 + at)
        lines.append((float(at), 1_200.0, 0 if throttle is None else throttle.throttle_ms))
    assert sum(ms > 0 for _, _, ms in lines) > 10
    rules: list[Known] = [{ALICE: {key: limit}} for _, limit in limits]
    rules[2] = {ClientQuotaEntity({USER: "bob"}): {key: 1.0}}
    since = [int(START_MS) + 60_000 + at for at, _ in limits]
    some = [Period(since[number] if number else None, rule) for number, rule in enumerate(rules)]
    row = replayed(spark, key, lines, some)
    assert (row.throttled_requests, row.within_5ms_or_5pct) == (sum(ms > 0 for _, _, ms in lines), 1.0)
    # Judged by the last limit alone, it is not what the broker did.
    assert replayed(spark, key, lines, [some[0], some[0]._replace(valid_from_ms=since[1])]).within_5ms_or_5pct < 1.0
