"""SASL mechanisms as somebody sees them who reads along: whom a client says it is, and when the broker agrees.

Sans-I/O. One object per exchange: tokens go in as they pass, in both directions; none is kept, only the name. A name
that was read counts for nothing before the broker's last token was a success.
Source: Kafka's ``PlainSaslServer``, ``ScramSaslServer`` with ``ScramMessages``, ``OAuthBearerSaslServer`` with
``OAuthBearerClientInitialResponse``, ``OAuthBearerUnsecuredJws`` and ``BrokerJwtValidator``; RFC 4616, 5802, 7628.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from kquota.errors import ProtocolError
from kquota.wire.primitives import AS_JAVA

__all__ = [
    "READABLE_MECHANISMS",
    "Exchange",
    "Identity",
    "OAuthBearerExchange",
    "PlainExchange",
    "Progress",
    "ScramExchange",
    "UnknownUser",
    "UnreadableExchange",
    "exchange_of",
]

READABLE_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
GSSAPI: Final = "GSSAPI"


@dataclass(frozen=True, slots=True)
class UnknownUser:
    """A client whose name is not among the bytes that it sends; `reason` says why, without any of them."""

    reason: str


Identity: TypeAlias = str | UnknownUser | None
"""The authorization id; None before there is one, and where the client's token is not what the mechanism asks for: a
broker refuses it.
"""


class Progress(Enum):
    """What a token of the broker says about an exchange."""

    CONTINUES = "continues"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Exchange(Protocol):
    """One authentication by one mechanism. Tokens are without their sizes, and without Kafka's headers and errors."""

    @property
    def identity(self) -> Identity:
        """Whom the client says it is."""

    def client_token(self, token: bytes) -> None:
        """Take a token of the client; raises ProtocolError for one more than the mechanism has, else nothing."""

    def server_token(self, token: bytes) -> Progress:
        """Take a token of the broker; raises ProtocolError for one that the mechanism does not have."""


def exchange_of(mechanism: str, sub_claim_name: str) -> Exchange:
    """A new exchange. `sub_claim_name` is the claim of an OAUTHBEARER token that names the user."""
    match mechanism:
        case "PLAIN":
            return PlainExchange()
        case "SCRAM-SHA-256" | "SCRAM-SHA-512":
            return ScramExchange()
        case "OAUTHBEARER":
            return OAuthBearerExchange(sub_claim_name)
        case _:
            return UnreadableExchange(mechanism)


class PlainExchange:
    """One token, ``[authzid] NUL authcid NUL password``, and an empty answer."""

    __slots__ = ("_has_token", "identity")

    def __init__(self) -> None:
        self.identity: Identity = None
        self._has_token = False

    def client_token(self, token: bytes) -> None:
        """Read the name; the password is not so much as copied."""
        if self._has_token:
            raise ProtocolError("a second token of PLAIN, which has one")
        self._has_token = True
        first = token.find(b"\0")
        second = token.find(b"\0", first + 1)
        if first < 0 or second < 0 or token.find(b"\0", second + 1) >= 0:
            return
        authorization_id = token[:first].decode("utf-8", AS_JAVA)
        user = token[first + 1 : second].decode("utf-8", AS_JAVA)
        self.identity = user if user and authorization_id in ("", user) else None

    def server_token(self, token: bytes) -> Progress:
        """Only an empty one is known."""
        if token:
            raise ProtocolError("the broker answers PLAIN with a token, which is to be empty")
        return Progress.SUCCEEDED


class ScramExchange:
    """Two tokens each way; the first of the client names the user, the second of the broker says how it ended."""

    __slots__ = ("_tokens", "identity")

    def __init__(self) -> None:
        self.identity: Identity = None
        self._tokens = 0

    def client_token(self, token: bytes) -> None:
        """Read the name from the first one."""
        self._tokens += 1
        if self._tokens == 1:
            self.identity = _scram_user(token)
        elif self._tokens > 2:
            raise ProtocolError("a third token of SCRAM, which has two")

    def server_token(self, token: bytes) -> Progress:
        """The server's first message, then its final one: ``v=`` is success, ``e=`` is failure."""
        if token.startswith(b"e="):
            return Progress.FAILED
        if self._tokens == 1 and token.startswith((b"r=", b"m=")):
            return Progress.CONTINUES
        if self._tokens == 2 and token.startswith(b"v="):
            return Progress.SUCCEEDED
        raise ProtocolError(f"the broker's token {self._tokens} is not what SCRAM has there")


class OAuthBearerExchange:
    """One token, which holds a bearer token, and an empty answer; any other answer is an error."""

    __slots__ = ("_sub_claim_name", "identity")

    def __init__(self, sub_claim_name: str) -> None:
        self.identity: Identity = None
        self._sub_claim_name = sub_claim_name

    def client_token(self, token: bytes) -> None:
        r"""Read the name. After an error a client sends ``\x01``, but a broker would take another bearer token."""
        self.identity = _bearer(token, self._sub_claim_name)

    def server_token(self, token: bytes) -> Progress:
        """An error in JSON does not end the exchange: the client answers it, and the broker fails that."""
        return Progress.CONTINUES if token else Progress.SUCCEEDED


class UnreadableExchange:
    """A mechanism that does not show whom it authenticates, such as GSSAPI.

    GSSAPI ends with an empty token. Of other mechanisms nothing is known, so the first answer without an error is taken
    for their success; a client that sends requests too early is disconnected by the broker.
    """

    __slots__ = ("_is_gssapi", "identity")

    def __init__(self, mechanism: str) -> None:
        self._is_gssapi = mechanism == GSSAPI
        self.identity: Identity = UnknownUser("the mechanism does not show whom it authenticates")

    def client_token(self, token: bytes) -> None:
        """Nothing can be read."""

    def server_token(self, token: bytes) -> Progress:
        """By its length alone."""
        return Progress.CONTINUES if token and self._is_gssapi else Progress.SUCCEEDED


def _scram_user(token: bytes) -> Identity:
    """Of ``n,[a=authzid],[m=...,]n=<user>,r=<nonce>[,<key>=<value>]*``.

    Kafka takes ASCII alone; other servers take all of UTF-8, and so does this.
    """
    parts = token.split(b",")
    name_at = 3 if len(parts) > 2 and parts[2].startswith(b"m=") else 2
    if len(parts) < name_at + 2 or parts[0] != b"n" or not parts[name_at + 1].startswith(b"r="):
        return None
    authorization_id, user = _sasl_name(parts[1], b"a="), _sasl_name(parts[name_at], b"n=")
    if not user or authorization_id not in ("", user):
        return None
    by_token = False
    for extension in parts[name_at + 2 :]:
        key, _, value = extension.partition(b"=")
        if key == b"tokenauth":
            by_token = value.lower() == b"true"  # the last one counts, as in Java
    return UnknownUser("a delegation token does not name its owner") if by_token else user


def _sasl_name(part: bytes, prefix: bytes) -> str | None:
    """A name with ``=2C`` for a comma and ``=3D`` for an equals sign; empty if the part is, None if it is none."""
    if not part.startswith(prefix):
        return None if part else ""
    name = part[len(prefix) :]
    if name.count(b"=") != name.count(b"=2C") + name.count(b"=3D"):
        return None
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8", AS_JAVA)


def _bearer(token: bytes, sub_claim_name: str) -> Identity:
    r"""Of ``n,[a=authzid],\x01[<key>=<value>\x01]*\x01``, where the value of ``auth`` is ``Bearer <token>``."""
    head, *pairs = token.split(b"\x01")
    authorization_id = head[2:-1]
    if head[:2] != b"n," or head[-1:] != b"," or len(head) < 3 or len(pairs) < 2 or pairs[-1] or pairs[-2]:
        return None
    auth = None
    for pair in pairs[:-2]:
        key, equals, value = pair.partition(b"=")
        if not equals:
            return None
        if key == b"auth":
            auth = value  # the last one counts, as in Java
    if auth is None:
        return None
    scheme, _, bearer = auth.partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    user = _jwt_user(bearer.strip(b" "), sub_claim_name)
    if isinstance(user, str) and authorization_id not in (b"", b"a=" + user.encode()):
        return None
    return user


def _jwt_user(token: bytes, sub_claim_name: str) -> str | UnknownUser:
    """The claim that names the user. A signature is not looked at: the broker does that."""
    parts = token.split(b".", 4)
    header, claims = (_json_object(parts[0]), _json_object(parts[1])) if len(parts) in (2, 3) else (None, None)
    if header is None or claims is None:
        return UnknownUser("the bearer token is not a JWT that can be read")
    user, is_unsecured = _string(claims.get(sub_claim_name)), _string(header.get("alg")) == "none"
    if user is not None and not is_unsecured:
        user = user.strip(_JAVA_SPACE)  # Kafka does so with the claims of signed tokens only
    if not user or not user.strip(_JAVA_SPACE):
        return UnknownUser(f"the bearer token has no text as its claim {sub_claim_name}")
    return user


_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))
"""What ``String.trim`` takes away in Java."""


def _json_object(part: bytes) -> dict[str, Any] | None:
    """An object in JSON in base64url, with or without padding; its values stay as they are, to be read one by one."""
    try:
        decoded = base64.b64decode(part.rstrip(b"=") + b"=" * (-len(part.rstrip(b"=")) % 4), b"-_", validate=True)
        found: dict[str, Any] = msgspec.json.decode(decoded, type=dict[str, msgspec.Raw])
    except (ValueError, binascii.Error, RecursionError):
        return None
    return found


def _string(raw: Any) -> str | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=str)
    except (ValueError, RecursionError):
        return None
