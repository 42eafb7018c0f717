"""Raw Kafka frames: what is sent and what comes back, byte for byte.

Bodies are encoded by kio, a codec that is not this project's own. The versions that Kafka 4 dropped, and kio with
it, are cut out of the lowest one it knows.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import hmac
import io
import itertools
import json
import secrets
import socket
import struct
import typing
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
SASL_AUTHENTICATE: Final = 36

FIRST_CORRELATION_ID: Final = (
    1_000_000  # far from the ids of the broker's own clients, so that a log line tells whose it is
)
_correlation_ids = itertools.count(FIRST_CORRELATION_ID)


def encode(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    """The body of a request. ``values`` may hold fields that this version does not have."""
    match (api_key, version):
        case (0, 0 | 1 | 2):
            return encode(api_key, 3, {**values, "transactional_id": None})[2:]
        case (1, 3):
            body = encode(api_key, 4, values)
            return body[:16] + body[17:]  # without isolation_level
        case (1, 0 | 1 | 2):
            body = encode(api_key, 4, values)
            return body[:12] + body[17:]  # nor max_bytes
        case (19, 0):
            return encode(api_key, 2, values)[:-1]  # without validate_only
        case (19, 1):
            return encode(api_key, 2, values)
        case (20, 0):
            return encode(api_key, 1, values)
        case _:
            return _encode(api_key, version, values)


def _encode(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    schema = load_request_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, _entity(schema, values))
    return buffer.getvalue()


def decode(api_key: int, version: int, body: bytes) -> Any:
    """kio's value of a response body."""
    schema = load_response_schema(api_key, version)
    value, size = entity_reader(schema)(body, 0)
    assert size == len(body), (api_key, version, size, len(body))
    return value


def is_flexible(api_key: int, version: int) -> bool:
    lowest = {PRODUCE: 3, FETCH: 4, CREATE_TOPICS: 2, DELETE_TOPICS: 1}.get(api_key, version)
    return bool(load_request_schema(api_key, max(version, lowest)).__flexible__)


def _entity(schema: Any, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(schema)
    given = {
        field.name: _value(hints[field.name], values[field.name])
        for field in dataclasses.fields(schema)
        if field.name in values
    }
    return schema(**given)


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        (item,) = (one for one in _tuple_arguments(hint) if one is not Ellipsis)
        return tuple(_value(item, one) for one in value)
    if isinstance(value, Mapping):
        return _entity(hint, value)
    if isinstance(value, int) and isinstance(hint, type) and issubclass(hint, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    return value


def _tuple_arguments(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)
    return next(typing.get_args(one) for one in typing.get_args(hint) if typing.get_origin(one) is tuple)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer. ``response`` is the body, None where the broker does not answer (acks = 0)."""

    api_key: int
    version: int
    correlation_id: int
    request_frame_bytes: int  # without the 4 size bytes
    response: bytes | None

    def decoded(self) -> Any:
        assert self.response is not None
        return decode(self.api_key, self.version, self.response)


class Connection:
    """A connection that sends frames as given and reads the answers in order. Use as a context manager."""

    def __init__(self, address: str, *, user: str | None = None, password: str | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self.exchanges: list[Exchange] = []
        if user is not None:
            self._authenticate(user, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def request(
        self, api_key: int, version: int, values: Mapping[str, Any], *, client_id: str | None, answered: bool = True
    ) -> Exchange:
        """Send one request and wait for its answer, unless it is one that has none."""
        correlation_id = next(_correlation_ids)
        name = b"" if client_id is None else client_id.encode()
        flexible = is_flexible(api_key, version)
        head = struct.pack(">hhih", api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
        frame = head + (b"\0" if flexible else b"") + encode(api_key, version, values)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        response = None
        if answered:
            (size,) = struct.unpack(">i", self._read(4))
            answer = self._read(size)
            assert struct.unpack(">i", answer[:4]) == (correlation_id,)
            # ApiVersions answers with the old header whatever its version.
            response = answer[5:] if flexible and api_key != API_VERSIONS else answer[4:]
        exchange = Exchange(api_key, version, correlation_id, len(frame), response)
        self.exchanges.append(exchange)
        return exchange

    def ask(self, frame: bytes) -> bytes:
        """Send a whole request, with its size; its answer, without."""
        self._socket.sendall(frame)
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError(f"the broker closed the connection after {self.exchanges[-1:]}")
            parts += part
        return bytes(parts)

    def _authenticate(self, user: str, password: str | None) -> None:
        """By SCRAM-SHA-256 (RFC 5802), enough of it for a broker that is trusted; without a password by a token."""
        mechanism = "OAUTHBEARER" if password is None else "SCRAM-SHA-256"
        self.request(SASL_HANDSHAKE, 1, {"mechanism": mechanism}, client_id=None)
        if password is None:
            now_s = int(datetime.datetime.now(datetime.UTC).timestamp())
            claims = {"sub": user, "iat": now_s, "exp": now_s + 3600}
            token = ".".join(_base64url(json.dumps(part)) for part in ({"alg": "none"}, claims))
            self._token(f"n,,\x01auth=Bearer {token}.\x01\x01")
            return
        nonce = secrets.token_hex(12)
        name = user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={nonce}"
        server_first = self._token(f"n,,{first}")
        challenge = dict(part.split("=", 1) for part in server_first.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(challenge["s"]), int(challenge["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={challenge['r']}"
        signed = f"{first},{server_first},{last}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._token(f"{last},p={base64.b64encode(proof).decode()}")

    def _token(self, token: str) -> str:
        answer = self.request(SASL_AUTHENTICATE, 1, {"auth_bytes": token.encode()}, client_id=None).decoded()
        assert answer.error_code.value == 0, answer
        return bytes(answer.auth_bytes).decode()


def _base64url(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def record_batch(
    size_bytes: int, *, producer_id: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False
) -> bytes:
    """A batch (magic 2) of exactly this size with one record, or with two where one cannot have that size."""
    now_ms = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    attributes = 0x10 if transactional else 0
    for records in _records_of(size_bytes - 61):
        last = len(records) - 1
        head = struct.pack(">hiqqqhii", attributes, last, now_ms, now_ms, producer_id, epoch, sequence, len(records))
        body = head + b"".join(records)
        return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c.crc32c(body)) + body
    raise ValueError(f"no batch has {size_bytes} bytes")


def message_set(version: int, size_bytes: int) -> bytes:
    """A message of the format that Produce 0-1 (magic 0) or 2 (magic 1) must carry, of exactly this size."""
    magic = 1 if version == 2 else 0
    stamp = struct.pack(">q", int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)) if magic else b""
    value = b"v" * (size_bytes - 26 - len(stamp))
    body = struct.pack(">bb", magic, 0) + stamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def _records_of(size_bytes: int) -> Iterator[list[bytes]]:
    """Records of this size in sum. One alone misses the sizes at which its own length grows by a byte."""
    small = _record(0, b"")
    for before in ([], [small]):
        left = size_bytes - sum(map(len, before))
        for length in range(max(left - 20, 0), left):
            record = _record(len(before), b"v" * length)
            if len(record) == left:
                yield [*before, record]


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\0\0" + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    unsigned = (number << 1) ^ (number >> 31)
    out = bytearray()
    while unsigned > 0x7F:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)
