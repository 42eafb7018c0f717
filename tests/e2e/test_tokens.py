"""Tokens for OAUTHBEARER from an endpoint that gives them for a client id and its secret."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import parse_qs

import pytest

from kquota.admin.properties import load_client_properties
from kquota.errors import ConnectionFailedError, InputError, KquotaError, NotAuthorizedError

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class _Endpoint(BaseHTTPRequestHandler):
    """Knows one client, and one path that answers something else."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        login = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        if self.path == "/nonsense":
            self._answer(200, b"<html>")
        elif login != "ops:hunter2":
            self._answer(401, b"{}")
        else:
            granted = {"access_token": f"token of {form['grant_type'][0]} for {form['scope'][0]}", "expires_in": 60}
            self._answer(200, json.dumps(granted).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def token(url: str, secret: str = "hunter2") -> str:
    settings = [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=OAUTHBEARER",
        f'sasl.jaas.config={LOGIN} required clientId="ops" clientSecret="{secret}" scope="kafka";',
        f"sasl.oauthbearer.token.endpoint.url={url}",
    ]
    found: str = load_client_properties(None, settings).connection["sasl_oauth_token_provider"]()
    return found


def test_a_token_is_given_for_a_secret(endpoint: str) -> None:
    assert token(f"{endpoint}/token") == "token of client_credentials for kafka"


@pytest.mark.parametrize(
    "path, secret, error, reason",
    [
        ("/token", "wrong", NotAuthorizedError, "no token: HTTP status 401"),
        ("/nonsense", "hunter2", ConnectionFailedError, "gave no token"),
    ],
)
def test_no_token_is_told_by_its_reason(
    endpoint: str, path: str, secret: str, error: type[KquotaError], reason: str
) -> None:
    """Without the secret."""
    with pytest.raises(error, match=reason) as refused:
        token(endpoint + path, secret)
    assert "hunter2" not in str(refused.value)


def test_an_endpoint_is_a_web_address() -> None:
    with pytest.raises(InputError, match="http or https"):
        token("file:///etc/passwd")
