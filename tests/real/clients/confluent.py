"""The client program on confluent-kafka (librdkafka); README.md beside this file has its arguments."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.kit.client_contract import Output, Pace, Record, Settings, records, transactions, unsecured_token

PATIENCE_S: Final = 120.0


def configuration(settings: Settings) -> dict[str, Any]:
    common: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap,
        "client.id": settings.client_id,
        "security.protocol": settings.security_protocol,
        "reconnect.backoff.max.ms": 1000,
        **settings.security,
    }
    if common.get("sasl.mechanism") == "OAUTHBEARER":
        user = common.pop("sasl.username")
        common.pop("sasl.password", None)
        common["oauth_cb"] = lambda _: (unsecured_token(user), time.time() + 3600)
    return common


def producer(settings: Settings, **more: Any) -> Producer:
    return Producer(
        {
            **configuration(settings),
            "acks": "all",
            "enable.idempotence": settings.idempotent,
            "compression.type": settings.compression,
            "linger.ms": settings.linger_ms,
            # Nothing may take longer than the transaction it is part of.
            "delivery.timeout.ms": min(settings.delivery_timeout_ms, 60_000 if settings.transactional_id else 2**31),
            **more,
        }
    )


def send(client: Producer, topic: str, record: Record, done: Callable[[KafkaError | None, Message], None]) -> None:
    while True:
        try:
            client.produce(topic, record.value, record.key, record.partition, on_delivery=done)
        except BufferError:  # its queue is full
            client.poll(0.1)
        else:
            client.poll(0)
            return


def produce(settings: Settings, output: Output) -> None:
    client = producer(settings)
    for record in records(settings):

        def done(error: KafkaError | None, message: Message, record: Record = record) -> None:
            if error is not None:
                output.failed(error)
            else:
                output.write(record.partition, offset_of(message), record.key, record.value)

        send(client, settings.topic, record, done)
    client.flush(PATIENCE_S)


def transact(settings: Settings, output: Output) -> None:
    def started() -> Producer:
        client = producer(settings, **{"transactional.id": settings.transactional_id})
        retried(client.init_transactions)
        return client

    client = started()
    for number, batch, is_to_abort in transactions(settings):
        offsets: dict[int, int] = {}

        def done(error: KafkaError | None, message: Message, offsets: dict[int, int] = offsets) -> None:
            if error is None:
                offsets[int((message.key() or b"").rpartition(b":")[2])] = offset_of(message)

        state = "unknown"
        try:
            client.begin_transaction()
            for record in batch:
                send(client, settings.topic, record, done)
            client.flush(PATIENCE_S)
            if is_to_abort:
                retried(client.abort_transaction)
                state = "aborted"
            else:
                retried(client.commit_transaction)
                state = "committed"
        except KafkaException as failure:
            print(f"transaction {number}: {failure}", file=sys.stderr, flush=True)
            if failure.args[0].txn_requires_abort():
                retried(client.abort_transaction)
                state = "aborted"
            else:
                client = started()
        for record in batch:
            offset = offsets.get(record.sequence, -1)
            output.write(record.partition, offset, record.key, record.value, f" {state} {number}")


def offset_of(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None or offset < 0 else offset


def retried(call: Callable[[float], None]) -> None:
    """What librdkafka calls retriable is called again, with the same outcome as the first time."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call(30.0)
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def consume(settings: Settings, output: Output) -> None:
    client = Consumer(
        {
            **configuration(settings),
            "group.id": settings.group or "none",
            "enable.auto.commit": bool(settings.group),
            "auto.offset.reset": "earliest",
            "isolation.level": settings.isolation,
        }
    )
    if settings.group:
        client.subscribe([settings.topic])
    else:
        client.assign([TopicPartition(settings.topic, number, 0) for number in range(settings.partitions)])
    pace = Pace(settings)
    while output.different < settings.records and not pace.is_over():
        for message in client.consume(1000, 0.1):
            if message.error() is not None:
                print(message.error(), file=sys.stderr, flush=True)
                continue
            output.write(message.partition() or 0, offset_of(message), message.key() or b"-", message.value() or b"")
    client.close()


if __name__ == "__main__":
    settings = Settings.parse(sys.argv[1:])
    output = Output(settings)
    {"produce": produce, "transact": transact, "consume": consume}[settings.mode](settings, output)
    sys.exit(output.finish())
