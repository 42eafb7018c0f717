"""SaslHandshake (17) and SaslAuthenticate (36) as bytes: what the gateway reads of them, and its own refusals.

What reads takes a frame without its four size bytes; what writes returns one with them. Any bytes give a value or
:class:`~kquota.errors.ProtocolError`, in time and memory linear in them. No error quotes a token.
Source: Kafka's ``SaslHandshakeRequest.json``, ``SaslAuthenticateRequest.json`` and their responses; KIP-43, KIP-152.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 - a class
from typing import Final

from kquota.errors import KafkaErrorCode, MalformedMessageError, UnsupportedVersionError
from kquota.wire.apis import read_header
from kquota.wire.primitives import AS_JAVA, compact_text, read_compact_length, skip_tags, text

__all__ = [
    "MAX_SASL_FRAME_BYTES",
    "SASL_AUTHENTICATE_KEY",
    "SASL_HANDSHAKE_KEY",
    "is_gssapi_token",
    "read_authenticate_request",
    "read_authenticate_response",
    "read_handshake_request",
    "read_handshake_response",
    "write_authenticate_refusal",
    "write_handshake_refusal",
]

SASL_HANDSHAKE_KEY: Final = 17
SASL_AUTHENTICATE_KEY: Final = 36
MAX_SASL_FRAME_BYTES: Final = 512 * 1024
"""The largest frame of a SASL exchange, in either direction: a broker's ``sasl.server.max.receive.size``."""

_MAX_HANDSHAKE_VERSION: Final = 1
_MAX_AUTHENTICATE_VERSION: Final = 2
_FLEXIBLE_AUTHENTICATE: Final = 2
_LIFETIME_SINCE: Final = 1

_i16 = Layout(">h")
_i32 = Layout(">i")
_GSSAPI_TAG: Final = 0x60


def is_gssapi_token(frame: bytes) -> bool:
    """Whether the first frame of a connection is a bare GSSAPI token, as clients of Kafka 0.9 send it.

    Read as a request, its first two bytes would be an API key of more than 24,000, which no API has.
    """
    return frame[:1] == bytes([_GSSAPI_TAG])


def read_handshake_request(frame: bytes, version: int) -> tuple[int, str]:
    """The correlation id and the mechanism that the client asks for.

    :raises ProtocolError: these bytes are no such request, or the version is not spoken.
    """
    header, at = read_header(frame)
    if not 0 <= version <= _MAX_HANDSHAKE_VERSION:
        raise UnsupportedVersionError(SASL_HANDSHAKE_KEY, version, header.correlation_id)
    try:
        mechanism, _ = _text(frame, at)
    except (LayoutError, IndexError):
        raise MalformedMessageError("SaslHandshakeRequest ends too early") from None
    return header.correlation_id, mechanism


def read_handshake_response(frame: bytes) -> tuple[int, list[str]]:
    """The error code, and the mechanisms that the broker has.

    :raises MalformedMessageError: these bytes are no such response.
    """
    try:
        [code] = _i16.unpack_from(frame, 4)
        [count] = _i32.unpack_from(frame, 6)
        mechanisms, at = [], 10
        # Each takes two bytes at least, so a list cannot grow beyond what is there.
        for _ in range(count):
            mechanism, at = _text(frame, at)
            mechanisms.append(mechanism)
    except (LayoutError, IndexError):
        raise MalformedMessageError("SaslHandshakeResponse ends too early") from None
    return code, mechanisms


def read_authenticate_request(frame: bytes, version: int) -> tuple[int, bytes]:
    """The correlation id and the token, which is a secret.

    :raises ProtocolError: these bytes are no such request, or the version is not spoken.
    """
    header, at = read_header(frame)
    if not 0 <= version <= _MAX_AUTHENTICATE_VERSION:
        raise UnsupportedVersionError(SASL_AUTHENTICATE_KEY, version, header.correlation_id)
    try:
        if version >= _FLEXIBLE_AUTHENTICATE:
            at = skip_tags(frame, at)
        return header.correlation_id, _bytes(frame, at, version)
    except (LayoutError, IndexError):
        raise MalformedMessageError("SaslAuthenticateRequest ends too early") from None


def read_authenticate_response(frame: bytes, version: int) -> tuple[int, bytes]:
    """The error code, and the broker's token, which is empty where the code is not 0.

    :raises ProtocolError: these bytes are no such response, or the version is not spoken.
    """
    if not 0 <= version <= _MAX_AUTHENTICATE_VERSION:
        raise UnsupportedVersionError(SASL_AUTHENTICATE_KEY, version, 0)
    flexible = version >= _FLEXIBLE_AUTHENTICATE
    try:
        at = skip_tags(frame, 4) if flexible else 4
        [code] = _i16.unpack_from(frame, at)
        if code != KafkaErrorCode.NONE:
            return code, b""
        at += 2
        if flexible:
            size, at = read_compact_length(frame, at)
        else:
            [size] = _i16.unpack_from(frame, at)
            at += 2
        return code, _bytes(frame, at + max(size, 0), version)
    except (LayoutError, IndexError):
        raise MalformedMessageError("SaslAuthenticateResponse ends too early") from None


def write_handshake_refusal(correlation_id: int, mechanisms: list[str]) -> bytes:
    """A response that refuses the mechanism, and names those that can be had; as a frame, its size included."""
    body = _i16.pack(KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM) + _i32.pack(len(mechanisms))
    return _frame(correlation_id, b"", body + b"".join(map(text, mechanisms)))


def write_authenticate_refusal(correlation_id: int, version: int, message: str) -> bytes:
    """A response that refuses the client, for good: clients do not try again. As a frame, its size included."""
    flexible = version >= _FLEXIBLE_AUTHENTICATE
    body = _i16.pack(KafkaErrorCode.SASL_AUTHENTICATION_FAILED)
    body += compact_text(message) + b"\x01" if flexible else text(message) + _i32.pack(0)
    if version >= _LIFETIME_SINCE:
        body += bytes(8)
    return _frame(correlation_id, b"\0" if flexible else b"", body + (b"\0" if flexible else b""))


def _frame(correlation_id: int, tags: bytes, body: bytes) -> bytes:
    return _i32.pack(4 + len(tags) + len(body)) + _i32.pack(correlation_id) + tags + body


def _text(frame: bytes, at: int) -> tuple[str, int]:
    [size] = _i16.unpack_from(frame, at)
    start = at + 2
    end = start + size
    if size < 0 or end > len(frame):
        raise IndexError
    return frame[start:end].decode("utf-8", AS_JAVA), end


def _bytes(frame: bytes, at: int, version: int) -> bytes:
    if version >= _FLEXIBLE_AUTHENTICATE:
        size, at = read_compact_length(frame, at)
    else:
        [size] = _i32.unpack_from(frame, at)
        at += 4
    if size < 0 or at + size > len(frame):
        raise IndexError
    return frame[at : at + size]
