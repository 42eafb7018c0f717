"""Trust stores and key stores as Java's clients and brokers are given them, in PEM or PKCS12."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from secrets import token_hex
from shlex import quote
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final

from kquota.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

__all__ = ["PEM", "identify", "identity_pem", "load_identity", "read_store", "trust", "trusted_pem"]

PEM: Final = b"-----BEGIN "
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_JAVA_STORES: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}


def read_store(path: str, setting: str) -> bytes:
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


def trusted_pem(path: str, password: str | None) -> str:
    """The certificates of a trust store, as PEM."""
    raw = read_store(path, "ssl.truststore")
    if PEM in raw:
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


def identity_pem(raw: bytes, path: str, password: str | None) -> tuple[str, str]:
    """The key and the certificates of a PKCS12 store as PEM, with a password of their own."""
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - only who has such a store
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415

    try:
        store = load_pkcs12(raw, _password(password))
    except ValueError as error:
        raise InputError(f"{path}: neither PEM nor PKCS12 that ssl.keystore.password opens: {error}") from None
    if store.key is None or store.cert is None:
        raise InputError(f"{path}: there is no key with its certificate in this key store")
    key, password = _encrypted(store.key)
    chain = [one.certificate.public_bytes(Encoding.PEM) for one in (store.cert, *store.additional_certs)]
    return (key + b"".join(chain)).decode(), password


def _encrypted(key: PrivateKeyTypes) -> tuple[bytes, str]:
    """A key as PEM, with a password of its own: what is written to a file for a moment is of no use to others."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only who has such a key

    password = token_hex(16)
    encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption), password


def trust(context: ssl.SSLContext, pem: str, place: str) -> None:
    """Trust certificates. Raises :class:`~kquota.errors.InputError` where there are none."""
    try:
        context.load_verify_locations(cadata=pem.encode("ascii", "ignore").decode())
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"{place}: these are not certificates in PEM: {error}") from None


def identify(context: ssl.SSLContext, pem: str, password: str | None, place: str) -> None:
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
        load_identity(context, file.name, password, place)


def load_identity(context: ssl.SSLContext, path: str, password: str | None, place: str) -> None:
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
