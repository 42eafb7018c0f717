"""Tokens for OAUTHBEARER: from a token endpoint, or unsecured ones for trials."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from kquota.admin.servers import is_loopback
from kquota.clock import SystemClock
from kquota.errors import ConnectionFailedError, InputError, NotAuthorizedError

__all__ = ["check_token_endpoint", "client_credentials_token", "unsecured_token"]

_TIMEOUT_S: Final = 10.0
_LIFETIME_S: Final = 3600
_REFUSED: Final = (400, 401, 403)
_REDIRECTS: Final = (301, 302, 303, 307, 308)


def unsecured_token(claims: Mapping[str, str]) -> str:
    """A token that nobody signed: only brokers that are set up for trials take it (KIP-255)."""
    now_s = SystemClock().now_ms() // 1000
    parts = {"alg": "none"}, {**claims, "iat": now_s, "exp": now_s + _LIFETIME_S}
    return ".".join([*(_base64url(json.dumps(part).encode()) for part in parts), ""])


def check_token_endpoint(url: str) -> None:
    """Refuse an address to which a client's secret may not be sent. The address is not quoted: it may hold secrets.

    :raises InputError: it is not https (on this machine http is, too), or holds a login of its own.
    """
    parts = _parts(url)
    if parts is None or not parts.hostname:
        raise InputError("the token endpoint must be a web address, such as https://login.example/token")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "the address of the token endpoint must not hold a user name or password; give clientId and clientSecret "
            "in sasl.jaas.config"
        )
    if not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))):
        raise InputError(
            "the token endpoint must have an https address: over http anybody on the way reads the client's secret "
            "(http is taken for this machine's own addresses alone, such as localhost)"
        )


def _parts(url: str) -> SplitResult | None:
    """What it is made of; None where it is no address."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # read only now, and refused where it is no number
    except ValueError:
        return None
    return parts


def client_credentials_token(url: str, client_id: str, secret: str, scope: str | None, tls: ssl.SSLContext) -> str:
    """A token that the endpoint gives for a client id and its secret (RFC 6749, 4.4).

    :raises InputError: the secret may not be sent to this address.
    :raises NotAuthorizedError: the endpoint refuses the client.
    :raises ConnectionFailedError: the endpoint cannot be reached, or answers something else.
    """
    check_token_endpoint(url)
    endpoint = urlsplit(url)._replace(query="", fragment="").geturl()
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    login = b64encode(f"{quote(client_id)}:{quote(secret)}".encode()).decode()
    request = Request(url, urlencode(form).encode(), {"Authorization": f"Basic {login}"})  # noqa: S310 (checked above)
    try:
        with _opener(url, tls).open(request, timeout=_TIMEOUT_S) as answer:
            token = json.load(answer)["access_token"]
    except HTTPError as error:
        error.close()  # it holds the connection
        status = f"HTTP status {error.code}"
        if error.code in _REFUSED:
            raise NotAuthorizedError(f"{endpoint} gives client {client_id} no token: {status}") from error
        if error.code in _REDIRECTS:
            status += (
                ", which leads to another address: the client's secret is not sent there; where that is right, set "
                "sasl.oauthbearer.token.endpoint.url to it"
            )
        raise ConnectionFailedError(f"{endpoint} gave no token: {status}") from error
    except URLError as error:
        raise ConnectionFailedError(f"{endpoint} gave no token: {error.reason}") from error
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        raise ConnectionFailedError(f"{endpoint} gave no token: {error!r}") from error
    return str(token)


class _NoRedirect(HTTPRedirectHandler):
    """urllib would send the login to whatever host an answer names (python/cpython#77842)."""

    def redirect_request(self, *_arguments: object) -> None:
        """Follow none: the answer is an error then."""


def _opener(url: str, tls: ssl.SSLContext) -> OpenerDirector:
    """What asks this endpoint. A proxy sees nothing of https; what is on this machine is asked without one."""
    proxies = [] if url.lower().startswith("https:") else [ProxyHandler({})]
    return build_opener(_NoRedirect, HTTPSHandler(context=tls), *proxies)


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
