"""The columns that Spark adds equal what the scalar resolver says."""

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kquota.pipeline.limits.clients import CLIENT_TEXT, KAFKA_METER, with_limits
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotaEntity,
    QuotaResolver,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [
    "alice",
    "<default>",
    "a,b=c",
    "",
    "Ünïcødé ☃",
    '"quoted" \\',
    "user=<default>",
    "%3Cdefault%3E",
    "null",
    " ",
    "\n",
]
KEYS = [PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE]
IPS = ["10.0.0.1", "::1"]

set_name = st.none() | st.sampled_from([name for name in NAMES if name])
entities = st.one_of(
    st.builds(lambda user: ClientQuotaEntity({USER: user}), set_name),
    st.builds(lambda client: ClientQuotaEntity({CLIENT_ID: client}), set_name),
    st.builds(lambda user, client: ClientQuotaEntity({USER: user, CLIENT_ID: client}), set_name, set_name),
)
limits = st.floats(min_value=0.5, max_value=1e18)
snapshots = st.dictionaries(entities, st.dictionaries(st.sampled_from(KEYS), limits, min_size=1), max_size=12)
ip_snapshots = st.dictionaries(
    st.builds(lambda ip: ClientQuotaEntity({IP: ip}), st.none() | st.sampled_from(IPS)),
    st.fixed_dictionaries({CONNECTION_CREATION_RATE: st.integers(1, 1000).map(float)}),
    max_size=3,
)
defaults = st.dictionaries(st.sampled_from(KEYS[:2]), st.integers(1, 2**40).map(float), max_size=2)

IDENTITIES = [(user, client, None, key) for user in NAMES for client in NAMES for key in KEYS] + [
    (None, None, ip, CONNECTION_CREATION_RATE) for ip in [*IPS, "192.168.0.1"]
]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshot=snapshots, ips=ip_snapshots, static=defaults)
def test_spark_columns_equal_the_scalar_resolver(
    spark: "SparkSession",
    snapshot: dict[ClientQuotaEntity, dict[str, float]],
    ips: dict[ClientQuotaEntity, dict[str, float]],
    static: dict[str, float],
) -> None:
    """For every client and key, limit, source, level and meter are those of QuotaResolver."""
    rules = snapshot | ips
    resolver = QuotaResolver(rules, static_defaults=static)
    frame = spark.createDataFrame(IDENTITIES, "user string, client_id string, ip string, key string")
    rows = with_limits(frame, rules, static_defaults=static).collect()
    assert len(rows) == len(IDENTITIES)
    for row in rows:
        if row.key == CONNECTION_CREATION_RATE:
            expected = resolver.resolve("", "", row.ip)[row.key]
        else:
            expected = resolver.resolve(row.user, row.client_id)[row.key]
        assert row["limit"] == expected.value
        assert row.level == expected.level
        assert row.limit_source == (None if expected.source is None else expected.source.to_text())
        assert row.meter == (None if expected.meter is None else expected.meter.to_text())
        assert row.meter is None or row[KAFKA_METER] == row.meter


def test_an_unknown_half_is_not_resolved(spark: "SparkSession") -> None:
    """A client whose user or client-id is not known has no limit that could be named."""
    rules = {ClientQuotaEntity({USER: None}): {PRODUCER_BYTE_RATE: 1.0}}
    frame = spark.createDataFrame(
        [(None, "etl", None, PRODUCER_BYTE_RATE), ("alice", None, None, PRODUCER_BYTE_RATE)],
        "user string, client_id string, ip string, key string",
    )
    assert [row["limit"] for row in with_limits(frame, rules).collect()] == [None, None]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshot=snapshots, static=defaults)
def test_a_meter_has_the_limit_that_is_counted_on_it(
    spark: "SparkSession", snapshot: dict[ClientQuotaEntity, dict[str, float]], static: dict[str, float]
) -> None:
    """What a broker counts on a user alone is limited by rules on users alone, whatever binds the user's clients."""
    resolver = QuotaResolver(snapshot, static_defaults=static)
    meters: list[tuple[str | None, ...]] = [(name, None, None, key, "user") for name in NAMES if name for key in KEYS]
    meters += [(None, name, None, key, "client-id") for name in NAMES for key in KEYS]
    frame = spark.createDataFrame(meters, "user string, client_id string, ip string, key string, grain string")
    for row in with_limits(frame, snapshot, static_defaults=static).collect():
        rule = resolver.rule_of_tags(row.key, row.user or "", row.client_id or "")
        assert (row["limit"], row.level) == ((None, None) if rule is None else (rule.value, rule.level))
        assert row.meter == (None if rule is None else row[KAFKA_METER])


def test_clients_are_written_as_text_that_can_be_read(spark: "SparkSession") -> None:
    """The text of a client holds its two names, an empty one left out."""
    frame = spark.createDataFrame(
        [(user, client, None, PRODUCER_BYTE_RATE) for user in NAMES for client in NAMES],
        "user string, client_id string, ip string, key string",
    )
    for row in with_limits(frame, {}).collect():
        names = {USER: row.user, CLIENT_ID: row.client_id}
        expected = {kind: name for kind, name in names.items() if name}
        text = row[CLIENT_TEXT]
        assert (dict(ClientQuotaEntity.from_text(text).entries) if text else {}) == expected
