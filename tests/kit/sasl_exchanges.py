"""SASL exchanges between kafka-python as the client and a scripted broker, past an observer.

Frames are made by kio, so that what reads them is checked against somebody else's idea of them.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import importlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kquota.gateway.identity.sasl_observer import SaslObserver

__all__ = [
    "CORRELATION_ID",
    "Client",
    "OAuthBearerServer",
    "PlainServer",
    "ScramServer",
    "Server",
    "authenticate",
    "authenticate_request",
    "authenticate_response",
    "escaped",
    "handshake",
    "handshake_request",
    "handshake_response",
    "jwt",
    "oauth_client",
    "plain_client",
    "read_authenticate_response",
    "read_handshake_response",
    "scram_client",
]

CORRELATION_ID: Final = 2_147_483_641
MECHANISMS: Final = ("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Refused(Exception):
    """A broker does not accept a token."""


class Client(Protocol):
    """A mechanism of kafka-python."""

    def auth_bytes(self) -> bytes: ...
    def receive(self, auth_bytes: bytes) -> object: ...
    def is_done(self) -> bool: ...


class Server(Protocol):
    """A broker's side of a mechanism; `user` is whom it accepted."""

    user: str | None

    def answer(self, token: bytes) -> bytes:
        """Raises Refused."""


def plain_client(user: str, password: str) -> Client:
    client: Client = SaslMechanismPlain(sasl_plain_username=user, sasl_plain_password=password)
    return client


def scram_client(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Client:
    """kafka-python sends a name as it is given: it is to be :func:`escaped`."""
    client: Client = SaslMechanismScram(
        sasl_plain_username=user, sasl_plain_password=password, sasl_mechanism=mechanism
    )
    return client


def oauth_client(token: str, **extensions: str) -> Client:
    class Provider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python carries no types
        def token(self) -> str:
            return token

        def extensions(self) -> dict[str, str]:
            return extensions

    client: Client = SaslMechanismOAuth(sasl_oauth_token_provider=Provider())
    return client


def escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def jwt(claims: Mapping[str, object], *, alg: str = "none", signature: str = "", padding: bool = False) -> str:
    def part(value: object) -> str:
        encoded = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
        return encoded if padding else encoded.rstrip("=")

    return f"{part({'alg': alg})}.{part(claims)}.{signature}"


class PlainServer:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.passwords = passwords
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:
        authzid, user, password = token.decode().split("\0")
        if authzid not in ("", user) or self.passwords.get(user) != password:
            raise Refused
        self.user = user
        return b""


class ScramServer:
    """RFC 5802, with a credential that is derived when it is asked for."""

    def __init__(self, passwords: Mapping[str, str], mechanism: str = "SCRAM-SHA-256") -> None:
        self.passwords = passwords
        self.hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self.user: str | None = None
        self._salted = b""
        self._claimed = ""
        self._messages: list[bytes] = []

    def answer(self, token: bytes) -> bytes:
        return self._final(token) if self._messages else self._first(token)

    def _first(self, token: bytes) -> bytes:
        bare = token.removeprefix(b"n,,")
        fields = dict(part.split("=", 1) for part in bare.decode().split(","))
        self._claimed = fields["n"].replace("=2C", ",").replace("=3D", "=")
        password = self.passwords.get(self._claimed)
        if password is None:
            raise Refused
        self._salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), b"salt", 1)
        first = f"r={fields['r']}server,s={base64.b64encode(b'salt').decode()},i=1".encode()
        self._messages = [bare, first]
        return first

    def _final(self, token: bytes) -> bytes:
        without_proof, _, proof = token.rpartition(b",p=")
        signed = b",".join([*self._messages, without_proof])
        client_key = self._hmac(self._salted, b"Client Key")
        signature = self._hmac(hashlib.new(self.hash, client_key).digest(), signed)
        if bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) != client_key:
            raise Refused
        self.user = self._claimed
        return b"v=" + base64.b64encode(self._hmac(self._hmac(self._salted, b"Server Key"), signed))

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.hash).digest()


class OAuthBearerServer:
    """`validate` is given the token, and gives the user, or None."""

    def __init__(self, validate: Callable[[str], str | None]) -> None:
        self.validate = validate
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:
        if token == b"\x01":
            raise Refused
        self.user = self.validate(token.split(b"\x01")[1].removeprefix(b"auth=Bearer ").decode())
        return b'{"status":"invalid_token"}' if self.user is None else b""


def handshake_request(mechanism: str, version: int = 1, client_id: str | None = "a client") -> bytes:
    return _request("sasl_handshake", version, client_id, mechanism=mechanism)


def handshake_response(code: int = 0, version: int = 1, mechanisms: tuple[str, ...] = MECHANISMS) -> bytes:
    return _response("sasl_handshake", version, error_code=ErrorCode(code), mechanisms=mechanisms)


def authenticate_request(token: bytes, version: int = 2, client_id: str | None = "a client") -> bytes:
    return _request("sasl_authenticate", version, client_id, auth_bytes=token)


def authenticate_response(
    token: bytes, code: int = 0, version: int = 2, message: str | None = None, lifetime_s: int = 3600
) -> bytes:
    lifetime = {"session_lifetime": datetime.timedelta(seconds=lifetime_s)} if version else {}
    return _response(
        "sasl_authenticate", version, error_code=ErrorCode(code), error_message=message, auth_bytes=token, **lifetime
    )


def handshake(observer: SaslObserver, mechanism: str, *, version: int = 1, code: int = 0) -> None:
    observer.handshake_request(handshake_request(mechanism, version), version)
    observer.handshake_response(handshake_response(code, version), version)


def authenticate(
    observer: SaslObserver, mechanism: str, client: Client, server: Server, *, version: int = 2, raw: bool = False
) -> bool:
    """A whole exchange past the observer; whether the broker accepted. Nobody is believed before it did."""
    before = observer.principal
    handshake(observer, mechanism, version=0 if raw else 1)
    while True:
        assert observer.expects_raw_tokens is raw
        assert observer.principal is before
        token = client.auth_bytes()
        if raw:
            observer.raw_request(token)
        else:
            observer.authenticate_request(authenticate_request(token, version), version)
        assert observer.principal is before
        try:
            answer = server.answer(token)
        except Refused:
            if not raw:
                observer.authenticate_response(authenticate_response(b"", 58, version, "no"), version)
            return False
        if raw:
            observer.raw_response(answer)
        else:
            observer.authenticate_response(authenticate_response(answer, 0, version), version)
        client.receive(answer)
        if client.is_done():
            return True


def _request(api: str, version: int, client_id: str | None, **fields: Any) -> bytes:
    kind = _kio(api, version, "Request")
    header = kind.__header_schema__
    return _bytes(
        header(
            request_api_key=kind.__api_key__,
            request_api_version=version,
            correlation_id=CORRELATION_ID,
            client_id=client_id,
        )
    ) + _bytes(kind(**fields))


def _response(api: str, version: int, **fields: Any) -> bytes:
    kind = _kio(api, version, "Response")
    return _bytes(kind.__header_schema__(correlation_id=CORRELATION_ID)) + _bytes(kind(**fields))


def _kio(api: str, version: int, part: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{part.lower()}")
    return getattr(module, "".join(word.title() for word in api.split("_")) + part)


def _bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read_handshake_response(frame: bytes | None, version: int) -> tuple[int, int, tuple[str, ...]]:
    """Of a frame with its size: correlation id, error code, mechanisms."""
    correlation_id, found = _read("sasl_handshake", frame, version)
    return correlation_id, found.error_code.value, found.mechanisms


def read_authenticate_response(frame: bytes | None, version: int) -> tuple[int, int, str, bytes]:
    """Of a frame with its size: correlation id, error code, message, token."""
    correlation_id, found = _read("sasl_authenticate", frame, version)
    return correlation_id, found.error_code.value, found.error_message, found.auth_bytes


def _read(api: str, frame: bytes | None, version: int) -> tuple[int, Any]:
    assert frame is not None
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    kind = _kio(api, version, "Response")
    header, size = entity_reader(kind.__header_schema__)(frame, 4)
    found, body_size = entity_reader(kind)(frame, 4 + size)
    assert 4 + size + body_size == len(frame)
    return header.correlation_id, found
