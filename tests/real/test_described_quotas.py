"""What a real kafka-configs describes is read as the quotas that are set, with and without ZooKeeper."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from examples.capture.broker import Broker
from examples.capture.jars import UTF8_ENVIRONMENT
from kquota.admin import QuotaAdmin
from kquota.files import read_quota_file
from kquota.policy import alterations, difference
from kquota.quotas import CLIENT_ID, IP, USER, ClientQuotaEntity, ClientQuotaFilter, QuotaSnapshot
from kquota.stores.cluster import ClusterStore
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW, OLD
from tests.kit.line_program import java_command

QUOTAS = {
    ClientQuotaEntity({USER: "CN=Bücher, client-id 'x'"}): {"producer_byte_rate": 1e7, "consumer_byte_rate": 2.0**62},
    ClientQuotaEntity({USER: "CN=Bücher, client-id 'x'", CLIENT_ID: None}): {"request_percentage": 12.5},
    ClientQuotaEntity({USER: "described", CLIENT_ID: "a, b are c=1"}): {"controller_mutation_rate": 1e-4},
    ClientQuotaEntity({USER: "described", CLIENT_ID: "<default>"}): {"producer_byte_rate": 123456789.0},
    ClientQuotaEntity({USER: None, CLIENT_ID: "described"}): {"producer_byte_rate": 4.0, "request_percentage": 1e6},
    ClientQuotaEntity({USER: None}): {"producer_byte_rate": 1e15},
    ClientQuotaEntity({CLIENT_ID: "described 100%"}): {"producer_byte_rate": 1024.0},
    ClientQuotaEntity({CLIENT_ID: None}): {"consumer_byte_rate": 1e15},
}
ADDRESSES = {
    ClientQuotaEntity({IP: "10.1.2.3"}): {"connection_creation_rate": 100.0},
    ClientQuotaEntity({IP: None}): {"connection_creation_rate": 2147483647.0},
}
SHAPES = (("users",), ("clients",), ("users", "clients"), ("ips",))
TOOL = "kafka.admin.ConfigCommand"


@contextmanager
def set_on(broker: Broker, quotas: QuotaSnapshot) -> Iterator[None]:
    """The quotas, for as long as the block runs."""
    with ClusterStore(QuotaAdmin(broker.plaintext)) as store:
        wanted = alterations(difference({}, quotas))
        try:
            assert not any(store.alter(wanted).values())
            eventually(lambda: own(store.describe(ClientQuotaFilter.all()), quotas), quotas)
            yield
        finally:
            store.alter(alterations(difference(quotas, {}, prune=True)))


def described(broker: Broker, where: tuple[str, str], shapes: tuple[tuple[str, ...], ...]) -> str:
    """All that the broker's own tool prints about these kinds of entities."""
    printed = []
    for shape in shapes:
        kinds = [argument for kind in shape for argument in ("--entity-type", kind)]
        command = java_command(broker.jars, TOOL, *where, "--describe", *kinds)
        done = subprocess.run(command, capture_output=True, encoding="utf-8", env=UTF8_ENVIRONMENT, check=True)
        printed.append(done.stdout)
    return "".join(printed)


def own(found: object, wanted: QuotaSnapshot) -> QuotaSnapshot:
    """Of what was found, the entities that were set here: the broker is not ours alone."""
    assert isinstance(found, dict)
    return {entity: values for entity, values in found.items() if entity in wanted}


@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_it_describes_today(broker: Callable[[str], Broker], version: str) -> None:
    running = broker(version)
    quotas = QUOTAS | ADDRESSES
    with set_on(running, quotas):
        text = described(running, ("--bootstrap-server", running.plaintext), SHAPES)
    file = read_quota_file(text, name="described.txt")
    assert own(file.snapshot(), quotas) == quotas
    assert file.left_out == ()


def test_what_it_described_with_zookeeper(broker: Callable[[str], Broker]) -> None:
    """The tool of 2.8 describes users that way, and their pairs with client ids, credentials among the quotas."""
    running = broker(OLD)
    quotas = {entity: values for entity, values in QUOTAS.items() if USER in entity.entries}
    with set_on(running, quotas):
        where = ("--zookeeper", running.properties["zookeeper.connect"])
        text = described(running, where, (("users",), ("users", "clients")))
    assert "SCRAM-SHA-256=" in text
    assert own(read_quota_file(text, name="described.txt").snapshot(), quotas) == quotas
