"""What a TLS handshake with a server that failed means for who wants to connect."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

from kquota.errors import ConnectionFailedError, KquotaError, NotAuthorizedError

__all__ = ["certificate_names", "explained_tls", "is_about_names"]

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
