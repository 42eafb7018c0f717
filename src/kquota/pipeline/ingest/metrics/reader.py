"""A worker reads a file of metrics, and writes its readings and series to temporary files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from kquota.pipeline.ingest.decompression import BrokenFileError
from kquota.pipeline.ingest.metrics.jmx_tables import JmxTable
from kquota.pipeline.ingest.metrics.mbean_names import parse_mbean
from kquota.pipeline.ingest.metrics.metric_files import JMX, MetricFile, broker_of_label
from kquota.pipeline.ingest.metrics.prometheus_json import JsonSeries, parse_answer, read_values
from kquota.pipeline.ingest.metrics.prometheus_text import (
    NO_NAME,
    parse_labels,
    parse_sample,
    scraped_at_ms,
    time_in_name_ms,
)
from kquota.pipeline.ingest.metrics.readings import Known, MetricManifest, MetricOptions, Origin, Reader
from kquota.pipeline.ingest.metrics.series import NotUsageError, SeriesNames, series_of_mbean
from kquota.pipeline.ingest.request_log.line import RejectedLineError
from kquota.pipeline.ingest.request_log.log_files import InputSplit, read_blocks
from kquota.pipeline.ingest.samples import SAMPLE_BYTES

__all__ = ["read_metric_file"]

_JSON: Final = re.compile(rb'\s*(?:\[|\{\s*"(?:status|data|resultType)")')
_NO_TIME: Final = (
    "no time of the scrape: put it into the file's name (epoch seconds, or 20260102T030405Z), or write a line "
    "`# scraped_at 1767323045` before it"
)


def read_metric_file(number: int, file: MetricFile, options: MetricOptions) -> MetricManifest:
    """Read one file, and write what is found."""
    reader = _JmxReader(number, file, options) if file.source == JMX else _PrometheusReader(number, file, options)
    split = InputSplit(number, file.stored, 0, 0, file.size_bytes, file.compressed, file.size_bytes)
    broken: Exception | None = None
    try:
        for block in read_blocks(split):
            reader.take(block)
    except BrokenFileError as error:
        broken = error
    return reader.finish(broken)


class _JmxReader(Reader):
    """The output of JmxTool, or rows of values."""

    def __init__(self, number: int, file: MetricFile, options: MetricOptions) -> None:
        super().__init__(number, file, options)
        self._table = JmxTable()
        self._broker_id = options.broker_id if file.broker_id is None else file.broker_id
        self._keys: dict[str, Known | None] = {}

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

    def _enter(self, key: str) -> Known | None:
        """Take in a new attribute; None for one that is not read. One that cannot be read is rejected once."""
        name, _, attribute = key.rpartition(":")
        try:
            bean = parse_mbean(name)
            series = series_of_mbean(bean, attribute)
        except NotUsageError as left_out:
            self._left_out[left_out.why] += 1
            return None
        except RejectedLineError as error:
            self._reject(str(error), key)
            return None
        if series is None:
            self._count_other(f"{bean.domain}:type={bean.type} {attribute}", key)
            return None
        return self._known(series, self._broker_id, Origin(JMX, "", ""))


class _PrometheusReader(Reader):
    """Answers to queries, or text; the first bytes say which."""

    def __init__(self, number: int, file: MetricFile, options: MetricOptions) -> None:
        super().__init__(number, file, options)
        self._names = SeriesNames(options.inputs.rules)
        self._document: list[bytes] | None = None
        self._is_text = False
        self._scraped_ms = time_in_name_ms(file.stored.name)
        self._texts: dict[str, Known | None] = {}
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

    def _enter(self, labels: Mapping[str, str], text: str) -> Known | None:
        """Take in a new series; None for one that is not read."""
        try:
            found = self._names.read(labels)
        except NotUsageError as left_out:
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
        """The broker that a label says; a value that names no broker is noted in the manifest.

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
