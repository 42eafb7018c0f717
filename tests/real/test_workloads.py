"""The clients that the gateway is shown with, straight against three brokers: what Kafka itself does.

Each program is run with what it is asked about later: TLS, SCRAM, compression, a group, transactions, faults.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.capture.processes import write_properties
from tests.kit.kafka import NEW, needs_kafka, needs_tools
from tests.kit.kafka_cluster import KafkaCluster
from tests.kit.log_check import COMMITTED, check, summary, without_repetitions
from tests.kit.perf_tools import ConsumerPerformance, PerfTools, ProducerPerformance, java_properties, run_tool
from tests.kit.topic_log import read_log
from tests.kit.workload import CLIENTS, ClientProgram, Fault, Programs, read_until, run_to_end

PARTITIONS = 3
# The Python clients know the others only with packages of their own.
COMPRESSION = {"java": "zstd", "librdkafka": "lz4", "franz-go": "snappy", "sarama": "zstd"}

_numbers = itertools.count()


@pytest.fixture
def topic(three_brokers: KafkaCluster) -> str:
    name = f"workload-{next(_numbers)}"
    three_brokers.create_topic(name, PARTITIONS)
    return name


@contextlib.contextmanager
def whole(cluster: KafkaCluster) -> Iterator[None]:
    """All brokers run again afterwards."""
    try:
        yield
    finally:
        cluster.start_missing()


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_sends_over_tls_is_there_and_a_group_reads_it(
    three_brokers: KafkaCluster, programs: Programs, topic: str, client: str, tmp_path: Path
) -> None:
    shared = {
        "bootstrap.servers": three_brokers.bootstrap("SASL_SSL"),
        "topic": topic,
        "partitions": PARTITIONS,
        **three_brokers.security("SASL_SSL"),
    }
    sent = {"mode": "produce", "records": 300, "compression.type": COMPRESSION.get(client, "gzip")}
    read = {"mode": "consume", "group.id": f"group-{topic}"}
    with (
        ClientProgram(programs, client, tmp_path, {**shared, **sent, "client.id": "sender"}) as sender,
        ClientProgram(programs, client, tmp_path, {**shared, **read, "client.id": "reader"}) as reader,
    ):
        assert [one.records for one in run_to_end([sender])] == [300]
        group = without_repetitions(read_until([reader], 300))
    log = read_log(three_brokers.bootstrap(), topic, PARTITIONS)
    assert check(sender.lines(), log).problems() == []
    assert summary(group) == summary(log)


@pytest.mark.parametrize("client", CLIENTS)
def test_only_what_a_client_committed_is_read(
    three_brokers: KafkaCluster, programs: Programs, topic: str, client: str, tmp_path: Path
) -> None:
    shared = {
        "bootstrap.servers": three_brokers.bootstrap("SASL_PLAINTEXT"),
        "topic": topic,
        "partitions": PARTITIONS,
        **three_brokers.security("SASL_PLAINTEXT"),
    }
    sent = {"mode": "transact", "records": 60, "transactional.id": topic, "abort.every": 3}
    read = {"mode": "consume", "records": 40, "isolation.level": "read_committed"}
    with (
        ClientProgram(programs, client, tmp_path, {**shared, **sent, "client.id": "sender"}) as sender,
        ClientProgram(programs, client, tmp_path, {**shared, **read, "client.id": "reader"}) as reader,
    ):
        run_to_end([sender, reader])
    log = read_log(three_brokers.bootstrap(), topic, PARTITIONS)
    acknowledged = sender.lines()
    assert check(acknowledged, log).problems() == []
    assert [line.state for line in acknowledged].count(COMMITTED) == len(log) == 40
    assert summary(without_repetitions(reader.lines())) == summary(log)
    everything = read_log(three_brokers.bootstrap(), topic, PARTITIONS, isolation="read_uncommitted")
    assert len(check(acknowledged, everything).aborted) == len(everything) - len(log) == 20


def test_idempotent_producers_lose_and_repeat_nothing_while_a_broker_is_killed_and_leaders_move(
    three_brokers: KafkaCluster, programs: Programs, topic: str, tmp_path: Path
) -> None:
    """All six at the same time, in one topic."""
    shared = {"bootstrap.servers": three_brokers.bootstrap(), "topic": topic, "partitions": PARTITIONS}
    sent = {"mode": "produce", "records": 1000, "rate": 100, "enable.idempotence": "true"}
    faults = [
        Fault(1000, "kill broker 2", lambda: three_brokers.kill(2)),
        Fault(2500, "start it again", three_brokers.start_missing),
        Fault(3500, "move leaders", lambda: three_brokers.move_leaders(topic)),
    ]
    with whole(three_brokers), contextlib.ExitStack() as running:
        senders = [
            running.enter_context(
                ClientProgram(programs, client, tmp_path, {**shared, **sent, "client.id": f"sender-{client}"})
            )
            for client in CLIENTS
        ]
        summaries = run_to_end(senders, faults=faults)
    assert [one.failed for one in summaries] == [0] * len(CLIENTS)
    acknowledged = [line for sender in senders for line in sender.lines()]
    log = read_log(three_brokers.bootstrap(), topic, PARTITIONS)
    assert check(acknowledged, log).problems() == []
    assert len(acknowledged) == len(log) == 1000 * len(CLIENTS)


def test_kafkas_own_tools_say_how_fast_they_were(three_brokers: KafkaCluster, topic: str, tmp_path: Path) -> None:
    tools = PerfTools(NEW, needs_tools(NEW), needs_kafka(NEW))
    bootstrap = three_brokers.bootstrap("SASL_PLAINTEXT")
    properties = write_properties(
        tmp_path / "client.properties", java_properties(three_brokers.security("SASL_PLAINTEXT"))
    )
    produced = ProducerPerformance.parse(
        run_tool(tools.produce(properties, topic, bootstrap=bootstrap, records=5000, size=1000))
    )
    assert produced.records == 5000
    assert 0 < produced.p50_ms <= produced.p99_ms <= produced.max_ms
    consumed = ConsumerPerformance.parse(run_tool(tools.consume(properties, topic, bootstrap=bootstrap, records=5000)))
    assert consumed.records >= 5000
    log = read_log(three_brokers.bootstrap(), topic, PARTITIONS)
    assert sum(one.records for one in summary(log).values()) == 5000
