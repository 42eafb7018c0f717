"""TLS by Kafka's ``ssl.*`` settings, for clients and for listeners."""

from __future__ import annotations

import ssl
from typing import Final

from kquota.errors import ProtocolError

__all__ = ["explained_handshake"]

_HANDSHAKE_FAILURES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that is enabled here",
    "VERSION_TOO_LOW": "the client offers no version of TLS that is enabled here",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that is enabled here",
    "HTTP_REQUEST": "plaintext on a TLS port: this is HTTP",
    "HTTPS_PROXY_REQUEST": "plaintext on a TLS port: this is HTTP",
    "WRONG_VERSION_NUMBER": "plaintext on a TLS port",
    "PACKET_LENGTH_TOO_LONG": "plaintext on a TLS port",
    "RECORD_LAYER_FAILURE": "plaintext on a TLS port",
    "BAD_RECORD_TYPE": "plaintext on a TLS port",
}
"""By OpenSSL's reason."""


def explained_handshake(error: ssl.SSLError) -> ProtocolError:
    """Why the handshake with a client failed, in short."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ProtocolError(f"the client's certificate is not trusted: {error.verify_message.rstrip('.')}")
    if "ALERT" in reason and ("UNKNOWN_CA" in reason or "CERTIFICATE" in reason):
        return ProtocolError(f"the client does not trust the certificate ({reason})")
    return ProtocolError(_HANDSHAKE_FAILURES.get(reason) or f"the TLS handshake failed ({reason or error})")
