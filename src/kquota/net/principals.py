"""Who a client with a certificate is: its distinguished name, as a broker writes it, and the rules that shorten it.

Source: Java's ``X500Principal.getName()``, Kafka's ``SslPrincipalMapper`` (KIP-371), ``DefaultKafkaPrincipalBuilder``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kquota.errors import InputError, MalformedMessageError, ProtocolError
from kquota.net.java_patterns import Replacement, java_pattern, java_replacement, replace_all

__all__ = ["ANONYMOUS", "PrincipalRules", "distinguished_name", "principal_of_certificate"]

ANONYMOUS: Final = "ANONYMOUS"
"""``KafkaPrincipal.ANONYMOUS``: who shows no certificate."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 has names for; others are written as their number and their bytes."""
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""The ASN.1 tags of UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString and BMPString.

All of them are read as UTF-8, as Java 17 does; later ones read the last two, and T61String beyond ASCII, by their type.
Bytes that are no UTF-8 are U+FFFD, though not always as many as Java writes. Values of other types are written as
their bytes.
"""
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_SET: Final = 0x31
_VERSION: Final = 0xA0

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)


@dataclass(frozen=True, slots=True)
class _Rule:
    """``RULE:pattern/replacement/[LU]``."""

    pattern: re.Pattern[str]
    replacement: Replacement
    case: str

    def apply(self, name: str) -> str | None:
        """The principal, or None where the pattern does not match the whole name."""
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = replace_all(self.pattern, self.replacement, name)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    """``ssl.principal.mapping.rules``. Without any rule no name has a principal, as in a broker."""

    rules: tuple[_Rule | None, ...] = (None,)
    """None is ``DEFAULT``: the name as it is."""

    @classmethod
    def parse(cls, text: str) -> PrincipalRules:
        """Read rules: ``DEFAULT`` or ``RULE:pattern/replacement/[LU]``, separated by commas.

        :raises InputError: a rule that a broker would not take, a reference to a group that the pattern does not have
            (a broker refuses every client then), or a pattern of Java's that Python has no equal of.
        """
        return cls(tuple(cls._rules(text)))

    @classmethod
    def _rules(cls, text: str) -> Iterator[_Rule | None]:
        for split in _SPLITTER.finditer(text.strip("".join(map(chr, range(33))))):
            rule = split[1]
            parsed = _PARSER.match(rule)
            if parsed is None or parsed.end() != len(rule):
                raise InputError(f"{_at(rule)}: write it as DEFAULT or RULE:pattern/replacement/, then L, U or nothing")
            if parsed[1] is not None:
                yield None
            elif parsed[2] is not None:
                try:
                    pattern = java_pattern(parsed[2])
                    replacement = java_replacement(parsed[3], pattern)
                except ValueError as error:
                    raise InputError(f"{_at(rule)}: {error}") from None
                yield _Rule(pattern, replacement, parsed[4])

    def principal(self, name: str) -> str:
        """The principal of a distinguished name, by the first rule that matches.

        :raises ProtocolError: none does; a broker does not let this client in.
        """
        for rule in self.rules:
            found = name if rule is None else rule.apply(name)
            if found is not None:
                return found
        raise ProtocolError(f"no rule of ssl.principal.mapping.rules applies to the certificate of {name}")


def principal_of_certificate(der: bytes | None, rules: PrincipalRules) -> str:
    """The name of the principal, without ``User:``, of a client that showed this certificate; None: it showed none.

    :raises ProtocolError: no rule applies, or the certificate cannot be read.
    """
    return ANONYMOUS if der is None else rules.principal(distinguished_name(der))


def distinguished_name(der: bytes) -> str:
    """The subject of a certificate (X.509, DER) as Java writes it by RFC 2253: ``CN=alice,OU=ops,O=Example``.

    The libraries that read certificates give neither the type nor the bytes of a value, which decide how it is written.

    :raises MalformedMessageError: this is not a certificate.
    """
    try:
        [certificate] = _elements(der)
        signed = next(_elements(certificate[1]))[1]
        fields = [field for field in _elements(signed) if field[0] != _VERSION]
        subject = fields[4]  # after the serial number, the algorithm, the issuer and the dates
        names = [_relative_name(value) for tag, value, _ in _elements(subject[1]) if tag == _SET]
    except (IndexError, ValueError, StopIteration) as error:
        raise MalformedMessageError("the certificate of the client cannot be read") from error
    return ",".join(reversed(names))


def _relative_name(der: bytes) -> str:
    """``CN=alice``, or several joined by ``+``, in the order of the certificate."""
    attributes = []
    for _, attribute, _ in _elements(der):
        kind, value = _elements(attribute)
        attributes.append(_attribute(kind, value))
    return "+".join(attributes)


_Element = tuple[int, bytes, bytes]
"""A tag, the content, and the whole."""


def _attribute(kind: _Element, value: _Element) -> str:
    number = _number(kind[1])
    keyword = _KEYWORDS.get(number)
    if keyword is None or value[0] not in _TEXTS:
        return f"{keyword or number}=#{value[2].hex()}"
    text = _ESCAPED.sub(r"\\\g<0>", value[1].decode("utf-8", "replace")).replace("\0", "\\00")
    # Java takes a carriage return at an end for a space.
    inner = text.strip(" \r")
    if not inner:
        return f"{keyword}={_escape(text)}"
    start = text.index(inner)
    return f"{keyword}={_escape(text[:start])}{inner}{_escape(text[start + len(inner) :])}"


def _escape(text: str) -> str:
    return "".join(f"\\{one}" for one in text)


def _number(der: bytes) -> str:
    """An object identifier in its dotted form."""
    numbers, number = [], 0
    for byte in der:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(der: bytes) -> Iterator[_Element]:
    """What is in a content, one after the other. Raises IndexError or ValueError where it is cut off."""
    at = 0
    while at < len(der):
        start, length = at, der[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(der[at : at + count], "big")
            at += count
        if at + length > len(der):
            raise ValueError("cut off")
        yield der[start], der[at : at + length], der[start : at + length]
        at += length


def _at(rule: str) -> str:
    return f"ssl.principal.mapping.rules: {rule}"
