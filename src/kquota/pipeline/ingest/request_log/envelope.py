"""Log lines that a shipper wrapped: a JSON object for each, with the line in one of its fields.

Filebeat, Vector and Logstash call the field ``message``, Fluent Bit and Docker ``log``. A name with dots is a field of
an object in a field: ``event.original``.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kquota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_envelope", "unwrapped", "why_rejected"]

_NAMES: Final = ("a", "b", "c", "d", "e", "f", "g", "h")


def check_envelope(field: str) -> None:
    """:raises InputError: the name is none of a field."""
    if field and (not all(field.split(".")) or field.count(".") >= len(_NAMES)):
        raise InputError(f"`envelope` {field}: give the name of a field, such as message, or log.original")


def unwrapped(block: bytes, field: str) -> bytes:
    """The lines that a block of lines carries, whole lines as well. A line that carries none is there as it was."""
    if not field:
        return block
    decode = _decoder(field)
    lines = []
    for line in block.split(b"\n"):
        try:
            # A shipper may leave the line's ending in the field; within a line there is none.
            lines.append(decode(line).rstrip("\r\n").replace("\n", " ").encode())
        except (msgspec.DecodeError, UnicodeEncodeError):
            lines.append(line)
    return b"\n".join(lines)


def why_rejected(line: bytes, field: str) -> str | None:
    """Why a line that is still wrapped is no line of a log; None for one that is not."""
    if not line.startswith(b"{"):
        return None
    if not field:
        return "a JSON object: where a shipper wrapped the lines, `envelope` names the field that holds them"
    return f"a JSON object without a text in its field {field}"


@lru_cache(maxsize=8)
def _decoder(field: str) -> Callable[[bytes], str]:
    """A function that gives the text of a field. Other fields are passed over without being read into objects."""
    parts = field.split(".")
    names = _NAMES[: len(parts)]
    kind: type = str
    for part, name in zip(reversed(parts), reversed(names), strict=True):
        kind = msgspec.defstruct("Envelope", [(name, kind)], rename={name: part})
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
    text = attrgetter(".".join(names))
    return lambda line: text(decoder.decode(line))
