"""Unmodified clients through the gateway, while brokers and the gateway fail: nothing acknowledged is lost.

Every client, every fault, every listener and every mode is in one of these runs; all of them with each other are those
of benchmarks/check_gateway_lossless.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.capture.broker import Broker
from examples.capture.processes import run_class, write_properties
from tests.kit.gateway_runs import Run, do
from tests.kit.kafka import MIDDLE, NEW, OLD, PASSWORDS, needs_kafka, needs_tools
from tests.kit.kafka_cluster import KafkaCluster
from tests.kit.killable_gateway import KillableGateway
from tests.kit.perf_tools import ConsumerPerformance, PerfTools, ProducerPerformance, java_properties, run_tool
from tests.kit.topic_log import read_log
from tests.kit.workload import CLIENTS, Programs


def test_idempotent_producers_write_exactly_once_while_a_broker_and_the_gateway_are_killed_and_leaders_move(
    three_brokers: KafkaCluster, programs: Programs, tmp_path: Path
) -> None:
    faults = ("broker killed", "gateway killed", "leaders moved")
    outcome = do(Run(mode="idempotent", faults=faults, records=400), three_brokers, programs, tmp_path / "run")
    assert outcome.problems == []
    assert outcome.log == 400 * len(CLIENTS)


def test_only_committed_transactions_are_read_after_leaders_moved_and_the_gateway_was_stopped(
    three_brokers: KafkaCluster, programs: Programs, tmp_path: Path
) -> None:
    faults = ("leaders moved", "gateway stopped")
    run = Run(listener="SASL_PLAINTEXT", mode="transact", faults=faults, records=120)
    outcome = do(run, three_brokers, programs, tmp_path / "run")
    assert outcome.problems == []
    assert 0 < outcome.log <= outcome.acknowledged * 2 / 3  # every third was aborted


def test_throttled_producers_lose_nothing_and_groups_read_it_while_a_broker_restarts_and_the_gateway_is_killed(
    three_brokers: KafkaCluster, programs: Programs, tmp_path: Path
) -> None:
    faults = ("broker restarted", "gateway killed")
    run = Run(
        listener="SASL_SSL", mode="plain", faults=faults, records=250, size=600, rate=200, byte_rate=4000,
        readers=CLIENTS,
    )  # fmt: skip
    outcome = do(run, three_brokers, programs, tmp_path / "run")
    assert outcome.problems == []
    assert outcome.failed == 0
    assert outcome.throttled > 0


def test_a_gateway_that_is_stopped_first_answers_what_is_under_way_so_that_nothing_is_sent_twice(
    three_brokers: KafkaCluster, programs: Programs, tmp_path: Path
) -> None:
    """Without idempotence; what was answered to a client, and what a broker never got, is all there is."""
    faults = ("gateway stopped",) * 2
    clients = ("java", "librdkafka", "franz-go")
    run = Run(mode="plain", faults=faults, clients=clients, records=300)
    outcome = do(run, three_brokers, programs, tmp_path / "run")
    assert outcome.problems == []
    assert outcome.duplicated == {}


def test_kafkas_own_performance_tools_run_through_the_gateway(three_brokers: KafkaCluster, tmp_path: Path) -> None:
    tools = PerfTools(NEW, needs_tools(NEW), needs_kafka(NEW))
    three_brokers.create_topic("gateway-performance", 3)
    with KillableGateway.of(three_brokers, "SASL_SSL", tmp_path / "gateway") as gateway:
        produced, consumed = _perform(tools, gateway, "gateway-performance", tmp_path)
    assert (produced.records, consumed.records) == (2000, 2000)
    assert len(read_log(three_brokers.bootstrap(), "gateway-performance", 3)) == 2000


@pytest.mark.parametrize("version", [OLD, MIDDLE])
def test_the_tools_of_an_older_kafka_run_through_the_gateway(
    broker: Callable[[str], Broker], version: str, tmp_path: Path
) -> None:
    """Those for topics, configs and groups, and both performance tools, with a broker of their version."""
    server = broker(version)
    tools = PerfTools(version, needs_tools(version), needs_kafka(version))
    with _before(server, tmp_path / "gateway", quotas="cluster") as gateway:
        bootstrap = ("--bootstrap-server", gateway.bootstrap)
        configs = ("--command-config", str(_properties(gateway, tmp_path)))
        limited = ("--entity-type", "clients", "--entity-name", "behind-a-gateway")

        def tool(name: str, *arguments: str) -> str:
            jars, main = _tool(version, tools, name)
            return run_class(jars, main, *bootstrap, *configs, *arguments)

        topic = "behind-a-gateway"
        tool("TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1")
        tool("ConfigCommand", "--alter", *limited, "--add-config", "producer_byte_rate=12345678")
        assert "producer_byte_rate=1.2345678E7" in server.configs("--describe", *limited)
        tool("ConfigCommand", "--alter", *limited, "--delete-config", "producer_byte_rate")
        produced, consumed = _perform(tools, gateway, topic, tmp_path)
        assert (produced.records, consumed.records) == (2000, 2000)
        groups = tool("ConsumerGroupCommand", "--describe", "--all-groups")
    rows = [line.split() for line in groups.splitlines() if re.search(rf"\b{topic}\b", line)]
    assert sum(int(row[3]) for row in rows) == 2000  # CURRENT-OFFSET
    assert {row[5] for row in rows} == {"0"}  # LAG
    assert len(read_log(server.plaintext, topic, 3)) == 2000


def _before(server: Broker, folder: Path, *, quotas: str) -> KillableGateway:
    def login(user: str) -> dict[str, str]:
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": PASSWORDS[user]}
        return {"security.protocol": "SASL_PLAINTEXT", **login}

    return KillableGateway(
        server.sasl, folder, security=login("alice"), own_security=login("bob"), quotas=quotas, brokers=1
    )


def _properties(gateway: KillableGateway, folder: Path) -> Path:
    return write_properties(folder / "client.properties", java_properties(gateway.security))


def _perform(
    tools: PerfTools, gateway: KillableGateway, topic: str, folder: Path
) -> tuple[ProducerPerformance, ConsumerPerformance]:
    where = (_properties(gateway, folder), topic)
    produced = run_tool(tools.produce(*where, bootstrap=gateway.bootstrap, records=2000, size=500))
    consumed = run_tool(tools.consume(*where, bootstrap=gateway.bootstrap, records=2000))
    return ProducerPerformance.parse(produced), ConsumerPerformance.parse(consumed)


def _tool(version: str, tools: PerfTools, name: str) -> tuple[Path, str]:
    """Where a command of Kafka is, and its class."""
    if version == OLD or name == "ConfigCommand":
        return tools.broker, f"kafka.admin.{name}"
    package = "consumer.group." if name == "ConsumerGroupCommand" else ""
    return tools.tools, f"org.apache.kafka.tools.{package}{name}"
