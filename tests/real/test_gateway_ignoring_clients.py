"""Clients that do not look at the throttle time: the gateway, like a broker, just does not read on (KIP-219)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

from examples.capture.broker import Broker
from tests.kit.kafka import NEW
from tests.real import gateways
from tests.real.gateways import client_ids, gateway, quota_file

LIMIT: Final = 50_000
WINDOWS: Final = ("-D", "quota.window.num=2")
"""With these, a second's worth may be used at once."""
RUN_S: Final = 8.0
RECORD: Final = b"v" * 5_000


@pytest.fixture(scope="module")
def kafka(broker: Callable[[str], Broker]) -> Broker:
    return broker(NEW)


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> Iterator[str]:
    with gateways.topic(kafka.plaintext) as name:
        # A fetch is answered with a whole batch at least.
        producer = Producer({"bootstrap.servers": kafka.plaintext, "client.id": "filler", "batch.size": 10_000})
        for _ in range(400):
            producer.produce(name, RECORD, partition=0)
        assert producer.flush(30) == 0
        yield name


def librdkafka_produces(bootstrap: str, client_id: str, topic: str) -> int:
    done = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal done
        assert error is None
        done += len(RECORD)

    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "batch.size": 10_000}
    producer = Producer({**settings, "queue.buffering.max.messages": 50})
    end_s = time.monotonic() + RUN_S
    while time.monotonic() < end_s:
        try:
            producer.produce(topic, RECORD, partition=0, on_delivery=delivered)
        except BufferError:
            producer.poll(0.02)
    found = done
    producer.purge()
    return found


def librdkafka_fetches(bootstrap: str, client_id: str, topic: str) -> int:
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "max.partition.fetch.bytes": 20_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    end_s = time.monotonic() + RUN_S
    found = 0
    while time.monotonic() < end_s:
        for message in consumer.consume(100, 0.05):
            assert message.error() is None
            found += len(message.value() or b"")
    consumer.close()
    return found


def aiokafka_produces(bootstrap: str, client_id: str, topic: str) -> int:
    async def work() -> int:
        found = 0
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, max_batch_size=10_000)
        async with producer, asyncio.TaskGroup() as tasks:
            end_s = time.monotonic() + RUN_S

            async def send() -> None:
                nonlocal found
                while time.monotonic() < end_s:
                    await producer.send_and_wait(topic, RECORD, partition=0)
                    found += len(RECORD) if time.monotonic() < end_s else 0

            for _ in range(4):
                tasks.create_task(send())
        return found

    return asyncio.run(work())


def test_who_ignores_the_throttle_time_is_limited(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """All at a time, each with a limit of its own; one without a limit gets many times as much."""
    works = (librdkafka_produces, librdkafka_fetches, aiokafka_produces, librdkafka_produces)
    clients = client_ids("librdkafka-writes", "librdkafka-reads", "aiokafka-writes", "free")
    rates = {"producer_byte_rate": LIMIT, "consumer_byte_rate": LIMIT}
    quotas = quota_file(tmp_path / "quotas.yaml", dict.fromkeys(clients[:3], rates))
    with gateway(kafka.plaintext, tmp_path, *WINDOWS, quotas=quotas) as running, ThreadPoolExecutor() as pool:

        def run(index: int) -> int:
            return works[index](running.bootstrap, clients[index], topic)

        found = dict(zip(clients, pool.map(run, range(len(works))), strict=True))
    *limited, free = found.values()
    # What may be used at once comes on top; what comes in the first moment is as large as a batch for each in flight.
    for amount in limited:
        assert 0.6 * LIMIT * RUN_S < amount < LIMIT * (RUN_S + 1) + 8 * 10_000 + 20_000, found
    assert free > 3 * max(limited), found
