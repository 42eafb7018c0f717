"""Real Kafka brokers for tests: started once per session and version, and stopped at its end.

Where the jars cannot be fetched, or there is no Java for them, a test that asks for a broker is not run, and says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.capture.broker import Broker, running_broker
from examples.capture.jars import KafkaUnavailable, has_compiler, java, kafka_jars, kafka_tools
from tests.kit.kafka_cluster import KafkaCluster, running_cluster
from tests.kit.not_run import not_run

OLD, MIDDLE, NEW = "2.8.2", "3.9.1", "4.3.0"
VERSIONS = (OLD, MIDDLE, NEW)
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}


def needs_kafka(version: str) -> Path:
    """The jars of this version; without them the running test ends as not run."""
    try:
        java()
        return kafka_jars(version)
    except KafkaUnavailable as error:
        not_run("KAFKA", str(error))


def needs_tools(version: str) -> Path:
    """The jars of this version's command-line tools; without them the running test ends as not run."""
    try:
        java()
        return kafka_tools(version)
    except KafkaUnavailable as error:
        not_run("KAFKA", str(error))


def needs_compiler() -> None:
    """End the running test as not run where `java Program.java` would not work."""
    try:
        there = has_compiler()
    except KafkaUnavailable as error:
        not_run("COMPILER", str(error))
    if not there:
        not_run("COMPILER", f"{java()} has no compiler: install a full JDK")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Broker]]:
    """Give it a version: a running broker with the SCRAM users of `PASSWORDS`, the same one to all who ask.

    Tests that set quotas on it remove them again, or use users and client ids of their own.
    """
    running: dict[str, Broker] = {}
    with contextlib.ExitStack() as brokers:

        def of_version(version: str) -> Broker:
            if version not in running:
                needs_kafka(version)
                folder = tmp_path_factory.mktemp(f"kafka-{version}")
                running[version] = brokers.enter_context(running_broker(version, folder, passwords=PASSWORDS))
            return running[version]

        yield of_version


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster of the newest version with the users of `PASSWORDS`, the same one to all who ask.

    Tests have topics of their own, and leave all brokers running.
    """
    needs_kafka(NEW)
    with running_cluster(NEW, tmp_path_factory.mktemp("cluster"), passwords=PASSWORDS) as cluster:
        yield cluster
