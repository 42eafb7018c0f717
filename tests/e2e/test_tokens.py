"""Tokens for OAUTHBEARER from an endpoint that gives them for a client id and its secret."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs

import pytest

from kquota.admin.properties import load_client_properties
from kquota.admin.tokens import check_token_endpoint
from kquota.errors import ConnectionFailedError, InputError, KquotaError, NotAuthorizedError

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class _Endpoint(BaseHTTPRequestHandler):
    """Knows one client; one path answers something else, one leads to another host, which notes what it is sent."""

    stolen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.stolen.append(str(self.headers["Authorization"]))
        self._answer(200, b'{"access_token": "stolen"}')

    def do_POST(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(int(self.path[-3:]))
            self.send_header("Location", f"http://localhost:{self.server.server_port}/steal")  # type: ignore[attr-defined]
            self.end_headers()
            return
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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(endpoint: str, status: int) -> None:
    """The secret goes to the address that was set, and to no other."""
    with pytest.raises(ConnectionFailedError, match=f"HTTP status {status}, which leads to another address"):
        token(f"{endpoint}/moved/{status}")
    assert _Endpoint.stolen == []


def test_this_machine_is_asked_without_a_proxy(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would read the secret."""
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    assert token(f"{endpoint}/token").startswith("token of")


@pytest.mark.parametrize(
    "url, reason",
    [
        ("file:///etc/passwd", "web address"),
        ("http://login.example/token", "https address"),
        ("http://127.0.0.1.login.example/token", "https address"),
        ("http://192.0.2.1/token?client_secret=hunter2", "https address"),
        ("https://ops:hunter2@login.example/token", "user name or password"),
        ("https://ops:hunter2@127.0.0.1:port/", "web address"),
        ("https:///token", "web address"),
        ("https://login.example/a hunter2", "web address"),
        ("hunter2", "web address"),
    ],
)
def test_an_endpoint_that_may_not_have_a_secret_is_refused(url: str, reason: str) -> None:
    """When the settings are read, by the name of the setting and without its value."""
    with pytest.raises(InputError, match=f"-X sasl.oauthbearer.token.endpoint.url: .*{reason}") as refused:
        token(url)
    assert "hunter2" not in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_http_is_taken_for_this_machine(host: str) -> None:
    check_token_endpoint(f"http://{host}:1/token")
