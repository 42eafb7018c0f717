"""A gateway in front of real brokers, as a process of its own, and what its tests share."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.gateway_process import gateway_process
from kquota.admin import NewTopic, QuotaAdmin
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW, PASSWORDS, needs_kafka
from tests.kit.kafka_cluster import KafkaCluster, running_cluster
from tests.real.raw_kafka import FETCH, PRODUCE, Connection, record_batch

__all__ = [
    "IN_FORCE_S",
    "Gateway",
    "client_ids",
    "fetch",
    "gateway",
    "in_force",
    "is_there",
    "lone_broker",
    "produce",
    "quota_file",
    "set_quota",
    "throttle_ms",
    "topic",
    "topic_names",
]

IN_FORCE_S: Final = 2.0
"""How soon a change of quotas is in force at the gateway."""

_numbers = itertools.count()
_run = f"{os.getpid():x}"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that is running."""

    pid: int
    bootstrap: str
    brokers: Mapping[int, str]
    log_path: Path

    @property
    def log(self) -> str:
        """What it wrote to standard error so far."""
        return self.log_path.read_text(encoding="utf-8")


@contextmanager
def gateway(
    upstream: str, folder: Path, *arguments: str, quotas: Path | str = "memory:", brokers: int = 1
) -> Iterator[Gateway]:
    """A gateway in front of so many brokers, on free ports; it ends with the block."""
    log = folder / f"gateway-{next(_numbers)}.log"
    with gateway_process(upstream, *arguments, quotas=quotas, log=log, brokers=brokers) as running:
        yield Gateway(running.pid, running.bootstrap, running.brokers, log)


def client_ids(*names: str) -> list[str]:
    """Client ids that no other test has, and so quotas that are unused."""
    number = next(_numbers)
    return [f"{name}-{_run}-{number}" for name in names]


def topic_names(count: int) -> list[str]:
    """Names of topics that there are not yet."""
    number = next(_numbers)
    return [f"gateway-{_run}-{number}-{index}" for index in range(count)]


def set_quota(address: str, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
    """Set quotas of an entity, None removes; returns once the cluster, or the gateway with its own, describes them."""
    of = ClientQuotaEntity(dict(entity))
    ops = [ClientQuotaAlteration.Op(key, value) for key, value in values.items()]
    with QuotaAdmin(address, timeout_ms=30_000) as admin:

        def described() -> dict[str, Any]:
            found = admin.describe_client_quotas(ClientQuotaFilter.all()).entities().get(of, {})
            return {key: found.get(key) for key in values}

        admin.alter_client_quotas([ClientQuotaAlteration(of, ops)]).all()
        eventually(described, dict(values))


def quota_file(path: Path, limits: Mapping[str, Mapping[str, float]]) -> Path:
    """A quota file with these values by client id, put in place at once."""
    lines = ["quotas:"] + ([] if limits else [" []"])
    for client_id, values in limits.items():
        lines += [f"- entity: {{client-id: {client_id}}}", "  values:"]
        lines += [f"    {key}: {value}" for key, value in values.items()]
    new = path.with_suffix(".new")
    new.write_text(("quotas: []\n" if not limits else "\n".join(lines) + "\n"), encoding="utf-8")
    new.replace(path)
    return path


def produce(connection: Connection, topic: str, batch_bytes: int, client_id: str) -> int:
    """Write a batch of this size to a topic's first partition; the throttle time of the answer, in milliseconds."""
    partitions = [{"index": 0, "records": record_batch(batch_bytes)}]
    values = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }
    answer = connection.request(PRODUCE, 9, values, client_id=client_id).decoded()
    assert [part.error_code.value for one in answer.responses for part in one.partition_responses] == [0], answer
    return int(answer.throttle_time.total_seconds() * 1000)


def fetch(connection: Connection, topic: str, max_bytes: int, client_id: str, *, offset: int = 0) -> tuple[int, int]:
    """Read a topic's first partition from this offset on; the bytes of its records, and the throttle time."""
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    values = {
        "cluster_id": None,
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer = connection.request(FETCH, 12, values, client_id=client_id).decoded()
    assert answer.error_code.value == 0, answer
    size = sum(len(part.records or b"") for one in answer.responses for part in one.partitions)
    return size, int(answer.throttle_time.total_seconds() * 1000)


def throttle_ms(
    address: str,
    topic: str,
    client_id: str,
    *,
    batch_bytes: int = 10_000,
    user: str | None = None,
    password: str | None = None,
) -> int:
    """What a new connection is answered to a batch of this size."""
    with Connection(address, user=user, password=password) as connection:
        return produce(connection, topic, batch_bytes, client_id)


@contextmanager
def topic(address: str, name: str | None = None) -> Iterator[str]:
    """A topic of one partition that can be written to; it is deleted at the end."""
    name = name or topic_names(1)[0]
    with QuotaAdmin(address, timeout_ms=30_000) as admin:
        admin.topics.create_topics([NewTopic(name, 1, 1)]).all()
        with Connection(address) as connection:
            eventually(lambda: is_there(connection, name), expected=True)
        yield name
        admin.topics.delete_topics([name]).all()


def is_there(connection: Connection, name: str) -> bool:
    """Whether a topic can be written to."""
    try:
        produce(connection, name, 100, "filler")
    except AssertionError:
        return False
    return True


def in_force(ask: Callable[[], bool], *, within_s: float = IN_FORCE_S) -> None:
    """Ask until it is true; who asked later than this, beyond what an answer takes, should have seen it.

    :raises AssertionError: it was not true so soon.
    """
    start_s = time.monotonic()
    longest_s = 0.0
    while True:
        asked_s = time.monotonic()
        found = ask()
        longest_s = max(longest_s, time.monotonic() - asked_s)
        if found:
            return
        passed_s = asked_s - start_s
        assert passed_s <= within_s + 2 * longest_s, f"not in force after {passed_s:.1f} s"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def lone_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster of one broker, which can be stopped, with PLAIN too; clients log in again every two seconds."""
    needs_kafka(NEW)
    properties = {"connections.max.reauth.ms": "2000"}
    folder = tmp_path_factory.mktemp("lone")
    with running_cluster(NEW, folder, passwords=PASSWORDS, brokers=1, properties=properties) as cluster:
        yield cluster
