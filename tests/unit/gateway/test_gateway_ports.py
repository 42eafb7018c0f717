"""The ports of a gateway together: what they share, and what one of them does where a broker is not there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from kquota.config import BrokerConfig, ConnectionLimits
from kquota.errors import CallbackRefusedError
from kquota.gateway.app import Gateway
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.metering.engine import QuotaManagers
from tests.kit.gateway_brokers import GatewayBroker, Upstream, gateway_of, read_frame
from tests.kit.listening import Run, run
from tests.kit.relayed import answer, produce_request

__all__ = ["run"]

PRODUCED = b"\0\1" + bytes(5)


@contextlib.asynccontextmanager
async def brokers_of(*ids: int) -> AsyncIterator[list[GatewayBroker]]:
    brokers = [GatewayBroker(one) for one in ids]
    for one in brokers:
        await one.start()
    try:
        yield brokers
    finally:
        for one in brokers:
            await one.stop()


def upstream_of(*brokers: GatewayBroker) -> Upstream:
    return Upstream([(one.node_id, "127.0.0.1", one.port) for one in brokers])


@contextlib.asynccontextmanager
async def client_at(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def is_served(port: int) -> bool:
    """Whether a new connection to this port gets an answer; otherwise it is closed."""
    async with client_at(port) as (reader, writer):
        try:
            writer.write(produce_request(1, b"x"))
            return await read_frame(reader) == answer(1, PRODUCED)
        except (ConnectionError, asyncio.IncompleteReadError):
            return False


def ports(gateway: Gateway) -> list[int]:
    return [gateway.address.port, *(node.gateway_port for node in gateway.nodes)]


def test_max_connections_is_of_all_ports_together(run: Run) -> None:
    """Each connection takes two open files of the one process, whichever port it came to."""

    async def scenario() -> None:
        async with (
            brokers_of(1, 2) as brokers,
            gateway_of(upstream_of(*brokers), limits=ConnectionLimits(max_connections=3)) as gateway,
            contextlib.AsyncExitStack() as clients,
        ):
            for number, port in enumerate(ports(gateway)):
                reader, writer = await clients.enter_async_context(client_at(port))
                writer.write(produce_request(number, b"x"))
                assert await read_frame(reader) == answer(number, PRODUCED)
            assert not any([await is_served(port) for port in ports(gateway)])

    run(scenario())


def test_a_broker_whose_port_cannot_be_served_at_first_is_tried_again(run: Run) -> None:
    """A callback refuses it once: it is not advertised meanwhile with a port that nobody serves."""
    refusals = [CallbackRefusedError("not yet")]

    async def scenario() -> None:
        def set_callback(node_id: int, _managers: QuotaManagers) -> None:
            if node_id == 2 and refusals:
                raise refusals.pop()

        quotas = BrokerQuotas(BrokerConfig(), set_callback=set_callback)
        async with brokers_of(1, 2) as (one, other):
            upstream = upstream_of(one)
            async with gateway_of(upstream, quotas=quotas) as gateway:
                upstream.found.append((2, "127.0.0.1", other.port))
                with capture_logs() as lines:
                    while 2 not in gateway.listeners:  # noqa: ASYNC110 (what is asked for knows of no events)
                        await asyncio.sleep(0.01)
                [line] = [line for line in lines if line["log_level"] == "error"]
                assert (line["event"], line["reason"]) == ("broker 2 cannot be served", "not yet")
                assert gateway.current_brokers == {1, 2}
                assert await is_served(gateway.nodes[1].gateway_port)
                assert refusals == []

    run(scenario())


def test_a_broker_whose_port_cannot_be_served_at_the_start_is_an_error(run: Run) -> None:
    def set_callback(node_id: int, _managers: QuotaManagers) -> None:
        if node_id == 1:
            raise CallbackRefusedError("never")

    async def scenario() -> None:
        async with brokers_of(1) as brokers:
            with pytest.raises(CallbackRefusedError, match="never"):
                async with gateway_of(
                    upstream_of(*brokers), quotas=BrokerQuotas(BrokerConfig(), set_callback=set_callback)
                ):
                    pass

    run(scenario())


def test_a_gateway_that_is_being_stopped_opens_no_further_port(run: Run) -> None:
    """An answer that is still under way may name a broker that is new."""

    async def scenario() -> None:
        async with brokers_of(1) as brokers, gateway_of(upstream_of(*brokers)) as gateway:
            gateway.is_draining = True
            assert gateway.relay.address_of(2, "b2", 9092) is None
            await asyncio.sleep(0)
            assert [node.id for node in gateway.nodes] == [1]
            assert set(gateway.listeners) == {None, 1}

    run(scenario())
