"""TLS as a Java client is set up for it: trust stores and key stores in PEM or PKCS12."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from shlex import quote
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final

from kquota.errors import ConnectionFailedError, InputError, KquotaError, NotAuthorizedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

__all__ = ["TlsFiles", "certificate_names", "explained_tls", "is_about_names", "tls_context"]

_PEM: Final = b"-----BEGIN "
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_JAVA_STORES: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificates and keys are. What a store is, its content says, as in Java."""

    truststore: str | None = None
    truststore_password: str | None = None
    trusted_pem: str | None = None
    keystore: str | None = None
    keystore_password: str | None = None
    key_pem: str | None = None
    chain_pem: str | None = None
    key_password: str | None = None
    checks_host_name: bool = True
    versions: tuple[str, ...] = ()


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """What a connection is made with. Without a trust store this machine's own certificates are trusted.

    :raises InputError: a store that cannot be read, a wrong password, a version of TLS that is not offered.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = files.checks_host_name
    context.minimum_version, context.maximum_version = _versions(files.versions)
    if files.trusted_pem is not None:
        _trust(context, files.trusted_pem, "ssl.truststore.certificates")
    elif files.truststore is not None:
        _trust(context, _trusted(files.truststore, files.truststore_password), files.truststore)
    else:
        context.load_default_certs()
    if files.key_pem is not None or files.chain_pem is not None:
        if files.key_pem is None or files.chain_pem is None:
            raise InputError("ssl.keystore.key and ssl.keystore.certificate.chain must both be set, or neither")
        _identify(context, f"{files.key_pem}\n{files.chain_pem}", files.key_password, "ssl.keystore.key")
    elif files.keystore is not None:
        raw = _read(files.keystore, "ssl.keystore")
        if _PEM in raw:
            password = files.key_password or files.keystore_password
            if Path(files.keystore).is_file():
                _load_identity(context, files.keystore, password, files.keystore)
            else:  # a pipe, which was read to its end
                _identify(context, raw.decode("ascii", "ignore"), password, files.keystore)
        else:
            pem, password = _identity_of(raw, files)
            _identify(context, pem, password, files.keystore)
    return context


def _versions(names: tuple[str, ...]) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    offered = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if names and not offered:
        raise InputError(f"ssl.enabled.protocols, ssl.protocol: of TLS only {' and '.join(_VERSIONS)} are offered")
    return min(offered, default=ssl.TLSVersion.TLSv1_2), max(offered, default=ssl.TLSVersion.MAXIMUM_SUPPORTED)


def _read(path: str, setting: str) -> bytes:
    """The content of a store.

    :raises InputError: it is not there, or in one of Java's own formats.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{setting}.location={path}: cannot be read: {error.strerror}") from None
    java = _JAVA_STORES.get(raw[:4])
    if java is not None:
        converted = Path(path).with_suffix(".p12")
        raise InputError(
            f"{path} is a {java} store, which only Java reads. Convert it with\n"
            f"  keytool -importkeystore -srckeystore {quote(path)} -destkeystore {quote(str(converted))} "
            "-deststoretype PKCS12\n"
            f"and set {setting}.location={converted} and {setting}.type=PKCS12"
        )
    return raw


def _trusted(path: str, password: str | None) -> str:
    """The certificates of a trust store, as PEM."""
    raw = _read(path, "ssl.truststore")
    if _PEM in raw:
        return raw.decode("ascii", "ignore")
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - only who has such a store
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415

    try:
        store = load_pkcs12(raw, _password(password))
    except ValueError as error:
        raise InputError(f"{path}: neither PEM nor PKCS12 that ssl.truststore.password opens: {error}") from None
    found = [one.certificate for one in (*([store.cert] if store.cert else []), *store.additional_certs)]
    if not found:
        raise InputError(f"{path}: there is no certificate in this trust store")
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in found)


def _identity_of(raw: bytes, files: TlsFiles) -> tuple[str, str]:
    """The key and the certificates of a PKCS12 store as PEM, with a password of their own."""
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - only who has such a store
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415

    try:
        store = load_pkcs12(raw, _password(files.keystore_password))
    except ValueError as error:
        raise InputError(
            f"{files.keystore}: neither PEM nor PKCS12 that ssl.keystore.password opens: {error}"
        ) from None
    if store.key is None or store.cert is None:
        raise InputError(f"{files.keystore}: there is no key with its certificate in this key store")
    key, password = _encrypted(store.key)
    chain = [one.certificate.public_bytes(Encoding.PEM) for one in (store.cert, *store.additional_certs)]
    return (key + b"".join(chain)).decode(), password


def _encrypted(key: PrivateKeyTypes) -> tuple[bytes, str]:
    """A key as PEM, with a password of its own: what is written to a file for a moment is of no use to others."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only who has such a key

    password = token_hex(16)
    encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption), password


def _trust(context: ssl.SSLContext, pem: str, place: str) -> None:
    try:
        context.load_verify_locations(cadata=pem.encode("ascii", "ignore").decode())
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"{place}: these are not certificates in PEM: {error}") from None


def _identify(context: ssl.SSLContext, pem: str, password: str | None, place: str) -> None:
    """Take a key and its certificates. Python's ssl reads them from files alone, which hold no key without a password.

    :raises InputError: they cannot be used.
    """
    found = _KEY.search(pem)
    if found is not None and "ENCRYPTED" not in found[0]:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - only who has such a key
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        try:
            key, password = _encrypted(load_pem_private_key(found[0].encode(), None))
        except (ValueError, UnsupportedAlgorithm) as error:
            raise _no_identity(place, error) from None
        pem = key.decode() + pem.replace(found[0], "")
    with NamedTemporaryFile(
        "w", encoding="ascii", errors="ignore", suffix=".pem"
    ) as file:  # readable by this user only
        file.write(pem)
        file.flush()
        _load_identity(context, file.name, password, place)


def _load_identity(context: ssl.SSLContext, path: str, password: str | None, place: str) -> None:
    """Take a key and its certificates from a file.

    :raises InputError: they cannot be used.
    """
    try:
        # Never a prompt: where a password is needed and none is given, that is an error.
        context.load_cert_chain(path, password=lambda: password or "")
    except (OSError, ValueError) as error:
        raise _no_identity(place, error) from None


def _no_identity(place: str, error: Exception) -> InputError:
    return InputError(
        f"{place}: a private key and its certificates in PEM, and ssl.key.password where the key has one, are "
        f"expected: {error}"
    )


def _password(text: str | None) -> bytes | None:
    return text.encode() if text else None


_NAME_DIFFERS: Final = frozenset({62, 64})
_OUT_OF_TIME: Final = frozenset({9, 10})
_NOT_TRUSTED: Final = frozenset({2, 7, 18, 19, 20, 21, 27})
"""Codes of OpenSSL (``X509_V_ERR_...``): of a host name or address, of dates, of who signed it (7: by another key)."""
_LOOK_S: Final = 2.0


def is_about_names(error: ssl.SSLError) -> bool:
    """Whether the certificate is another host's."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _NAME_DIFFERS


def certificate_names(host: str, port: int) -> list[str]:
    """The hosts that the certificate there is for, to be shown: nothing is trusted by it, and nothing sent.

    Python does not give the certificate of a handshake that failed: it is asked for once more. Empty where it does not
    come.
    """
    from cryptography import x509  # noqa: PLC0415 - only for who is at the wrong host

    try:
        pem = ssl.get_server_certificate((host, port), timeout=_LOOK_S)
        names = x509.load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    return [
        *names.value.get_values_for_type(x509.DNSName),
        *map(str, names.value.get_values_for_type(x509.IPAddress)),
    ]


def explained_tls(
    place: str, error: ssl.SSLError, names: Sequence[str] | None = None, address: str = ""
) -> KquotaError:
    """What a handshake that failed means for who wants to connect.

    :param names: what the certificate is for, where that is the matter.
    :param address: where the address is from, where it was not given by who connects.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = error.verify_message.rstrip(".")
        if error.verify_code in _NAME_DIFFERS:
            known = (
                f"it is for {', '.join(names)}: connect to such an address" if names else "connect to an address of it"
            )
            return ConnectionFailedError(
                f"{place} shows a certificate of another host: {problem}; {known}{address}, or set "
                "ssl.endpoint.identification.algorithm to nothing, which checks no host names"
            )
        advice = ""
        if error.verify_code in _OUT_OF_TIME:
            advice = "; it needs a new one, unless the clock of this machine is wrong"
        elif error.verify_code in _NOT_TRUSTED:
            advice = "; set ssl.truststore.location to the authority that signed it"
        return ConnectionFailedError(f"{place} shows a certificate that is not trusted: {problem}{advice}{address}")
    if "CERTIFICATE" in (error.reason or ""):
        return NotAuthorizedError(
            f"{place} wants a certificate that it trusts from this client ({error.reason}): set ssl.keystore.location"
        )
    return ConnectionFailedError(f"{place}: no TLS: {error}; does it speak TLS on this port?{address}")
