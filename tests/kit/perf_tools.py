"""Kafka's own performance tools as plain commands, and what they print: kafka-producer-perf-test and its sister."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.capture.jars import UTF8_ENVIRONMENT
from examples.capture.processes import java_class

_LOGIN: Final = "org.apache.kafka.common.security"
_MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
}
_SENT: Final = re.compile(
    r"(?P<records>\d+) records sent, (?P<records_per_s>[\d.]+) records/sec \((?P<mb_per_s>[\d.]+) MB/sec\), "
    r"(?P<average_ms>[\d.]+) ms avg latency, (?P<max_ms>[\d.]+) ms max latency, (?P<p50_ms>\d+) ms 50th, "
    r"(?P<p95_ms>\d+) ms 95th, (?P<p99_ms>\d+) ms 99th, (?P<p999_ms>\d+) ms 99.9th"
)


@dataclass(frozen=True, slots=True)
class ProducerPerformance:
    """The last line of Kafka's ProducerPerformance. MB are 1024 × 1024 bytes."""

    records: int
    records_per_s: float
    mb_per_s: float
    average_ms: float
    max_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float

    @classmethod
    def parse(cls, printed: str) -> ProducerPerformance:
        """Raises ValueError where there is no such line."""
        found = list(_SENT.finditer(printed))
        if not found:
            raise ValueError(f"no result in:\n{printed}")
        numbers = found[-1].groupdict()
        return cls(int(numbers.pop("records")), **{name: float(text) for name, text in numbers.items()})


@dataclass(frozen=True, slots=True)
class ConsumerPerformance:
    """The line of Kafka's ConsumerPerformance; the speed of fetching leaves out the time of the rebalance."""

    records: int
    mb: float
    mb_per_s: float
    fetch_mb_per_s: float

    @classmethod
    def parse(cls, printed: str) -> ConsumerPerformance:
        """Raises ValueError where there is no such line."""
        rows = [line.split(", ") for line in printed.splitlines() if line.count(", ") == 9]
        if len(rows) != 2:
            raise ValueError(f"no result in:\n{printed}")
        numbers = dict(zip(*rows, strict=True))
        return cls(
            records=int(numbers["data.consumed.in.nMsg"]),
            mb=float(numbers["data.consumed.in.MB"]),
            mb_per_s=float(numbers["MB.sec"]),
            fetch_mb_per_s=float(numbers["fetch.MB.sec"]),
        )


def java_properties(settings: Mapping[str, str]) -> dict[str, str]:
    """Kafka's Java properties for the security settings of a client program (`KafkaCluster.security`)."""
    properties = {"security.protocol": settings["security.protocol"]}
    if "sasl.mechanism" in settings:
        mechanism, user = settings["sasl.mechanism"], settings["sasl.username"]
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = (
            f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
            if mechanism == "OAUTHBEARER"
            else f'{_LOGIN}.{_MODULES[mechanism]} required username="{user}" password="{settings["sasl.password"]}";'
        )
    if "ssl.ca.location" in settings:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": settings["ssl.ca.location"]}
    return properties


@dataclass(frozen=True, slots=True)
class PerfTools:
    """The tools of one version. ``tools`` and ``broker`` are the folders of `examples.capture.jars.kafka_tools` and
    ``kafka_jars``: the consumer's came with the broker before 3.6.
    """

    version: str
    tools: Path
    broker: Path

    def produce(
        self,
        properties: Path,
        topic: str,
        *,
        bootstrap: str,
        records: int,
        size: int,
        throughput: int = -1,
        more: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The command that sends; ``throughput`` in records per second, -1: no limit; ``more`` producer properties."""
        option = "--producer-props" if self._is_older_than(4, 2) else "--command-property"
        given = {"bootstrap.servers": bootstrap, "acks": "all", **(more or {})}
        file_option = "--producer.config" if self._is_older_than(4, 2) else "--command-config"
        return _command(
            self.tools,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", str(throughput), file_option, str(properties)),
            *(option, *(f"{name}={value}" for name, value in given.items())),
        )

    def consume(self, properties: Path, topic: str, *, bootstrap: str, records: int) -> list[str]:
        """The command that reads so many from the start, as a group of its own."""
        is_with_broker = self._is_older_than(3, 6)
        main = "kafka.tools.ConsumerPerformance" if is_with_broker else "org.apache.kafka.tools.ConsumerPerformance"
        count_option = "--messages" if self._is_older_than(4, 2) else "--num-records"
        file_option = "--consumer.config" if self._is_older_than(4, 2) else "--command-config"
        return _command(
            self.broker if is_with_broker else self.tools,
            main,
            *("--bootstrap-server", bootstrap, "--topic", topic, count_option, str(records)),
            *("--timeout", "60000", file_option, str(properties)),
        )

    def _is_older_than(self, major: int, minor: int) -> bool:
        own_major, own_minor = (int(part) for part in self.version.split(".")[:2])
        return (own_major, own_minor) < (major, minor)


def _command(jars: Path, main: str, *arguments: str) -> list[str]:
    return java_class(jars, 256, ["-XX:+UseSerialGC"], main, *arguments)


def run_tool(command: list[str]) -> str:
    """What a tool prints. Raises CalledProcessError where its exit code is not 0; what it says goes to ours."""
    done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", env=UTF8_ENVIRONMENT, check=True)
    return done.stdout
