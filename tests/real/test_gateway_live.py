"""Quotas that change while clients are connected: how soon the gateway goes by them, wherever they are kept.

Where the quotas are the cluster's, the broker enforces them, too. It allows ten seconds' worth at once; the gateway is
given windows with which it allows one: what is throttled at three seconds' worth, the gateway throttled. Who asks does
so with a client id that nobody had before, as each has a limit of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from examples.capture.broker import Broker
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW
from tests.kit.kafka_cluster import KafkaCluster
from tests.real import gateways
from tests.real.gateways import client_ids, gateway, in_force, is_there, produce, quota_file, set_quota, throttle_ms
from tests.real.raw_kafka import Connection

KEY: Final = "producer_byte_rate"
LIMIT: Final = 10_000.0
BATCH: Final = 30_000
SHORT: Final = ("-D", "quota.window.num=2")


@pytest.fixture(scope="module")
def kafka(broker: Callable[[str], Broker]) -> Broker:
    return broker(NEW)


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> Iterator[str]:
    with gateways.topic(kafka.plaintext) as name:
        yield name


def is_limited(address: str, topic: str) -> bool:
    """Whether three seconds' worth make a new client wait."""
    [client] = client_ids("new")
    return throttle_ms(address, topic, client, batch_bytes=BATCH) > 0


EVERY_CLIENT: Final = {"user": "ANONYMOUS", "client-id": None}


def test_a_quota_of_the_cluster_is_in_force(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """Set by Kafka's own tool at the broker, removed and set through the gateway."""
    entity = ("--entity-type", "users", "--entity-name", "ANONYMOUS", "--entity-type", "clients", "--entity-default")
    with gateway(kafka.plaintext, tmp_path, *SHORT, quotas="cluster") as running:
        address = running.brokers[1]
        assert not is_limited(address, topic)
        try:
            kafka.configs("--alter", *entity, "--add-config", f"{KEY}={LIMIT:.0f}")
            in_force(lambda: is_limited(address, topic))
            assert not is_limited(kafka.plaintext, topic)
            set_quota(running.bootstrap, EVERY_CLIENT, {KEY: None})
            in_force(lambda: not is_limited(address, topic))
            set_quota(running.bootstrap, EVERY_CLIENT, {KEY: LIMIT})
            in_force(lambda: is_limited(address, topic))
        finally:
            set_quota(kafka.plaintext, EVERY_CLIENT, {KEY: None})
        in_force(lambda: not is_limited(address, topic))


def test_quotas_stay_while_the_cluster_is_away(lone_broker: KafkaCluster, tmp_path: Path) -> None:
    """What changes after it is back is in force as before, once the gateway says that it can read them again."""
    real = lone_broker.bootstrap()
    with gateways.topic(real) as topic, gateway(real, tmp_path, *SHORT, quotas="cluster") as running:
        address = running.brokers[1]
        set_quota(real, EVERY_CLIENT, {KEY: LIMIT})
        in_force(lambda: is_limited(address, topic))
        lone_broker.stop(1)
        try:
            eventually(lambda: "the quotas cannot be read" in running.log, expected=True)
        finally:
            lone_broker.start(1)
        with Connection(real) as connection:
            eventually(lambda: is_there(connection, topic), expected=True)
        assert is_limited(address, topic)
        in_force(lambda: "the quotas can be read again" in running.log, within_s=5)
        set_quota(real, EVERY_CLIENT, {KEY: None})
        in_force(lambda: not is_limited(address, topic))


def test_a_quota_file_is_followed(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """One that cannot be read leaves the last quotas in force, and is logged."""
    client, other = client_ids("client", "other")
    path = quota_file(tmp_path / "quotas.yaml", {client: {KEY: LIMIT}})
    with gateway(kafka.plaintext, tmp_path, quotas=path) as running:
        address = running.brokers[1]

        def large(client_id: str) -> bool:
            return throttle_ms(address, topic, client_id, batch_bytes=120_000) > 0

        assert (large(client), large(other)) == (True, False)
        quota_file(path, {client: {KEY: LIMIT}, other: {KEY: LIMIT}})
        in_force(lambda: large(other))
        logged = running.log
        path.write_text("quotas: [this is no", encoding="utf-8")
        eventually(lambda: str(path) in running.log.removeprefix(logged), expected=True)
        assert (large(client), large(other)) == (True, True)
        quota_file(path, {other: {KEY: LIMIT}})
        in_force(lambda: not large(client))
        assert large(other)
        quota_file(path, {})
        in_force(lambda: not large(other))


def test_a_store_that_another_process_changes_is_followed(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """And requests about quotas through the gateway are about that store."""
    client, other = client_ids("client", "other")
    store = f"sqlite:///{tmp_path}/quotas.db"

    def alter(*change: str) -> None:
        program = [sys.executable, "-m", "kquota", "alter", "--store", store, "--name", f"client-id={client}"]
        subprocess.run([*program, *change], check=True, capture_output=True)

    with gateway(kafka.plaintext, tmp_path, quotas=store) as running:
        address = running.brokers[1]

        def large(client_id: str) -> bool:
            return throttle_ms(address, topic, client_id, batch_bytes=120_000) > 0

        assert not large(client)
        alter("--add", f"{KEY}={LIMIT:.0f}")
        in_force(lambda: large(client))
        # Who alters through the gateway is answered once it is in force.
        set_quota(running.bootstrap, {"client-id": other}, {KEY: LIMIT})
        assert large(other)
        alter("--delete", KEY)
        in_force(lambda: not large(client))
        assert large(other)


def test_a_group_shares_a_limit(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """A callback that is given statically."""
    one, two, other = client_ids("group-a", "group-b", "alone")
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text(f"quotas:\n- entity: {{user: 'group:jobs'}}\n  values: {{{KEY}: {LIMIT}}}\n", encoding="utf-8")
    groups = json.dumps({"jobs": {"client-ids": ["group-*"]}})
    settings = ("-D", "client.quota.callback.class=groups", "-D", f"kquota.groups={groups}")
    with gateway(kafka.plaintext, tmp_path, *settings, quotas=quotas) as running:
        waits = [
            throttle_ms(running.brokers[1], topic, client, batch_bytes=60_000) for client in (one, two, two, other)
        ]
    assert waits[0] == waits[3] == 0
    assert 0 < waits[1] < waits[2]


def test_tenants_share_a_capacity(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """What they use decides their limits: the gateway tells the callback every second."""
    capacity, work_s, batch = 40_000, 5.0, 4_000
    clients = client_ids("share-a", "share-b")
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text(f"quotas:\n- entity: {{user: 'capacity:'}}\n  values: {{{KEY}: {capacity}}}\n", encoding="utf-8")
    groups = json.dumps({name: {"client-ids": [f"{name}-*"]} for name in ("share-a", "share-b")})
    settings = (*SHORT, "-D", "client.quota.callback.class=fair-share", "-D", f"kquota.groups={groups}")
    with gateway(kafka.plaintext, tmp_path, *settings, quotas=quotas) as running, ThreadPoolExecutor() as pool:

        def work(client: str) -> int:
            done = 0
            with Connection(running.brokers[1]) as connection:
                end_s = time.monotonic() + work_s
                while time.monotonic() < end_s:
                    wait_s = produce(connection, topic, batch, client) / 1000
                    done += batch
                    time.sleep(min(wait_s, max(end_s - time.monotonic(), 0)))
            return done

        found = list(pool.map(work, clients))
    assert 0.5 * capacity * work_s < sum(found) < capacity * (work_s + 2), found
    assert min(found) > 0.3 * sum(found), found
