"""Kafka's own kafka-configs, unmodified, prints the same and ends the same against our server and a real Kafka."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.capture.jars import UTF8_ENVIRONMENT
from tests.kit.kafka import MIDDLE, NEW, PASSWORDS, needs_compiler, needs_kafka
from tests.kit.line_program import LineProgram, java_command
from tests.real.both_servers import Server, assert_same_answers
from tests.real.client_script import UNRESOLVABLE

TOOL = "kafka.admin.ConfigCommand"
IN_ONE_JVM = Path(__file__).parent / "java" / "ConfigCommandLines.java"

# In this order; FILE is a file with settings. What could bind the tool itself is far above what it does.
SCRIPT = f"""
--describe --entity-type users
--alter --entity-type users --entity-name carol --add-config producer_byte_rate=1048576,consumer_byte_rate=2097152
--alter --entity-type users --entity-name carol --add-config request_percentage=12.5,consumer_byte_rate=3e6
--alter --entity-type users --entity-default --add-config producer_byte_rate=1e9
--alter --entity-type users --entity-name '' --add-config consumer_byte_rate=[1e9]
--alter --entity-type clients --entity-name etl --add-config ' controller_mutation_rate = 0.001 '
--alter --entity-type clients --entity-default --add-config request_percentage=1e6
--alter --entity-type users --entity-name carol --entity-type clients --entity-name etl --add-config-file FILE
--alter --entity-type clients --entity-name etl --entity-type users --entity-name dave --add-config request_percentage=5
--alter --entity-type users --entity-name carol --entity-type clients --entity-default --add-config producer_byte_rate=7
--alter --entity-type users --entity-default --entity-type clients --entity-name etl --add-config producer_byte_rate=8
--alter --user-defaults --client-defaults --add-config producer_byte_rate=9000000000
--alter --user erin --client 'a, b' --add-config consumer_byte_rate=123456789012
--alter --client-defaults --user erin --add-config consumer_byte_rate=10
--alter --user '<default>' --add-config producer_byte_rate=11
--alter --user 'CN=Bücher, OU=a/b+c*d%e' --add-config producer_byte_rate=9223372036854775807
--alter --entity-type ips --entity-name 10.1.2.3 --add-config connection_creation_rate=100
--alter --ip ::1 --add-config connection_creation_rate=10000
--alter --ip localhost --add-config connection_creation_rate=10000
--alter --ip-defaults --add-config connection_creation_rate=2147483647
--alter --user odd --add-config request_percentage=NaN,controller_mutation_rate=Infinity,producer_byte_rate=0x1p4

--describe --entity-type users
--describe --entity-type users --entity-name carol
--describe --entity-type users --entity-name nobody
--describe --entity-type users --entity-default
--describe --entity-type clients
--describe --entity-type clients --entity-name etl
--describe --entity-type clients --entity-default
--describe --entity-type users --entity-type clients
--describe --entity-type users --entity-name carol --entity-type clients
--describe --entity-type clients --entity-name etl --entity-type users
--describe --entity-type users --entity-name carol --entity-type clients --entity-name etl
--describe --entity-type users --entity-default --entity-type clients --entity-name etl
--describe --entity-type ips
--describe --entity-type ips --entity-name 10.1.2.3
--describe --entity-type ips --entity-name 10.9.9.9
--describe --entity-type ips --entity-default
--describe --user carol --client-defaults
--describe --user erin --client 'a, b'
--describe --user-defaults
--describe --client-defaults --user-defaults
--describe --user '<default>'
--describe --ip ::1
--describe --ip-defaults

--alter --user carol --delete-config nothing_of_the_kind
--alter --user carol --delete-config controller_mutation_rate
--alter --user nobody --delete-config producer_byte_rate
--alter --ip 10.9.9.9 --delete-config connection_creation_rate
--alter --user carol --add-config nothing_of_the_kind=1
--alter --user carol --add-config producer_byte_rate=1,connection_creation_rate=1
--alter --client etl --add-config nothing_of_the_kind=1
--alter --client etl --add-config SCRAM-SHA-256=1
--alter --user carol --client etl --add-config SCRAM-SHA-512=1
--alter --ip 10.1.2.3 --add-config producer_byte_rate=1
--alter --user carol --add-config producer_byte_rate=many
--alter --user carol --add-config producer_byte_rate=
--alter --user carol --add-config producer_byte_rate
--alter --user carol --add-config producer_byte_rate=0
--alter --user carol --add-config request_percentage=-1
--alter --user carol --add-config producer_byte_rate=1.5
--alter --user carol --add-config consumer_byte_rate=1e30
--alter --user carol --add-config consumer_byte_rate=Infinity
--alter --user carol --client-defaults --add-config producer_byte_rate=-1
--alter --ip 10.1.2.3 --add-config connection_creation_rate=0.5
--alter --ip 10.1.2.3 --add-config connection_creation_rate=2147483648
--alter --ip {UNRESOLVABLE} --add-config connection_creation_rate=1
--alter --user carol --add-config producer_byte_rate=1 --delete-config producer_byte_rate
--alter --user carol --add-config producer_byte_rate=1 --add-config-file FILE
--alter --user carol --add-config-file FILE.missing
--alter --user carol
--alter --entity-type users --add-config producer_byte_rate=1
--alter --entity-type users --entity-name carol --entity-type clients --add-config producer_byte_rate=1
--alter --entity-type users --entity-type users --entity-name carol --add-config producer_byte_rate=1
--alter --entity-type users --entity-name carol --entity-type ips --entity-name ::1 --add-config producer_byte_rate=1
--alter --entity-type principals --entity-name carol --add-config producer_byte_rate=1
--alter --entity-type users --user carol --add-config producer_byte_rate=1
--alter --entity-type clients --entity-name etl --user carol --add-config producer_byte_rate=1
--alter --add-config producer_byte_rate=1
--describe
--describe --alter --user carol
--describe --user carol --add-config producer_byte_rate=1
--describe --user

--describe --entity-type users
--alter --user carol --delete-config producer_byte_rate
--alter --user carol --delete-config 'consumer_byte_rate, request_percentage'
--alter --entity-type users --entity-default --delete-config producer_byte_rate --add-config consumer_byte_rate=2e9
--alter --client-defaults --delete-config request_percentage
--alter --user carol --client etl --delete-config producer_byte_rate
--alter --user-defaults --client-defaults --delete-config producer_byte_rate
--alter --ip-defaults --delete-config connection_creation_rate
--alter --ip localhost --delete-config connection_creation_rate
--describe --entity-type users
--describe --entity-type clients
--describe --entity-type users --entity-type clients
--describe --entity-type ips
"""
FILE = "# settings\nproducer_byte_rate = 4096\nconsumer_byte_rate:8192.0\n\nrequest_percentage 2.5e1\n"


@pytest.mark.parametrize("version", [MIDDLE, NEW])
def test_kafka_configs_prints_the_same(both: tuple[Server, Server], version: str, tmp_path: Path) -> None:
    """Descriptions, changes and refusals, with what is written to both streams, and the exit status."""
    jars = needs_kafka(version)
    needs_compiler()
    settings = tmp_path / "settings.properties"
    settings.write_text(FILE, encoding="ascii")
    script = [shlex.split(line.replace("FILE", str(settings))) for line in SCRIPT.splitlines() if line]

    @contextlib.contextmanager
    def connect(server: Server) -> Iterator[Callable[[list[str]], Any]]:
        command = java_command(jars, IN_ONE_JVM)
        with LineProgram(command, errors=tmp_path / f"{server.name}.err") as program:
            yield lambda line: _comparable(program.ask(["--bootstrap-server", server.address, *line]), server)

    assert_same_answers(both, connect, script, changes=_changes)


@pytest.mark.parametrize("version", [MIDDLE, NEW])
def test_its_process_ends_the_same(both: tuple[Server, Server], version: str) -> None:
    """As users run it, when all goes well and when the server refuses."""
    jars = needs_kafka(version)

    @contextlib.contextmanager
    def connect(server: Server) -> Iterator[Callable[[list[str]], Any]]:
        def run(line: list[str]) -> Any:
            command = java_command(jars, TOOL, "--bootstrap-server", server.address, *line)
            done = subprocess.run(command, capture_output=True, encoding="utf-8", env=UTF8_ENVIRONMENT, check=False)
            return _comparable({"status": done.returncode, "out": done.stdout, "err": done.stderr}, server)

        yield run

    script = [f"--alter --user carol --add-config producer_byte_rate={value}" for value in ("1048576", "-1")]
    assert_same_answers(both, connect, [line.split() for line in script], changes=_changes)


def _changes(line: list[str]) -> bool:
    return "--alter" in line


def _comparable(answer: Any, server: Server) -> Any:
    """Without what differs by nature: the address, the order of pairs, and the credentials of the Kafka's own users."""
    out = [_with_sorted_pairs(line) for line in answer["out"].splitlines() if not _CREDENTIALS.match(line)]
    texts = {"out": "\n".join(sorted(out)), "err": answer["err"]}
    return {
        "status": answer["status"],
        **{name: text.replace(server.address, "HOST:PORT") for name, text in texts.items()},
    }


_CREDENTIALS = re.compile(f"SCRAM credential configs for user-principal '({'|'.join(PASSWORDS)})' are ")


def _with_sorted_pairs(line: str) -> str:
    entity, are, pairs = line.rpartition(" are ")
    return f"{entity}{are}{', '.join(sorted(pairs.split(', ')))}"
