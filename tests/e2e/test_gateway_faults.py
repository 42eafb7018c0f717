"""The gateway where its brokers, its clients or the machine fail, on real sockets and both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import resource
import socket
import ssl
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kquota.errors import KquotaError, UnreachableError
from kquota.gateway.app import Gateway
from kquota.gateway.relay.broker_connection import BrokerConnection
from kquota.gateway.relay.client_connection import ClientConnection
from kquota.gateway.settings import GatewaySettings
from kquota.gateway.topology import NodePorts
from kquota.net.addresses import Address
from tests.kit.gateway_brokers import GatewayBroker, Upstream, gateway_of, memory_mb, read_frame
from tests.kit.listening import Run, run
from tests.kit.relayed import answer, fetch_request, produce_request, request
from tests.kit.tls import Authority

__all__ = ["run"]

MIB = 2**20
API_VERSIONS = request(18, 0, 1, b"")
METADATA = request(3, 9, 7, bytes(6))
PRODUCED = b"\0\1" + bytes(5)


@contextlib.asynccontextmanager
async def one_broker(**options: object):  # type: ignore[no-untyped-def]
    broker = GatewayBroker()
    await broker.start()
    upstream = Upstream([(1, "127.0.0.1", broker.port)])
    async with gateway_of(upstream, **options) as gateway:
        yield broker, gateway, upstream
    await broker.stop()


async def connect(gateway: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", gateway.nodes[0].gateway_port)


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until(ask) -> None:  # type: ignore[no-untyped-def]
    while not ask():  # noqa: ASYNC110 (what is asked for knows of no events)
        await asyncio.sleep(0.01)


def tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server on localhost, and of its clients."""
    authority = Authority()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("gateway", hosts=("localhost",)).write_pem(folder / "server.pem"))
    return server, ssl.create_default_context(cadata=authority.certificate_pem())


def connections(gateway: Gateway) -> int:
    return sum(one.count for one in gateway._listeners.values())


def test_a_broker_that_dies_within_an_answer_costs_its_clients_one_connection(run: Run) -> None:
    async def scenario() -> None:
        async with one_broker() as (broker, gateway, _):
            reader, writer = await connect(gateway)
            writer.write(produce_request(1, b"x" * 100))
            assert await read_frame(reader) == answer(1, PRODUCED)
            broker.cuts_answers = True
            writer.write(produce_request(2, b"x" * 100))
            assert len(await reader.read()) < len(answer(2, PRODUCED))
            await close(writer)
            await broker.stop()
            reader, writer = await connect(gateway)
            assert await reader_ends(reader)
            await close(writer)
            await broker.start()
            reader, writer = await connect(gateway)
            writer.write(produce_request(2, b"x" * 100))
            assert await read_frame(reader) == answer(2, PRODUCED)
            await close(writer)
            await until(lambda: connections(gateway) == 0)
            assert gateway.relay.stats.failed_dials == {1: 1}

    run(scenario())


async def reader_ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_a_broker_that_does_not_read_stops_the_client_and_not_the_gateway(run: Run) -> None:
    """200 MB towards it do not become 200 MB in memory, and all come through in the end."""

    async def scenario() -> None:
        async with one_broker() as (broker, gateway, _):
            broker.reads.clear()
            loop = asyncio.get_running_loop()
            with socket.create_connection(("127.0.0.1", gateway.nodes[0].gateway_port)) as client:
                client.setblocking(False)
                size = 200 * MIB
                begin = produce_request(1, b"")
                begin = struct.pack(">i", len(begin) - 4 + size) + begin[4:]
                await loop.sock_sendall(client, begin)
                gc.collect()
                before_mb = memory_mb()
                piece = bytes(MIB)

                async def send() -> None:
                    for _ in range(200):
                        await loop.sock_sendall(client, piece)

                sending = asyncio.create_task(send())
                done, _ = await asyncio.wait([sending], timeout=1.0)
                assert not done
                assert memory_mb() - before_mb < 30
                broker.reads.set()
                await sending
                found = b""
                while len(found) < len(answer(1, PRODUCED)):
                    found += await loop.sock_recv(client, 1000)
                assert found == answer(1, PRODUCED)
                assert broker.received == len(begin) + size
                assert memory_mb() - before_mb < 30

    run(scenario())


def test_a_client_that_does_not_read_stops_the_broker_and_not_the_gateway(run: Run) -> None:
    async def scenario() -> None:
        async with one_broker() as (broker, gateway, _):
            broker.fetch_bytes = 200 * MIB
            loop = asyncio.get_running_loop()
            with socket.create_connection(("127.0.0.1", gateway.nodes[0].gateway_port)) as client:
                client.setblocking(False)
                gc.collect()
                before_mb = memory_mb()
                await loop.sock_sendall(client, fetch_request(1, 2**31 - 1))
                await asyncio.sleep(1.0)
                assert gateway.relay.stats.bytes_from_brokers < 50 * MIB
                assert memory_mb() - before_mb < 30
                received = 0
                while received < broker.fetch_bytes + 4:
                    received += len(await loop.sock_recv(client, MIB))
                assert received == broker.fetch_bytes + 4
                assert memory_mb() - before_mb < 30

    run(scenario())


def test_tcp_looks_whether_both_ends_are_still_there(run: Run) -> None:
    async def scenario() -> None:
        async with one_broker() as (_, gateway, _):
            reader, writer = await connect(gateway)
            writer.write(produce_request(1, b""))
            await read_frame(reader)
            [connection] = gateway._listeners[1]._connections
            for one in (connection, connection._broker):
                its_socket = one._transport.get_extra_info("socket")
                assert its_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            await close(writer)

    run(scenario())


@pytest.mark.parametrize("has_tls", [False, True])
def test_connections_that_ended_leave_nothing_for_the_garbage_collector(
    run: Run, tmp_path: Path, has_tls: bool
) -> None:
    """It looks for cycles seldom, and never at what a running gateway has frozen."""

    def count() -> int:
        return sum(isinstance(one, ClientConnection | BrokerConnection) for one in gc.get_objects())

    async def scenario() -> None:
        server_tls, client_tls = tls_contexts(tmp_path) if has_tls else (None, None)
        async with one_broker(listener_tls=server_tls) as (broker, gateway, _):

            async def send(data: bytes, answers: int, *, is_cut: bool = False, is_aborted: bool = False) -> None:
                broker.cuts_answers = is_cut
                port = gateway.nodes[0].gateway_port
                name = "localhost" if has_tls else None
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls, server_hostname=name)
                writer.write(data)
                for _ in range(answers):
                    await read_frame(reader)
                if is_aborted:
                    writer.transport.abort()
                elif not answers:
                    await reader_ends(reader)
                await close(writer)
                await until(lambda: connections(gateway) == 0)

            await send(API_VERSIONS + produce_request(1, b"x"), 2)
            await send(API_VERSIONS + produce_request(1, b"x") + METADATA, 3)
            await send(produce_request(1, b"x"), 1, is_aborted=True)
            await send(produce_request(1, b"x"), 0, is_cut=True)
            await send(API_VERSIONS, 0, is_cut=True)
            await send(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", 0)
            await broker.stop()
            await send(produce_request(1, b"x"), 0)
            await asyncio.wait_for(until(lambda: count() == 0), 10)
            await broker.start()

    gc.collect()
    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()


def test_a_cluster_that_cannot_be_asked_for_a_while_costs_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with one_broker() as (broker, gateway, upstream):
            for error in (UnreachableError("gone"), ZeroDivisionError("a mistake")):
                upstream.error, asked = error, upstream.asked
                await until(lambda asked=asked: upstream.asked >= asked + 3)
                reader, writer = await connect(gateway)
                writer.write(produce_request(1, b""))
                assert await read_frame(reader) == answer(1, PRODUCED)
                await close(writer)
            upstream.error = None
            upstream.found.append((2, "127.0.0.1", broker.port))
            await until(lambda: len(gateway.nodes) == 2)

    run(scenario())


def test_a_broker_that_appears_has_its_port_before_clients_hear_of_it(run: Run) -> None:
    async def scenario() -> None:
        settings = GatewaySettings(drain_ms=1_000, metadata_max_age_ms=10**6)
        async with one_broker(settings=settings) as (broker, gateway, _):
            second = GatewayBroker(2)
            await second.start()
            broker.brokers = [(1, "127.0.0.1", broker.port), (2, "127.0.0.1", second.port)]
            reader, writer = await connect(gateway)
            writer.write(METADATA)
            metadata = await read_frame(reader)
            [port] = [node.gateway_port for node in gateway.nodes if node.id == 2]
            assert struct.pack(">ib9si", 2, 10, b"127.0.0.1", port) in metadata
            assert struct.pack(">i", second.port) not in metadata
            reader2, writer2 = await asyncio.open_connection("127.0.0.1", port)
            writer2.write(produce_request(5, b""))
            assert await read_frame(reader2) == answer(5, PRODUCED)
            assert second.produced == [5]
            await close(writer, writer2)
            await second.stop()

    run(scenario())


def test_a_drain_answers_all_that_the_broker_was_given(run: Run) -> None:
    """Clients that never stop; none of them misses the answer to a request that has reached the broker."""

    async def scenario() -> None:
        answered: list[int] = []

        async def produce(gateway: Gateway, number: int) -> None:
            reader, writer = await connect(gateway)
            correlation_id = number * 1_000_000
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                writer.writelines(produce_request(correlation_id + ahead, b"x" * 1000) for ahead in range(5))
                while True:
                    found = await read_frame(reader)
                    assert found == answer(correlation_id, PRODUCED)
                    answered.append(correlation_id)
                    correlation_id += 1
                    writer.write(produce_request(correlation_id + 4, b"x" * 1000))
            await close(writer)

        async with one_broker() as (broker, gateway, _):
            broker.delay_s = 0.002
            clients = [asyncio.create_task(produce(gateway, number)) for number in range(20)]
            await until(lambda: len(answered) > 500)
            drain = asyncio.create_task(gateway._close())
            await asyncio.wait_for(drain, 5)
            await asyncio.gather(*clients)
            assert len(broker.produced) == len(set(broker.produced))
            assert set(answered) == set(broker.produced)

    run(scenario())


@pytest.mark.parametrize("is_hung", [False, True])
def test_a_drain_waits_for_what_brokers_have_not_taken_yet(run: Run, is_hung: bool) -> None:
    """Nothing answers a request without acks: its client is gone long before the broker has it."""

    async def scenario() -> None:
        settings = GatewaySettings(drain_ms=300 if is_hung else 10_000, metadata_max_age_ms=10**6)
        async with one_broker(settings=settings) as (broker, gateway, _):
            broker.acknowledges = False
            broker.reads.clear()
            _, writer = await connect(gateway)
            await until(lambda: connections(gateway) == 1)
            [connection] = gateway.listeners[1].connections
            sent = 0
            while connection._broker is None or not connection._broker._transport.get_write_buffer_size():
                one = produce_request(1, bytes(100_000), acks=0)
                writer.write(one)
                sent += len(one)
                await asyncio.sleep(0.005)
            await close(writer)
            await until(lambda: connections(gateway) == 0)
            drain = asyncio.create_task(gateway._close())
            await asyncio.wait([drain], timeout=0.1)
            assert not drain.done()
            assert len(gateway.relay.closing_brokers) == 1
            if not is_hung:
                broker.reads.set()
            await asyncio.wait_for(drain, 10)
            assert not gateway.relay.closing_brokers
            broker.reads.set()
            if not is_hung:
                await until(lambda: broker.received == sent)

    run(scenario())


# What is wrong from the start.


@pytest.mark.parametrize("is_bootstrap", [True, False])
def test_a_port_that_is_taken_is_named(run: Run, is_bootstrap: bool) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            options = {"listen": Address("127.0.0.1", port)} if is_bootstrap else {"node_ports": NodePorts(port, 1)}
            with pytest.raises(KquotaError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
                async with gateway_of(Upstream([(1, "127.0.0.1", 9)]), **options):
                    pass

    run(scenario())


def test_two_brokers_on_one_port_are_named_and_nothing_is_left_open(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        upstream = Upstream([(1, "127.0.0.1", 9), (3, "127.0.0.1", 9)])
        with pytest.raises(KquotaError, match=f"brokers 1 and 3 both have port {port}: give more `node_ports`"):
            async with gateway_of(upstream, node_ports=NodePorts(port, 1)):
                pass
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))

    run(scenario())


# The program.

GATEWAY = (sys.executable, "-m", "kquota", "gateway", "--listen", "127.0.0.1:0")


def test_a_cluster_that_cannot_be_reached_at_the_start_is_an_error_of_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = subprocess.run(
        [*GATEWAY, "--upstream", f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 5, found
    assert f"127.0.0.1:{port}" in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


@contextlib.asynccontextmanager
async def gateway_process(folder: Path, broker: GatewayBroker, *more: str):  # type: ignore[no-untyped-def]
    """With no quotas; its process and the port of the broker."""
    quotas = folder / "quotas.yaml"
    quotas.write_text("quotas: []\n", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *GATEWAY, "--upstream", f"127.0.0.1:{broker.port}", "--quotas", str(quotas), *more, stdout=-1, stderr=-1
    )
    assert process.stdout is not None
    line = b""
    try:
        while not (found := re.fullmatch(rb"broker 1 on \S+:(\d+)\n", line)):
            line = await process.stdout.readline()
            assert line, await process.communicate()
        yield process, int(found[1])
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


def test_sigterm_ends_it_when_all_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = GatewayBroker()
        await broker.start()
        async with gateway_process(tmp_path, broker) as (process, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            broker.delay_s = 0.5
            writer.write(produce_request(1, b"x"))
            await until(lambda: broker.produced == [1])
            process.terminate()
            assert await reader.read() == answer(1, PRODUCED)
            assert await asyncio.wait_for(process.wait(), 20) == 0
            await close(writer)
        await broker.stop()

    asyncio.run(scenario())


def test_five_thousand_idle_connections_take_little_memory_and_all_are_closed(tmp_path: Path) -> None:
    """At most 12 KB each: what bench_gateway says is less, on a quiet machine."""
    count = 5_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def scenario() -> None:
        broker = GatewayBroker()
        await broker.start()
        async with gateway_process(tmp_path, broker) as (process, port):
            writers = []

            async def ask(number: int) -> None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                writer.write(produce_request(number, b""))
                assert await read_frame(reader) == answer(number, PRODUCED)

            await asyncio.gather(*(ask(number) for number in range(200)))
            before_mb = memory_mb(process.pid)
            for first in range(200, count, 200):
                await asyncio.gather(*(ask(number) for number in range(first, first + 200)))
            each_kb = (memory_mb(process.pid) - before_mb) * 1024 / (count - 200)
            print(f"{each_kb:.1f} KB for an idle connection")
            assert each_kb < 12
            assert sorted(broker.produced) == list(range(count))
            await close(*writers)
            files = Path(f"/proc/{process.pid}/fd")
            await until(lambda: len(list(files.iterdir())) < 100)
            await until(lambda: len(broker.open) < 5)  # the gateway has one of its own
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 20) == 0
        await broker.stop()

    asyncio.run(scenario())
