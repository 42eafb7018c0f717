"""Prometheus' text: lines of a scrape, of OpenMetrics, and of ``promtool tsdb dump``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kquota.pipeline.ingest.request_log.line import RejectedLineError

__all__ = ["NO_NAME", "Sample", "epoch_ms", "parse_labels", "parse_sample", "scraped_at_ms", "time_in_name_ms"]

NO_NAME: Final = "a series without a name: fetch the metric itself, not a function of it"

_LABELS: Final = r'\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}'
_SAMPLE: Final = re.compile(
    rf"\s*(?P<series>[a-zA-Z_:][\w:]*\s*{_LABELS}|[a-zA-Z_:][\w:]*(?=\s)|{_LABELS})"
    r"\s*(?P<value>[^\s#]+)(?:\s+(?P<time>[^\s#]+))?\s*(?:#.*)?",
    re.DOTALL,
)
_LABEL: Final = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[a-zA-Z_][\w.:-]*))\s*(?:=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*)?(?:,|$)',
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_SCRAPED_AT: Final = re.compile(r"#\s*scraped_at\s*[:=]?\s*(\S.*)")
_NUMBER_IN_NAME: Final = re.compile(r"(?<!\d)(?:\d{13}|\d{10})(?!\d)")
_DATE_IN_NAME: Final = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_](\d\d)[:.-]?(\d\d)[:.-]?(\d\d)(?:\.\d+)?Z")

_FIRST_MS: Final = 100_000_000_000
"""Less than this is a time in seconds: in ms it would be 1973."""


class Sample(NamedTuple):
    """One line. `series` is the text before the value; `at_ms` None where the line has no time."""

    series: str
    value: float
    at_ms: int | None


def parse_sample(line: str) -> Sample:
    """Read one line that is neither blank nor a comment.

    :raises RejectedLineError: it is not a sample.
    """
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise RejectedLineError("not a line of Prometheus' text format")
    try:
        value = float(match["value"])
        return Sample(match["series"].strip(), value, None if match["time"] is None else epoch_ms(float(match["time"])))
    except ValueError:
        raise RejectedLineError("not a line of Prometheus' text format: the value or the time is no number") from None


def epoch_ms(time: float) -> int:
    """A time as its exporter wrote it, in seconds or in milliseconds.

    :raises ValueError: it is not a time.
    """
    if not 0 <= time < _FIRST_MS * 1000:
        raise ValueError
    return round(time if time >= _FIRST_MS else time * 1000)


def parse_labels(series: str) -> dict[str, str]:
    """The labels of a series, `__name__` among them.

    :raises RejectedLineError: they cannot be read.
    """
    name, brace, rest = series.partition("{")
    labels = {"__name__": name.strip()} if name.strip() else {}
    inner = rest.removesuffix("}") if brace else ""
    position = 0
    while position < len(inner) and inner[position:].strip():
        match = _LABEL.match(inner, position)
        if match is None:
            raise RejectedLineError("not a line of Prometheus' text format: broken labels")
        label = match["plain"] or _unescaped(match["quoted"] or "")
        if match["value"] is not None:
            labels[label] = _unescaped(match["value"])
        elif match["quoted"] is not None and "__name__" not in labels:
            labels["__name__"] = label
        else:
            raise RejectedLineError("not a line of Prometheus' text format: broken labels")
        position = match.end()
    if "__name__" not in labels:
        raise RejectedLineError(NO_NAME)
    return labels


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


def scraped_at_ms(comment: str) -> int | None:
    """The time that a comment ``# scraped_at 1767323045`` says; None where it is another comment.

    :raises RejectedLineError: its text is no time.
    """
    match = _SCRAPED_AT.match(comment)
    if match is None:
        return None
    try:
        return epoch_ms(float(match[1]))
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(match[1].strip())
    except ValueError:
        raise RejectedLineError("no time after scraped_at: give seconds, milliseconds or ISO 8601") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def time_in_name_ms(name: str) -> int | None:
    """When a scrape was made, by the name of its file: epoch seconds, milliseconds, or ``20260102T030405Z``."""
    for match in _DATE_IN_NAME.finditer(name):
        try:
            return round(datetime(*map(int, match.groups()), tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]
        except ValueError:
            continue
    number = _NUMBER_IN_NAME.search(name)
    return None if number is None else epoch_ms(float(number[0]))
