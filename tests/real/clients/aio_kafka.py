"""The client program on aiokafka; README.md beside this file has its arguments."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import sys
from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from tests.kit.client_contract import Output, Pace, Record, Settings, transactions, unsecured_token

END_OF_TRANSACTION_S: Final = 60.0


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, user: str) -> None:
        self._user = user

    async def token(self) -> str:
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
        common["ssl_context"] = ssl.create_default_context(cafile=settings.security["ssl.ca.location"])
    return common


def producer(settings: Settings, **more: Any) -> Any:
    return AIOKafkaProducer(
        **configuration(settings),
        acks="all",
        compression_type=None if settings.compression == "none" else settings.compression,
        linger_ms=settings.linger_ms,
        request_timeout_ms=settings.delivery_timeout_ms,  # also the time after which it gives a batch up
        **more,
    )


async def produce(settings: Settings, output: Output) -> None:
    client = producer(settings, enable_idempotence=settings.idempotent)
    await client.start()
    pace = Pace(settings)
    for sequence in range(settings.records):
        if pace.is_over():
            break
        if (wait_s := pace.wait_s(sequence)) > 0:
            await asyncio.sleep(wait_s)
        record = Record.make(settings, sequence)

        def done(sent: Future[Any], record: Record = record) -> None:
            if (failure := sent.exception()) is not None:
                output.failed(failure)
            else:
                output.write(record.partition, sent.result().offset, record.key, record.value)

        sent = await client.send(settings.topic, record.value, record.key, partition=record.partition)
        sent.add_done_callback(done)
    await client.flush()
    await client.stop()


async def transact(settings: Settings, output: Output) -> None:
    async def started() -> Any:
        client = producer(settings, transactional_id=settings.transactional_id)
        await client.start()
        return client

    client = await started()
    due = transactions(settings)
    while (one := await asyncio.to_thread(next, due, None)) is not None:
        number, batch, is_to_abort = one
        state = "unknown"
        sent: list[Future[Any]] = []
        try:
            await client.begin_transaction()
            for record in batch:
                one_sent = await client.send(settings.topic, record.value, record.key, partition=record.partition)
                sent.append(one_sent)
            await client.flush()
            if is_to_abort:
                await in_time(client.abort_transaction)
                state = "aborted"
            else:
                await in_time(client.commit_transaction)
                state = "committed"
        except (KafkaError, TimeoutError) as failure:
            print(f"transaction {number}: {failure!r}", file=sys.stderr, flush=True)
            try:
                if isinstance(failure, TimeoutError):
                    raise
                await in_time(client.abort_transaction)
                state = "aborted"
            except (KafkaError, TimeoutError):
                with contextlib.suppress(KafkaError, TimeoutError):
                    await in_time(client.stop)
                client = await started()
        has_offset = [one.done() and not one.cancelled() and one.exception() is None for one in sent]
        offsets = [one.result().offset if has else -1 for one, has in zip(sent, has_offset, strict=True)]
        offsets += [-1] * (len(batch) - len(offsets))
        for record, offset in zip(batch, offsets, strict=True):
            output.write(record.partition, offset, record.key, record.value, f" {state} {number}")
    await client.stop()


async def in_time(call: Callable[[], Awaitable[None]]) -> None:
    """Raises TimeoutError where the call has not returned after `END_OF_TRANSACTION_S`: aiokafka waits for ever."""
    await asyncio.wait_for(call(), END_OF_TRANSACTION_S)


async def consume(settings: Settings, output: Output) -> None:
    client = AIOKafkaConsumer(
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
    await client.start()
    pace = Pace(settings)
    while output.different < settings.records and not pace.is_over():
        for batch in (await client.getmany(timeout_ms=100)).values():
            for record in batch:
                output.write(record.partition, record.offset, record.key or b"-", record.value or b"")
    await client.stop()


async def main() -> int:
    settings = Settings.parse(sys.argv[1:])
    output = Output(settings)
    await {"produce": produce, "transact": transact, "consume": consume}[settings.mode](settings, output)
    return output.finish()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    sys.exit(asyncio.run(main()))
