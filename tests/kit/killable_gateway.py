"""`kquota gateway` in front of a real cluster, on ports that it has again after it was stopped or killed."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from examples.capture.processes import HOST, ServerProcess, free_ports, write_properties
from tests.kit import tls
from tests.kit.eventually import eventually
from tests.kit.kafka_cluster import KafkaCluster
from tests.kit.perf_tools import java_properties

GATEWAY: Final = (sys.executable, "-c", "from kquota.cli import main; main()", "gateway")
WINDOW_S: Final = 2
"""Of its quotas, so that what a client may send at once before it is throttled is soon used up."""
READERS: Final = 10
START_S: Final = 60.0


class KillableGateway:
    """A gateway for clients that come in as `security` says; as a context manager it is killed at the end.

    Clients speak to it what it speaks to the brokers; with SASL_SSL it has a certificate of another authority than
    theirs. Its own login is that of ``bob``.
    """

    def __init__(
        self,
        upstream: str,
        folder: Path,
        *,
        security: Mapping[str, str],
        own_security: Mapping[str, str],
        byte_rate: int | None = None,
        quotas: str | None = None,
        brokers: int = 3,
    ) -> None:
        """Write its files into ``folder``, which is made; it does not run yet.

        :param security: with which a client program would connect to the brokers (`KafkaCluster.security`).
        :param own_security: the same for the gateway.
        :param byte_rate: bytes per second and broker that each client id may produce, and `READERS` times as much
            that it may read; None: no quotas.
        :param quotas: where else its quotas are, such as ``cluster``.
        """
        folder.mkdir(parents=True)
        bootstrap, first = _adjacent_ports(brokers)
        self.bootstrap = f"{HOST}:{bootstrap}"
        self.security = dict(security)
        self._brokers = brokers
        self._starts = 0
        listener = {"security.protocol": security["security.protocol"]}
        if "ssl.ca.location" in security:
            authority = tls.Authority()
            ca = folder / "ca.pem"
            ca.write_text(authority.certificate_pem(), encoding="ascii")
            self.security["ssl.ca.location"] = str(ca)
            identity = authority.issue("gateway", hosts=(HOST, "localhost")).write_pem(folder / "gateway.pem")
            listener |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity)}
        file = folder / "quotas.yaml"
        rules = []
        if byte_rate is not None:
            limits = {"producer_byte_rate": byte_rate, "consumer_byte_rate": READERS * byte_rate}
            rules.append({"entity": {"client-id": None}, "values": limits})
        file.write_text(json.dumps({"quotas": rules}), encoding="utf-8")
        command = [*GATEWAY, "--upstream", upstream, "--listen", self.bootstrap]
        command += ["--node-ports", f"{first}-{first + brokers - 1}", "--quotas", quotas or str(file)]
        command += ["-D", f"quota.window.num={WINDOW_S}"]
        command += [
            "--command-config",
            str(write_properties(folder / "client.properties", java_properties(own_security))),
        ]
        command += ["--listener-config", str(write_properties(folder / "listener.properties", listener))]
        self.server = ServerProcess(folder, "gateway", command)

    @classmethod
    def of(
        cls, cluster: KafkaCluster, listener: str, folder: Path, *, byte_rate: int | None = None, user: str = "alice"
    ) -> Self:
        """In front of this listener of a cluster."""
        return cls(
            cluster.bootstrap(listener),
            folder,
            security=cluster.security(listener, user),
            own_security=cluster.security(listener, "bob"),
            byte_rate=byte_rate,
            brokers=len(cluster.nodes),
        )

    @property
    def output(self) -> str:
        """Everything it wrote since it was first started."""
        return (self.server.folder / "gateway.out").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it, and wait until clients can connect to every broker. Raises AssertionError where they never can."""
        self._starts += 1
        self.server.start()

        def listening() -> str:
            assert self.server.is_running, self.output[-4000:]
            return "listens" if self.output.count("\nbroker ") >= self._starts * self._brokers else "does not yet"

        eventually(listening, "listens", patience_s=START_S)

    def stop(self) -> None:
        """SIGTERM, and wait until it has answered what was under way and is gone."""
        self.server.stop()
        assert self.server.returncode == 0, self.output[-4000:]

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.server.kill()

    def restart(self) -> None:
        """Stop it, and start it again."""
        self.stop()
        self.start()

    def kill_and_start(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def mistakes(self) -> list[str]:
        """The lines of its log that speak of a mistake of its own."""
        return [line for line in self.output.splitlines() if "mistake" in line or "Traceback" in line]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.kill()


def _adjacent_ports(brokers: int) -> tuple[int, int]:
    """A free port, and the first of as many free ones in a row."""
    for _ in range(100):
        bootstrap, first = free_ports(2)
        if _are_free(range(first, first + brokers)) and bootstrap not in range(first, first + brokers):
            return bootstrap, first
    raise AssertionError("no free ports in a row")


def _are_free(ports: range) -> bool:
    try:
        for port in ports:
            with socket.socket() as one:
                one.bind((HOST, port))
    except OSError:
        return False
    return True
