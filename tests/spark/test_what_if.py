"""What-if, curves and recommendations on traffic that can be followed by hand, and beside the scalar replay."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kquota.config import BrokerConfig
from kquota.metering.statistics import Windows
from kquota.pipeline.advice.curve import Grid, to_curve, to_meters
from kquota.pipeline.advice.plan_impact import to_impacts
from kquota.pipeline.advice.recommendations import (
    cut_to_capacity,
    lowest_limits,
    rule_values,
    to_recommendations,
    unchanged_limits,
    with_rules,
    with_values,
)
from kquota.pipeline.advice.what_if import NEW, OLD, changed, to_bindings, to_what_if, with_old_limits
from kquota.pipeline.limits.clients import with_limits
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.simulation.arrivals import ArrivalModel, Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames, simulate_cell_frames_by_quota_set
from kquota.pipeline.simulation.limiters import CallbackSetup, Connection, MeterLimiter
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.simulation.request_frames import (
    callback_bindings,
    simulate_callback_frames,
    simulate_request_frames,
)
from kquota.pipeline.simulation.requests import simulate_requests
from kquota.policy import UNOWNED, Objective, OwnerMap, OwnerRule
from kquota.quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, USER, ClientQuotaEntity
from tests.kit.pipeline_rows import START_MS, request_rows, usage_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Rules = dict[str, float]
OPEN = Arrivals()
CLOSED = Arrivals(ArrivalModel.CLOSED)


def quotas(rules: Rules, key: str = PRODUCER_BYTE_RATE) -> dict[ClientQuotaEntity, dict[str, float]]:
    """Rules by canonical text."""
    return {ClientQuotaEntity.from_text(entity): {key: value} for entity, value in rules.items()}


def minute(rate: float, *, start: int = 0, seconds: int = 60, **changes: Any) -> list[dict[str, Any]]:
    """Cells of ten requests a second."""
    return [{"second": second, "amount": rate, "requests": 10, **changes} for second in range(start, start + seconds)]


def what_if(usage: DataFrame, old: Rules, new: Rules, *, arrivals: Arrivals = OPEN, **options: Any) -> list[Row]:
    bindings = to_bindings(to_client_totals(usage), quotas(old), quotas(new), static_defaults={})
    replay = Recording(arrivals, BrokerConfig(), recording_spans(usage))
    held_old, held_new = simulate_cell_frames_by_quota_set(usage, bindings, (OLD, NEW), replay)
    table = to_what_if(
        bindings,
        held_new,
        held_old,
        model=arrivals.model,
        grain="cell",
        is_recorded=options.get("is_recorded", True),
    )
    return table.orderBy("broker_id", "meter").collect()


def test_a_limit_below_the_traffic_starts_to_throttle(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0))
    (row,) = what_if(usage, {}, {"user=alice": 500.0})
    assert (row.meter, row.limit_old, row.limit_new, row.previous_meters) == ("user=alice", None, 500.0, None)
    assert (row.newly_throttled, row.no_longer_throttled) == (True, False)
    assert row.amount_old == 60_000.0
    # The first ten seconds let 5,000 through, whenever they come; then 500 a second.
    assert row.amount_new == pytest.approx(30_000.0, rel=0.05)
    assert 0.8 < row.throttled_share < 1.0
    assert row.backlog_max == pytest.approx(30_000.0, rel=0.1)
    assert row.unknowns == []


def test_a_limit_above_the_traffic_stops_what_the_old_one_did(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0, throttled_requests=1, throttle_ms=100))
    (row,) = what_if(usage, {"user=alice": 500.0}, {"user=alice": 5_000.0})
    assert (row.newly_throttled, row.no_longer_throttled, row.throttled_requests) == (False, True, 0)
    assert row.unknowns == ["suppressed-demand", "shaped-arrivals"]


def test_where_nothing_changes_nothing_starts_or_stops(spark: SparkSession) -> None:
    # The broker throttled what the replay does not: that is no effect of a change.
    usage = usage_rows(spark, *minute(100.0, throttled_requests=1, throttle_ms=100))
    (row,) = what_if(usage, {"user=alice": 500.0}, {"user=alice": 500.0})
    assert (row.newly_throttled, row.no_longer_throttled) == (False, False)


def test_clients_move_to_another_meter_and_share_it(spark: SparkSession) -> None:
    cells = minute(300.0) + minute(300.0, client_id="web") + minute(50.0, user="bob")
    usage = usage_rows(spark, *cells)
    old = {"client-id=etl": 10_000.0, "client-id=web": 10_000.0}
    rows = {row.meter: row for row in what_if(usage, old, old | {"user=alice": 400.0})}
    alice = rows["user=alice"]
    assert alice.previous_meters == "client-id=etl; client-id=web"
    assert alice.newly_throttled
    assert "shared-meter" in alice.unknowns
    # Kafka's level mask now knows users, too; bob's client id still binds him.
    assert rows["client-id=etl"].amount_old == 3_000.0
    assert not rows["client-id=etl"].throttled_requests


@pytest.mark.parametrize(
    ("old", "new", "arrivals"),
    [
        # The same clients on the same meters: the same limit, another one, none any more, one at last.
        ({"user=alice": 500.0, "user=bob": 100.0}, {"user=alice": 500.0, "user=bob": 200.0}, OPEN),
        ({"user=alice": 500.0, "user=bob": 100.0}, {"user=bob": 100.0}, OPEN),
        ({"user=bob": 100.0}, {"user=alice": 500.0, "user=bob": 100.0}, OPEN),
        # Some of a meter's clients leave for another one, which was there or was not; and they come back.
        ({"user=<default>": 300.0}, {"user=<default>": 300.0, "user=alice,client-id=etl": 100.0}, OPEN),
        ({"user=<default>": 300.0, "user=alice,client-id=etl": 100.0}, {"user=<default>": 300.0}, OPEN),
        ({"client-id=etl": 500.0, "client-id=web": 200.0}, {"client-id=etl": 500.0, "user=alice": 400.0}, CLOSED),
        # Nobody has the meter that there was.
        ({"client-id=<default>": 250.0}, {"user=<default>": 250.0}, OPEN),
    ],
)
def test_one_pass_under_both_quotas_is_what_two_say(
    spark: SparkSession, old: Rules, new: Rules, arrivals: Arrivals
) -> None:
    cells = minute(300.0) + minute(200.0, client_id="web", start=7) + minute(150.0, user="bob") + minute(90.0, user="")
    usage = usage_rows(spark, *cells, *minute(250.0, broker_id=1))
    bindings = to_bindings(to_client_totals(usage), quotas(old), quotas(new), static_defaults={})
    replay = Recording(arrivals, BrokerConfig(), recording_spans(usage))
    both = simulate_cell_frames_by_quota_set(usage, bindings, (OLD, NEW), replay)
    for found, clients in zip(both, (with_old_limits(bindings), bindings), strict=True):
        alone = simulate_cell_frames(usage, clients, replay)
        assert found.columns == alone.columns
        assert sorted(found.collect()) == sorted(alone.collect())
        assert found.count()


def test_which_client_goes_first_does_not_depend_on_the_order_of_clients(spark: SparkSession) -> None:
    """Clients that send at the same time, each after its answer: tables have their rows in any order."""
    usage = usage_rows(spark, *minute(300.0), *minute(900.0, client_id="web"), *minute(50.0, client_id="cron"))
    bindings = with_limits(to_client_totals(usage), quotas({"user=alice": 400.0}))
    replay = Recording(CLOSED, BrokerConfig(), recording_spans(usage))
    ascending, descending = (
        simulate_cell_frames(usage, bindings.orderBy("client_id", ascending=up), replay).collect()
        for up in (True, False)
    )
    assert ascending == descending


def test_each_broker_has_a_meter_of_its_own_but_mutations_are_counted_once(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(300.0), *minute(900.0, broker_id=1))
    rows = what_if(usage, {}, {"user=alice": 500.0})
    assert [(row.broker_id, row.throttled_requests > 0) for row in rows] == [(0, False), (1, True)]

    mutations = usage_rows(
        spark,
        *minute(1.0, key=CONTROLLER_MUTATION_RATE),
        *minute(1.0, key=CONTROLLER_MUTATION_RATE, broker_id=1),
    )
    new = quotas({"user=alice": 1.0}, CONTROLLER_MUTATION_RATE)
    bindings = to_bindings(to_client_totals(mutations), {}, new, static_defaults={})
    replay = Recording(OPEN, BrokerConfig(), recording_spans(mutations))
    (held,) = simulate_cell_frames(mutations, bindings, replay).collect()
    assert (held.broker_id, held.recorded) == (-1, 120.0)
    assert held.throttled_requests > 0


def test_what_the_change_does_not_touch_is_left_out(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(300.0), *minute(300.0, user="bob"), *minute(300.0, user="carol"))
    rules = {"user=alice": 100.0, "user=bob": 100.0}
    bindings = to_bindings(
        to_client_totals(usage), quotas(rules), quotas(rules | {"user=bob": 50.0}), static_defaults={}
    )
    assert [row.user for row in changed(bindings).collect()] == ["bob"]


def test_usage_of_an_unknown_half_is_never_taken_for_a_client_without_it(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(300.0, client_id=None))
    assert what_if(usage, {}, {"user=alice": 100.0}) == []


@pytest.mark.parametrize("arrivals", [OPEN, CLOSED])
@pytest.mark.parametrize("limit", [0.0, 400.0, 1_500.0])
def test_requests_on_spark_are_the_scalar_replay(spark: SparkSession, arrivals: Arrivals, limit: float) -> None:
    lines = [
        {"second": second + half / 2, "amount": 500.0 + 7 * second, "connection": f"c{half}"}
        for second in range(40)
        for half in (0, 1)
    ]
    lines += [{"second": 20.25, "amount": 0.0, "throttle_ms": 50}, {"second": 20.26, "amount": None}]
    rows = request_rows(spark, *lines)
    usage = usage_rows(spark, {"second": 0}, {"second": 59})
    bindings = to_bindings(to_client_totals(usage), {}, quotas({"user=alice": limit}), static_defaults={})
    replay = Recording(arrivals, BrokerConfig(), recording_spans(usage))
    (found,) = simulate_request_frames(rows, bindings, replay).collect()
    connections = [
        Connection(
            [START_MS + 1000.0 * (second + half / 2) for second in range(40)],
            [500.0 + 7 * second for second in range(40)],
            is_strict=False,
        )
        for half in (0, 1)
    ]
    limiter = MeterLimiter(PRODUCER_BYTE_RATE, limit, Windows())
    in_flight = arrivals.in_flight_of(PRODUCER_BYTE_RATE)
    [wanted] = simulate_requests(connections, limiter, in_flight=in_flight, end_ms=START_MS + 60_000)
    assert {name: found[name] for name in wanted.outcome._fields} == pytest.approx(wanted.outcome._asdict())
    assert (found.throttled_requests_logged, found.requests, found.recorded_ms) == (1, 82, 60_000)


def test_kafkas_own_rules_as_a_callback_are_the_rules(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        {"second": second, "amount": 700.0, "user": user, "client_id": client_id, "connection": f"{user}{client_id}"}
        for second in range(40)
        for user, client_id in (("alice", "etl"), ("alice", "web"), ("bob", "etl"))
    ]
    requests, usage = request_rows(spark, *lines), usage_rows(spark, {"second": 0}, {"second": 59})
    rules = quotas({"user=alice": 500.0, "user=<default>": 300.0})
    clients = request_rows(spark, *lines[:3]).select("cluster", "user", "client_id", "ip", "key")
    bindings = to_bindings(clients, {}, rules, static_defaults={})
    replay = Recording(OPEN, BrokerConfig(), recording_spans(usage))
    setup = CallbackSetup("default", str(tmp_path), {}, rules, BrokerConfig())
    by_callback = simulate_callback_frames(requests, setup, replay)
    found = {row.meter: row for row in by_callback.drop("members").collect()}
    wanted = {row.meter: row for row in simulate_request_frames(requests, bindings, replay).collect()}
    assert found.keys() == wanted.keys() == {"user=alice", "user=bob"}
    for meter, row in wanted.items():
        same = {name: value for name, value in row.asDict().items() if name != "peak"}
        assert {name: found[meter][name] for name in same} == same
    members = {row.user: row.meter for row in callback_bindings(by_callback, bindings).collect()}
    assert members == {"alice": "user=alice", "bob": "user=bob"}


def test_a_sweep_is_what_single_runs_say(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0), *minute(100.0, user="bob"), *minute(4000.0, start=30, seconds=5))
    replay = Recording(OPEN, BrokerConfig(), recording_spans(usage))
    rules = {"user=alice": 700.0, "user=bob": 700.0}
    meters = to_meters(to_client_totals(usage), quotas(rules), static_defaults={}, unlimited_by=None)
    limits = (100.0, 500.0, 1200.0)
    swept = {
        (row.meter, row.limit): row
        for row in simulate_cell_frames(usage, meters, replay, Grid(limits=limits)).collect()
    }
    assert len(swept) == 8
    for limit in limits:
        alone = to_meters(
            to_client_totals(usage),
            quotas(dict.fromkeys(rules, limit)),
            static_defaults={},
            unlimited_by=None,
        )
        for row in simulate_cell_frames(usage, alone, replay).collect():
            assert row == swept[row.meter, limit]


def test_amounts_that_are_not_known_are_named_beside_what_they_make_too_small(spark: SparkSession) -> None:
    """By cell and by request: in what-ifs, curves and recommendations."""
    deletion = {"second": 5, "amount": None, "amount_max": None, "unknown_amounts": 1}
    usage = usage_rows(spark, *minute(1000.0), deletion, *minute(10.0, user="bob"))
    rules = {"user=alice": 5000.0, "user=bob": 5000.0}
    rows = {row.meter: row.unknowns for row in what_if(usage, {}, rules)}
    assert rows == {"user=alice": ["amounts"], "user=bob": []}

    requests = request_rows(spark, *({"second": second, "amount": 1000.0} for second in range(9)), {"second": 5})
    clients = to_client_totals(usage)
    bindings = to_bindings(clients, {}, quotas(rules), static_defaults={})
    replay = Recording(OPEN, BrokerConfig(), recording_spans(usage))
    [held] = simulate_request_frames(requests, bindings, replay).collect()
    assert (held.recorded, held.requests, held.unknown_amounts) == (9000.0, 10, 1)

    meters = to_meters(clients, quotas(rules), static_defaults={}, unlimited_by=None)
    curve = to_curve(simulate_cell_frames(usage, meters, replay, Grid(limits=(900.0,)))).collect()
    assert {(row.meter, row.unknown_amounts) for row in curve} == {("user=alice", 1), ("user=bob", 0)}
    reasons = {entity: row.reason for entity, row in recommended(usage, rules, {}).items()}
    assert reasons == {
        "user=alice": "because; too low by what 1 requests of unknown amount used",
        "user=bob": "because",
    }


def test_a_curve_falls_as_the_limit_rises(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0), *minute(3000.0, start=60, seconds=20), *minute(200.0, start=80))
    replay = Recording(OPEN, BrokerConfig(), recording_spans(usage))
    meters = to_meters(to_client_totals(usage), {}, static_defaults={}, unlimited_by="user")
    rows = to_curve(simulate_cell_frames(usage, meters, replay, Grid(8))).orderBy("limit").collect()
    assert [row.meter for row in rows] == ["user=alice"] * 8
    shares = [row.throttled_share for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert shares[-1] == 0.0


OWNERS = OwnerMap([OwnerRule("payments", {USER: "alice"}, {}), OwnerRule("search", {USER: "bob"}, {})])


def recommended(
    usage: DataFrame,
    rules: Rules,
    capacity: dict[str, float],
    *,
    unlimited_by: str | None = None,
    owner: str | None = None,
    static_defaults: Rules | None = None,
) -> dict[str, Row]:
    replay = Recording(OPEN, BrokerConfig(), recording_spans(usage))
    clients = to_client_totals(usage)
    meters = to_meters(clients, quotas(rules), static_defaults=static_defaults or {}, unlimited_by=unlimited_by)
    meters = with_rules(meters, OWNERS)
    kept = None
    if owner is not None:
        kept = unchanged_limits(usage, meters.where(meters.owner != owner))
        meters = meters.where(meters.owner == owner)
    objectives = [Objective.parse("throttled_share<=1%"), Objective.parse("max_delay_ms<=500")]
    needed = lowest_limits(simulate_cell_frames(usage, meters, replay, Grid(64)), objectives)
    values = cut_to_capacity(rule_values(needed, meters), needed, meters, capacity, kept)
    held = simulate_cell_frames(usage, with_values(meters, values), replay)
    rows = to_recommendations(values, held, meters, "because").collect()
    return {row.entity: row for row in rows}


def test_a_recommendation_is_the_lowest_limit_that_does_no_more_than_is_allowed(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0, seconds=120), *minute(200.0, user="bob", seconds=120))
    rows = recommended(usage, {"user=<default>": 5000.0}, {})
    (row,) = rows.values()
    assert (row.entity, row.value_now) == ("user=<default>", 5000.0)
    # A sample covers up to a second more than its window: a tenth above the rate is enough.
    assert 1000.0 <= row.value_new <= 1200.0
    assert row.predicted_throttled_share <= 0.01
    assert row.predicted_max_delay_ms <= 500
    assert row.reason == "because, of 2 meters the one that needs most"


def test_clients_without_a_rule_get_one_of_their_own(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0), *minute(200.0, user="bob"))
    rows = recommended(usage, {"user=bob": 900.0}, {}, unlimited_by="user,client-id")
    assert rows.keys() == {"user=bob", "user=alice,client-id=etl"}
    assert rows["user=alice,client-id=etl"].value_now is None


def test_what_a_broker_cannot_bear_is_cut_and_said(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0), *minute(1000.0, user="bob"))
    rows = recommended(usage, {"user=alice": 5000.0, "user=bob": 5000.0}, {PRODUCER_BYTE_RATE: 1000.0})
    assert sum(row.value_new for row in rows.values()) == pytest.approx(1000.0, rel=0.01)
    assert all(row.predicted_throttled_share > 0.5 for row in rows.values())
    assert "cut to" in rows["user=bob"].reason


def test_rules_are_whose_the_owner_map_says(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(10.0), *minute(10.0, user="bob"), *minute(10.0, user="carl", client_id="x"))
    rows = recommended(usage, {"user=alice": 5000.0, "client-id=x": 5000.0}, {}, unlimited_by="user,client-id")
    assert {entity: row.owner for entity, row in rows.items()} == {
        "user=alice": "payments",
        "user=bob,client-id=etl": "search",
        "client-id=x": UNOWNED,
    }
    static = recommended(usage, {}, {}, static_defaults={PRODUCER_BYTE_RATE: 5000.0})
    assert {entity: row.owner for entity, row in static.items()} == {"static": UNOWNED}


def test_what_other_owners_may_use_now_is_not_there_to_give(spark: SparkSession) -> None:
    """Per broker: bob's limit counts where bob is seen, once whatever his clients, and is not touched."""
    rules = {"user=alice": 5000.0, "user=bob": 700.0}
    usage = usage_rows(
        spark,
        *minute(1000.0),
        *minute(9.0, user="bob"),
        *minute(9.0, user="bob", client_id="web"),
        *minute(1.0, user="x"),
    )
    rows = recommended(usage, rules, {PRODUCER_BYTE_RATE: 1000.0}, owner="payments")
    assert rows.keys() == {"user=alice"}
    assert rows["user=alice"].value_new == pytest.approx(300.0, rel=0.01)
    assert "cut to" in rows["user=alice"].reason

    elsewhere = usage_rows(spark, *minute(1000.0), *minute(9.0, user="bob", broker_id=1))
    assert recommended(elsewhere, rules, {PRODUCER_BYTE_RATE: 1200.0}, owner="payments")["user=alice"].value_new > 1000

    (row,) = recommended(usage, rules, {PRODUCER_BYTE_RATE: 700.0}, owner="payments").values()
    assert (row.value_now, row.value_new) == (5000.0, None)
    assert row.reason.endswith("; the limits that stay as they are use up the capacity")
    assert row.predicted_throttled_share == 0.0  # under the limit that it keeps


def test_every_recommended_value_can_be_set(spark: SparkSession) -> None:
    """Byte rates are whole, also where little is used or much is cut, and no limit is zero."""
    columns = "cluster string, broker_id int, meter string, key string, needed double"
    used = {
        ("slow", PRODUCER_BYTE_RATE): 1.32,
        ("idle", PRODUCER_BYTE_RATE): 0.0,
        ("fast", PRODUCER_BYTE_RATE): 123_456.0,
        ("slow", CONTROLLER_MUTATION_RATE): 0.0123,
    }
    needed = spark.createDataFrame([("", 0, f"user={user}", key, rate) for (user, key), rate in used.items()], columns)
    meters = needed.selectExpr("cluster", "meter", "key", "1D AS limit", "meter AS limit_source")
    meters = with_rules(meters, OwnerMap([]))

    def found(capacity: dict[str, float], kept: DataFrame | None = None) -> dict[tuple[str, str], float | None]:
        values = cut_to_capacity(rule_values(needed, meters), needed, meters, capacity, kept).collect()
        return {(row.entity, row.key): row.value_new for row in values}

    assert found({}) == {
        ("user=slow", PRODUCER_BYTE_RATE): 2.0,
        ("user=idle", PRODUCER_BYTE_RATE): None,
        ("user=fast", PRODUCER_BYTE_RATE): 130_000.0,
        ("user=slow", CONTROLLER_MUTATION_RATE): 0.013,
    }

    def cut(kept: DataFrame | None = None) -> list[float | None]:
        values = found({PRODUCER_BYTE_RATE: 50.0}, kept)
        return [values[f"user={user}", PRODUCER_BYTE_RATE] for user in ("slow", "idle", "fast")]

    assert cut() == [1.0, None, 48.0]  # and the 1.0 that the idle one has now
    kept = spark.createDataFrame(
        [("", 0, PRODUCER_BYTE_RATE, 10.0)], "cluster string, broker_id int, key string, kept double"
    )
    assert cut(kept) == [1.0, None, 38.0]


def test_impacts_are_told_to_the_changes_that_they_come_from(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0), *minute(1000.0, user="bob"), *minute(10.0, user="carol"))
    old = {"user=alice": 200.0, "user=bob": 5000.0}
    new = {"user=bob": 500.0, "user=<default>": 300.0}
    bindings = to_bindings(to_client_totals(usage), quotas(old), quotas(new), static_defaults={})
    replay = Recording(OPEN, BrokerConfig(), recording_spans(usage))
    table = to_what_if(
        bindings,
        simulate_cell_frames(usage, bindings, replay),
        simulate_cell_frames(usage, with_old_limits(bindings), replay),
        model=OPEN.model,
        grain="cell",
        is_recorded=False,
    )
    changes = [(entity, PRODUCER_BYTE_RATE) for entity in ("user=alice", "user=bob", "user=<default>", "user=zoe")]
    rows = {row.entity: row for row in to_impacts(table, bindings, changes).collect()}
    assert rows.keys() == {"user=alice", "user=bob", "user=<default>"}
    assert (rows["user=bob"].newly_throttled, rows["user=bob"].newly_throttled_meters) == (1, ["user=bob"])
    assert (rows["user=<default>"].meters, rows["user=<default>"].newly_throttled) == (2, 0)
    assert rows["user=alice"].throttled_share > 0.5  # its removal leaves the default in force
    assert rows["user=bob"].amount_new < rows["user=bob"].amount_old


def test_no_limit_is_infinite_for_the_replay_and_null_in_the_table(spark: SparkSession) -> None:
    usage = usage_rows(spark, *minute(1000.0))
    bindings = to_bindings(to_client_totals(usage), quotas({"user=alice": 100.0}), {}, static_defaults={})
    replay = Recording(OPEN, BrokerConfig(), recording_spans(usage))
    (held,) = simulate_cell_frames(usage, bindings, replay).collect()
    assert held.limit == inf
    (row,) = what_if(usage, {"user=alice": 100.0}, {}, is_recorded=False)
    assert (row.limit_new, row.no_longer_throttled, row.amount_new) == (None, True, 60_000.0)
