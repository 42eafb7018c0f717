"""The processes of a Kafka on this machine: starting, stopping, killing them, and whether they serve."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from examples.capture.jars import UTF8_ENVIRONMENT, java

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0

# Below the range from which systems give outgoing connections their ports: a broker that is started again finds its
# ports free, however many clients have connected meanwhile.
_PORTS: Final = range(15_000, 32_000)

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


class BrokerFailed(RuntimeError):
    """The broker or one of its tools ended with an error; the message holds its last lines."""


class ServerProcess:
    """A server that runs in ``folder`` and can be started again; its output is appended to ``<name>.out`` there."""

    def __init__(self, folder: Path, name: str, command: Sequence[str]) -> None:
        self.folder = folder
        self.name = name
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def returncode(self) -> int | None:
        """The exit code of one that has ended; None where it runs, or was never started."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and do not wait until it serves."""
        assert not self.is_running
        with (self.folder / f"{self.name}.out").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=UTF8_ENVIRONMENT,
            )

    def terminate(self) -> None:
        """Ask it to end (SIGTERM), and do not wait for it."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Ask it to end, and wait until it has; one that takes longer than `STOP_TIMEOUT_S` is killed."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def wait_until_ready(server: ServerProcess, address: str, *, brokers: int = 1) -> None:
    """Until the broker at ``address``, run by ``server``, knows that many brokers. Raises BrokerFailed."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while listed_brokers(address) < brokers:
        if not server.is_running or time.monotonic() > deadline:
            state = "did not answer" if server.is_running else f"ended with {server.returncode}"
            tails = [_last_lines(server.folder / name) for name in (f"{server.name}.out", "server.log")]
            raise BrokerFailed(f"{server.name} {state}:\n" + "\n".join(tails))
        time.sleep(0.1)


def listed_brokers(address: str) -> int:
    """How many brokers Metadata v0 names: the port alone opens before the broker is ready. 0: no answer."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhihi", 3, 0, 0, -1, 0)
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return 0
    return int(struct.unpack(">iii", head)[2]) if len(head) == 12 else 0


def _last_lines(path: Path, count: int = 10) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]) if path.exists() else ""


def java_class(jars: Path, heap_mb: int, flags: Sequence[str], main: str, *arguments: str) -> list[str]:
    """The command that runs a class of the jars."""
    base = [str(java()), f"-Xmx{heap_mb}m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"]
    return [*base, *flags, "-cp", f"{jars}/*", main, *arguments]


def run_class(jars: Path, main: str, *arguments: str) -> str:
    """What a class of the jars prints. Raises BrokerFailed where its exit code is not 0."""
    command = java_class(jars, 256, ["-XX:TieredStopAtLevel=1"], main, *arguments)
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=UTF8_ENVIRONMENT, check=False)
    if done.returncode != 0:
        raise BrokerFailed(f"{main} {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def logging_flags(version: str, folder: Path, *, log_requests: bool) -> list[str]:
    """The flags that make a broker log into ``folder``: server.log, and kafka-request.log (may stay empty)."""
    level = "DEBUG" if log_requests else "INFO"
    if int(version.split(".", maxsplit=1)[0]) >= 4:
        configuration = folder / "log4j2.xml"
        configuration.write_text(_LOG4J2.format(folder=folder, level=level), encoding="utf-8")
        return [f"-Dlog4j2.configurationFile={configuration}"]
    configuration = folder / "log4j.properties"
    configuration.write_text(_LOG4J1.format(folder=folder, level=level), encoding="utf-8")
    return [f"-Dlog4j.configuration=file:{configuration}"]


def write_properties(path: Path, properties: dict[str, str]) -> Path:
    # Java reads properties as Latin-1, so anything beyond ASCII is not safe to write here.
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="ascii")
    return path


def zookeeper(jars: Path, folder: Path, port: int) -> ServerProcess:
    """A ZooKeeper out of the broker's jars, not started yet."""
    zoo_cfg = write_properties(
        folder / "zoo.cfg",
        {
            "dataDir": f"{folder}/zookeeper",
            "clientPort": str(port),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "tickTime": "2000",
        },
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    return ServerProcess(folder, "zookeeper", java_class(jars, 128, (), main, str(zoo_cfg)))


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now. All are bound at the same time, so that they differ."""
    with contextlib.ExitStack() as bound:
        ports: list[int] = []
        while len(ports) < count:
            candidate = random.choice(_PORTS)
            one = bound.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind((HOST, candidate))
                ports.append(candidate)
        return ports
