"""JSON with plain numbers: whole ones without a point, never an exponent, NaN and infinities as strings."""

import json
import math
from collections.abc import Callable, Mapping, Sequence

from kquota.printable import printable
from kquota.quotas import format_number

__all__ = ["dump_json", "flow"]


def dump_json(value: object) -> str:
    """``value`` on one line, its numbers plain, its control characters escaped.

    Mappings keep their order; anything but mappings, sequences, text, numbers, booleans and None raises TypeError.
    """
    return flow(value, _json_text, _json_text)


def flow(value: object, text: Callable[[str], str], key: Callable[[str], str]) -> str:
    """``value`` on one line as JSON and YAML have it, which write texts and keys of mappings in their own ways."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return text(value)
        case int():
            return format_number(value)  # of any size
        case float():
            number = format_number(value)
            return number if math.isfinite(value) else f'"{number}"'
        case Mapping():
            return "{" + ", ".join([f"{key(str(k))}: {flow(v, text, key)}" for k, v in value.items()]) + "}"
        case Sequence():
            return "[" + ", ".join([flow(item, text, key) for item in value]) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON or YAML form here")


def _json_text(text: str) -> str:
    return printable(json.dumps(text, ensure_ascii=False))
