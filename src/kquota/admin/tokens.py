"""Tokens for OAUTHBEARER: from a token endpoint, or unsecured ones for trials."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.error import URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from kquota.clock import SystemClock
from kquota.errors import ConnectionFailedError, InputError, NotAuthorizedError

__all__ = ["client_credentials_token", "unsecured_token"]

_TIMEOUT_S: Final = 10.0
_LIFETIME_S: Final = 3600
_REFUSED: Final = (400, 401, 403)


def unsecured_token(claims: Mapping[str, str]) -> str:
    """A token that nobody signed: only brokers that are set up for trials take it (KIP-255)."""
    now_s = SystemClock().now_ms() // 1000
    parts = {"alg": "none"}, {**claims, "iat": now_s, "exp": now_s + _LIFETIME_S}
    return ".".join([*(_base64url(json.dumps(part).encode()) for part in parts), ""])


def client_credentials_token(url: str, client_id: str, secret: str, scope: str | None, tls: ssl.SSLContext) -> str:
    """A token that the endpoint gives for a client id and its secret (RFC 6749, 4.4).

    :raises NotAuthorizedError: the endpoint refuses the client.
    :raises ConnectionFailedError: the endpoint cannot be reached, or answers something else.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"{url}: the token endpoint must be an http or https address")
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    login = b64encode(f"{quote(client_id)}:{quote(secret)}".encode()).decode()
    request = Request(url, urlencode(form).encode(), {"Authorization": f"Basic {login}"})  # noqa: S310 (checked above)
    try:
        with urlopen(request, timeout=_TIMEOUT_S, context=tls) as answer:  # noqa: S310 (checked above)
            token = json.load(answer)["access_token"]
    except URLError as error:
        status = getattr(error, "code", None)
        if status in _REFUSED:
            raise NotAuthorizedError(f"{url} gives client {client_id} no token: HTTP status {status}") from error
        raise ConnectionFailedError(f"{url} gave no token: {error.reason}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConnectionFailedError(f"{url} gave no token: {error!r}") from error
    return str(token)


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
