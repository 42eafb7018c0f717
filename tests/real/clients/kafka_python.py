"""The client program on kafka-python; README.md beside this file has its arguments."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.kit.client_contract import Output, Pace, Record, Settings, records, transactions, unsecured_token

PATIENCE_S: Final = 120.0
END_OF_TRANSACTION_S: Final = 45.0


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
        client.init_transactions()
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
                in_time(client.abort_transaction)
                state = "aborted"
            else:
                in_time(client.commit_transaction)
                state = "committed"
        except (KafkaError, RuntimeError, TimeoutError) as failure:
            print(f"transaction {number}: {failure!r}", file=sys.stderr, flush=True)
            try:
                if isinstance(failure, TimeoutError):
                    raise
                in_time(client.abort_transaction)
                state = "aborted"
            except (KafkaError, RuntimeError, TimeoutError):
                client.close(0)
                client = started()
        offsets = [future.value.offset if future.succeeded() else -1 for future in futures]
        offsets += [-1] * (len(batch) - len(offsets))
        for record, offset in zip(batch, offsets, strict=True):
            output.write(record.partition, offset, record.key, record.value, f" {state} {number}")
    client.close(PATIENCE_S)


def in_time(call: Callable[[], None]) -> None:
    """Raises TimeoutError where the call has not returned after `END_OF_TRANSACTION_S`.

    kafka-python itself waits for ever, and its sender loses the request that it waits for where the coordinator cannot
    be connected to.
    """
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except (KafkaError, RuntimeError) as failure:
            outcome.append(failure)
        else:
            outcome.append(None)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(END_OF_TRANSACTION_S)
    if not outcome:
        raise TimeoutError("the transaction does not end")
    if outcome[0] is not None:
        raise outcome[0]


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
        try:
            batches = client.poll(timeout_ms=100)
        except KafkaConnectionError as failure:  # which it raises where it asks for metadata at a wrong moment
            print(f"poll: {failure!r}", file=sys.stderr, flush=True)
            continue
        for batch in batches.values():
            for record in batch:
                output.write(record.partition, record.offset, record.key or b"-", record.value or b"")
    client.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    settings = Settings.parse(sys.argv[1:])
    output = Output(settings)
    {"produce": produce, "transact": transact, "consume": consume}[settings.mode](settings, output)
    sys.exit(output.finish())
