"""Random distinguished names and mapping rules; ``PrincipalNames.java`` has what Java and Kafka make of them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from tests.kit.line_program import LineProgram, java_command

__all__ = ["certificate_of", "principal_judge", "random_name", "random_rules", "random_text"]

PROGRAM: Final = Path(__file__).parents[1] / "real" / "java" / "PrincipalNames.java"
_TYPES: Final = (
    "2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11", "0.9.2342.19200300.100.1.1",
    "0.9.2342.19200300.100.1.25", "1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.12", "2.5.4.4", "2.999.128",
    "1.3.6.1.4.1.4294967296.0",
)  # fmt: skip
_UTF8_STRING: Final = 0x0C
_ASCII_STRINGS: Final = (0x12, 0x13, 0x14, 0x16, 0x1A, 0x1B)
"""Of the other types of text only what every Java reads alike."""
_TEXT: Final = "abcABC019  ,=+<>#;\"\\\r\n\t\0'()-./:?@_*äßİσΣ\u0085\u2028€\U0001f600"
_PATTERNS: Final = (
    r"CN=(.*?),.*", r"CN=(.*?)(?:,.*)?", r"^CN=([^,]+),OU=([^,]*).*$", "(.*)", ".*", "(?i)cn=(.*)", "([A-Z]+)=(.*)",
    "a",
    r"[^=]*=(\w+)(\W.*)?", r"(?<who>CN=.*)", r"(\S+)\s*(.*)", r"((((((((((.))))))))))(.*)", r".*\z", r"(.*)\Z",
    r"(.*?)\/?(\d*)", r"(CN|OU)=(.*)", "", "(a", r"(.*)(x)?", "^(.)(.)(.*)$", r"(.+?)=(?=.).*", r"[a-zA-Z=,. ]+(.*)",
)  # fmt: skip
_REPLACEMENTS: Final = (
    "$1", "$1@$2", "user", "", r"\$1", "x$1y$3", "$12", "$10", "$0", "$01", "${who}", "$1$4", "$3$4$5", "$", "$x",
    r"a\/b", r"\\", "$2$1",
)  # fmt: skip


def principal_judge(jars: Path, errors: Path) -> LineProgram:
    """Each question a name (``der`` in hexadecimal digits, or ``name``) and ``rules``. Needs a compiler."""
    return LineProgram(java_command(jars, PROGRAM), errors=errors)


def random_text(random: Random) -> str:
    return "".join(random.choice(_TEXT) for _ in range(random.choice((0, 1, 2, 5, 12))))


def random_name(random: Random) -> bytes:
    """A distinguished name in DER: names of several attributes, odd types, and values that are no text, included."""
    names = []
    for _ in range(random.choice((0, 1, 2, 3, 5))):
        attributes = [_attribute(random) for _ in range(random.choice((1, 1, 1, 2, 3)))]
        names.append(_element(0x31, b"".join(attributes)))
    return _element(0x30, b"".join(names))


def random_rules(random: Random) -> str:
    rules = []
    for _ in range(random.choice((1, 1, 2, 3))):
        rule = f"RULE:{random.choice(_PATTERNS)}/{random.choice(_REPLACEMENTS)}/{random.choice(('', '', 'L', 'U'))}"
        rules.append(random.choice((rule, rule, rule, rule, rule, "DEFAULT", " ", rule + "x", "nonsense")))
    return random.choice((",", ", ", " ,\t")).join(rules)


def certificate_of(subject: bytes) -> bytes:
    """As much of a certificate as there is up to its subject."""
    version = _element(0xA0, _element(0x02, b"\2"))
    empty = _element(0x30, b"")
    fields = version + _element(0x02, b"\1") + empty + empty + empty + subject + empty
    return _element(0x30, _element(0x30, fields) + empty)


def _attribute(random: Random) -> bytes:
    tag = random.choice((_UTF8_STRING, _UTF8_STRING, *_ASCII_STRINGS))
    value = random_text(random).encode("utf-8" if tag == _UTF8_STRING else "ascii", "ignore")
    if random.random() < 0.1:
        tag, value = 0x04, random.randbytes(random.choice((4, 200)))
    return _element(0x30, _element(0x06, _number(random.choice(_TYPES))) + _element(tag, value))


def _number(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    encoded = bytearray()
    for number in (40 * first + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        encoded += bytes(reversed(groups))
    return bytes(encoded)


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content
