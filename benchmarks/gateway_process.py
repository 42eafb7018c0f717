"""`kquota gateway` as a process of its own, for benchmarks and checks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["GATEWAY", "GatewayProcess", "gateway_process", "write_quotas", "write_tls_listener"]

GATEWAY: Final = (sys.executable, "-m", "kquota", "gateway")


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A gateway that listens: its process id, its bootstrap address, and the address of each broker by its id."""

    pid: int
    bootstrap: str
    brokers: Mapping[int, str]


@contextlib.contextmanager
def gateway_process(
    upstream: str,
    *arguments: str,
    quotas: Path | str,
    log: Path,
    brokers: int = 1,
    command: Sequence[str] = GATEWAY,
) -> Iterator[GatewayProcess]:
    """A gateway on free ports of 127.0.0.1, in front of so many brokers; it ends with the block.

    :param quotas: a quota file, or another source that the command line takes.
    :param log: where its standard error goes.
    """
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*command, "--upstream", upstream, "--listen", "127.0.0.1:0", "--quotas", str(quotas), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("listening on "), log.read_text(encoding="utf-8")
        found = {}
        for _ in range(brokers):
            line = process.stdout.readline().split()  # broker N on HOST:PORT
            assert line[:1] == ["broker"], log.read_text(encoding="utf-8")
            found[int(line[1])] = line[3]
        yield GatewayProcess(process.pid, first.removeprefix("listening on ").strip(), found)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def write_quotas(path: Path, limits: Iterable[tuple[str, str, float]]) -> Path:
    """A quota file from (client id, quota key, value); one client id may have several keys."""
    values: dict[str, dict[str, float]] = {}
    for client_id, key, value in limits:
        values.setdefault(client_id, {})[key] = value
    rules = [{"entity": {"client-id": client_id}, "values": one} for client_id, one in values.items()]
    path.write_text(json.dumps({"quotas": rules}, indent=1) + "\n", encoding="utf-8")
    return path


def write_tls_listener(path: Path, certificate: Path) -> Path:
    """Settings of a listener that speaks TLS with a PEM of key and certificate, by Kafka's names."""
    settings = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return path
