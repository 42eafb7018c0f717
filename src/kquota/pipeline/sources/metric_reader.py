"""A file of metrics read into staged readings: what a worker does.

A reading is one value of one series of usage or throttle times at one time. What it means for a second of usage needs
its neighbours, which may stand in other files; see :mod:`kquota.pipeline.transforms.metered_usage`.
"""

from __future__ import annotations

import json
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import isinf, isnan
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from kquota.pipeline.sources.cells import Ints
from kquota.pipeline.sources.jmx_tables import JmxTable
from kquota.pipeline.sources.log_files import LogRange, read_blocks
from kquota.pipeline.sources.mbean_names import parse_mbean
from kquota.pipeline.sources.metric_files import JMX, MetricFile, MetricInputs, broker_of_label
from kquota.pipeline.sources.metric_mapping import Reading
from kquota.pipeline.sources.prometheus_json import JsonSeries, parse_answer, read_values
from kquota.pipeline.sources.prometheus_text import (
    NO_NAME,
    parse_labels,
    parse_sample,
    scraped_at_ms,
    time_in_name_ms,
)
from kquota.pipeline.sources.quota_metrics import LeftOut, LeftOutError, QuotaSeries, SeriesNames, series_of_mbean
from kquota.pipeline.sources.request_line import RejectedLineError
from kquota.pipeline.sources.samples import SAMPLE_BYTES, printable
from kquota.pipeline.sources.staging import StagedFile, write_staged

__all__ = ["READINGS_SCHEMA", "SERIES_SCHEMA", "MetricManifest", "MetricOptions", "Origin", "read_metric_file"]

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
"""One row per value; `reading` is one of :class:`~kquota.pipeline.sources.metric_mapping.Reading`."""

_HELD_READINGS: Final = 1_000_000
_COUNTED_SERIES: Final = 200_000
_NAMED_METRICS: Final = 10_000
_JSON: Final = re.compile(rb'\s*(?:\[|\{\s*"(?:status|data|resultType)")')
_BACK: Final = "time goes back: out of order, or the clock was set back"
_NO_TIME: Final = (
    "no time of the scrape: put it into the file's name (epoch seconds, or 20260102T030405Z), or write a line "
    "`# scraped_at 1767323045` before it"
)
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

    staging: str
    cluster: str
    broker_id: int
    inputs: MetricInputs


class MetricManifest(Struct, kw_only=True):
    """What one file had. `other` counts series by metrics that are none of a quota's; `beside` those that are quotas'
    and no usage; `untagged` and `foreign` those whose meter cannot be told.
    """

    file: int
    readings: int = 0
    rejected: int = 0
    blank: int = 0
    without_value: int = 0
    series: int = 0
    beside: int = 0
    untagged: int = 0
    foreign: int = 0
    other: dict[str, int] = field(default_factory=dict)
    brokers: dict[str, int] = field(default_factory=dict)
    unknown_brokers: list[str] = field(default_factory=list)
    first_ms: int | None = None
    last_ms: int | None = None
    step_ms: int | None = None
    files: list[StagedFile] = field(default_factory=list)


class _Known(NamedTuple):
    """A series that is read, and its number among those."""

    number: int
    reading: Reading


def read_metric_file(number: int, file: MetricFile, options: MetricOptions) -> MetricManifest:
    """Read one file; what is found is staged."""
    reader = _JmxReader(number, file, options) if file.source == JMX else _PrometheusReader(number, file, options)
    piece = LogRange(number, file.path, 0, 0, file.size_bytes, file.compressed, file.size_bytes)
    broken: Exception | None = None
    try:
        for block in read_blocks(piece):
            reader.take(block)
    except (EOFError, zlib.error) as error:
        broken = error
    return reader.finish(broken)


class _Reader:
    """Gathers the readings of one file."""

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
        self._left_out = Counter[LeftOut]()
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
            manifest.files.append(write_staged(self._options.staging, "series", table))
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
            manifest.files.append(write_staged(self._options.staging, "rejected", table))
        manifest.rejected = len(self._rejected)
        manifest.series = len(self._series)
        manifest.other = dict(self._others.most_common(_NAMED_METRICS))
        manifest.beside = self._left_out[LeftOut.BESIDE]
        manifest.untagged = self._left_out[LeftOut.NO_TAGS]
        manifest.foreign = self._left_out[LeftOut.OTHER_TAGS]
        return manifest

    def _reject(self, reason: str, sample: str) -> None:
        self._rejected.append((self._line, reason, printable(sample.encode("utf-8", "backslashreplace"))))

    def _count_other(self, metric: str, series: str) -> None:
        if len(self._counted) < _COUNTED_SERIES and (one := hash(series)) not in self._counted:
            self._counted.add(one)
            self._others[metric] += 1

    def _known(self, series: QuotaSeries, broker_id: int, origin: Origin) -> _Known:
        """Take in a new series."""
        meter = (broker_id, series.key, series.grain, series.user, series.client_id, series.ip)
        text = origin.to_text()
        self._series.append((_number_of(json.dumps(meter)), *meter, _number_of(text), text))
        self._readings.append(int(series.reading))
        self._latest_ms.append(0)
        return _Known(len(self._series) - 1, series.reading)

    def _add(self, known: _Known, at_ms: int, value: float) -> None:
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
        if len(self._numbers) >= _HELD_READINGS:
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
        manifest.files.append(write_staged(self._options.staging, "readings", table))
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


class _JmxReader(_Reader):
    """The output of JmxTool, or rows of values."""

    def __init__(self, number: int, file: MetricFile, options: MetricOptions) -> None:
        super().__init__(number, file, options)
        self._table = JmxTable()
        self._broker_id = options.broker_id if file.broker_id is None else file.broker_id
        self._keys: dict[str, _Known | None] = {}

    def _read_line(self, text: str) -> None:
        for at_ms, key, value in self._table.read(text):
            try:
                known = self._keys[key]
            except KeyError:
                known = self._keys[key] = self._enter(key)
            if known is None:
                continue
            try:
                number = float(value)
            except ValueError:
                raise RejectedLineError(f"a value that is no number: {key}") from None
            self._add(known, at_ms, number)

    def _enter(self, key: str) -> _Known | None:
        """Take in a new attribute; None for one that is not read. One that cannot be read is rejected once."""
        name, _, attribute = key.rpartition(":")
        try:
            bean = parse_mbean(name)
            series = series_of_mbean(bean, attribute)
        except LeftOutError as left_out:
            self._left_out[left_out.why] += 1
            return None
        except RejectedLineError as error:
            self._reject(str(error), key)
            return None
        if series is None:
            self._count_other(f"{bean.domain}:type={bean.type} {attribute}", key)
            return None
        return self._known(series, self._broker_id, Origin(JMX, "", ""))


class _PrometheusReader(_Reader):
    """Answers to queries, or text; the first bytes say which."""

    def __init__(self, number: int, file: MetricFile, options: MetricOptions) -> None:
        super().__init__(number, file, options)
        self._names = SeriesNames(options.inputs.rules)
        self._document: list[bytes] | None = None
        self._is_text = False
        self._scraped_ms = time_in_name_ms(Path(file.path).name)
        self._texts: dict[str, _Known | None] = {}
        self._other_names: set[str] = set()

    def take(self, block: bytes) -> None:
        if not self._is_text and self._document is None and block.strip():
            if _JSON.match(block):
                self._document = []
            else:
                self._is_text = True
        if self._document is not None:
            self._document.append(block)
        else:
            super().take(block)

    def finish(self, broken: Exception | None) -> MetricManifest:
        if self._document is not None and broken is None:
            self._read_json(b"".join(self._document))
        self._document = None
        return super().finish(broken)

    def _read_json(self, document: bytes) -> None:
        """One document, or one on each line."""
        try:
            self._line = 1
            self._read_answer(document)
        except RejectedLineError as error:
            lines = document.split(b"\n")
            if sum(1 for line in lines if line.strip()) == 1 or not str(error).startswith("broken JSON"):
                self._reject(str(error), document[:SAMPLE_BYTES].decode("utf-8", "backslashreplace"))
                return
            for number, line in enumerate(lines, 1):
                self._line = number
                if not line.strip():
                    continue
                try:
                    self._read_answer(line)
                except RejectedLineError as of_line:
                    self._reject(str(of_line), line[:SAMPLE_BYTES].decode("utf-8", "backslashreplace"))

    def _read_answer(self, document: bytes) -> None:
        for number, series in enumerate(parse_answer(document), 1):
            try:
                self._read_series(series)
            except RejectedLineError as error:
                self._reject(f"{error}: series {number}", json.dumps(series.labels, ensure_ascii=False))

    def _read_series(self, series: JsonSeries) -> None:
        if "__name__" not in series.labels:
            raise RejectedLineError(NO_NAME)
        known = self._enter(series.labels, json.dumps(series.labels))
        if known is None:
            return
        times, values = read_values(series.values)
        refused, reason = 0, ""
        for at_ms, value in zip(times, values, strict=True):
            try:
                self._add(known, at_ms, value)
            except RejectedLineError as error:
                refused += 1
                reason = str(error)
        if refused:
            raise RejectedLineError(f"{reason}: {refused} values")

    def _read_line(self, text: str) -> None:
        if text.lstrip().startswith("#"):
            scraped_ms = scraped_at_ms(text.lstrip())
            self._scraped_ms = self._scraped_ms if scraped_ms is None else scraped_ms
            return
        name = text.partition("{")[0].partition(" ")[0]
        if name in self._other_names:
            self._count_other(name, text.rpartition(" ")[0])
            return
        sample = parse_sample(text)
        try:
            known = self._texts[sample.series]
        except KeyError:
            labels = parse_labels(sample.series)
            known = self._texts[sample.series] = self._enter(labels, text.rpartition(" ")[0])
        if known is None:
            return
        at_ms = self._scraped_ms if sample.at_ms is None else sample.at_ms
        if at_ms is None:
            raise RejectedLineError(_NO_TIME)
        self._add(known, at_ms, sample.value)

    def _enter(self, labels: Mapping[str, str], text: str) -> _Known | None:
        """Take in a new series; None for one that is not read."""
        try:
            found = self._names.read(labels)
        except LeftOutError as left_out:
            self._left_out[left_out.why] += 1
            return None
        name = labels["__name__"]
        if found is None:
            if not self._names.know(name):
                self._other_names.add(name)
            self._count_other(name, text)
            return None
        series, others = found
        inputs = self._options.inputs
        broker_id: int | None = self._options.broker_id
        if self._file.broker_id is not None:
            broker_id = self._file.broker_id
        elif inputs.broker_label is not None:
            broker_id = self._broker_of(others.pop(inputs.broker_label, None))
        if broker_id is None:
            return None
        replica = {label: others.pop(label) for label in inputs.replica_labels if label in others}
        return self._known(series, broker_id, Origin(self._file.source, _text(replica), _text(others)))

    def _broker_of(self, value: str | None) -> int | None:
        """The broker that a label says; what it does not say is put down.

        :raises RejectedLineError: the label is not there.
        """
        if value is None:
            raise RejectedLineError(f"no label that says the broker: {self._options.inputs.broker_label}")
        broker_id = broker_of_label(value, self._options.inputs.broker_ids)
        if broker_id is None:
            if value not in self._manifest.unknown_brokers:
                self._manifest.unknown_brokers.append(value)
        else:
            self._manifest.brokers[value] = broker_id
        return broker_id


def _text(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(sorted(labels.items())), ensure_ascii=False) if labels else ""
