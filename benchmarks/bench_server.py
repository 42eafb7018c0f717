"""`kquota serve` beside a real Apache Kafka 4.3.0: the same frames from one client on plain sockets, interleaved.

Aim: not slower in any of them. Both keep what they answer: ours in SQLite with ``synchronous=FULL``, Kafka in its
metadata log (a single node, which flushes as its defaults say).

Usage: ``python -m benchmarks.bench_server [--rounds N] [--quick] [--results DIR]``. Needs Java and Kafka's jars.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from examples.capture.broker import running_broker
from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    DESCRIBE_CLIENT_QUOTAS,
    Api,
    read_response,
    write_request,
)
from kquota.wire.messages.api_versions import ApiVersionsRequest
from kquota.wire.messages.client_quotas import (
    Alteration,
    AlterClientQuotasRequest,
    Component,
    DescribeClientQuotasRequest,
    EntityPart,
    Op,
)
from tests.kit.server_process import server_process

KAFKA: Final = "4.3.0"
ENTITIES: Final = 10_000
CLIENT_ID: Final = "benchmark"
PATIENCE_S: Final = 60.0
_EXACT: Final = 0


class Connection:
    """One connection; frames go out as they are."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def close(self) -> None:
        self._socket.close()

    def send(self, frames: bytes) -> None:
        self._socket.sendall(frames)

    def receive(self) -> bytes:
        """The next answer, without its size."""
        while len(self._buffer) < 4 or len(self._buffer) < (size := 4 + int.from_bytes(self._buffer[:4], "big")):
            part = self._socket.recv(1 << 20)
            if not part:
                raise ConnectionError("the server closed the connection")
            self._buffer += part
        frame = bytes(self._buffer[4:size])
        del self._buffer[:size]
        return frame

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()


def frame(api: Api, version: int, body: Any) -> bytes:
    """A request with its size."""
    return write_request(api, version, 7, CLIENT_ID, body)


def describe_one(user: str) -> bytes:
    return frame(DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest([Component("user", _EXACT, user)], strict=True))


DESCRIBE_ALL: Final = frame(DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest([], strict=False))
VERSIONS: Final = frame(API_VERSIONS, 4, ApiVersionsRequest("benchmark", "1"))


def alter(names: list[str], value: float, *, validate_only: bool = False) -> bytes:
    entries = [
        Alteration([EntityPart("user", name)], [Op("producer_byte_rate", value, remove=False)]) for name in names
    ]
    return frame(ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries, validate_only=validate_only))


def described(connection: Connection, request: bytes) -> Any:
    return read_response(DESCRIBE_CLIENT_QUOTAS, 1, connection.ask(request))[1]


def altered(answer: bytes, count: int) -> None:
    """Raises AssertionError unless all were done."""
    body = read_response(ALTER_CLIENT_QUOTAS, 1, answer)[1]
    assert len(body.entries) == count, body
    assert not any(one.error_code for one in body.entries), body


class Server:
    """One of the two, with what is measured on it. Times are in milliseconds, of each request."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.connection = Connection(address)
        self.connection.ask(VERSIONS)
        self._round = 0

    def fill(self, entities: int) -> None:
        """Give it users with one value each, until it describes them all."""
        names = [f"user-{number:05}" for number in range(entities)]
        for first in range(0, entities, 1000):
            part = names[first : first + 1000]
            altered(self.connection.ask(alter(part, 1e9)), len(part))
        end = time.monotonic() + PATIENCE_S
        while len(described(self.connection, DESCRIBE_ALL).entries or ()) != entities:
            assert time.monotonic() < end, "the server does not describe what was set"
            time.sleep(0.05)  # a broker describes what its controller did a moment after it was answered

    def each(self, request: bytes, count: int) -> list[float]:
        """One after the other."""
        connection, found = self.connection, []
        for _ in range(count):
            started = time.perf_counter()
            connection.ask(request)
            found.append((time.perf_counter() - started) * 1000)
        return found

    def pipelined(self, request: bytes, count: int, *, at_once: int = 100) -> list[float]:
        """Many sent before the first answer is read; the mean of each."""
        connection, found = self.connection, []
        for _ in range(count // at_once):
            started = time.perf_counter()
            connection.send(request * at_once)
            for _ in range(at_once):
                connection.receive()
            found.append((time.perf_counter() - started) * 1000 / at_once)
        return found

    def alters(self, entities: int, count: int) -> list[float]:
        """Each changes something: a value that is set again writes nothing."""
        found = []
        for _ in range(count):
            self._round += 1
            request = alter([f"user-{number:05}" for number in range(entities)], 1e9 + self._round)
            started = time.perf_counter()
            answer = self.connection.ask(request)
            found.append((time.perf_counter() - started) * 1000)
            altered(answer, entities)
        return found

    def connects(self, request: bytes, count: int) -> list[float]:
        """Connect, ApiVersions, describe, close."""
        found = []
        for _ in range(count):
            started = time.perf_counter()
            connection = Connection(self.address)
            connection.ask(VERSIONS)
            connection.ask(request)
            found.append((time.perf_counter() - started) * 1000)
            connection.close()
        return found


def measured(servers: dict[str, Server], rounds: int, scale: float) -> dict[str, dict[str, list[float]]]:
    """By what was asked and server: the times of all rounds, in which the servers take turns."""

    def times(count: int) -> int:
        return max(1, round(count * scale))

    one = describe_one("user-00000")
    small: dict[str, Callable[[Server], list[float]]] = {
        "describe one of 100": lambda server: server.each(one, times(2000)),
        "describe one of 100, pipelined": lambda server: server.pipelined(one, max(100, times(10_000))),
        "connect, ApiVersions, describe one": lambda server: server.connects(one, times(300)),
        "alter one, validate only": lambda server: server.each(
            alter(["user-00000"], 5.0, validate_only=True), times(500)
        ),
        "alter one": lambda server: server.alters(1, times(100)),
    }
    large: dict[str, Callable[[Server], list[float]]] = {
        f"describe one of {ENTITIES}": lambda server: server.each(one, times(300)),
        f"describe all {ENTITIES}": lambda server: server.each(DESCRIBE_ALL, times(60)),
        "alter 1,000 in one request": lambda server: server.alters(1000, times(20)),
    }
    found: dict[str, dict[str, list[float]]] = {}
    for entities, group in ((100, small), (ENTITIES, large)):
        for server in servers.values():
            server.fill(entities)
            for work in group.values():  # the JVM compiles what it has seen often
                work(server)
        for _ in range(rounds):
            for name, work in group.items():
                for who, server in servers.items():
                    found.setdefault(name, {}).setdefault(who, []).extend(work(server))
    return found


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_server", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, one round")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where server.json is written")
    options = parser.parse_args()
    rounds, scale = (1, 0.1) if options.quick else (options.rounds, 1.0)
    with TemporaryDirectory() as temporary, contextlib.ExitStack() as running:
        folder = Path(temporary)
        broker = running.enter_context(
            running_broker(KAFKA, folder / "kafka", passwords={}, heap_mb=1024, log_requests=False)
        )
        ours = running.enter_context(server_process("--store", f"sqlite:///{folder / 'quotas.db'}")).address
        servers = {"kquota": Server(ours), f"Kafka {KAFKA}": Server(broker.plaintext)}
        found = measured(servers, rounds, scale)
    kafka = f"Kafka {KAFKA}"
    p50 = {name: {who: statistics.median(times) for who, times in by.items()} for name, by in found.items()}
    p99 = {name: {who: _quantile(times, 0.99) for who, times in by.items()} for name, by in found.items()}
    report = {
        "command": f"python -m benchmarks.bench_server --rounds {rounds}",
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "requests": {name: len(by["kquota"]) for name, by in found.items()},
        "p50_ms": {name: {who: round(ms, 4) for who, ms in by.items()} for name, by in p50.items()},
        "p99_ms": {name: {who: round(ms, 4) for who, ms in by.items()} for name, by in p99.items()},
        "p50_kquota_beside_kafka": {name: round(by["kquota"] / by[kafka], 2) for name, by in p50.items()},
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "server.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    for name, by in p50.items():
        slower = by["kquota"] / by[kafka]
        print(f"{name:38} {by['kquota']:9.3f} ms  {kafka} {by[kafka]:9.3f} ms  {slower:5.2f} x")


if __name__ == "__main__":
    main()
