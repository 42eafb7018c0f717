"""A client of Python against a limit, in a process of its own: what `java/LimitClients.java` is for Kafka's own.

The first line of standard input is a JSON array of one client; once it is connected it writes ``ready``. The second
line is the second since 1970 at which it starts; at the end it writes a JSON array: the payload bytes that were
acknowledged or received in each span, and the errors.

Usage: ``python -m benchmarks.limit_client``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

_TICK_S: Final = 0.005
_POLL_S: Final = 0.05


class Client:
    """What a client is to do, and what it counted."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.spans = [0] * round(spec["seconds"] / spec["span_s"])
        self.errors = 0
        self._start = 0.0
        self._allowance = 0.0
        self._allowed_at = 0.0

    def wait_for_start(self) -> None:
        """Say that all is connected, and read when to start."""
        print("ready", flush=True)
        self._start = float(sys.stdin.readline())

    def _passed(self) -> float:
        return time.time() - self._start

    def is_running(self) -> bool:
        return self._passed() < float(self.spec["seconds"])

    def is_on(self) -> bool:
        """Whether it works now: it does not rest, and has not done more than its pace allows.

        What it could not do in time is caught up with for a second's worth at most.
        """
        passed, on, off, pace = (float(self._passed()), *(float(self.spec[key]) for key in ("on_s", "off_s", "pace")))
        if passed < 0 or (off and passed % (on + off) >= on):
            self._allowed_at = passed
            return False
        if not pace:
            return True
        self._allowance = min(pace, self._allowance + pace * (passed - self._allowed_at))
        self._allowed_at = passed
        return self._allowance > 0

    def take(self, amount: int) -> None:
        """So many bytes were sent, or handed out."""
        self._allowance -= amount

    def count(self, amount: int) -> None:
        """These bytes came now."""
        span = int(self._passed() // self.spec["span_s"])
        if 0 <= span < len(self.spans):
            self.spans[span] += amount


def librdkafka_produces(client: Client) -> None:
    from confluent_kafka import Producer

    spec = client.spec
    producer = Producer({**_librdkafka(spec), "batch.size": spec["batch_bytes"]})
    producer.list_topics(spec["topic"], 30)
    value = bytes(spec["record_bytes"])
    room = spec["unacknowledged"]

    def done(error: object, _message: object) -> None:
        nonlocal room
        room += 1
        if error is None:
            client.count(len(value))
        else:
            client.errors += 1

    client.wait_for_start()
    while client.is_running():
        if room and client.is_on():
            producer.produce(spec["topic"], value, on_delivery=done)
            client.take(len(value))
            room -= 1
            producer.poll(0)
        else:
            producer.poll(_TICK_S)


def librdkafka_fetches(client: Client) -> None:
    from confluent_kafka import Consumer, TopicPartition

    spec = client.spec
    most = spec["fetch_bytes"]
    settings = {
        "group.id": "none",
        "enable.auto.commit": False,
        "max.partition.fetch.bytes": most,
        "fetch.max.bytes": max(most, 1_000_000),
        # With one answer at most fetched ahead, none is fetched while it rests.
        "queued.max.messages.kbytes": spec["fetched_ahead_bytes"] // 1024,
        "fetch.queue.backoff.ms": 5,
    }
    consumer = Consumer({**_librdkafka(spec), **settings})
    consumer.list_topics(spec["topic"], 30)
    client.wait_for_start()
    beginning = TopicPartition(spec["topic"], 0, 0)
    consumer.assign([beginning])
    while client.is_running():
        if not client.is_on():
            time.sleep(_TICK_S)
            continue
        messages = consumer.consume(1000, _POLL_S)
        client.errors += sum(1 for message in messages if message.error() is not None)
        values = [message for message in messages if message.error() is None]
        amount = sum(len(message.value() or b"") for message in values)
        client.count(amount)
        client.take(amount)
        if values and (values[-1].offset() or 0) + 1 >= spec["rereads_after"]:
            consumer.seek(beginning)


def kafka_python_produces(client: Client) -> None:
    from kafka import KafkaProducer

    spec = client.spec
    producer = KafkaProducer(**_kafka_python(spec), batch_size=spec["batch_bytes"])
    producer.partitions_for(spec["topic"])
    value = bytes(spec["record_bytes"])
    room = threading.Semaphore(spec["unacknowledged"])

    def done(_metadata: object) -> None:
        client.count(len(value))
        room.release()

    def failed(_error: object) -> None:
        client.errors += 1
        room.release()

    client.wait_for_start()
    while client.is_running():
        if not client.is_on():
            time.sleep(_TICK_S)
        elif room.acquire(timeout=_POLL_S):
            client.take(len(value))
            producer.send(spec["topic"], value).add_callback(done).add_errback(failed)


def kafka_python_fetches(client: Client) -> None:
    from kafka import KafkaConsumer, TopicPartition

    spec = client.spec
    consumer = KafkaConsumer(
        **_kafka_python(spec), max_partition_fetch_bytes=spec["fetch_bytes"], max_poll_records=1_000_000
    )
    partition = TopicPartition(spec["topic"], 0)
    consumer.partitions_for_topic(spec["topic"])
    client.wait_for_start()
    consumer.assign([partition])
    consumer.seek(partition, 0)
    while client.is_running():
        if not client.is_on():
            time.sleep(_TICK_S)
            continue
        for records in consumer.poll(timeout_ms=int(_POLL_S * 1000)).values():
            amount = sum(len(record.value) for record in records)
            client.count(amount)
            client.take(amount)
            if records[-1].offset + 1 >= spec["rereads_after"]:
                consumer.seek(partition, 0)


def _librdkafka(spec: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": spec["bootstrap"], "client.id": spec["client_id"]}


def _kafka_python(spec: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap_servers": spec["bootstrap"], "client_id": spec["client_id"]}


CLIENTS: Final[dict[tuple[str, str], Callable[[Client], None]]] = {
    ("librdkafka", "produce"): librdkafka_produces,
    ("librdkafka", "fetch"): librdkafka_fetches,
    ("kafka-python", "produce"): kafka_python_produces,
    ("kafka-python", "fetch"): kafka_python_fetches,
}


def main() -> None:
    [spec] = json.loads(sys.stdin.readline())
    client = Client(spec)
    CLIENTS[spec["library"], spec["kind"]](client)
    print(json.dumps([{"client_id": spec["client_id"], "spans": client.spans, "errors": client.errors}]), flush=True)
    os._exit(0)  # what is not acknowledged is not waited for


if __name__ == "__main__":
    main()
