"""The settings of a Java client (``--command-config``, ``-X``) as those of :class:`~kquota.admin.QuotaAdmin`.

A setting that has to do with security is honoured or refused, never passed over. Other settings of Java's clients that
mean nothing here are left aside, so that one file serves kquota and Kafka's own tools. No error quotes a value: any may
be a password, and be it by a slip.
Source: ``CommonClientConfigs``, ``SslConfigs``, ``SaslConfigs``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kquota.admin.tokens import check_token_endpoint, client_credentials_token, unsecured_token
from kquota.config import read_properties
from kquota.errors import InputError
from kquota.net.tls import TlsFiles, client_context, tls_files

__all__ = ["ClientProperties", "load_client_properties"]

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WITH_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (*_WITH_PASSWORD, "OAUTHBEARER", "GSSAPI")
_INT_MAX: Final = 2**31 - 1

_KNOWN: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.kerberos.service.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.protocol",
        "ssl.enabled.protocols",
    }
)
_HARMLESS: Final = re.compile(
    # How Java refreshes logins, and which of its own classes it takes: nothing that a connection is safer by.
    r"sasl\.(login\.(?!callback).*|client\.callback\.handler\.class|kerberos\.(kinit\.cmd|min\.time.*|ticket\.renew.*))"
    r"|sasl\.oauthbearer\.(jwks\..*|clock\.skew\.seconds|header\.urlencode|(scope|sub)\.claim\.name)"
    r"|sasl\.login\.callback\.handler\.class|ssl\.(provider|secure\.random\.implementation"
    r"|(trustmanager|keymanager)\.algorithm)"
)

_JAAS: Final = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)((?:\s+[\w.]+\s*=\s*\S.*)?)\s*;\s*", re.DOTALL
)
_JAAS_OPTION: Final = re.compile(
    r"\s*([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))\s*", re.DOTALL
)


_SECRET_KEYS: Final = frozenset(
    {
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
_SECRET_OPTIONS: Final = re.compile(r"(password|secret)\s*=", re.IGNORECASE)
"""Options of a login module in ``sasl.jaas.config`` that are secret."""


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """What a client needs to know beside the question it asks."""

    timeout_ms: int | None = None
    client_id: str | None = None
    connection: Mapping[str, Any] = field(default_factory=dict)
    """The other settings, as :class:`~kquota.admin.QuotaAdmin` takes them."""
    typed_secrets: tuple[str, ...] = ()
    """The settings whose secret is in an override itself, where the machine's list of processes shows it."""
    open_files: tuple[str, ...] = ()
    """The files that hold secrets and can be read by others than their owner."""
    has_certificate: bool = False
    """Whether it shows brokers a certificate of its own."""

    @property
    def sends_login_in_clear(self) -> bool:
        """Whether a password or a token goes over the network as it is (KIP-43, KIP-255)."""
        return self.connection.get("security_protocol") == "SASL_PLAINTEXT" and self.connection["sasl_mechanism"] in (
            "PLAIN",
            "OAUTHBEARER",
        )


def load_client_properties(
    path: str | None = None, overrides: Iterable[str] = (), environment: Mapping[str, str] = os.environ
) -> ClientProperties:
    """The settings in a Java properties file, overridden by ``key=value`` texts (``-X``).

    In an override ``key=@file`` stands for what the file holds, and ``key=env:NAME`` for a variable of `environment`; a
    value that itself begins with @ is written with two.

    :raises InputError: a file that cannot be read, a variable that is not there, a setting of security that is not
        offered here, a value that a client would refuse.
    """
    given: dict[str, _Given] = {}
    if path is not None:
        for key, value in read_properties(path, "the client's settings").items():
            given[key] = _Given(key, value, f"{path}: {key}", path)
    for text in overrides:
        one = _override(text, environment)
        given[one.key] = one
    for one in given.values():
        is_security = one.key.startswith(("ssl.", "sasl.", "security."))
        if is_security and one.key not in _KNOWN and not _HARMLESS.fullmatch(one.key):
            raise InputError(f"{one.place}: kquota does not offer this setting; leave it out if that is safe")
    return _Reading(given).properties()


@dataclass(frozen=True, slots=True)
class _Given:
    """A setting: what it says, and where it was found."""

    key: str
    value: str
    place: str
    """Where the setting was given: how messages about it begin."""
    file: str | None = None
    """The file that the value was read from."""
    is_typed: bool = False
    """The value itself is in an override."""

    @property
    def is_secret(self) -> bool:
        return self.key in _SECRET_KEYS or (
            self.key == "sasl.jaas.config" and _SECRET_OPTIONS.search(self.value) is not None
        )


def _override(text: str, environment: Mapping[str, str]) -> _Given:
    """A ``key=value``, ``key=@file`` or ``key=env:NAME``.

    :raises InputError: it is none of these, or there is no such file or variable.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(
            "-X ...: write it as key=value, such as -X security.protocol=SSL (it is not shown here: it may be a secret)"
        )
    place = f"-X {key}"
    if value.startswith("@@"):
        return _Given(key, value[1:], place, is_typed=True)
    if value.startswith("@"):
        file = value[1:]
        try:
            return _Given(key, Path(file).read_text("utf-8"), place, file)
        except OSError as error:
            reason = error.strerror or "it cannot be read"
        except ValueError:
            reason = "it is not UTF-8 text"
        raise InputError(
            f"{place}: the file that is named after @: {reason} (a value that begins with @ is written @@)"
        )
    if value.startswith("env:"):
        found = environment.get(value.removeprefix("env:"))
        if found is None:
            raise InputError(f"{place}: the environment has no variable of the name after env:")
        return _Given(key, found, place)
    return _Given(key, value, place, is_typed=True)


def _is_open(path: str) -> bool:
    """Whether others than its owner may read a file. Pipes and the like, which a shell makes, are nobody else's."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


class _Reading:
    """The settings of one client, taken apart."""

    def __init__(self, given: Mapping[str, _Given]) -> None:
        self._given = given

    def properties(self) -> ClientProperties:
        timeout_ms = self._number("default.api.timeout.ms")
        request_timeout_ms = self._number("request.timeout.ms")
        connection: dict[str, Any] = {"security_protocol": self._one_of("security.protocol", _PROTOCOLS, "PLAINTEXT")}
        protocol = connection["security_protocol"]
        if request_timeout_ms is not None:
            connection["request_timeout_ms"] = request_timeout_ms
        if protocol.endswith("SSL"):
            connection["ssl_context"] = client_context(self._tls_files())
        if protocol.startswith("SASL"):
            connection |= self._sasl()
        secrets = [one for one in self._given.values() if one.is_secret]
        files = dict.fromkeys(one.file for one in secrets if one.file is not None)
        return ClientProperties(
            timeout_ms,
            self._text("client.id"),
            connection,
            tuple(one.key for one in secrets if one.is_typed),
            tuple(file for file in files if _is_open(file)),
            protocol.endswith("SSL") and bool(self._text("ssl.keystore.location") or self._text("ssl.keystore.key")),
        )

    def _text(self, key: str) -> str | None:
        one = self._given.get(key)
        return None if one is None or not one.value.strip() else one.value.strip()

    def _place(self, key: str) -> str:
        return self._given[key].place if key in self._given else key

    def _number(self, key: str) -> int | None:
        text = self._text(key)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text) > _INT_MAX:
            raise InputError(f"{self._place(key)}: a whole number of milliseconds is expected")
        return int(text)

    def _one_of(self, key: str, choices: tuple[str, ...], default: str) -> str:
        text = (self._text(key) or default).upper()
        if text not in choices:
            raise InputError(f"{self._place(key)}: one of {', '.join(choices)} is expected")
        return text

    def _tls_files(self) -> TlsFiles:
        algorithm = self._given.get("ssl.endpoint.identification.algorithm")
        if algorithm is not None and algorithm.value.strip().lower() not in ("", "https"):
            raise InputError(f"{algorithm.place}: https, or nothing to check no host name")
        return tls_files({key: one.value for key, one in self._given.items()})

    def _sasl(self) -> dict[str, Any]:
        mechanism = self._one_of("sasl.mechanism", _MECHANISMS, "GSSAPI")  # Kafka's own default
        options = self._jaas_options()
        if mechanism in _WITH_PASSWORD:
            return {"sasl_mechanism": mechanism, **self._password_login(mechanism, options)}
        if mechanism == "OAUTHBEARER":
            return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": self._token_source(options)}
        if find_spec("gssapi") is None:
            raise InputError(
                f"{self._place('sasl.mechanism')}: GSSAPI (which is what Kafka takes where no mechanism is set) needs "
                "the Python package gssapi: pip install gssapi; otherwise set sasl.mechanism to one of "
                f"{', '.join(_MECHANISMS[:-1])}"
            )
        service = self._text("sasl.kerberos.service.name") or options.get("serviceName", "kafka")
        return {"sasl_mechanism": mechanism, "sasl_kerberos_service_name": service}

    def _password_login(self, mechanism: str, options: Mapping[str, str]) -> dict[str, str]:
        place = self._place("sasl.jaas.config")
        if "username" not in options or "password" not in options:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            raise InputError(
                f"{place}: {mechanism} needs a name and a password: sasl.jaas.config=org.apache.kafka.common.security."
                f'{module} required username="..." password="...";'
            )
        if options.get("tokenauth", "false").lower() == "true":
            raise InputError(f"{place}: kquota cannot log in with a delegation token; use a name and a password")
        name = options["username"]
        if mechanism != "PLAIN":
            # RFC 5802; kafka-python puts the name into its message as it is.
            name = name.replace("=", "=3D").replace(",", "=2C")
        return {"sasl_plain_username": name, "sasl_plain_password": options["password"]}

    def _token_source(self, options: Mapping[str, str]) -> Any:
        url = self._text("sasl.oauthbearer.token.endpoint.url")
        claims = {
            key.removeprefix("unsecuredLoginStringClaim_"): value
            for key, value in options.items()
            if key.startswith("unsecuredLoginStringClaim_")
        }
        if url is None:
            if "sub" not in claims:
                raise InputError(
                    "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url with a client id and secret, or (for trials "
                    "alone) unsecuredLoginStringClaim_sub in sasl.jaas.config"
                )
            return lambda: unsecured_token(claims)
        name = self._text("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId")
        secret = self._text("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret")
        if not name or not secret:
            raise InputError(
                f"{self._place('sasl.oauthbearer.token.endpoint.url')}: a client id and secret are needed: clientId "
                "and clientSecret in sasl.jaas.config, or sasl.oauthbearer.client.credentials.client.id and .secret"
            )
        scope = self._text("sasl.oauthbearer.scope") or options.get("scope")
        try:
            check_token_endpoint(url)
        except InputError as error:
            raise InputError(f"{self._place('sasl.oauthbearer.token.endpoint.url')}: {error}") from None
        context = client_context(self._tls_files())
        return lambda: client_credentials_token(url, name, secret, scope, context)

    def _jaas_options(self) -> dict[str, str]:
        """The options of the one login module in ``sasl.jaas.config``."""
        text = self._text("sasl.jaas.config")
        if text is None:
            return {}
        place = self._place("sasl.jaas.config")
        module = _JAAS.fullmatch(text)
        if module is None:
            raise InputError(f'{place}: write it as MODULE required name="value" name="value";')
        options: dict[str, str] = {}
        rest = module[3]
        at = 0
        while at < len(rest):
            option = _JAAS_OPTION.match(rest, at)
            if option is None:
                # Not quoted here: what cannot be read may be a password.
                raise InputError(f'{place}: after the options {", ".join(options) or "(none)"}: write name="value"')
            quoted = option[2] if option[2] is not None else option[3]
            options[option[1]] = option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            at = option.end()
        return options
