"""A real Apache Kafka on this machine: one node, SCRAM users, and the request log at DEBUG.

Versions before 3.3 run with the ZooKeeper that comes in their jars, later ones in KRaft mode; 3.x can be asked
for either. Clocks are UTC and texts UTF-8, so that the log can be read without knowing this machine.

SCRAM carries only ASCII names. For others the same listener accepts OAUTHBEARER with unsecured tokens, whose ``sub``
is the user: anybody may be anybody, which suits a broker on 127.0.0.1 that lives for minutes.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.capture.jars import UTF8_ENVIRONMENT, java, kafka_jars

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0
NODE_ID: Final = 1

_LOG4J1: Final = """\
log4j.rootLogger=INFO, server
log4j.logger.kafka.request.logger={level}, requests
log4j.additivity.kafka.request.logger=false
log4j.appender.server=org.apache.log4j.FileAppender
log4j.appender.server.file={folder}/server.log
log4j.appender.server.encoding=UTF-8
log4j.appender.server.layout=org.apache.log4j.PatternLayout
log4j.appender.server.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.requests=org.apache.log4j.FileAppender
log4j.appender.requests.file={folder}/kafka-request.log
log4j.appender.requests.encoding=UTF-8
log4j.appender.requests.layout=org.apache.log4j.PatternLayout
log4j.appender.requests.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

_LOG4J2: Final = """\
<Configuration>
  <Appenders>
    <File name="server" fileName="{folder}/server.log">
      <PatternLayout charset="UTF-8" pattern="[%d] %p %m (%c)%n"/>
    </File>
    <File name="requests" fileName="{folder}/kafka-request.log">
      <PatternLayout charset="UTF-8" pattern="[%d] %p %m (%c)%n"/>
    </File>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="server"/></Root>
    <Logger name="kafka.request.logger" level="{level}" additivity="false"><AppenderRef ref="requests"/></Logger>
  </Loggers>
</Configuration>
"""

_SINGLE_NODE: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerFailed(RuntimeError):
    """The broker or one of its tools ended with an error; the message holds its last lines."""


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
        return _run_class(self.jars, "kafka.admin.ConfigCommand", "--bootstrap-server", self.plaintext, *arguments)


@contextlib.contextmanager
def running_broker(
    version: str,
    folder: Path,
    *,
    passwords: Mapping[str, str],
    zookeeper: bool | None = None,
    properties: Mapping[str, str] | None = None,
    heap_mb: int = 512,
    log_requests: bool = True,
) -> Iterator[Broker]:
    """A broker of ``version`` whose files are in ``folder``, stopped at the end whatever happens.

    ``zookeeper`` chooses the mode (None: ZooKeeper before 3.3, KRaft from then on), ``properties`` are added to its
    server.properties, and with ``log_requests=False`` the request log stays empty until it is switched on.
    Raises KafkaUnavailable where its jars cannot be fetched, BrokerFailed where it does not start.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    if zookeeper is None:
        zookeeper = (major, minor) < (3, 3)
    jars = kafka_jars(version)
    folder.mkdir(parents=True, exist_ok=True)
    plain_port, sasl_port, other_port, jmx_port = _free_ports(4)
    settings = {
        **_common_properties(folder, plain_port=plain_port, sasl_port=sasl_port),
        **(
            _zookeeper_properties(other_port)
            if zookeeper
            else _kraft_properties(plain_port=plain_port, sasl_port=sasl_port, controller_port=other_port)
        ),
        **(properties or {}),
    }
    server_properties = folder / "server.properties"
    # Java reads properties as Latin-1, so anything beyond ASCII is not safe to write here.
    server_properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    broker = Broker(
        version=version,
        folder=folder,
        jars=jars,
        plaintext=f"{HOST}:{plain_port}",
        sasl=f"{HOST}:{sasl_port}",
        controller=None if zookeeper else f"{HOST}:{other_port}",
        jmx_port=jmx_port,
        passwords=passwords,
        properties=settings,
    )
    # StorageTool does it all in one call, but cannot take a name with a comma.
    at_format = {} if zookeeper else {user: word for user, word in passwords.items() if user.isidentifier()}
    with contextlib.ExitStack() as processes:
        if zookeeper:
            zoo_cfg = folder / "zoo.cfg"
            zoo_cfg.write_text(
                f"dataDir={folder}/zookeeper\nclientPort={other_port}\nclientPortAddress={HOST}\n"
                "admin.enableServer=false\ntickTime=2000\n",
                encoding="utf-8",
            )
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            processes.enter_context(_process(folder, "zookeeper", _command(jars, 128, (), main, str(zoo_cfg))))
        else:
            _format(jars, server_properties, at_format)
        flags = [*_logging_flags(major, folder, level="DEBUG" if log_requests else "INFO"), *_jmx_flags(jmx_port)]
        command = _command(jars, heap_mb, flags, "kafka.Kafka", str(server_properties))
        server = processes.enter_context(_process(folder, "broker", command))
        _wait_until_ready(broker, server)
        for user, password in passwords.items():
            if user not in at_format:
                credential = f"SCRAM-SHA-256=[iterations=4096,password={password}]"
                broker.configs("--alter", "--entity-type", "users", "--entity-name", user, "--add-config", credential)
        yield broker


def _common_properties(folder: Path, *, plain_port: int, sasl_port: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://{HOST}:{plain_port},SASL_PLAINTEXT://{HOST}:{sasl_port}"
    sasl = "listener.name.sasl_plaintext"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        f"{sasl}.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        f"{sasl}.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
        "log.dirs": f"{folder}/data",
        **_SINGLE_NODE,
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


def _format(jars: Path, server_properties: Path, passwords: Mapping[str, str]) -> None:
    tool = "kafka.tools.StorageTool"
    cluster_id = _run_class(jars, tool, "random-uuid").strip().splitlines()[-1]
    users = []
    for user, password in passwords.items():
        users += ["--add-scram", f"SCRAM-SHA-256=[name={user},iterations=4096,password={password}]"]
    _run_class(jars, tool, "format", "-t", cluster_id, "-c", str(server_properties), *users)


def _command(jars: Path, heap_mb: int, flags: list[str] | tuple[str, ...], main: str, *arguments: str) -> list[str]:
    base = [str(java()), f"-Xmx{heap_mb}m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"]
    return [*base, *flags, "-cp", f"{jars}/*", main, *arguments]


def _run_class(jars: Path, main: str, *arguments: str) -> str:
    command = _command(jars, 256, (), main, *arguments)
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=UTF8_ENVIRONMENT, check=False)
    if done.returncode != 0:
        raise BrokerFailed(f"{main} {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _logging_flags(major: int, folder: Path, *, level: str) -> list[str]:
    if major >= 4:
        configuration = folder / "log4j2.xml"
        configuration.write_text(_LOG4J2.format(folder=folder, level=level), encoding="utf-8")
        return [f"-Dlog4j2.configurationFile={configuration}"]
    configuration = folder / "log4j.properties"
    configuration.write_text(_LOG4J1.format(folder=folder, level=level), encoding="utf-8")
    return [f"-Dlog4j.configuration=file:{configuration}"]


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


@contextlib.contextmanager
def _process(folder: Path, name: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.out").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=UTF8_ENVIRONMENT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(broker: Broker, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _lists_a_broker(broker.plaintext):
        if server.poll() is not None or time.monotonic() > deadline:
            state = "did not answer" if server.poll() is None else f"ended with {server.returncode}"
            tails = [_last_lines(broker.folder / name) for name in ("broker.out", "server.log")]
            raise BrokerFailed(f"Kafka {broker.version} {state}:\n" + "\n".join(tails))
        time.sleep(0.1)


def _lists_a_broker(address: str) -> bool:
    """Whether Metadata v0 answers with a broker: the port alone opens before the broker is ready to serve."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhihi", 3, 0, 0, -1, 0)
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 12 and struct.unpack(">iii", head)[2] >= 1


def _last_lines(path: Path, count: int = 10) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]) if path.exists() else ""


def _free_ports(count: int) -> list[int]:
    """Ports nobody listens on now. Held open together, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
