"""Names made safe for paths, metric tags and our canonical text: ``org.apache.kafka.common.utils.Sanitizer``."""

import re

from kquota.errors import IllegalArgumentError

__all__ = ["desanitize", "jmx_sanitize", "sanitize"]

_SAFE = re.compile(r"[A-Za-z0-9._-]*")
_SAFE_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_ENCODED = tuple(chr(byte) if byte in _SAFE_BYTES else f"%{byte:02X}" for byte in range(256))
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})|%|\+")
_JMX_SAFE = re.compile(r"[A-Za-z0-9_%\-. \t]*")
_JMX_ESCAPES = str.maketrans({'"': '\\"', "*": "\\*", "?": "\\?", "\\": "\\\\", "\n": "\\n"})


def sanitize(name: str) -> str:
    """``name`` URL-encoded as UTF-8; only ``A-Z a-z 0-9 . - _`` stay (so ``~``, ``*`` and space are encoded)."""
    if _SAFE.fullmatch(name):
        return name
    encoded = _ENCODED
    # Java writes an unpaired surrogate as '?', and so does "replace".
    return "".join([encoded[byte] for byte in name.encode("utf-8", "replace")])


def desanitize(text: str) -> str:
    """The inverse of :func:`sanitize`; a literal ``+`` becomes a space, as Java's ``URLDecoder`` has it.

    Raises :class:`~kquota.errors.IllegalArgumentError` where ``%`` is not followed by two hexadecimal digits. Bytes
    that are not UTF-8 become U+FFFD.
    """
    if "%" not in text and "+" not in text:
        return text

    def decoded(match: re.Match[bytes]) -> bytes:
        digits = match[1]
        if digits is not None:
            return bytes((int(digits, 16),))
        if match[0] == b"+":
            return b" "
        raise IllegalArgumentError(f"{text!r} is not URL-encoded: every % must be followed by two hexadecimal digits")

    return _ESCAPE.sub(decoded, text.encode("utf-8", "replace")).decode("utf-8", "replace")


def jmx_sanitize(value: str) -> str:
    """``value`` as it stands in an MBean name: quoted like ``ObjectName.quote`` unless every character is harmless."""
    if _JMX_SAFE.fullmatch(value):
        return value
    return f'"{value.translate(_JMX_ESCAPES)}"'
