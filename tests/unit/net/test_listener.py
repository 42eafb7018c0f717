"""What a listener does with connections before, while and after they are served, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from kquota.errors import ConnectionLimitError, ProtocolError
from kquota.net import listener as module
from kquota.net.addresses import bind
from kquota.net.listener import ConnectionCount, Peer
from tests.kit.listening import Run, echoed, listening, run
from tests.kit.tls import Authority, Identity

__all__ = ["run"]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Identity:
    return authority.issue("broker", hosts=("localhost",))


@pytest.fixture
def server_tls(server: Identity, tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.write_pem(tmp_path / "server.pem"))
    return context


def client_tls(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate_pem())


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.1:9092", "10.0.0.1"), ("[fe80::1%eth0]:9092", "fe80::1%eth0"), ("[::1]:1", "::1"), ("", "")],
)
def test_the_host_of_a_peer_has_no_brackets(address: str, host: str) -> None:
    assert Peer(address, "").host == host


@pytest.mark.parametrize("is_tls", [False, True], ids=["plaintext", "tls"])
def test_a_connection_is_served_and_knows_its_peer(
    run: Run, is_tls: bool, server_tls: ssl.SSLContext, authority: Authority
) -> None:
    async def scenario() -> None:
        async with listening(tls=server_tls if is_tls else None) as harness:
            streams = await harness.connect(client_tls(authority) if is_tls else None)
            assert await echoed(streams, b"x" * 300_000) == b"x" * 300_000
            host, port = streams[1].get_extra_info("sockname")
            [connection] = harness.connections
            assert connection.peer == Peer(f"{host}:{port}", f"127.0.0.1:{harness.listener.address[1]}")
            assert connection.peer.host == host
            its_socket = connection.transport.get_extra_info("socket") if connection.transport else None
            assert its_socket is not None
            assert its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert its_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert harness.listener.count == 1
            streams[1].close()
            assert await harness.ends.get() == (connection.peer, None)
            assert harness.listener.count == 0
            assert harness.trouble == []

    run(scenario())


def test_sockets_that_listen_already_are_taken_over(run: Run) -> None:
    """Who connects before the listener is there is served once it is."""

    async def scenario() -> None:
        sockets = bind("127.0.0.1", 0) + bind("127.0.0.1", 0)
        for one in sockets:
            one.listen(10)
        early = [socket.create_connection(one.getsockname()) for one in sockets]
        ports = [one.getsockname()[1] for one in sockets]
        async with listening(sockets=sockets) as harness:
            assert harness.listener.address == ("127.0.0.1", ports[0])
            for one in early:
                streams = await asyncio.open_connection(sock=one)
                harness.writers.append(streams[1])
                assert await echoed(streams, b"early") == b"early"
            assert {connection.peer.listener for connection in harness.connections} == {
                f"127.0.0.1:{port}" for port in ports
            }
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))

    run(scenario())


def test_half_open_handshakes_count(run: Run, server_tls: ssl.SSLContext, authority: Authority) -> None:
    """Who connects to a TLS port and says nothing has a place; beyond the limit connections are closed at once."""

    async def scenario() -> None:
        async with listening(tls=server_tls, max_connections=300, max_connections_per_ip=1000) as harness:
            silent = await asyncio.to_thread(lambda: [harness.connect_silently() for _ in range(300)])
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await harness.connect(client_tls(authority))
            error = await harness.end()
            assert isinstance(error, ConnectionLimitError)
            assert (error.setting, error.limit) == ("max.connections", 300)
            assert harness.listener.count == 300
            silent[0].close()
            assert isinstance(await harness.end(), ConnectionError)
            assert await echoed(await harness.connect(client_tls(authority)), b"x") == b"x"
            assert harness.listener.count == 300
        assert harness.ends.qsize() == 300
        assert harness.trouble == []

    run(scenario())


def test_listeners_that_share_a_count_share_the_limit_of_connections(run: Run) -> None:
    """Each of them still knows how many are its own."""

    async def scenario() -> None:
        shared = ConnectionCount()
        async with (
            listening(shared_count=shared, max_connections=3) as one,
            listening(shared_count=shared, max_connections=3) as other,
        ):
            served = [await harness.connect() for harness in (one, one, other)]
            for streams in served:
                assert await echoed(streams, b"x") == b"x"
            assert (one.listener.count, other.listener.count, shared.now) == (2, 1, 3)
            for harness in (one, other):
                await harness.connect()
                error = await harness.end()
                assert isinstance(error, ConnectionLimitError)
                assert (error.setting, error.limit) == ("max.connections", 3)
            served[0][1].close()
            assert await one.end() is None
            assert await echoed(await other.connect(), b"x") == b"x"
            assert (one.listener.count, other.listener.count, shared.now) == (1, 2, 3)
        assert shared.now == 0

    run(scenario())


def test_who_does_not_end_in_time_is_closed_and_counted(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as harness:
            for _ in range(3):
                await echoed(await harness.connect(), b"here")
            assert set(harness.listener.connections) == set(harness.connections)
            for busy in harness.connections:
                busy.end = lambda: None  # type: ignore[method-assign]
            assert await harness.listener.close(within_s=0) == 3
            assert harness.listener.connections == []

    run(scenario())


def test_a_handshake_that_does_not_end_is_ended(run: Run, server_tls: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with listening(tls=server_tls, socket_request_max_ms=100) as harness:
            silent = [harness.connect_silently() for _ in range(20)]
            silent[0].send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
            for _ in silent:
                error = await harness.end()
                assert isinstance(error, ConnectionLimitError)
                assert error.setting == "socket.request.max.ms"
            for one in silent:
                with contextlib.suppress(ConnectionResetError):
                    assert one.recv(100) == b""
            assert harness.trouble == []

    run(scenario())


def test_closing_ends_handshakes_and_connections(run: Run, server_tls: ssl.SSLContext, authority: Authority) -> None:
    """The connection that was accepted in the same turn of the event loop too."""

    async def scenario() -> None:
        async with listening(tls=server_tls) as harness:
            silent = harness.connect_silently()
            await echoed(await harness.connect(client_tls(authority)), b"x")
            late = harness.connect_silently()
            harness.listener._accept(harness.listener._sockets[0])
            await harness.listener.close(within_s=30)
            assert [connection.has_ended for connection in harness.connections] == [False, True, False]
            assert harness.listener.count == 0
            for one in (silent, late):
                assert await asyncio.to_thread(one.recv, 1) == b""
        assert [(await harness.ends.get())[1] for _ in range(3)] == [None] * 3
        assert harness.ends.empty()
        assert harness.trouble == []

    run(scenario())


def test_a_client_that_is_not_admitted_waits_and_is_closed(run: Run) -> None:
    """Nothing is read from it, and it counts as a connection meanwhile."""
    delays: list[float | None] = [None, 0.05, 1000.0]
    asked: list[str] = []

    def admit(host: str) -> float | None:
        asked.append(host)
        return delays[len(asked) - 1]

    async def scenario() -> None:
        async with listening(admit=admit) as harness:
            served = await harness.connect()
            assert await echoed(served, b"x") == b"x"
            delayed = await harness.connect()
            delayed[1].write(b"nobody reads this")
            with contextlib.suppress(ConnectionError):
                assert await delayed[0].read() == b""
            assert await harness.end() is None
            longer = await harness.connect()
            assert await echoed(served, b"y") == b"y"
            assert (harness.listener.count, len(harness.connections)) == (2, 1)
            await harness.listener.close(within_s=30)
            assert await longer[0].read() == b""
        assert asked == ["127.0.0.1"] * 3

    run(scenario())


def test_want_of_open_files_is_reported_once_and_survived(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as no file can be opened, the listener tries now and then; who waited is served then."""
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    tries = 0

    class Full(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            nonlocal tries
            tries += 1
            if tries <= 5:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async def scenario() -> None:
        [bound] = bind("127.0.0.1", 0)
        bound.listen(10)
        full = Full(bound.family, bound.type, bound.proto, bound.detach())
        async with listening(sockets=[full]) as harness:
            assert await echoed(await harness.connect(), b"x") == b"x"
            assert tries >= 6
            [context] = harness.trouble
            assert context["exception"].errno == errno.EMFILE
            assert context["message"] == "socket.accept() out of system resource"

    run(scenario())


def test_clients_that_are_gone_before_they_are_accepted_cost_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as harness:
            for _ in range(50):
                gone = harness.connect_silently()
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                gone.close()
            assert await echoed(await harness.connect(), b"x") == b"x"
            while harness.listener.count > 1:
                await harness.ends.get()
            assert harness.trouble == []

    run(scenario())


def test_who_does_not_trust_the_certificate_is_no_mistake_of_ours(run: Run, server_tls: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with listening(tls=server_tls) as harness:
            # asyncio's own clients do not say why they go.
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(
                    ssl.create_default_context().wrap_socket, harness.connect_silently(), server_hostname="localhost"
                )
            error = await harness.end()
            assert isinstance(error, ProtocolError)
            assert "the client does not trust the certificate" in str(error)
            assert harness.trouble == []

    run(scenario())


@pytest.mark.parametrize(
    "said, reason",
    [
        (b"\0\0\0\x10\0\x12\0\0\0\0\0\1\0\6client", "plaintext on a TLS port"),
        (b"\0\0\1\x10\0\x12\0\0\0\0\0\1\0\6client" * 20, "plaintext on a TLS port"),
        (b"GET / HTTP/1.1\r\n\r\n", "plaintext on a TLS port: this is HTTP"),
    ],
    ids=["ApiVersions", "large", "HTTP"],
)
def test_plaintext_on_a_tls_port_is_named(run: Run, server_tls: ssl.SSLContext, said: bytes, reason: str) -> None:
    async def scenario() -> None:
        async with listening(tls=server_tls) as harness:
            reader, writer = await harness.connect()
            writer.write(said)
            error = await harness.end()
            assert isinstance(error, ProtocolError)
            assert str(error) == reason
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert harness.trouble == []

    run(scenario())
