"""A real Apache Kafka on this machine: one node, SCRAM users, and the request log at DEBUG.

Versions before 3.3 run with the ZooKeeper that comes in their jars, later ones in KRaft mode; 3.x can be asked
for either. Clocks are UTC and texts UTF-8, so that the log can be read without knowing this machine.

SCRAM carries only ASCII names. For others the same listener accepts OAUTHBEARER with unsecured tokens, whose ``sub``
is the user: anybody may be anybody, which suits a broker on 127.0.0.1 that lives for minutes.
"""

from __future__ import annotations

import base64
import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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

NODE_ID: Final = 1

_SINGLE_NODE: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A running broker. Addresses are ``host:port``; ``passwords`` are those of its SCRAM-SHA-256 users."""

    version: str
    folder: Path
    jars: Path
    plaintext: str
    sasl: str
    controller: str | None  # None in ZooKeeper mode
    jmx_port: int
    passwords: Mapping[str, str]
    properties: Mapping[str, str]

    @property
    def request_log(self) -> Path:
        return self.folder / "kafka-request.log"

    def log_requests(self) -> None:
        """Switch the request log on, for a broker that was started without it. Raises BrokerFailed."""
        logger = ("--entity-type", "broker-loggers", "--entity-name", str(NODE_ID))
        self.configs("--alter", *logger, "--add-config", "kafka.request.logger=DEBUG")

    def configs(self, *arguments: str) -> str:
        """What the broker's own ConfigCommand (``kafka-configs``) prints. Raises BrokerFailed."""
        return run_class(self.jars, "kafka.admin.ConfigCommand", "--bootstrap-server", self.plaintext, *arguments)


@contextlib.contextmanager
def running_broker(
    version: str,
    folder: Path,
    *,
    passwords: Mapping[str, str],
    with_zookeeper: bool | None = None,
    properties: Mapping[str, str] | None = None,
    heap_mb: int = 512,
    log_requests: bool = True,
) -> Iterator[Broker]:
    """A broker of ``version`` whose files are in ``folder``, stopped at the end whatever happens.

    ``with_zookeeper`` chooses the mode (None: ZooKeeper before 3.3, KRaft from then on), ``properties`` are added to
    its server.properties, and with ``log_requests=False`` the request log stays empty until it is switched on.
    Raises KafkaUnavailable where its jars cannot be fetched, BrokerFailed where it does not start.
    """
    if with_zookeeper is None:
        with_zookeeper = needs_zookeeper(version)
    jars = kafka_jars(version)
    folder.mkdir(parents=True, exist_ok=True)
    plain_port, sasl_port, other_port, jmx_port = free_ports(4)
    settings = {
        **_common_properties(folder, plain_port=plain_port, sasl_port=sasl_port),
        **(
            _zookeeper_properties(other_port)
            if with_zookeeper
            else _kraft_properties(plain_port=plain_port, sasl_port=sasl_port, controller_port=other_port)
        ),
        **(properties or {}),
    }
    server_properties = write_properties(folder / "server.properties", settings)
    broker = Broker(
        version=version,
        folder=folder,
        jars=jars,
        plaintext=f"{HOST}:{plain_port}",
        sasl=f"{HOST}:{sasl_port}",
        controller=None if with_zookeeper else f"{HOST}:{other_port}",
        jmx_port=jmx_port,
        passwords=passwords,
        properties=settings,
    )
    # StorageTool does it all in one call, but cannot take a name with a comma.
    at_format = {} if with_zookeeper else {user: word for user, word in passwords.items() if user.isidentifier()}
    with contextlib.ExitStack() as processes:
        if with_zookeeper:
            processes.enter_context(zookeeper(jars, folder, other_port))
        else:
            format_storage(jars, [server_properties], at_format)
        flags = [*logging_flags(version, folder, log_requests=log_requests), *_jmx_flags(jmx_port)]
        command = java_class(jars, heap_mb, flags, "kafka.Kafka", str(server_properties))
        server = processes.enter_context(ServerProcess(folder, "broker", command))
        wait_until_ready(server, broker.plaintext)
        for user, password in passwords.items():
            if user not in at_format:
                credential = f"SCRAM-SHA-256=[iterations=4096,password={password}]"
                broker.configs("--alter", "--entity-type", "users", "--entity-name", user, "--add-config", credential)
        yield broker


def needs_zookeeper(version: str) -> bool:
    """Whether this version cannot run in KRaft mode, or not yet for production."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) < (3, 3)


def _common_properties(folder: Path, *, plain_port: int, sasl_port: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://{HOST}:{plain_port},SASL_PLAINTEXT://{HOST}:{sasl_port}"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        **login_modules("sasl_plaintext"),
        "log.dirs": f"{folder}/data",
        **_SINGLE_NODE,
    }


def login_modules(listener: str) -> dict[str, str]:
    """What a listener needs for SCRAM-SHA-256, and for OAUTHBEARER with unsecured tokens."""
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
    }


def _zookeeper_properties(zookeeper_port: int) -> dict[str, str]:
    return {"broker.id": str(NODE_ID), "zookeeper.connect": f"{HOST}:{zookeeper_port}"}


def _kraft_properties(*, plain_port: int, sasl_port: int, controller_port: int) -> dict[str, str]:
    clients = f"PLAINTEXT://{HOST}:{plain_port},SASL_PLAINTEXT://{HOST}:{sasl_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{clients},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"),
    }


def format_storage(jars: Path, server_properties: Sequence[Path], passwords: Mapping[str, str]) -> None:
    """Give the nodes with these files an empty log of metadata, of one cluster with these SCRAM users."""
    cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    users = []
    for user, password in passwords.items():
        users += ["--add-scram", f"SCRAM-SHA-256=[name={user},iterations=4096,password={password}]"]

    def format_one(path: Path) -> None:
        run_class(jars, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(path), *users)

    with ThreadPoolExecutor(len(server_properties)) as pool:
        list(pool.map(format_one, server_properties))


def _jmx_flags(port: int) -> list[str]:
    prefix = "-Dcom.sun.management.jmxremote"
    return [
        f"{prefix}.port={port}",
        f"{prefix}.rmi.port={port}",
        f"{prefix}.host={HOST}",
        f"{prefix}.authenticate=false",
        f"{prefix}.ssl=false",
        f"-Djava.rmi.server.hostname={HOST}",
    ]
