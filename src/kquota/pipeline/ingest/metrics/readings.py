"""Readings of a broker's metrics, as a worker gathers and stages them.

A reading is one value of one series of usage or throttle times at one time. What it means for a second of usage needs
its neighbours, which may stand in other files; see :mod:`kquota.pipeline.ingest.metrics.usage`.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import isinf, isnan
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.writing import TableWriter
from kquota.pipeline.ingest.metrics.mapping import Reading
from kquota.pipeline.ingest.metrics.metric_files import MetricFile, MetricInputs
from kquota.pipeline.ingest.metrics.series import NotUsage, QuotaSeries
from kquota.pipeline.ingest.request_log.cells import Ints
from kquota.pipeline.ingest.request_log.line import RejectedLineError
from kquota.pipeline.ingest.samples import printable

__all__ = ["READINGS_SCHEMA", "SERIES_SCHEMA", "Known", "MetricManifest", "MetricOptions", "Origin", "Reader"]

SERIES_SCHEMA: Final = pa.schema(
    [
        ("meter", pa.int64()),
        ("broker_id", pa.int32()),
        ("key", pa.string()),
        ("grain", pa.string()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("ip", pa.string()),
        ("origin", pa.int64()),
        ("origin_text", pa.string()),
    ]
)
"""One row per series of a file. `meter` is a number for the columns that follow it up to `ip`, `origin` one for an
:class:`Origin` as text; other files have the same numbers for the same."""
READINGS_SCHEMA: Final = pa.schema(
    [
        ("meter", pa.int64()),
        ("origin", pa.int64()),
        ("reading", pa.int8()),
        ("at_ms", pa.int64()),
        ("value", pa.float64()),
    ]
)
"""One row per value; `reading` is one of :class:`~kquota.pipeline.ingest.metrics.mapping.Reading`."""

_BUFFERED_READINGS: Final = 1_000_000
_COUNTED_SERIES: Final = 200_000
_NAMED_METRICS: Final = 10_000
_BACK: Final = "time goes back: out of order, or the clock was set back"
_IMPOSSIBLE: Final = "an impossible value: below 0, or infinite"


class Origin(NamedTuple):
    """Where readings of a meter come from: two origins tell of the same, or of different brokers by mistake."""

    source: str
    replica: str
    """Labels that tell replicas of one Prometheus apart."""
    others: str
    """All other labels that do not say the meter."""

    def to_text(self) -> str:
        """As a text that sorts."""
        return json.dumps(self, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Origin:
        """Of such a text."""
        return cls(*json.loads(text))


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """What every worker needs to know; `broker_id` is the broker of what does not say one."""

    writers: Mapping[str, TableWriter]
    """By kind of file: `readings`, `series`, `rejected`."""
    cluster: str
    broker_id: int
    inputs: MetricInputs


class MetricManifest(Struct, kw_only=True):
    """What one file had. `other` counts series by metrics that are none of a quota's; `related` those that are quotas'
    and no usage; `untagged` and `foreign` those whose meter cannot be told.
    """

    file: int
    readings: int = 0
    rejected: int = 0
    blank: int = 0
    without_value: int = 0
    series: int = 0
    related: int = 0
    untagged: int = 0
    foreign: int = 0
    other: dict[str, int] = field(default_factory=dict)
    brokers: dict[str, int] = field(default_factory=dict)
    unknown_brokers: list[str] = field(default_factory=list)
    first_ms: int | None = None
    last_ms: int | None = None
    step_ms: int | None = None
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    """By kind."""


class Known(NamedTuple):
    """A series that is read, and its number among those."""

    number: int
    reading: Reading


class Reader:
    """Gathers the readings of one file; what is special to its form is a subclass's."""

    def __init__(self, number: int, file: MetricFile, options: MetricOptions) -> None:
        self._file = file
        self._options = options
        self._manifest = MetricManifest(file=number)
        self._line = 0
        self._series: list[tuple[object, ...]] = []
        self._readings: list[int] = []
        self._latest_ms: list[int] = []
        self._numbers, self._times, self._values = array("q"), array("q"), array("d")
        self._others = Counter[str]()
        self._left_out = Counter[NotUsage]()
        self._counted: set[int] = set()
        self._rejected: list[tuple[int, str, str]] = []

    def take(self, block: bytes) -> None:
        """Read a block of whole lines."""
        for line in block.removesuffix(b"\n").split(b"\n") if block else ():
            self._line += 1
            text = line.decode("utf-8", "backslashreplace").rstrip("\r")
            if not text.strip():
                self._manifest.blank += 1
                continue
            try:
                self._read_line(text)
            except RejectedLineError as error:
                self._reject(str(error), text)

    def _read_line(self, text: str) -> None:
        raise NotImplementedError

    def finish(self, broken: Exception | None) -> MetricManifest:
        """Write what is left, and say what the file had."""
        if broken is not None:
            self._line += 1
            self._reject(f"broken compressed file: {broken}", "")
        self._write()
        manifest = self._manifest
        if self._series:
            columns = zip(*self._series, strict=True)
            arrays = [pa.array(column, one.type) for column, one in zip(columns, SERIES_SCHEMA, strict=True)]
            table = pa.table(arrays, schema=SERIES_SCHEMA)
            self._write_files("series", table)
        if self._rejected:
            lines, reasons, samples = zip(*self._rejected, strict=True)
            count = len(lines)
            table = pa.table(
                {
                    "cluster": pa.repeat(self._options.cluster, count),
                    "file": pa.repeat(self._file.path, count),
                    "line": pa.array(lines, pa.int64()),
                    "reason": pa.array(reasons, pa.string()),
                    "sample": pa.array(samples, pa.string()),
                }
            )
            self._write_files("rejected", table)
        manifest.rejected = len(self._rejected)
        manifest.series = len(self._series)
        manifest.other = dict(self._others.most_common(_NAMED_METRICS))
        manifest.related = self._left_out[NotUsage.RELATED]
        manifest.untagged = self._left_out[NotUsage.UNTAGGED]
        manifest.foreign = self._left_out[NotUsage.FOREIGN_TAGS]
        return manifest

    def _write_files(self, kind: str, table: pa.Table) -> None:
        self._manifest.files.setdefault(kind, []).extend(self._options.writers[kind].write(table))

    def _reject(self, reason: str, sample: str) -> None:
        self._rejected.append((self._line, reason, printable(sample.encode("utf-8", "backslashreplace"))))

    def _count_other(self, metric: str, series: str) -> None:
        if len(self._counted) < _COUNTED_SERIES and (one := hash(series)) not in self._counted:
            self._counted.add(one)
            self._others[metric] += 1

    def _known(self, series: QuotaSeries, broker_id: int, origin: Origin) -> Known:
        """Take in a new series."""
        meter = (broker_id, series.key, series.grain, series.user, series.client_id, series.ip)
        text = origin.to_text()
        self._series.append((_number_of(json.dumps(meter)), *meter, _number_of(text), text))
        self._readings.append(int(series.reading))
        self._latest_ms.append(0)
        return Known(len(self._series) - 1, series.reading)

    def _add(self, known: Known, at_ms: int, value: float) -> None:
        """Take in a reading.

        :raises RejectedLineError: it cannot be.
        """
        if at_ms < self._latest_ms[known.number]:
            raise RejectedLineError(_BACK)
        self._latest_ms[known.number] = at_ms
        if isnan(value) and known.reading is not Reading.THROTTLE_TIME:
            self._manifest.without_value += 1
            return
        if value < 0 or isinf(value):
            raise RejectedLineError(_IMPOSSIBLE)
        self._numbers.append(known.number)
        self._times.append(at_ms)
        self._values.append(value)
        if len(self._numbers) >= _BUFFERED_READINGS:
            self._write()

    def _write(self) -> None:
        if not self._numbers:
            return
        numbers = np.frombuffer(self._numbers, np.int64)
        times = np.frombuffer(self._times, np.int64)
        meters, origins = (np.array([series[at] for series in self._series], np.int64) for at in (0, 7))
        kinds, values = np.array(self._readings, np.int8), np.frombuffer(self._values, np.float64)
        table = pa.table([meters[numbers], origins[numbers], kinds[numbers], times, values], schema=READINGS_SCHEMA)
        manifest = self._manifest
        self._write_files("readings", table)
        manifest.readings += len(numbers)
        first, last = int(times.min()), int(times.max())
        manifest.first_ms = first if manifest.first_ms is None else min(first, manifest.first_ms)
        manifest.last_ms = last if manifest.last_ms is None else max(last, manifest.last_ms)
        manifest.step_ms = manifest.step_ms or _step_ms(numbers, times)
        self._numbers, self._times, self._values = array("q"), array("q"), array("d")


def _number_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest(), signed=True)


def _step_ms(numbers: Ints, times: Ints) -> int | None:
    """The usual time between readings of one series."""
    order = np.lexsort((times, numbers))
    steps = np.diff(times[order])[np.diff(numbers[order]) == 0]
    steps = steps[steps > 0]
    return int(np.median(steps)) if len(steps) else None
