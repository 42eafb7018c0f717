"""Numbers as people write and read them: ``10MiB`` in, plain digits out."""

import math
import re

from kquota.errors import IllegalArgumentError

__all__ = ["format_number", "parse_quantity"]

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_PLAIN = re.compile(rf"{_NUMBER}(?:[eE][+-]?[0-9]+)?")
_SIZED = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)(?:/s)?")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
_FACTORS = {
    "B": 1,
    **dict.fromkeys(("K", "k", "KB", "kB"), 1000),
    **dict.fromkeys(("M", "MB"), 1000**2),
    **dict.fromkeys(("G", "GB"), 1000**3),
    **dict.fromkeys(("T", "TB"), 1000**4),
    **dict.fromkeys(("Ki", "KiB"), 1024),
    **dict.fromkeys(("Mi", "MiB"), 1024**2),
    **dict.fromkeys(("Gi", "GiB"), 1024**3),
    **dict.fromkeys(("Ti", "TiB"), 1024**4),
}
_LONGEST = 400


def parse_quantity(text: str) -> float:
    """A quota value as written: ``1048576``, ``12.5``, ``1e6``, ``10MiB`` (binary), ``10MB`` or ``10M`` (decimal).

    A trailing ``/s`` after a unit is allowed. ``NaN`` and ``Infinity`` are read too; whether a key takes them is not
    decided here. Sizes are exact: ``2.3MB`` is 2300000.

    Raises :class:`~kquota.errors.IllegalArgumentError` for anything else.
    """
    stripped = text.strip()
    special = _SPECIAL.get(stripped)
    if special is not None:
        return special
    if len(stripped) <= _LONGEST:
        if _PLAIN.fullmatch(stripped):
            return float(stripped)
        sized = _SIZED.fullmatch(stripped)
        if sized is not None and (factor := _FACTORS.get(sized[2])) is not None:
            whole, _, fraction = sized[1].partition(".")
            scale: int = 10 ** len(fraction)
            # One correctly rounded division; multiplying floats would make 2.3MB a fraction less than 2300000.
            try:
                return int(whole + fraction) * factor / scale
            except OverflowError:
                return -math.inf if whole.startswith("-") else math.inf
    shown = stripped if len(stripped) <= 40 else stripped[:40] + "..."
    raise IllegalArgumentError(
        f"{shown!r} is not a number; write digits, or a size such as 10MiB (1024-based: KiB, MiB, GiB, TiB) "
        "or 10MB (1000-based: kB, MB, GB, TB, or K, M, G, T)"
    )


def format_number(value: float) -> str:
    """``value`` in plain digits: whole numbers without a point, never an exponent; ``NaN``, ``Infinity``.

    ``float(format_number(value)) == value`` for every number.
    """
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if value in (math.inf, -math.inf):
        return "Infinity" if value > 0 else "-Infinity"
    if value == (whole := int(value)):
        return str(whole)
    text = repr(float(value))
    if "e" not in text:
        return text
    # Only small fractions are left: large numbers are whole.
    mantissa, exponent = text.split("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{digits}"
