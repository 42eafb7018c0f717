"""Figures as people read them: units and names of quota keys, amounts, rates, durations and times. Pure text.

A space within a figure is a no-break space where a page may break its lines; :func:`duration` has plain ones, for the
terminal, unless it is given another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from kquota.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    format_number,
)

__all__ = [
    "ESTIMATED_KEYS",
    "NO_BREAK",
    "QUOTA_KEYS",
    "Figure",
    "Scale",
    "amount_figure",
    "change",
    "count",
    "duration",
    "exact",
    "key_words",
    "limit_text",
    "moment",
    "offset_text",
    "percent",
    "rate_figure",
    "rate_scale",
    "requests",
    "rule_words",
    "share",
]


class _Words(NamedTuple):
    name: str
    """What the key limits."""
    rate: str
    amount: str
    short: str
    """Unit of a limit on the terminal."""


_KEYS: Final = {
    PRODUCER_BYTE_RATE: _Words("Produce", "bytes/s", "bytes", "B/s"),
    CONSUMER_BYTE_RATE: _Words("Fetch", "bytes/s", "bytes", "B/s"),
    REQUEST_PERCENTAGE: _Words("Request time", "% of a thread", "percent-seconds of a thread", "%"),
    CONTROLLER_MUTATION_RATE: _Words("Topic changes", "partitions/s", "partitions", "/s"),
    CONNECTION_CREATION_RATE: _Words("New connections", "connections/s", "connections", "/s"),
}
_OTHER_KEY: Final = _Words("", "per second", "", "/s")

QUOTA_KEYS: Final = tuple(_KEYS)
"""Kafka's keys in the order in which a page or a table goes through them."""
ESTIMATED_KEYS: Final = frozenset({REQUEST_PERCENTAGE, CONNECTION_CREATION_RATE})
"""Keys for which a request log gives an estimate of the amount."""

_LEVEL_WORDS: Final = {
    1: "this user with this client-id",
    2: "this user, any client-id",
    3: "this user",
    4: "any user with this client-id",
    5: "any user, any client-id",
    6: "any user",
    7: "this client-id",
    8: "any client-id",
    9: "the broker's static default",
}

NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_BINARY: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_DECIMAL: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def key_words(key: str) -> str:
    """What a quota key limits: 'Produce' for producer_byte_rate. A key that is not one of Kafka's has its own name."""
    return _KEYS[key].name if key in _KEYS else key


def rule_words(limit_source: str | None, level: int | None) -> str:
    """What the winning rule is set on: its entity as canonical text, and Kafka's level of precedence, 1 to 9."""
    if (limit_source or "").startswith("ip="):
        return "any address" if limit_source == "ip=<default>" else "this address"
    return _LEVEL_WORDS.get(level or 0, "a custom rule")


def limit_text(key: str, value: float) -> str:
    """A limit on the terminal, in full: '400000 B/s'."""
    return f"{format_number(value)} {_KEYS.get(key, _OTHER_KEY).short}"


@dataclass(frozen=True, slots=True)
class Figure:
    """`text` for reading, `exact` for the title attribute: the plain number and its unit."""

    text: str
    exact: str


@dataclass(frozen=True, slots=True)
class Scale:
    """One unit for all figures of a chart: value / divisor is in `unit`."""

    divisor: float
    unit: str


def exact(value: float) -> str:
    """Plain digits: whole numbers without point, never an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value):
        return str(int(value))
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _short(value: float) -> str:
    """Three significant digits, whole from 100 on."""
    if not math.isfinite(value):
        return "∞" if value > 0 else exact(value)
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    digits = 1 if size >= 9.995 else 2 if size >= 0.095 else 4
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scale(largest: float, unit: str) -> Scale:
    size = abs(largest) if math.isfinite(largest) else 0.0
    if unit.startswith("bytes"):
        for factor, name in _BINARY:
            if size >= factor * 0.9995:
                return Scale(float(factor), name + unit.removeprefix("bytes"))
    elif not unit.startswith(("%", "percent")):
        for step, letter in _DECIMAL:
            if size >= step * 10:
                return Scale(step, f"{letter} {unit}")
    return Scale(1.0, unit)


def rate_scale(key: str, largest: float) -> Scale:
    """The unit in which rates of `key` up to `largest` are best read."""
    return _scale(largest, _KEYS.get(key, _OTHER_KEY).rate)


def _figure(value: float | None, unit: str) -> Figure:
    if value is None:
        return Figure("unknown", "not known from the log")
    scale = _scale(value, unit)
    separator = " " if scale.unit[:1].isalpha() else NO_BREAK
    return Figure(f"{_short(value / scale.divisor)}{separator}{scale.unit}", f"{exact(value)} {unit}")


def rate_figure(key: str, value: float | None) -> Figure:
    """A rate of a quota key, in its unit per second."""
    return _figure(value, _KEYS.get(key, _OTHER_KEY).rate)


def amount_figure(key: str, value: float | None) -> Figure:
    """An amount of a quota key; time of threads as time."""
    if key == REQUEST_PERCENTAGE and value is not None and math.isfinite(value):
        # A hundred percent-seconds are one second of one thread.
        return Figure(f"{duration(value * 10, NO_BREAK)} of a thread", f"{exact(value)} {_KEYS[key].amount}")
    return _figure(value, _KEYS.get(key, _OTHER_KEY).amount)


def percent(part: float | None) -> str:
    """0.873 -> '87 %'. Parts below 10 % keep a decimal, so that little is not shown as nothing."""
    if part is None:
        return "unknown"
    if not math.isfinite(part):
        return "∞"
    value = part * 100
    if 0 < value < 0.1:
        return f"< 0.1{NO_BREAK}%"
    text = f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:,.0f}"
    return f"{text}{NO_BREAK}%"


def share(part: float | None) -> str:
    """0.9842 -> '98.4 %'. All and nothing are said only where it is all or nothing."""
    if part is None:
        return "unknown"
    value = part * 100 if part in (0, 1) else min(max(part * 100, 0.1), 99.9)
    return f"{value:.1f}".removesuffix(".0") + f"{NO_BREAK}%"


def change(before: float | None, after: float | None) -> str:
    """(8, 5) -> '-38 %', with the minus sign of print; 'as recorded' where it is less than 0.05 %."""
    if before is None or after is None or not math.isfinite(before) or not math.isfinite(after):
        return "unknown"
    if before == 0:
        return "as recorded" if after == 0 else "more"
    part = after / before - 1
    if abs(part) < 0.0005:
        return "as recorded"
    return ("+" if part > 0 else "\N{MINUS SIGN}") + percent(abs(part))


def count(value: int | None) -> str:
    """'1,234', or that it was not recorded."""
    return "not recorded" if value is None else f"{value:,}"


def requests(value: int | None) -> str:
    """'1,234 requests', or just that there were some."""
    return "requests" if value is None else f"{value:,} requests"


def duration(milliseconds: float | None, space: str = " ") -> str:
    """'850 ms', '12.3 s', '4 min 05 s', '3 h 12 min', '2 d 4 h'; `space` is between a number and its unit."""
    if milliseconds is None:
        return "not recorded"
    if milliseconds < 1000:
        return f"{milliseconds:.0f}{space}ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + f"{space}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}{space}min {whole % 60:02d}{space}s"
    if whole < 172_800:
        return f"{whole // 3600}{space}h {whole % 3600 // 60:02d}{space}min"
    return f"{whole // 86_400:,}{space}d {whole % 86_400 // 3600}{space}h"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at_ms: int, zone: tzinfo, *, seconds: bool = True) -> str:
    """'2026-01-02 03:04:05' in `zone`."""
    local = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def offset_text(at_ms: int, zone: tzinfo) -> str:
    """'UTC+02:00', the offset of `zone` at that moment."""
    offset = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone).utcoffset() or timedelta()
    minutes = round(offset.total_seconds() / 60)
    if minutes == 0:
        return "UTC"
    sign = "-" if minutes < 0 else "+"
    return f"UTC{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
