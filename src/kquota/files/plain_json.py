"""JSON with plain numbers: whole ones without a point, never an exponent, NaN and infinities as strings."""

import json
import math
from collections.abc import Mapping, Sequence

from kquota.printable import printable
from kquota.quotas import format_number

__all__ = ["dump_json"]


def dump_json(value: object) -> str:
    """``value`` on one line, its numbers plain, its control characters escaped.

    Mappings keep their order; anything but mappings, sequences, text, numbers, booleans and None raises TypeError.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return printable(json.dumps(value, ensure_ascii=False))
        case int():
            return format_number(value)  # of any size
        case float():
            text = format_number(value)
            return text if math.isfinite(value) else f'"{text}"'
        case Mapping():
            return "{" + ", ".join([f"{dump_json(str(k))}: {dump_json(v)}" for k, v in value.items()]) + "}"
        case Sequence():
            return "[" + ", ".join([dump_json(item) for item in value]) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form here")
