"""TLS by Kafka's ``ssl.*`` settings, for clients and for listeners.

Source: ``SslConfigs``, ``BrokerSecurityConfigs``.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kquota.errors import InputError, ProtocolError
from kquota.net.tls_stores import PEM, identify, identity_pem, load_identity, read_store, trust, trusted_pem

__all__ = ["ClientAuth", "TlsFiles", "client_context", "explained_handshake", "server_context", "tls_files"]

ClientAuth = Literal["none", "requested", "required"]
"""``ssl.client.auth``."""

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SUITES_OF_13: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
_SUITE_OF_12: Final = re.compile(
    r"TLS_(?:(?P<by>ECDHE_ECDSA|ECDHE_RSA)|RSA)_WITH_"
    r"(?:(?P<poly>CHACHA20_POLY1305)_SHA256|AES_(?P<bits>128|256)_(?:(?P<gcm>GCM)|CBC)_(?P<hash>SHA\d*))"
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificates and keys are, and what is offered. What a store is, its content says, as in Java."""

    truststore: str | None = None
    truststore_password: str | None = None
    trusted_pem: str | None = None
    keystore: str | None = None
    keystore_password: str | None = None
    key_pem: str | None = None
    chain_pem: str | None = None
    key_password: str | None = None
    checks_host_name: bool = True
    """Only of clients."""
    versions: tuple[str, ...] = ()
    cipher_suites: tuple[str, ...] = ()
    """Only of listeners."""


def tls_files(settings: Mapping[str, str], prefix: str = "") -> TlsFiles:
    """What settings say. As in a broker, those with the prefix (``listener.name.external.``) go before the others."""

    def text(key: str) -> str | None:
        return settings.get(prefix + key, settings.get(key, "")).strip() or None

    def texts(key: str) -> tuple[str, ...]:
        return tuple(one.strip() for one in (text(key) or "").split(",") if one.strip())

    # The newest version to be spoken: only TLSv1.2 narrows what is offered anyway.
    newest = text("ssl.protocol")
    algorithm = "ssl.endpoint.identification.algorithm"
    return TlsFiles(
        truststore=text("ssl.truststore.location"),
        truststore_password=text("ssl.truststore.password"),
        trusted_pem=text("ssl.truststore.certificates"),
        keystore=text("ssl.keystore.location"),
        keystore_password=text("ssl.keystore.password"),
        key_pem=text("ssl.keystore.key"),
        chain_pem=text("ssl.keystore.certificate.chain"),
        key_password=text("ssl.key.password"),
        checks_host_name=text(algorithm) is not None or not {algorithm, prefix + algorithm} & settings.keys(),
        versions=texts("ssl.enabled.protocols") or (() if newest in (None, "TLS", "TLSv1.3") else (newest,)),
        cipher_suites=texts("ssl.cipher.suites"),
    )


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """What a connection is made with. Without a trust store this machine's own certificates are trusted.

    :raises InputError: a store that cannot be read, a wrong password, a version of TLS that is not offered.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = files.checks_host_name
    context.minimum_version, context.maximum_version = _versions(files.versions)
    if not _trust(context, files):
        context.load_default_certs()
    _identify(context, files)
    return context


def server_context(files: TlsFiles, *, client_auth: ClientAuth = "none") -> ssl.SSLContext:
    """What a listener does handshakes with.

    :raises InputError: as :func:`client_context`; no key store, no trust store for the certificates of clients, cipher
        suites that OpenSSL does not have or cannot be limited to.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.minimum_version, context.maximum_version = _versions(files.versions)
    if files.cipher_suites:
        _limit_suites(context, files.cipher_suites)
    if not _identify(context, files):
        raise InputError(
            "ssl.keystore.location: a listener with TLS needs a key and its certificates; set it, or ssl.keystore.key "
            "with ssl.keystore.certificate.chain"
        )
    # A broker takes what its Java trusts where no store is set: then everybody with a certificate for a web site would
    # be let in.
    if client_auth != "none" and not _trust(context, files):
        raise InputError(
            f"ssl.client.auth={client_auth}: set ssl.truststore.location to the authority that signs the certificates "
            "of clients"
        )
    context.verify_mode = _VERIFY[client_auth]
    return context


def _trust(context: ssl.SSLContext, files: TlsFiles) -> bool:
    """Trust what the trust store holds; whether there is one."""
    if files.trusted_pem is not None:
        trust(context, files.trusted_pem, "ssl.truststore.certificates")
    elif files.truststore is not None:
        trust(context, trusted_pem(files.truststore, files.truststore_password), files.truststore)
    else:
        return False
    return True


def _identify(context: ssl.SSLContext, files: TlsFiles) -> bool:
    """Take the key and the certificates of the key store; whether there is one."""
    if files.key_pem is not None or files.chain_pem is not None:
        if files.key_pem is None or files.chain_pem is None:
            raise InputError("ssl.keystore.key and ssl.keystore.certificate.chain must both be set, or neither")
        identify(context, f"{files.key_pem}\n{files.chain_pem}", files.key_password, "ssl.keystore.key")
    elif files.keystore is not None:
        raw = read_store(files.keystore, "ssl.keystore")
        if PEM in raw:
            password = files.key_password or files.keystore_password
            if Path(files.keystore).is_file():
                load_identity(context, files.keystore, password, files.keystore)
            else:  # a pipe, which was read to its end
                identify(context, raw.decode("ascii", "ignore"), password, files.keystore)
        else:
            pem, password = identity_pem(raw, files.keystore, files.keystore_password)
            identify(context, pem, password, files.keystore)
    else:
        return False
    return True


def _versions(names: tuple[str, ...]) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    offered = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if names and not offered:
        raise InputError(f"ssl.enabled.protocols, ssl.protocol: of TLS only {' and '.join(_VERSIONS)} are offered")
    return min(offered, default=ssl.TLSVersion.TLSv1_2), max(offered, default=ssl.TLSVersion.MAXIMUM_SUPPORTED)


def _limit_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Offer these cipher suites alone, given by the names that Java has for them.

    Python cannot choose among those of TLS 1.3: either all of them are listed, or none, and then it is not offered.
    """
    of_13 = _SUITES_OF_13.intersection(names)
    of_12 = [_openssl_name(name) for name in names if name not in of_13]
    if of_13 and context.maximum_version == ssl.TLSVersion.TLSv1_2:
        of_13 = frozenset()
    if of_13 and of_13 != _SUITES_OF_13:
        raise InputError(
            "ssl.cipher.suites: the suites of TLS 1.3 cannot be chosen one by one here: list all of "
            f"{', '.join(sorted(_SUITES_OF_13))}, or none of them, which leaves TLS 1.2"
        )
    lowest = context.minimum_version if of_12 else ssl.TLSVersion.TLSv1_3
    highest = context.maximum_version if of_13 else ssl.TLSVersion.TLSv1_2
    if lowest == ssl.TLSVersion.TLSv1_3 and highest == ssl.TLSVersion.TLSv1_2:
        raise InputError("ssl.cipher.suites: none of them is of a version in ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = lowest, highest
    if of_12:
        context.set_ciphers(":".join(of_12))


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2."""
    found = _SUITE_OF_12.fullmatch(name)
    if found is not None:
        by = found["by"].replace("_", "-") + "-" if found["by"] else ""
        cipher = "CHACHA20-POLY1305"
        if not found["poly"]:
            cipher = f"AES{found['bits']}-{'GCM-' if found['gcm'] else ''}{found['hash']}"
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(by + cipher)
        except ssl.SSLError:
            pass
        else:
            return by + cipher
    raise InputError(f"ssl.cipher.suites: {name} is not offered here")


_HANDSHAKE_FAILURES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, which ssl.client.auth=required asks for",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that is enabled here",
    "VERSION_TOO_LOW": "the client offers no version of TLS that is enabled here",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that is enabled here",
    "HTTP_REQUEST": "plaintext on a TLS port: this is HTTP",
    "HTTPS_PROXY_REQUEST": "plaintext on a TLS port: this is HTTP",
    "WRONG_VERSION_NUMBER": "plaintext on a TLS port",
    "PACKET_LENGTH_TOO_LONG": "plaintext on a TLS port",
    "RECORD_LAYER_FAILURE": "plaintext on a TLS port",
}
"""By OpenSSL's reason; which one plaintext is depends on OpenSSL's version and on the first bytes."""


def explained_handshake(error: ssl.SSLError) -> ProtocolError:
    """Why the handshake with a client failed, in short."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ProtocolError(f"the client's certificate is not trusted: {error.verify_message.rstrip('.')}")
    if "ALERT" in reason and ("UNKNOWN_CA" in reason or "CERTIFICATE" in reason):
        return ProtocolError(f"the client does not trust the certificate ({reason})")
    return ProtocolError(_HANDSHAKE_FAILURES.get(reason) or f"the TLS handshake failed ({reason or error})")
