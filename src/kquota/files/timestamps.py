"""Moments as the names of files: ISO 8601 in UTC, with colons or, for file systems that know none, without."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["parse_timestamp", "timestamp_name"]

_DATE: Final = r"(?P<year>[0-9]{4})(?P<dash>-?)(?P<month>[0-9]{2})(?P=dash)(?P<day>[0-9]{2})"
_TIME: Final = (
    r"(?P<hour>[0-9]{2})(?P<colon>:?)(?P<minute>[0-9]{2})"
    r"(?:(?P=colon)(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,3}))?)?"
)
_MOMENT: Final = re.compile(rf"{_DATE}(?:T{_TIME}Z)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_timestamp(text: str) -> int | None:
    """Milliseconds since the epoch of ``2026-01-02T03:04:05Z``, ``2026-01-02T030405.678Z`` or ``2026-01-02``.

    A date alone is its midnight. None for anything else, a time without its ``Z`` included: it would be anyone's.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    numbers = [int(found[name] or 0) for name in ("year", "month", "day", "hour", "minute", "second")]
    try:
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type, misc] # six of them
    except ValueError:
        return None
    return (moment - _EPOCH) // _MILLISECOND + int((found["fraction"] or "").ljust(3, "0"))


def timestamp_name(at_ms: int) -> str:
    """The text of a moment without colons, such as ``2026-01-02T030405Z``; milliseconds only where there are some."""
    moment = (_EPOCH + at_ms * _MILLISECOND).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace(":", "") + "Z"
