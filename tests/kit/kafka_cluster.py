"""A real Kafka cluster on this machine, whose brokers can be stopped, killed and started one by one.

Each broker has a rack of its own and the listeners PLAINTEXT, SASL_PLAINTEXT and SASL_SSL. Topics have three replicas
and ``min.insync.replicas=2`` where there are three brokers. In KRaft mode every node is broker and controller.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic

from examples.capture.broker import format_storage, login_modules, needs_zookeeper
from examples.capture.jars import kafka_jars
from examples.capture.processes import (
    HOST,
    ServerProcess,
    free_ports,
    java_class,
    logging_flags,
    run_class,
    wait_until_ready,
    write_properties,
    zookeeper,
)
from kquota.admin import QuotaAdmin
from tests.kit import tls
from tests.kit.eventually import eventually

LISTENERS: Final = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
ADMIN_TIMEOUT_S: Final = 30.0

_COMMON: Final[Mapping[str, str]] = {
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # Small, as the heaps are: two cores carry three brokers and their clients.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
_KRAFT: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": ",".join([*(f"{one}:{one}" for one in LISTENERS), "CONTROLLER:PLAINTEXT"]),
    # After how long a killed broker loses its leaderships (default: 9 s).
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
}
_ZOOKEEPER_SESSION: Final[Mapping[str, str]] = {"zookeeper.session.timeout.ms": "6000"}
_FLAGS: Final = ["-XX:+UseSerialGC"]
_QUICK_START: Final = ["-XX:TieredStopAtLevel=1"]


@dataclass(frozen=True, slots=True)
class Node:
    """A broker of the cluster, running or not; addresses are ``host:port`` by the name of the listener."""

    number: int
    folder: Path
    addresses: Mapping[str, str]
    properties: Mapping[str, str]
    server: ServerProcess

    @property
    def request_log(self) -> Path:
        return self.folder / "kafka-request.log"


class KafkaCluster:
    """Nodes by their ids (1, 2, 3). What changes the cluster raises BrokerFailed or AssertionError where it cannot."""

    def __init__(
        self, version: str, jars: Path, nodes: Mapping[int, Node], passwords: Mapping[str, str], ca: Path
    ) -> None:
        """``passwords`` are those of the users (PLAIN and SCRAM-SHA-256), ``ca`` the authority's certificate (PEM)."""
        self.version = version
        self.jars = jars
        self.nodes = nodes
        self.passwords = passwords
        self.ca = ca

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """The addresses of all brokers on this listener, running or not."""
        return ",".join(node.addresses[listener] for node in self.nodes.values())

    def security(
        self, listener: str = "PLAINTEXT", user: str = "alice", mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, str]:
        """The settings with which a client program of `tests.kit.workload` comes in as ``user``."""
        settings = {"security.protocol": listener}
        if listener.startswith("SASL_"):
            settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": self.passwords[user]}
        if listener.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.ca)
        return settings

    # Brokers

    def start(self, number: int, *, wait: bool = True) -> None:
        """Start a broker that does not run; with ``wait``, until it knows all brokers that run."""
        self.nodes[number].server.start()
        if wait:
            self.wait_until_ready(number)

    def stop(self, number: int) -> None:
        """A controlled shutdown: its leaderships move before it ends."""
        self.nodes[number].server.stop()

    def kill(self, number: int) -> None:
        """SIGKILL: its leaderships move once its session has expired."""
        self.nodes[number].server.kill()

    def restart(self, number: int) -> None:
        """Stop it and start it again, and wait until every partition has all of its replicas in sync."""
        self.stop(number)
        self.start(number)
        self.wait_until_in_sync()

    def start_missing(self) -> None:
        """Start every broker that does not run, and wait until every partition has all of its replicas in sync."""
        missing = [number for number, node in self.nodes.items() if not node.server.is_running]
        for number in missing:
            self.start(number, wait=False)
        for number in missing:
            self.wait_until_ready(number)
        self.wait_until_in_sync()

    def wait_until_ready(self, number: int) -> None:
        running = sum(node.server.is_running for node in self.nodes.values())
        node = self.nodes[number]
        wait_until_ready(node.server, node.addresses["PLAINTEXT"], brokers=running)

    def wait_until_in_sync(self) -> None:
        """Until every replica of every partition is in sync."""

        def behind() -> list[tuple[str, int]]:
            return [
                (topic, partition)
                for address in self._running()
                for topic, partitions in self._topics(address).items()
                for partition, described in partitions.items()
                if described.leader < 0 or set(described.isrs) != set(described.replicas)
            ]

        eventually(behind, [], patience_s=60)

    # Topics and leaders

    def create_topic(self, topic: str, partitions: int, *, configs: Mapping[str, str] | None = None) -> None:
        """With a replica on every broker; returns once every partition has its leader."""
        replicas = len(self.nodes)
        settings = {"min.insync.replicas": str(min(2, replicas)), **(configs or {})}
        with self._admin() as admin:
            admin.create_topics([NewTopic(topic, partitions, replicas, topic_configs=settings)], timeout_ms=30_000)
        eventually(lambda: len([one for one in self.leaders(topic).values() if one > 0]), partitions)

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition, -1 where there is none; as soon as all running brokers say the same."""
        found: list[dict[int, int]] = []

        def opinions() -> int:
            found[:] = [
                {number: one.leader for number, one in self._topics(address).get(topic, {}).items()}
                for address in self._running()
            ]
            return len({tuple(sorted(one.items())) for one in found})

        eventually(opinions, 1)
        return found[0]

    def move_leaders(self, topic: str) -> None:
        """Make another broker the leader of each partition: the one after the present leader in id.

        The order of the replicas is changed (AlterPartitionReassignments), then the first elected (ElectLeaders).
        Brokers that do not run are not made leaders.
        """
        running = [number for number, node in self.nodes.items() if node.server.is_running]
        replicas: dict[int, list[int]] = {}
        for partition, leader in self.leaders(topic).items():
            first = next((one for one in running if one > leader), running[0])
            replicas[partition] = [first, *(one for one in self.nodes if one != first)]
        with self._admin() as admin:
            reassigned = {TopicPartition(topic, partition): wanted for partition, wanted in replicas.items()}
            admin.alter_partition_reassignments(reassigned, timeout_ms=30_000)

            def orders() -> list[dict[int, list[int]]]:
                described = [self._topics(address)[topic] for address in self._running()]
                return [{number: list(one.replicas) for number, one in partitions.items()} for partitions in described]

            eventually(orders, [replicas] * len(running))
            # Whether it led to the leaders wanted is asked below.
            admin.elect_leaders(0, {topic: list(replicas)}, raise_errors=False)
        eventually(lambda: self.leaders(topic), {partition: wanted[0] for partition, wanted in replicas.items()})

    def quotas(self) -> contextlib.AbstractContextManager[QuotaAdmin]:
        """kquota's own admin on the cluster's PLAINTEXT listener."""
        return QuotaAdmin(self.bootstrap())

    def configs(self, *arguments: str) -> str:
        """What Kafka's own ConfigCommand prints. Raises BrokerFailed."""
        return run_class(self.jars, "kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap(), *arguments)

    def _running(self) -> list[str]:
        return [node.addresses["PLAINTEXT"] for node in self.nodes.values() if node.server.is_running]

    def _topics(self, bootstrap: str) -> Mapping[str, Mapping[int, Any]]:
        """Topics and their partitions with ``leader``, ``replicas`` and ``isrs``."""
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": "0"})
        return {name: one.partitions for name, one in client.list_topics(timeout=ADMIN_TIMEOUT_S).topics.items()}

    def _admin(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.closing(KafkaAdminClient(bootstrap_servers=self._running()))


@contextlib.contextmanager
def running_cluster(
    version: str,
    folder: Path,
    *,
    passwords: Mapping[str, str],
    brokers: int = 3,
    with_zookeeper: bool | None = None,
    properties: Mapping[str, str] | None = None,
    heap_mb: int = 320,
    log_requests: bool = False,
    quick_start: bool = True,
) -> Iterator[KafkaCluster]:
    """A cluster whose files are in ``folder``, killed at the end whatever happens.

    ``with_zookeeper`` chooses the mode (None: ZooKeeper before 3.3, KRaft from then on), ``properties`` are added to
    the server.properties of every broker. ``quick_start`` leaves out the JVM's second compiler, so that three brokers
    start in half the time; what measures speed wants it. With ``log_requests`` each broker keeps a request log.
    Raises KafkaUnavailable where its jars cannot be fetched, BrokerFailed where it does not start.
    """
    if with_zookeeper is None:
        with_zookeeper = needs_zookeeper(version)
    jars = kafka_jars(version)
    folder.mkdir(parents=True, exist_ok=True)
    authority = tls.Authority()
    ca = folder / "ca.pem"
    ca.write_text(authority.certificate_pem(), encoding="ascii")
    key_store = folder / "broker.p12"
    key_store.write_bytes(authority.issue("broker", hosts=(HOST, "localhost")).pkcs12())
    ids = range(1, brokers + 1)
    width = len(LISTENERS) + 1
    ports = free_ports(1 + brokers * width)
    zookeeper_port = ports.pop()
    of_node = {number: ports[index * width :][:width] for index, number in enumerate(ids)}
    if with_zookeeper:
        shared = {"zookeeper.connect": f"{HOST}:{zookeeper_port}", **_ZOOKEEPER_SESSION}
    else:
        voters = ",".join(f"{number}@{HOST}:{of_node[number][-1]}" for number in ids)
        shared = {"controller.quorum.voters": voters, **_KRAFT}
    shared |= {**_COMMON, **_replication(brokers), **_security(passwords, key_store), **(properties or {})}
    jvm = _FLAGS + _QUICK_START if quick_start else _FLAGS
    nodes = {}
    for number in ids:
        own = folder / f"broker-{number}"
        own.mkdir()
        addresses = {name: f"{HOST}:{port}" for name, port in zip(LISTENERS, of_node[number], strict=False)}
        clients = ",".join(f"{name}://{address}" for name, address in addresses.items())
        settings = {
            ("broker.id" if with_zookeeper else "node.id"): str(number),
            "broker.rack": f"rack-{number}",
            "listeners": clients if with_zookeeper else f"{clients},CONTROLLER://{HOST}:{of_node[number][-1]}",
            "advertised.listeners": clients,
            "log.dirs": f"{own}/data",
            **shared,
        }
        path = write_properties(own / "server.properties", settings)
        flags = [*jvm, *logging_flags(version, own, log_requests=log_requests)]
        command = java_class(jars, heap_mb, flags, "kafka.Kafka", str(path))
        nodes[number] = Node(number, own, addresses, settings, ServerProcess(own, f"broker-{number}", command))
    cluster = KafkaCluster(version, jars, nodes, passwords, ca)
    with contextlib.ExitStack() as processes:
        if with_zookeeper:
            processes.enter_context(zookeeper(jars, folder, zookeeper_port))
        else:
            format_storage(jars, [node.folder / "server.properties" for node in nodes.values()], passwords)
        for number, node in nodes.items():
            # A controlled shutdown of all would wait for those that are gone.
            processes.callback(node.server.kill)
            cluster.start(number, wait=False)
        for number in nodes:
            cluster.wait_until_ready(number)
        if with_zookeeper:
            for user, password in passwords.items():
                credential = f"SCRAM-SHA-256=[iterations=4096,password={password}]"
                cluster.configs("--alter", "--entity-type", "users", "--entity-name", user, "--add-config", credential)
        yield cluster


def _replication(brokers: int) -> dict[str, str]:
    replicas, in_sync = str(min(3, brokers)), str(min(2, brokers))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def _security(passwords: Mapping[str, str], key_store: Path) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    properties = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(key_store),
        "ssl.keystore.password": tls.PASSWORD,
        "ssl.key.password": tls.PASSWORD,
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        properties |= {**login_modules(listener), f"listener.name.{listener}.plain.sasl.jaas.config": plain}
    return properties
