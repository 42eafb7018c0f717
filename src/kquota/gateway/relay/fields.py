"""Walking over the fields of a message without decoding it.

Every function takes the bytes and a position in them, and gives a position that is not behind their end. They raise
IndexError where the bytes end before the field does: for who has only the beginning of a frame that means more bytes
are needed, for others that the message is malformed. `is_compact` is whether lengths are those of flexible versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from kquota.errors import MalformedMessageError
from kquota.gateway.relay.actions import Action
from kquota.wire.primitives import read_compact_length, read_uvarint, skip_tags

__all__ = [
    "after_array",
    "after_bytes",
    "after_header",
    "after_tags",
    "after_text",
    "announced_end",
    "forward",
    "read_count",
    "read_i16",
    "read_i32",
    "read_text",
    "read_uvarint",
]

_SIZE_BYTES: Final = 4

_i16 = struct.Struct(">h").unpack_from
_i32 = struct.Struct(">i").unpack_from


def announced_end(frame: bytes) -> int:
    """Where a frame ends, as its size says.

    :raises IndexError: its size is not there yet.
    :raises MalformedMessageError: the size is negative.
    """
    size = read_i32(frame, 0)
    if size < 0:
        raise MalformedMessageError(f"a frame of {size} bytes")
    return _SIZE_BYTES + size


def after_header(frame: bytes, action: Action) -> int:
    """The position of the body of a response, in a frame with its size."""
    if not action.has_tagged_header:
        return forward(frame, 0, action.body_at)
    return skip_tags(frame, action.body_at - 1)


def forward(data: bytes, at: int, size: int) -> int:
    """The position `size` bytes later."""
    at += size
    if at > len(data):
        raise IndexError
    return at


def read_i16(data: bytes, at: int) -> int:
    """A number of two bytes."""
    try:
        number: int = _i16(data, at)[0]
    except struct.error:
        raise IndexError from None
    return number


def read_i32(data: bytes, at: int) -> int:
    """A number of four bytes."""
    try:
        number: int = _i32(data, at)[0]
    except struct.error:
        raise IndexError from None
    return number


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A compact length, most of which have one byte, negative for null; and the position after it."""
    first = data[at]
    return (first - 1, at + 1) if first < 0x80 else read_compact_length(data, at)


def read_count(data: bytes, at: int, *, is_compact: bool) -> tuple[int, int]:
    """The length of an array, negative for null; and the position after it."""
    return _length(data, at) if is_compact else (read_i32(data, at), at + 4)


def read_text(data: bytes, at: int, *, is_compact: bool) -> tuple[str, int]:
    """A text, empty for null, and the position after it. What is not UTF-8 becomes U+FFFD."""
    size, at = _length(data, at) if is_compact else (read_i16(data, at), at + 2)
    end = forward(data, at, max(size, 0))
    return data[at:end].decode("utf-8", "replace"), end


def after_text(data: bytes, at: int, *, is_compact: bool) -> int:
    """The position after a text, or null."""
    size, at = _length(data, at) if is_compact else (read_i16(data, at), at + 2)
    return forward(data, at, size) if size > 0 else at


def after_bytes(data: bytes, at: int, *, is_compact: bool) -> int:
    """The position after bytes, or null."""
    size, at = read_count(data, at, is_compact=is_compact)
    return forward(data, at, max(0, size))


def after_tags(data: bytes, at: int) -> int:
    """The position after a tag section. More than a thousand tags, or a negative size, are malformed."""
    return at + 1 if data[at] == 0 else skip_tags(data, at)


def after_array(data: bytes, at: int, after_element: Callable[[bytes, int], int], *, is_compact: bool) -> int:
    """The position after an array whose elements `after_element` walks over. Each has to have a byte or more."""
    count, at = read_count(data, at, is_compact=is_compact)
    for _ in range(count):
        at = after_element(data, at)
    return at
