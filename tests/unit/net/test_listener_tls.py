"""Handshakes with a listener: versions, certificates of clients, and who does not speak TLS as it should."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from kquota.errors import ProtocolError
from kquota.net.listener_config import load_listener_config
from kquota.net.principals import PrincipalRules, principal_of_certificate
from kquota.net.tls import ClientAuth, TlsFiles, server_context
from tests.kit.listening import Echo, Harness, Run, echoed, listening, run
from tests.kit.tls import PASSWORD, Authority, Identity

__all__ = ["run"]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def files(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    folder = tmp_path_factory.mktemp("tls")
    store = folder / "broker.p12"
    store.write_bytes(authority.issue("broker", hosts=("localhost",)).pkcs12())
    trusted = folder / "ca.pem"
    trusted.write_text(authority.certificate_pem())
    return TlsFiles(keystore=str(store), keystore_password=PASSWORD, truststore=str(trusted))


def client(authority: Authority, folder: Path, own: Identity | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate_pem())
    if own is not None:
        context.load_cert_chain(own.write_pem(folder / "own.pem"))
    return context


def principal(connection: Echo) -> str:
    assert connection.transport is not None
    der = connection.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return principal_of_certificate(der, PrincipalRules.parse("RULE:CN=(.*)/$1/U,DEFAULT"))


async def refusal(harness: Harness, context: ssl.SSLContext) -> str:
    """Why the listener ended a connection of this client."""

    def attempt() -> None:
        # With TLS 1.3 the client's side of a handshake is over before the server has seen its certificate.
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(harness.connect_silently(), server_hostname="localhost") as one,
        ):
            one.recv(1)

    await asyncio.to_thread(attempt)
    error = await harness.end()
    assert isinstance(error, ProtocolError)
    assert harness.trouble == []
    return str(error)


@pytest.mark.parametrize("client_auth", get_args(ClientAuth))
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_a_client_is_by_its_certificate(
    run: Run, authority: Authority, files: TlsFiles, tmp_path: Path, client_auth: ClientAuth, version: ssl.TLSVersion
) -> None:
    """It is asked for one only where that is set; and is nobody in particular without."""
    own = client(authority, tmp_path, authority.issue("alice"))
    none = client(authority, tmp_path)
    foreign = client(authority, tmp_path, Authority().issue("alice"))
    expired = client(authority, tmp_path, authority.issue("alice", has_expired=True))
    for context in (own, none, foreign, expired):
        context.minimum_version = context.maximum_version = version

    async def scenario() -> None:
        async with listening(tls=server_context(files, client_auth=client_auth)) as harness:
            await echoed(await harness.connect(own), b"x")
            assert principal(harness.connections[-1]) == ("ANONYMOUS" if client_auth == "none" else "ALICE")
            if client_auth == "required":
                assert "shows no certificate" in await refusal(harness, none)
            else:
                await echoed(await harness.connect(none), b"x")
                assert principal(harness.connections[-1]) == "ANONYMOUS"
            if client_auth != "none":
                assert "client's certificate is not trusted" in await refusal(harness, foreign)
                assert "client's certificate is not trusted: certificate has expired" in await refusal(harness, expired)

    run(scenario())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_is_the_same_client(
    run: Run, authority: Authority, files: TlsFiles, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Its certificate is not sent again."""
    context = client(authority, tmp_path, authority.issue("alice"))
    context.maximum_version = version

    async def scenario() -> None:
        async with listening(tls=server_context(files, client_auth="required")) as harness:

            def connect(session: ssl.SSLSession | None) -> ssl.SSLSocket:
                one = context.wrap_socket(harness.connect_silently(), server_hostname="localhost", session=session)
                one.sendall(b"x")
                assert one.recv(1) == b"x"
                return one

            with (
                await asyncio.to_thread(connect, None) as first,
                await asyncio.to_thread(connect, first.session) as one,
            ):
                assert one.session_reused
                assert [principal(connection) for connection in harness.connections] == ["ALICE", "ALICE"]

    run(scenario())


def limited(versions: tuple[str, ...] = (), suites: tuple[str, ...] = ()) -> Callable[[TlsFiles], TlsFiles]:
    return lambda files: TlsFiles(
        keystore=files.keystore, keystore_password=PASSWORD, versions=versions, cipher_suites=suites
    )


@pytest.mark.parametrize(
    "limit, speaks",
    [
        (limited(), ["TLSv1.2", "TLSv1.3"]),
        (limited(("TLSv1.2",)), ["TLSv1.2"]),
        (limited(("TLSv1.3",)), ["TLSv1.3"]),
        (limited(suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)), ["TLSv1.2"]),
        (limited(suites=("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",)), []),
    ],
)
def test_only_what_is_enabled_is_spoken(
    run: Run,
    authority: Authority,
    files: TlsFiles,
    tmp_path: Path,
    limit: Callable[[TlsFiles], TlsFiles],
    speaks: list[str],
) -> None:
    async def scenario() -> None:
        async with listening(tls=server_context(limit(files))) as harness:
            for name, version in (("TLSv1.2", ssl.TLSVersion.TLSv1_2), ("TLSv1.3", ssl.TLSVersion.TLSv1_3)):
                context = client(authority, tmp_path)
                context.minimum_version = context.maximum_version = version
                if name in speaks:
                    streams = await harness.connect(context)
                    assert await echoed(streams, b"x") == b"x"
                    assert streams[1].get_extra_info("ssl_object").version() == name
                else:
                    assert "that is enabled here" in await refusal(harness, context)

    run(scenario())


def test_another_context_holds_for_new_connections(run: Run, authority: Authority, tmp_path: Path) -> None:
    """A certificate is renewed: who is connected stays, who comes sees the new one."""
    store = tmp_path / "broker.pem"
    config = tmp_path / "listener.properties"
    config.write_text(f"security.protocol=SSL\nssl.keystore.location={store}\n")

    async def scenario() -> None:
        authority.issue("broker", hosts=("localhost",)).write_pem(store)
        listener = load_listener_config(str(config))
        async with listening(tls=listener.tls_context()) as harness:
            old = await harness.connect(client(authority, tmp_path))
            await echoed(old, b"x")
            other = Authority()
            other.issue("broker", hosts=("localhost",)).write_pem(store)
            harness.listener.tls = listener.tls_context()
            assert await echoed(await harness.connect(client(other, tmp_path)), b"new") == b"new"
            assert await echoed(old, b"old") == b"old"

    run(scenario())
