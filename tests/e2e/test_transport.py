"""Requests over every way into a server: the contract of a transport, in plain text and in TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kquota.admin import QuotaAdmin
from kquota.admin.properties import load_client_properties
from kquota.errors import KquotaError
from kquota.quotas import ClientQuotaFilter
from kquota.server.app import Address
from kquota.stores import open_store
from tests.kit.quota_server import running_server
from tests.kit.tls import PASSWORD, Authority, tls_relay
from tests.kit.transport_contract import TransportContract

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
        relay = stack.enter_context(tls_relay(authority.issue("server", hosts=("elsewhere",)), tmp_path))
        server = stack.enter_context(running_server(store, advertise=Address("localhost", relay.port)))
        relay.upstream = (server.host, server.port)
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(authority.certificate_pem())
        way = Way(f"localhost:{relay.port}", ["security.protocol=SSL", f"ssl.truststore.location={trusted}"])
        with admin_of(way, timeout_ms=5_000) as admin, pytest.raises(KquotaError, match="localhost"):
            admin.describe_client_quotas(ClientQuotaFilter.all())
        with admin_of(way, "ssl.endpoint.identification.algorithm=", timeout_ms=20_000) as admin:
            assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities() == {}
