"""What the page says of meters, causes and states, and names made safe to look at."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kquota import figures
from kquota.pipeline.meters import episodes
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import Row

__all__ = [
    "ShownName",
    "cause_words",
    "duration",
    "is_certain",
    "meter_words",
    "ratio",
    "shown_name",
    "state_of",
    "visible",
]

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LONGEST_NAME: Final = 96
_LONGEST_TITLE: Final = 600


def duration(milliseconds: float | None) -> str:
    """'4 min 05 s' that breaks between the minutes and the seconds alone."""
    return figures.duration(milliseconds, figures.NO_BREAK)


def meter_words(meter: str | None) -> str:
    """The clients that a meter counts."""
    if meter is None:
        return "no known limit"
    tags = {part.partition("=")[0] for part in meter.split(",")}
    match ("user" in tags, "client-id" in tags):
        case (True, True):
            return "one user with one client-id"
        case (True, False):
            return "all clients of the user"
        case (False, True):
            return "all users of the client-id"
        case _:
            return "one address" if "ip" in tags else "all clients"


def cause_words(cause: str) -> str:
    """What throttled, from the column `cause` of `throttled`."""
    match cause:
        case episodes.AMBIGUOUS:
            return "one of several limits"
        case episodes.UNEXPLAINED:
            return "no limit known here"
        case _:
            return f"the {figures.key_words(cause).lower()} limit"


def ratio(rate: float | None, limit: float | None) -> float | None:
    """Part of the limit that `rate` is, None where either is unknown or the limit is not a positive number."""
    return rate / limit if rate is not None and limit is not None and limit > 0 else None


def is_certain(throttle: Row) -> bool:
    """Whether at least one episode of a meter has no other explanation than its limit.

    :param throttle: as :func:`~kquota.pipeline.report.timeline.throttled_by_meter` gives it.
    """
    return bool(throttle.ambiguous < throttle.episodes)


def state_of(row: Row) -> str:
    """'throttled', 'maybe' (by this limit or another), 'close' (95th percentile at 80 % or more), 'free', 'unknown'.

    :param row: as `limited` of :class:`~kquota.pipeline.report.contents.Report` has it.
    """
    # A request percentage throttles requests of every kind, and those are counted on the key of their API.
    # Metrics are of the meter alone.
    by_meter = row.throttle is not None and (row.key == REQUEST_PERCENTAGE or row.throttled_requests is None)
    if row.throttled_requests or by_meter:
        return "throttled" if row.throttle is None or is_certain(row.throttle) else "maybe"
    part = None if row.use is None else ratio(row.use.rate_p95, row.limit)
    if part is None:
        return "unknown"
    return "close" if part >= 0.8 else "free"


@dataclass(frozen=True, slots=True)
class ShownName:
    """`text` is short and shows every character as itself or as its code; `title` holds more where it was cut."""

    text: str
    title: str | None = None


def shown_name(name: str, longest: int = _LONGEST_NAME) -> ShownName:
    r"""A name for a page: control and direction characters as \u{code}, a long one without its middle.

    Direction marks must not reorder the text around them, and an invisible character must not hide.
    """
    # Cutting first keeps this cheap for a name of any length.
    whole = visible(name[:_LONGEST_TITLE])
    if len(name) <= longest and len(whole) <= longest * 2:
        return ShownName(whole)
    more = "…" if len(name) > _LONGEST_TITLE else ""
    return ShownName(f"{visible(name[: longest - 16])}…{visible(name[-8:])} ({len(name):,} characters)", whole + more)


def visible(text: str) -> str:
    r"""Control, direction and other characters that cannot be seen, as \u{code}; the rest as it is."""
    if text.isprintable():  # nearly always, and much faster
        return text
    return "".join(f"\\u{{{ord(one):x}}}" if unicodedata.category(one) in _INVISIBLE else one for one in text)
