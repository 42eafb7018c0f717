"""The client program on kafka-python; README.md beside this file has its arguments."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.kit.client_contract import Output, Pace, Record, Settings, records, transactions, unsecured_token

PATIENCE_S: Final = 120.0


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, user: str) -> None:
        self._user = user

    def token(self) -> str:
        return unsecured_token(self._user)


def configuration(settings: Settings) -> dict[str, Any]:
    common: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap.split(","),
        "client_id": settings.client_id,
        "security_protocol": settings.security_protocol,
    }
    if settings.uses_sasl:
        mechanism = settings.security["sasl.mechanism"]
        common["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            common["sasl_oauth_token_provider"] = Tokens(settings.security["sasl.username"])
        else:
            common["sasl_plain_username"] = settings.security["sasl.username"]
            common["sasl_plain_password"] = settings.security["sasl.password"]
    if settings.security_protocol.endswith("SSL"):
        common["ssl_cafile"] = settings.security["ssl.ca.location"]
    return common


def producer(settings: Settings, **more: Any) -> Any:
    return KafkaProducer(
        **configuration(settings),
        acks="all",
        enable_idempotence=settings.idempotent,
        compression_type=None if settings.compression == "none" else settings.compression,
        linger_ms=settings.linger_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        max_block_ms=settings.delivery_timeout_ms,
        **more,
    )


def produce(settings: Settings, output: Output) -> None:
    client = producer(settings)
    for record in records(settings):

        def acknowledged(metadata: Any, record: Record = record) -> None:
            output.write(metadata.partition, metadata.offset, record.key, record.value)

        sent = client.send(settings.topic, record.value, record.key, partition=record.partition)
        sent.add_callback(acknowledged).add_errback(output.failed)
    client.flush(PATIENCE_S)
    client.close(PATIENCE_S)


def transact(settings: Settings, output: Output) -> None:
    def started() -> Any:
        client = producer(settings, transactional_id=settings.transactional_id)
        retried(client.init_transactions)
        return client

    client = started()
    for number, batch, is_to_abort in transactions(settings):
        state = "unknown"
        futures = []
        try:
            client.begin_transaction()
            for record in batch:
                future = client.send(settings.topic, record.value, record.key, partition=record.partition)
                futures.append(future)
            client.flush(PATIENCE_S)
            if is_to_abort:
                retried(client.abort_transaction)
                state = "aborted"
            else:
                retried(client.commit_transaction)
                state = "committed"
        except (KafkaError, RuntimeError) as failure:
            print(f"transaction {number}: {failure!r}", file=sys.stderr, flush=True)
            try:
                retried(client.abort_transaction)
                state = "aborted"
            except (KafkaError, RuntimeError):
                client.close(0)
                client = started()
        offsets = [future.value.offset if future.succeeded() else -1 for future in futures]
        offsets += [-1] * (len(batch) - len(offsets))
        for record, offset in zip(batch, offsets, strict=True):
            output.write(record.partition, offset, record.key, record.value, f" {state} {number}")
    client.close(PATIENCE_S)


def retried(call: Callable[[], None]) -> None:
    """What took too long is called again, with the same outcome as the first time."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call()
        except KafkaTimeoutError:
            if time.monotonic() > deadline:
                raise
        else:
            return


def consume(settings: Settings, output: Output) -> None:
    client = KafkaConsumer(
        **configuration(settings),
        group_id=settings.group or None,
        enable_auto_commit=bool(settings.group),
        auto_offset_reset="earliest",
        isolation_level=settings.isolation,
    )
    if settings.group:
        client.subscribe([settings.topic])
    else:
        client.assign([TopicPartition(settings.topic, number) for number in range(settings.partitions)])
        client.seek_to_beginning()
    pace = Pace(settings)
    while output.different < settings.records and not pace.is_over():
        for batch in client.poll(timeout_ms=100).values():
            for record in batch:
                output.write(record.partition, record.offset, record.key or b"-", record.value or b"")
    client.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    settings = Settings.parse(sys.argv[1:])
    output = Output(settings)
    {"produce": produce, "transact": transact, "consume": consume}[settings.mode](settings, output)
    sys.exit(output.finish())
