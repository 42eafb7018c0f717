"""Usage by owner and day, beside what the owners may use."""

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kquota.pipeline.limits.clients import Period, with_limits, with_limits_over_time
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.owners.by_owner import (
    OWNER,
    local_date,
    to_client_days,
    to_showback,
    to_unowned,
    with_owners,
)
from kquota.policy import UNOWNED, OwnerMap, OwnerRule
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    ClientQuotaEntity,
)
from tests.kit.pipeline_rows import usage_rows as usage
from tests.spark.test_utilisation import START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC_ZONE = ZoneInfo("UTC")
OWNERS = OwnerMap(
    [
        OwnerRule("etl team", {CLIENT_ID: "etl"}, {}),
        OwnerRule("web team", {}, {CLIENT_ID: "web"}),
        OwnerRule("carl & co", {USER: "carl"}, {}),
    ]
)
ALICE = ClientQuotaEntity({USER: "alice"})
DAY = 86_400


def table(
    days: "DataFrame", limits: "DataFrame | None" = None, owners: OwnerMap = OWNERS
) -> dict[tuple[str, str, str], tuple[float | None, float | None, float | None]]:
    """(amount, limit, share) by owner, day and key."""
    rows = to_showback(with_owners(days, owners), limits).collect()
    return {(row.owner, str(row.date), row.key): (row.amount, row["limit"], row.share) for row in rows}


def cell(second: int, client_id: str, amount: float | None, **changes: Any) -> dict[str, Any]:
    return {"second": second, "client_id": client_id, "amount": amount} | changes


def test_a_shared_meter_is_divided_by_use_and_counts_for_each_broker(spark: "SparkSession") -> None:
    """alice's 100 B/s on each of two brokers: three quarters etl's, one quarter web's; what has no limit adds none."""
    frame = usage(
        spark,
        cell(0, "etl", 60.0),
        cell(1, "etl", 90.0, broker_id=1),
        cell(2, "web-1", 20.0),
        cell(3, "web-2", 30.0),
        cell(4, "web-1", 200.0, user="bob"),
        cell(5, "cron", 100.0, user="carl"),
        cell(6, "cron", 0.0, user="dave"),
    )
    limits = with_limits(
        to_client_totals(frame),
        {ALICE: {PRODUCER_BYTE_RATE: 100.0}, ClientQuotaEntity({USER: "carl"}): {PRODUCER_BYTE_RATE: 7.0}},
    )
    day = "2027-01-15"
    assert table(to_client_days(frame, UTC_ZONE), limits) == {
        ("etl team", day, PRODUCER_BYTE_RATE): (150.0, pytest.approx(150.0), 0.3),
        ("web team", day, PRODUCER_BYTE_RATE): (250.0, pytest.approx(50.0), 0.5),
        ("carl & co", day, PRODUCER_BYTE_RATE): (100.0, 14.0, 0.2),
        (UNOWNED, day, PRODUCER_BYTE_RATE): (0.0, None, 0.0),
    }


def test_mutations_are_counted_by_one_broker_and_unknown_amounts_stay_unknown(spark: "SparkSession") -> None:
    """The controller's limit is no more with more brokers. Who used nothing known shares a meter evenly."""
    mutation: dict[str, Any] = {"key": CONTROLLER_MUTATION_RATE}
    frame = usage(
        spark,
        cell(0, "etl", None, **mutation),
        cell(0, "web", None, **mutation),
        cell(0, "etl", 0.0, broker_id=1, user="bob"),
        {
            "second": 0,
            "user": None,
            "client_id": None,
            "ip": "10.0.0.1",
            "amount": 5.0,
            "key": CONNECTION_CREATION_RATE,
        },
    )
    limits = with_limits(
        to_client_totals(frame),
        {ALICE: {CONTROLLER_MUTATION_RATE: 10.0}, ClientQuotaEntity({IP: None}): {CONNECTION_CREATION_RATE: 2.0}},
    )
    found = table(to_client_days(frame, UTC_ZONE), limits)
    day = "2027-01-15"
    assert found["etl team", day, CONTROLLER_MUTATION_RATE] == (None, 5.0, None)
    assert found["web team", day, CONTROLLER_MUTATION_RATE] == (None, 5.0, None)
    assert found["etl team", day, PRODUCER_BYTE_RATE] == (0.0, None, None)
    assert found[UNOWNED, day, CONNECTION_CREATION_RATE] == (5.0, 4.0, 1.0)


def test_days_and_the_limits_of_each(spark: "SparkSession") -> None:
    """A day has the limit that was in force when a meter was last used on it; days are those of the zone."""
    midnight = -(START % DAY)
    frame = usage(
        spark, cell(midnight + DAY - 1, "etl", 1.0), cell(midnight + DAY, "etl", 2.0), cell(midnight, "etl", 4.0)
    )
    some = [
        Period(None, {ALICE: {PRODUCER_BYTE_RATE: 10.0}}),
        Period((START + midnight + DAY - 10) * 1000, {ALICE: {PRODUCER_BYTE_RATE: 20.0}}),
        Period((START + midnight + DAY) * 1000, {ClientQuotaEntity({CLIENT_ID: "etl"}): {PRODUCER_BYTE_RATE: 30.0}}),
    ]
    limits = with_limits_over_time(to_client_totals(frame), some)
    key = PRODUCER_BYTE_RATE
    assert table(to_client_days(frame, UTC_ZONE), limits) == {
        ("etl team", "2027-01-15", key): (5.0, 20.0, 1.0),
        ("etl team", "2027-01-16", key): (2.0, 30.0, 1.0),
    }
    assert table(to_client_days(frame, ZoneInfo("Asia/Tokyo"))) == {
        ("etl team", "2027-01-15", key): (4.0, None, 1.0),
        ("etl team", "2027-01-16", key): (3.0, None, 1.0),
    }


def test_who_has_no_owner_stands_by_size(spark: "SparkSession") -> None:
    frame = usage(
        spark,
        cell(0, "etl", 50.0),
        cell(0, "b", 20.0),
        cell(0, "a", 10.0),
        cell(DAY, "a", 20.0),
        cell(0, "c", 1.0, key=CONTROLLER_MUTATION_RATE),
        {
            "second": 0,
            "user": None,
            "client_id": None,
            "ip": "10.0.0.1",
            "amount": 5.0,
            "key": CONNECTION_CREATION_RATE,
        },
    )
    found = to_unowned(with_owners(to_client_days(frame, UTC_ZONE), OWNERS)).collect()
    assert [(row.client_id, row.ip, row.share) for row in found] == [
        ("c", None, 1.0),
        ("a", None, 0.3),
        ("b", None, 0.2),
        (None, "10.0.0.1", 1.0),
    ]


names = st.sampled_from(["", "a", "ab", "b"])
tests = st.dictionaries(st.sampled_from([USER, CLIENT_ID, IP]), names, max_size=2)
cells = st.lists(
    st.tuples(
        st.integers(0, 3 * DAY),
        st.none() | names,
        st.none() | names,
        st.none() | st.integers(0, 99).map(float),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.builds(OwnerRule, st.sampled_from(["", "x", "y"]), tests, tests), max_size=4),
    cells,
    st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu"]),
)
def test_owners_and_days_are_those_of_the_scalar_functions(
    spark: "SparkSession",
    rules: list[OwnerRule],
    cells: list[tuple[int, str | None, str | None, float | None]],
    zone: str,
) -> None:
    """Every amount is added up for who owns it on the day that it is there."""
    owners = OwnerMap(rules)
    frame = usage(
        spark,
        *({"second": at, "user": user, "client_id": client, "amount": amount} for at, user, client, amount in cells),
    )
    days = with_owners(to_client_days(frame, ZoneInfo(zone)), owners)
    assert all(row[OWNER] == owners.owner(row.user, row.client_id, row.ip) for row in days.collect())
    expected: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for second, user, client_id, amount in cells:
        day = local_date((START + second) * 1000, ZoneInfo(zone))
        assert day == datetime.fromtimestamp(START + second, UTC).astimezone(ZoneInfo(zone)).date()
        known = [] if amount is None else [amount]
        expected[owners.owner(user, client_id, None), str(day), PRODUCER_BYTE_RATE] += known
    found = table(to_client_days(frame, ZoneInfo(zone)), owners=owners)
    assert {place: amount for place, (amount, _, _) in found.items()} == {
        place: sum(known) if known else None for place, known in expected.items()
    }
    for name_of_day in {place[1] for place in expected}:
        shares = [share for place, (_, _, share) in found.items() if place[1] == name_of_day and share is not None]
        assert not shares or sum(shares) == pytest.approx(1.0)
