"""IP addresses as text: what ``InetAddress.getByName`` takes without asking a name server."""

import re

__all__ = ["canonical_ip", "host_address", "is_literal_ip"]

_DECIMAL_PARTS = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,10}){0,3}")
_LONGEST_V4 = 15
_LARGEST_SCOPE = 2**31 - 1
_LEADING_ZEROS = re.compile(r"(?<![0-9A-Fa-f])0+(?=[0-9A-Fa-f])")


def is_literal_ip(name: str) -> bool:
    """Whether ``name`` is an address (not a host name), in any form that the JVM reads."""
    return canonical_ip(name) is not None


def canonical_ip(name: str) -> str | None:
    """The usual text of the address that the JVM reads from ``name``; None where it would look a host name up.

    IPv4 may have fewer than four decimal parts, the last one filling the rest (``127.1`` is ``127.0.0.1``,
    ``2130706433`` too); leading zeros do not mean octal. IPv6 may stand in brackets and may carry a numeric scope; an
    IPv4-mapped one is the IPv4 address. A scope that names an interface depends on the machine and is not a literal.
    """
    if ":" in name:
        return _canonical_v6(name)
    if len(name) > _LONGEST_V4 or not _DECIMAL_PARTS.fullmatch(name):
        return None
    *leading, last = [int(part) for part in name.split(".")]
    if any(part > 255 for part in leading) or last >= 256 ** (4 - len(leading)):
        return None
    return ".".join(map(str, [*leading, *last.to_bytes(4 - len(leading), "big")]))


def host_address(canonical: str) -> str:
    """The text that the JVM has for the address of a canonical text: ``InetAddress.getHostAddress``.

    It writes all eight parts of an IPv6 address, ``0:0:0:0:0:0:0:1`` for ``::1``. What is no address stays as it is.
    """
    if ":" not in canonical:
        return canonical
    from ipaddress import IPv6Address  # noqa: PLC0415 - milliseconds, and few callers have one

    address, percent, scope = canonical.partition("%")
    try:
        parts = IPv6Address(address).exploded.split(":")
    except ValueError:
        return canonical
    return ":".join([f"{int(part, 16):x}" for part in parts]) + percent + scope


def _canonical_v6(name: str) -> str | None:
    from ipaddress import IPv6Address  # noqa: PLC0415 - milliseconds, and few callers have one

    if name.startswith("["):
        if not name.endswith("]"):
            return None
        name = name[1:-1]
    address, percent, scope = name.partition("%")
    if percent and not _is_scope(scope):
        return None
    try:
        parsed = IPv6Address(_LEADING_ZEROS.sub("", address))
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped
    if mapped is not None:
        return None if percent else str(mapped)
    return f"{parsed.compressed}%{int(scope)}" if percent else parsed.compressed


def _is_scope(text: str) -> bool:
    if not (text.isascii() and text.isdigit()):
        return False
    digits = text.lstrip("0") or "0"
    return len(digits) <= len(str(_LARGEST_SCOPE)) and int(digits) <= _LARGEST_SCOPE
