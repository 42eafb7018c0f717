"""How clients connect to a listener: a properties file with a broker's own names (``--listener-config``).

As of a client's settings, one that has to do with security is honoured or refused, never passed over; others of a
broker's file are left aside. No error quotes a value that may be a secret.
Source: ``SocketServerConfigs``, ``BrokerSecurityConfigs``, ``SslConfigs``, KIP-103 (``listener.name.<name>.``).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal, cast

from kquota.config import read_properties
from kquota.errors import InputError
from kquota.net.principals import PrincipalRules
from kquota.net.tls import ClientAuth, TlsFiles, server_context, tls_files

__all__ = ["ListenerConfig", "SecurityProtocol", "load_listener_config"]

SecurityProtocol = Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"]

_PROTOCOLS: Final = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
_CLIENT_AUTH: Final = ("none", "requested", "required")
_KNOWN: Final = frozenset(
    {
        "security.protocol",
        "sasl.enabled.mechanisms",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_GUARDED: Final = ("ssl.", "sasl.", "security.", "listener.", "principal.")
_HARMLESS: Final = re.compile(
    # What a broker does towards others, and which of Java's own classes it takes.
    r"ssl\.(provider|secure\.random\.implementation|(trustmanager|keymanager)\.algorithm"
    r"|endpoint\.identification\.algorithm|allow\.(dn|san)\.changes)"
    r"|security\.inter\.broker\.protocol|sasl\.mechanism\.(inter\.broker|controller)\.protocol"
)
_BY_THE_BROKER: Final = re.compile(r"sasl\..*")


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """What a client that connects has to speak, and who it is then."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    tls: TlsFiles = field(default_factory=TlsFiles)
    client_auth: ClientAuth = "none"
    """Whether a client with TLS is asked for a certificate, and let in without one."""
    principal_rules: PrincipalRules = field(default_factory=PrincipalRules)
    sasl_mechanisms: tuple[str, ...] = ()
    """Those that clients may use; empty: all that the broker offers."""

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in with SASL."""
        return self.security_protocol.startswith("SASL")

    def tls_context(self) -> ssl.SSLContext | None:
        """What handshakes are done with, from the files as they are now; None without TLS.

        :raises InputError: see :func:`~kquota.net.tls.server_context`.
        """
        return server_context(self.tls, client_auth=self.client_auth) if self.has_tls else None


def load_listener_config(path: str | None, *, listener: str | None = None) -> ListenerConfig:
    """Read a file; None: a listener in plaintext.

    :param listener: the listener's name: its own settings (``listener.name.<name>.``, in lower case) go before those
        without a name, and those of other listeners are left aside.
    :raises InputError: a file that cannot be read, a setting of security that is not offered here, a value that a
        broker would refuse.
    """
    if path is None:
        return ListenerConfig()
    prefix = "" if listener is None else f"listener.name.{listener.lower()}."
    settings = read_properties(path, "the listener's settings")
    try:
        _check_names(settings, prefix)
        return _config(settings, prefix)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _check_names(settings: Mapping[str, str], prefix: str) -> None:
    for key in settings:
        name = key.removeprefix(prefix) if prefix else key
        if name.startswith("listener.name.") and prefix:
            continue
        if not name.startswith(_GUARDED) or name in _KNOWN or _HARMLESS.fullmatch(name):
            continue
        if name.startswith("listener.name."):
            raise InputError(f"{key}: this file is of one listener: write the setting without the listener's name")
        close = get_close_matches(name, _KNOWN, 1, 0.85)
        if close:
            raise InputError(f"{key}: there is no such setting; did you mean {close[0]}?")
        if _BY_THE_BROKER.fullmatch(name):
            raise InputError(f"{key}: leave it out: clients are authenticated by the broker, which has this setting")
        raise InputError(f"{key}: kquota does not offer this setting; leave it out if that is safe")


def _config(settings: Mapping[str, str], prefix: str) -> ListenerConfig:
    def text(key: str, default: str) -> str:
        return settings.get(prefix + key, settings.get(key, "")).strip() or default

    protocol = text("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise InputError(f"security.protocol: one of {', '.join(_PROTOCOLS)} is expected")
    auth = text("ssl.client.auth", "none").lower()
    if auth not in _CLIENT_AUTH:
        raise InputError(f"ssl.client.auth: one of {', '.join(_CLIENT_AUTH)} is expected")
    if not {"security.protocol", prefix + "security.protocol"} & settings.keys():
        for key in settings:
            if key.removeprefix(prefix) in _KNOWN:
                raise InputError(f"{key} has no effect without security.protocol: set it to SSL, SASL_SSL or another")
    return ListenerConfig(
        security_protocol=cast("SecurityProtocol", protocol),
        tls=tls_files(settings, prefix),
        client_auth=cast("ClientAuth", auth),
        principal_rules=PrincipalRules.parse(text("ssl.principal.mapping.rules", "DEFAULT")),
        sasl_mechanisms=tuple(
            dict.fromkeys(one.strip() for one in text("sasl.enabled.mechanisms", "").split(",") if one.strip())
        ),
    )
