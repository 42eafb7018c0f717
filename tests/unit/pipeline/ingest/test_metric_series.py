"""What series of quota metrics mean, in each dialect; and the mapping files for those of others."""

from pathlib import Path

import pytest
from hypothesis import assume, given

from kquota.errors import InputError
from kquota.pipeline.ingest.metrics.mapping import Reading, parse_metric_rules
from kquota.pipeline.ingest.metrics.mbean_names import jmx_unquote, parse_mbean
from kquota.pipeline.ingest.metrics.series import (
    NotUsage,
    NotUsageError,
    QuotaSeries,
    SeriesNames,
    series_of_mbean,
)
from kquota.pipeline.ingest.request_log.line import RejectedLineError
from kquota.quotas import jmx_sanitize, sanitize
from tests.kit.strategies import any_names

EXAMPLES = Path("examples/metrics")
RATE, AVERAGE = Reading.RATE, Reading.THROTTLE_TIME


def read(name: str, **labels: str) -> QuotaSeries | None:
    found = SeriesNames().read({"__name__": name, **labels})
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("kafka_server_quota_byte_rate", {"resource": "Produce", "user": "a%20b", "clientId": "etl"}),
        ("kafka_server_produce_byte_rate", {"user": "a%20b", "clientId": "etl"}),
        ("kafka_server_Produce_byte_rate", {"principal": "a%20b", "client-id": "etl"}),
        ("kafka_server_produce_byte_rate", {"user": "a%20b", "client_id": "etl", "job": "kafka", "env": "prod"}),
        ("kafka_server_Produce_byte_rate", {"user": "a%20b", "client_id": "etl"}),
        ("kafka_server_produce_byte_rate", {"user": "a%20b", "client_id": "etl", "listener": ""}),
    ],
)
def test_the_dialects_say_the_same(name: str, labels: dict[str, str]) -> None:
    """Exporters differ in where the kind stands, in case, and in the names of labels."""
    assert read(name, **labels) == QuotaSeries(RATE, "producer_byte_rate", "client", "a b", "etl")


@pytest.mark.parametrize(
    ("name", "reading", "key"),
    [
        ("kafka_server_fetch_byte_rate", RATE, "consumer_byte_rate"),
        ("kafka_server_request_request_time", RATE, "request_percentage"),
        ("kafka_server_controllermutation_mutation_rate", RATE, "controller_mutation_rate"),
        ("kafka_server_ControllerMutation_throttle_time", AVERAGE, "controller_mutation_rate"),
        ("kafka_server_fetch_throttle_time", AVERAGE, "consumer_byte_rate"),
        ("kafka_server_request_throttle_time", AVERAGE, "request_percentage"),
    ],
)
def test_each_metric_has_its_key(name: str, reading: Reading, key: str) -> None:
    assert read(name, user="alice", client_id="") == QuotaSeries(reading, key, "user", "alice", None)
    assert read(name, client_id="etl") == QuotaSeries(reading, key, "client-id", None, "etl")


def test_labels_that_say_neither_meter_nor_metric_are_told_apart() -> None:
    labels = {"__name__": "kafka_server_produce_byte_rate", "user": "a", "instance": "k1", "replica": "x", "empty": ""}
    found = SeriesNames().read(labels)
    assert found is not None
    assert found[1] == {"instance": "k1", "replica": "x"}


def test_other_metrics_are_none_and_those_beside_usage_say_so() -> None:
    assert read("kafka_server_brokertopicmetrics_bytesin_total", topic="t") is None
    assert read("kafka_server_quota_byte_rate", resource="Other", user="a") is None
    for name in ("kafka_server_produce_queue_size", "kafka_server_request_exempt_request_time"):
        with pytest.raises(NotUsageError) as left_out:
            read(name)
        assert left_out.value.why is NotUsage.RELATED
    with pytest.raises(NotUsageError) as left_out:
        read("kafka_server_produce_byte_rate", group="payments")
    assert left_out.value.why is NotUsage.UNTAGGED


def test_connections_are_of_an_address() -> None:
    name = "kafka_server_socket_server_metrics_connection_accept_rate"
    expected = QuotaSeries(RATE, "connection_creation_rate", "meter", None, None, "0:0:0:0:0:0:0:1")
    assert read(name, ip='"0:0:0:0:0:0:0:1"') == read(name, ip="0:0:0:0:0:0:0:1", listener="") == expected
    with pytest.raises(NotUsageError):
        read(name, listener="PLAINTEXT")


def test_a_user_that_is_not_encoded_is_rejected() -> None:
    with pytest.raises(RejectedLineError, match="URL-encoded"):
        read("kafka_server_produce_byte_rate", user="100%")


@given(any_names, any_names)
def test_mbeans_are_read_back(user: str, client_id: str) -> None:
    """Whatever names are: the MBean that Kafka makes of them gives them back."""
    tags = [("user", sanitize(user)), ("client-id", client_id)]
    name = "kafka.server:type=Fetch" + "".join(f",{tag}={jmx_sanitize(value)}" for tag, value in tags if value)
    series = series_of_mbean(parse_mbean(name), "byte-rate")
    assert series is not None
    if user or client_id:
        assert (series.user or "", series.client_id or "") == (user, client_id)
        assert (series.user is None, series.client_id is None) == (not user, not client_id)
    else:
        # Kafka counts clients without an id there, of whatever user.
        assert (series.grain, series.user, series.client_id) == ("client-id", None, "")


@given(any_names)
def test_quoted_labels_are_the_names_themselves(client_id: str) -> None:
    """Exporters leave the quotes of an MBean's name on a label, others never put them on."""
    assume(client_id)
    for label in (jmx_sanitize(client_id), client_id):
        assume(label == client_id or jmx_unquote(client_id) == client_id)
        series = read("kafka_server_produce_byte_rate", client_id=label)
        assert series is not None
        assert series.client_id == client_id


def test_mbeans_of_others_and_of_callbacks() -> None:
    def series(name: str, attribute: str) -> QuotaSeries | None:
        return series_of_mbean(parse_mbean(name), attribute)

    assert series("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", "Count") is None
    assert series("kafka.network:type=Request,user=a", "request-time") is None
    shuffled = series("kafka.server:client-id=c,type=Produce,user=u", "byte-rate")
    assert shuffled == QuotaSeries(RATE, "producer_byte_rate", "client", "u", "c")
    with pytest.raises(NotUsageError) as left_out:
        series("kafka.server:type=Produce,group=payments", "byte-rate")
    assert left_out.value.why is NotUsage.FOREIGN_TAGS


@pytest.mark.parametrize("name", ["", "kafka.server", "kafka.server:", "kafka.server:type", 'a:b="c', "a:b=c,", ":b=c"])
def test_what_is_no_mbean_is_rejected(name: str) -> None:
    with pytest.raises(RejectedLineError):
        parse_mbean(name)


def test_the_mapping_for_redpanda_reads_its_counters() -> None:
    names = SeriesNames(parse_metric_rules((EXAMPLES / "redpanda.toml").read_text(), name="redpanda.toml"))
    labels = {
        "__name__": "redpanda_kafka_quotas_client_quota_throughput_by_entity",
        "redpanda_quota_type": "fetch_quota",
        "redpanda_quota_user": "100%",
        "redpanda_quota_client_id": "",
        "instance": "r1",
    }
    expected = QuotaSeries(Reading.TOTAL, "consumer_byte_rate", "user", "100%", None)
    assert names.read(labels) == (expected, {"instance": "r1"})
    assert names.read(labels | {"__name__": labels["__name__"] + "_total"}) == (expected, {"instance": "r1"})
    throttled = names.read(labels | {"__name__": "redpanda_kafka_quotas_client_quota_throttle_time_ms_by_entity"})
    assert throttled is not None
    assert throttled[0].reading is Reading.THROTTLE_TOTAL
    with pytest.raises(NotUsageError):
        names.read(labels | {"redpanda_quota_group_name": "etl-"})
    with pytest.raises(NotUsageError):
        names.read(labels | {"redpanda_quota_type": "something else"})


def test_the_mapping_for_automq_reads_its_gauges() -> None:
    names = SeriesNames(parse_metric_rules((EXAMPLES / "automq.toml").read_text(), name="automq.toml"))
    usage = names.read(
        {"__name__": "kafka_broker_quota_value_record", "type": "Produce", "user": "a%20b", "client_id": "c"}
    )
    assert usage == (QuotaSeries(RATE, "producer_byte_rate", "client", "a b", "c"), {})
    accepted = names.read({"__name__": "kafka_broker_connection_accept_rate", "ip": "10.0.0.1"})
    assert accepted is not None
    assert accepted[0].ip == "10.0.0.1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[metric", "not TOML"),
        ("", "metric"),
        ('[[metric]]\nname = "a"\nis = "gauge"\nkey = "producer_byte_rate"', "gauge"),
        ('[[metric]]\nname = "a"\nis = "rate"\nkey = "producer_bytes"', "producer_bytes is no quota"),
        ('[[metric]]\nname = "a"\nis = "rate"', "either key"),
        ('[[metric]]\nname = "a"\nis = "rate"\nkey_label = "x"', "either key"),
        ('[[metric]]\nname = "a"\nis = "rate"\nkey = "producer_byte_rate"\nuser = "u"', "user"),
    ],
)
def test_a_mapping_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_metric_rules(text, name="mapping.toml")
