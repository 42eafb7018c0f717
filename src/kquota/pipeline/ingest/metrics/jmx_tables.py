"""Tables of MBeans' attributes over time: what Kafka's JmxTool prints in its four formats, and one row per value.

====================  ==============================================================================
``original``          a header ``"time","kafka.server:type=Produce,user=alice:byte-rate",...``, a row per tick
``csv``               a line ``kafka.server:type=Produce,user=alice:byte-rate,"0.0"`` per value, ``time`` first
``tsv, properties``   the same with a tab, and with ``=``
rows                  a header ``epoch_ms,mbean,attribute,value``, a row per value (examples/capture)
====================  ==============================================================================

JmxTool puts its keys between quotes as they are: a key may hold commas and quotes of its own.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kquota.pipeline.ingest.metrics.prometheus_text import epoch_ms
from kquota.pipeline.ingest.request_log.line import RejectedLineError

__all__ = ["JmxTable", "JmxValue"]

_ROWS_HEADER: Final = ["epoch_ms", "mbean", "attribute", "value"]
_PAIR: Final = {
    "csv": re.compile(r'(?P<key>.+),"(?P<value>[^"]*)"'),
    "tsv": re.compile(r"(?P<key>.+)\t(?P<value>[^\t]*)"),
    "properties": re.compile(r"(?P<key>.+)=(?P<value>[^=]*)"),
}
_BACK: Final = "time goes back: out of order, or the clock was set back"
_UNKNOWN: Final = (
    "not what JmxTool prints, nor epoch_ms,mbean,attribute,value: JmxTool writes no header where "
    "attributes came or went while it started: start it again"
)
_NOT_MS: Final = "the time is not in epoch milliseconds: run JmxTool without --date-format"


class JmxValue(NamedTuple):
    """One value at one time, as text; `key` is ``MBean:attribute``."""

    at_ms: int
    key: str
    value: str


class JmxTable:
    """Reads one file line by line, whichever form it has."""

    def __init__(self) -> None:
        self._form = ""
        self._keys: Sequence[str] = ()
        self._latest_ms: int | None = None
        self._is_refused = False  # the tick with the pairs that are being read

    def read(self, line: str) -> Iterator[JmxValue]:
        """The values of a line that is not blank.

        :raises RejectedLineError: the line cannot be used.
        """
        is_header = self._is_header(line)
        if not is_header and not self._form:
            raise RejectedLineError(_UNKNOWN)
        if is_header and self._form in ("original", "rows"):
            return
        match self._form:
            case "original":
                yield from self._tick(line)
            case "rows":
                yield self._row(line)
            case _:
                yield from self._pair(line)

    def _is_header(self, line: str) -> bool:
        """Whether the line says the form; a file may hold the output of several runs."""
        if line.startswith('"time"'):
            self._form, self._keys = "original", line.strip().removeprefix('"').removesuffix('"').split('","')[1:]
        elif line.split(",") == _ROWS_HEADER:
            self._form = "rows"
        elif not self._form:
            pairs = ((form, pair.fullmatch(line)) for form, pair in _PAIR.items())
            self._form = next((form for form, match in pairs if match and match["key"] == "time"), "")
            return bool(self._form)
        else:
            return False
        return True

    def _tick(self, line: str) -> Iterator[JmxValue]:
        values = line.split(",")
        if len(values) != len(self._keys) + 1:
            raise RejectedLineError(f"{len(values)} values under a header of {len(self._keys) + 1}")
        at_ms = self._forward(values[0])
        for key, value in zip(self._keys, values[1:], strict=True):
            yield JmxValue(at_ms, key, value)

    def _row(self, line: str) -> JmxValue:
        try:
            [values] = csv.reader([line], strict=True)
            time, mbean, attribute, value = values
        except (ValueError, csv.Error):
            raise RejectedLineError("not a row of epoch_ms,mbean,attribute,value") from None
        return JmxValue(self._forward(time), f"{mbean}:{attribute}", value)

    def _pair(self, line: str) -> Iterator[JmxValue]:
        match = _PAIR[self._form].fullmatch(line)
        if match is None:
            raise RejectedLineError(f"not a line of JmxTool's format {self._form}")
        if match["key"] == "time":
            self._is_refused = True
            self._forward(match["value"])
            self._is_refused = False
        elif not self._is_refused and self._latest_ms is not None:
            yield JmxValue(self._latest_ms, match["key"], match["value"])

    def _forward(self, text: str) -> int:
        """A time that is not before the latest."""
        try:
            at_ms = epoch_ms(float(text.strip('"')))
        except ValueError:
            raise RejectedLineError(_NOT_MS) from None
        if self._latest_ms is not None and at_ms < self._latest_ms:
            raise RejectedLineError(_BACK)
        self._latest_ms = at_ms
        return at_ms
