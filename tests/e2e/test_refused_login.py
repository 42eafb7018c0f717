"""A broker that refuses a login, and ends the connection with the same breath."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota.admin import QuotaAdmin
from kquota.errors import NotAuthorizedError
from kquota.quotas import ClientQuotaFilter
from kquota.wire.apis import API_VERSIONS, write_response
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.kit.tls import Authority

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
SPOKEN = ApiVersionsResponse(0, [ApiVersion(18, 0, 3), ApiVersion(SASL_HANDSHAKE, 1, 1), ApiVersion(36, 0, 0)])
PASSWORD = "wrong-secret"
LOGIN: dict[str, Any] = {
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": PASSWORD,
}


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class RefusingBroker:
    """The answer that refuses and the end of the connection are one packet: no client sees the first alone.

    Kafka's brokers send the one right before the other, so that any client that is not quick finds it so.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.logins = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), client:
                self._refuse(client if self._context is None else self._context.wrap_socket(client, server_side=True))

    def _refuse(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as sent:
            while size := sent.read(4):
                api_key, version, correlation_id = struct.unpack_from(">hhi", sent.read(*struct.unpack(">i", size)))
                if api_key == SASL_AUTHENTICATE:
                    self.logins += 1
                    # Until it is closed nothing leaves it.
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                    refusal = struct.pack(">h", 58) + _string("invalid credentials") + struct.pack(">i", 0)
                    client.sendall(struct.pack(">ii", 4 + len(refusal), correlation_id) + refusal)
                    return
                if api_key == SASL_HANDSHAKE:
                    known = struct.pack(">hi", 0, 1) + _string("PLAIN")
                    client.sendall(struct.pack(">ii", 4 + len(known), correlation_id) + known)
                else:
                    client.sendall(write_response(API_VERSIONS, version, correlation_id, SPOKEN))


@pytest.fixture(params=["plaintext", "tls"])
def refusing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RefusingBroker, dict[str, Any]]]:
    """It, and the settings that lead to it."""
    context, settings = None, {"security_protocol": "SASL_PLAINTEXT"}
    if request.param == "tls":
        authority = Authority()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue("server", hosts=("localhost",)).write_pem(tmp_path / "server.pem"))
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(authority.certificate_pem())
        settings = {"security_protocol": "SASL_SSL", "ssl_cafile": str(trusted)}
    broker = RefusingBroker(context)
    yield broker, settings
    broker.close()


def test_a_refusal_is_heard_though_the_connection_ends_with_it(
    refusing: tuple[RefusingBroker, dict[str, Any]],
) -> None:
    """At the first attempt, as what it is, with the reason and without the password."""
    broker, settings = refusing
    with QuotaAdmin(f"localhost:{broker.port}", timeout_ms=3_000, **settings, **LOGIN) as admin:
        with pytest.raises(NotAuthorizedError, match=r"did not let this client in.*invalid credentials") as error:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert error.value.exit_code == 4
        assert PASSWORD not in str(error.value)
        assert broker.logins == 1
