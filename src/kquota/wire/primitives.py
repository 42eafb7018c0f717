"""Lengths, texts and tagged fields as bytes: what the codecs are put together from."""

from __future__ import annotations

import codecs
import re
from struct import Struct
from typing import Final

from kquota.errors import IllegalArgumentError, MalformedMessageError

__all__ = [
    "AS_JAVA",
    "COMPACT_LENGTHS",
    "COMPACT_NULL",
    "COMPACT_WORDS",
    "LENGTHS",
    "NULL_ARRAY",
    "NULL_STRING",
    "TEXTS",
    "WORDS",
    "check_text",
    "compact_length",
    "compact_text",
    "length",
    "read_compact_length",
    "read_uvarint",
    "skip_tags",
    "text",
    "uvarint",
]

MAX_TEXT_BYTES: Final = 32_767
MAX_TAGS: Final = 1_000

NULL_STRING: Final = b"\xff\xff"
NULL_ARRAY: Final = b"\xff\xff\xff\xff"
COMPACT_NULL: Final = b"\0"

_pack_i16 = Struct(">h").pack
_pack_i32 = Struct(">i").pack


AS_JAVA: Final = "kquota-as-java"
"""How to read invalid UTF-8, for ``bytes.decode``: as Java does."""


_NEVER_FIRST: Final = re.compile(rb"[\x80-\xc1\xf5-\xff]*")
"""Bytes with which no character begins."""


def _as_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD where Python and Java agree, and one for half a surrogate pair, of which Python would make several.

    Those of the bytes that follow are given along, as each call costs more than the rest of the decoding.
    """
    assert isinstance(error, UnicodeDecodeError)
    raw, at, end = error.object, error.start, error.end
    if raw[at] == 0xED and raw[at + 1 : at + 2] >= b"\xa0":
        end = at + 1
        while end < len(raw) and end < at + 3 and raw[end] & 0xC0 == 0x80:
            end += 1
    following = _NEVER_FIRST.match(raw, end)
    last = following.end() if following else end
    return "\ufffd" * (1 + last - end), last


codecs.register_error(AS_JAVA, _as_java)


def uvarint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most five bytes as Kafka reads it: as a signed one of 32 bits; and the position after it.

    :raises MalformedMessageError: it is longer.
    :raises IndexError: the bytes end before it does.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise MalformedMessageError("a number has more than five bytes")
    value &= 0xFFFFFFFF
    return (value - (1 << 32) if value >= 1 << 31 else value), at


def read_compact_length(data: bytes, at: int) -> tuple[int, int]:
    """The length of a text or an array in flexible versions, negative for null; and the position after it.

    Less one, the least number of 32 bits is the largest, as in Java.

    :raises MalformedMessageError: it has more than five bytes.
    :raises IndexError: the bytes end before it does.
    """
    value, at = read_uvarint(data, at)
    return (value - 1 if value != -(1 << 31) else (1 << 31) - 1), at


def skip_tags(data: bytes, at: int) -> int:
    """The position after a section of tagged fields.

    :raises MalformedMessageError: one of its numbers has more than five bytes, a size is negative, or there are more
        than a thousand fields: no message has so many, and to skip millions takes seconds.
    :raises IndexError: the bytes end before it does.
    """
    count, at = read_uvarint(data, at)
    if count > MAX_TAGS:
        raise MalformedMessageError(f"{count} tagged fields, {MAX_TAGS} are the most")
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if size < 0:
            raise MalformedMessageError("a tagged field has a negative size")
        at += size
        if at > len(data):
            raise IndexError
    return at


def length(count: int) -> bytes:
    """The length of an array."""
    return _pack_i32(count)


def compact_length(count: int) -> bytes:
    """The length of an array, or of a text, in flexible versions."""
    return uvarint(count + 1)


def text(value: str) -> bytes:
    """A text with its length.

    :raises IllegalArgumentError: it has more than 32,767 bytes.
    """
    raw = value.encode()
    return _pack_i16(len(raw)) + raw if len(raw) <= MAX_TEXT_BYTES else _too_long(raw)


def compact_text(value: str) -> bytes:
    """A text with its length, in flexible versions.

    :raises IllegalArgumentError: it has more than 32,767 bytes.
    """
    raw = value.encode()
    size = len(raw)
    if size < 127:
        return COMPACT_LENGTHS[size] + raw
    return compact_length(size) + raw if size <= MAX_TEXT_BYTES else _too_long(raw)


def check_text(value: str) -> None:
    """Refuse what no message can hold.

    :raises IllegalArgumentError: it has more than 32,767 bytes.
    """
    raw = value.encode()
    if len(raw) > MAX_TEXT_BYTES:
        _too_long(raw)


def _too_long(raw: bytes) -> bytes:
    raise IllegalArgumentError(f"a name or text of {len(raw)} bytes cannot be sent: {MAX_TEXT_BYTES} are the most")


LENGTHS: Final = tuple(length(count) for count in range(127))
COMPACT_LENGTHS: Final = tuple(compact_length(count) for count in range(127))

# What stands in nearly every message, and need not be encoded and decoded each time.
_USUAL: Final = (
    "user",
    "client-id",
    "ip",
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
TEXTS: Final = {word.encode(): word for word in _USUAL}
WORDS: Final = {word: text(word) for word in _USUAL}
COMPACT_WORDS: Final = {word: compact_text(word) for word in _USUAL}
