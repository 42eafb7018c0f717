"""Requests over every way into a server: the contract of a transport, in plain text and in TLS."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kquota.admin import QuotaAdmin
from kquota.admin.properties import load_client_properties
from kquota.errors import KquotaError, RetriableError, UnreachableError
from kquota.net.addresses import Address
from kquota.printable import printable
from kquota.quotas import ClientQuotaFilter
from kquota.stores import open_store
from kquota.wire.apis import DESCRIBE_CLIENT_QUOTAS
from kquota.wire.messages.client_quotas import DescribeClientQuotasResponse
from tests.kit.quota_server import running_server
from tests.kit.scripted_broker import scripted_broker
from tests.kit.tls import PASSWORD, Authority, tls_relay
from tests.kit.transport_contract import TransportContract

NOTHING_SET = {DESCRIBE_CLIENT_QUOTAS.key: DescribeClientQuotasResponse(0, 0, None, [])}
PLAIN, TLS_PEM, TLS_PKCS12, MUTUAL_PEM, MUTUAL_PKCS12 = (
    "plaintext",
    "tls-pem",
    "tls-pkcs12",
    "mutual-pem",
    "mutual-pkcs12",
)


class Way:
    """A server, and the settings that lead to it."""

    def __init__(self, address: str, settings: list[str]) -> None:
        self.address = address
        self.settings = settings


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def open_way(kind: str, authority: Authority, folder: Path, stack: ExitStack) -> Way:
    store = stack.enter_context(open_store("memory:"))
    if kind == PLAIN:
        return Way(str(stack.enter_context(running_server(store))), [])
    clients = authority if kind.startswith("mutual") else None
    identity = authority.issue("server", hosts=("localhost",))
    relay = stack.enter_context(tls_relay(identity, folder, clients=clients))
    server = stack.enter_context(running_server(store, advertise=Address("localhost", relay.port)))
    relay.upstream = (server.host, server.port)
    return Way(f"localhost:{relay.port}", ["security.protocol=SSL", *_stores(kind, authority, folder)])


def _stores(kind: str, authority: Authority, folder: Path) -> list[str]:
    trusted = folder / "trusted"
    settings = [f"ssl.truststore.location={trusted}"]
    if kind.endswith("pem"):
        trusted.write_text(authority.certificate_pem())
    else:
        trusted.write_bytes(authority.trust_store())
        settings += [f"ssl.truststore.password={PASSWORD}", "ssl.truststore.type=PKCS12"]
    own = folder / "own"
    client = authority.issue("client")
    if kind == MUTUAL_PEM:
        client.write_pem(own, PASSWORD)
        settings += [f"ssl.keystore.location={own}", f"ssl.key.password={PASSWORD}", "ssl.keystore.type=PEM"]
    elif kind == MUTUAL_PKCS12:
        own.write_bytes(client.pkcs12())
        settings += [f"ssl.keystore.location={own}", f"ssl.keystore.password={PASSWORD}"]
    return settings


def admin_of(way: Way, *more: str, **options: Any) -> QuotaAdmin:
    properties = load_client_properties(None, [*way.settings, *more])
    return QuotaAdmin(way.address, **options, **properties.connection)


class TestTransport(TransportContract):
    """To a server of ours."""

    @pytest.fixture(params=[PLAIN, TLS_PEM, TLS_PKCS12, MUTUAL_PEM, MUTUAL_PKCS12])
    def admin(self, request: pytest.FixtureRequest, authority: Authority, tmp_path: Path) -> Iterator[QuotaAdmin]:
        with ExitStack() as stack:
            yield stack.enter_context(admin_of(open_way(request.param, authority, tmp_path, stack), timeout_ms=20_000))


@pytest.mark.parametrize(
    "kind, settings, said",
    [
        (TLS_PEM, ["ssl.truststore.certificates={other}"], "certificate"),
        (MUTUAL_PEM, ["ssl.keystore.location="], "certificate"),
        (PLAIN, ["security.protocol=SSL"], "TLS"),
        (TLS_PEM, ["security.protocol=PLAINTEXT"], "security.protocol"),
    ],
    ids=["unknown-authority", "no-client-certificate", "tls-to-plaintext", "plaintext-to-tls"],
)
def test_a_way_that_does_not_fit_is_said_soon(
    kind: str, settings: list[str], said: str, authority: Authority, tmp_path: Path
) -> None:
    """With the address and what is wrong, long before the time is over."""
    other = Authority().certificate_pem()
    with ExitStack() as stack:
        way = open_way(kind, authority, tmp_path, stack)
        admin = stack.enter_context(admin_of(way, *(one.format(other=other) for one in settings), timeout_ms=5_000))
        with pytest.raises(KquotaError, match=said) as error:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert error.value.exit_code in (4, 5)
        assert way.address in str(error.value)


def test_a_host_name_that_is_not_in_the_certificate(authority: Authority, tmp_path: Path) -> None:
    """Is refused, unless names are not to be checked."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store("memory:"))
        relay = stack.enter_context(tls_relay(authority.issue("server", hosts=("elsewhere", "192.0.2.1")), tmp_path))
        server = stack.enter_context(running_server(store, advertise=Address("localhost", relay.port)))
        relay.upstream = (server.host, server.port)
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(authority.certificate_pem())
        way = Way(f"localhost:{relay.port}", ["security.protocol=SSL", f"ssl.truststore.location={trusted}"])
        with admin_of(way, timeout_ms=5_000) as admin, pytest.raises(KquotaError, match="localhost") as refused:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert "it is for elsewhere, 192.0.2.1: connect to such an address" in str(refused.value)
        assert "ssl.endpoint.identification.algorithm" in str(refused.value)
        assert "ssl.truststore" not in str(refused.value)
        with admin_of(way, "ssl.endpoint.identification.algorithm=", timeout_ms=20_000) as admin:
            assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities() == {}


def test_a_certificate_that_has_expired(authority: Authority, tmp_path: Path) -> None:
    """Is no matter of whom to trust."""
    with ExitStack() as stack:
        identity = authority.issue("server", hosts=("localhost",), has_expired=True)
        relay = stack.enter_context(tls_relay(identity, tmp_path))
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(authority.certificate_pem())
        way = Way(f"localhost:{relay.port}", ["security.protocol=SSL", f"ssl.truststore.location={trusted}"])
        with admin_of(way, timeout_ms=5_000) as admin, pytest.raises(KquotaError, match="has expired") as refused:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert "it needs a new one" in str(refused.value)
        assert not isinstance(refused.value, RetriableError)
        assert "ssl.truststore" not in str(refused.value)


def test_an_authority_that_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    """Is a matter of the trust store alone."""
    with ExitStack() as stack:
        way = open_way(TLS_PEM, authority, tmp_path, stack)
        settings = f"ssl.truststore.certificates={Authority().certificate_pem()}"
        admin = stack.enter_context(admin_of(way, settings, timeout_ms=5_000))
        with pytest.raises(KquotaError, match=r"set ssl\.truststore\.location"):
            admin.describe_client_quotas(ClientQuotaFilter.all())


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "host, reason", [("127.0.0.9", "ECONNREFUSED"), ("no-such-host.invalid", "DNS"), ("\x1b[2J.invalid", "DNS")]
)
def test_an_address_that_the_cluster_gives_and_that_leads_nowhere(host: str, reason: str) -> None:
    """Is named with its node, and is no fault of the address that was asked."""
    port = _closed_port()
    with (
        scripted_broker(NOTHING_SET, advertised=(host, port)) as address,
        QuotaAdmin(address, timeout_ms=2_000) as admin,
        pytest.raises(UnreachableError, match=reason) as failed,
    ):
        admin.describe_client_quotas(ClientQuotaFilter.all())
    said = str(failed.value)
    assert said.startswith(f"node 1 at {printable(host)}:{port} cannot be reached")
    assert f"the cluster at {address} gives this address" in said
    assert "advertised.listeners" in said
    assert "security.protocol" not in said
    assert "\x1b" not in said


def test_a_bootstrap_server_that_is_not_there_has_no_advice_on_tls() -> None:
    address = f"127.0.0.1:{_closed_port()}"
    refused = pytest.raises(UnreachableError, match=f"^{address} cannot be reached.*ECONNREFUSED$")
    with QuotaAdmin(address, timeout_ms=300) as admin, refused:
        admin.describe_client_quotas(ClientQuotaFilter.all())


def test_a_server_that_is_back_is_asked_at_once() -> None:
    """However often it was not there, which kafka-python waits the longer for."""
    everything = ClientQuotaFilter.all()
    with open_store("memory:") as store, ExitStack() as stack:
        with running_server(store) as server:
            admin = stack.enter_context(QuotaAdmin(str(server), timeout_ms=20_000))
            assert not admin.describe_client_quotas(everything).entities()
        for _ in range(8):
            with pytest.raises(UnreachableError):
                admin.describe_client_quotas(everything)
        with running_server(store, port=server.port):
            assert not admin.describe_client_quotas(everything).entities()


def test_a_certificate_of_an_address_that_the_cluster_gives(authority: Authority, tmp_path: Path) -> None:
    """The node is named, and so are the names that the certificate has."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store("memory:"))
        relay = stack.enter_context(tls_relay(authority.issue("server", hosts=("localhost",)), tmp_path))
        server = stack.enter_context(running_server(store, advertise=Address("127.0.0.1", relay.port)))
        relay.upstream = (server.host, server.port)
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(authority.certificate_pem())
        way = Way(f"localhost:{relay.port}", ["security.protocol=SSL", f"ssl.truststore.location={trusted}"])
        with admin_of(way, timeout_ms=5_000) as admin, pytest.raises(KquotaError, match="another host") as refused:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert f"node 1 at 127.0.0.1:{relay.port} shows" in str(refused.value)
        assert "it is for localhost" in str(refused.value)
        assert f"the cluster at {way.address} gives this address" in str(refused.value)
