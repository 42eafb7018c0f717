"""Metrics for tests: answers of Prometheus, and files read as a worker reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kquota.pipeline.dataset.writing import TableWriter, new_id
from kquota.pipeline.ingest.chunks import files_by_kind
from kquota.pipeline.ingest.metrics.metric_files import MetricInputs, find_metric_files
from kquota.pipeline.ingest.metrics.reader import read_metric_file
from kquota.pipeline.ingest.metrics.readings import READINGS_SCHEMA, SERIES_SCHEMA, MetricManifest, MetricOptions
from kquota.pipeline.ingest.metrics.usage import Intervals, ReadingCounts, usage_of_readings
from kquota.pipeline.storage.opening import open_storage

__all__ = ["answer", "read_metrics", "usage_of"]


def answer(*series: tuple[Mapping[str, str], Sequence[tuple[float, float | str]]]) -> str:
    """What query_range answers: times in seconds, values as text."""
    result = [{"metric": labels, "values": [[at, str(value)] for at, value in values]} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def read_metrics(
    folder: Path, inputs: MetricInputs, *, broker_id: int = 0
) -> tuple[list[MetricManifest], pa.Table, pa.Table, list[dict[str, Any]]]:
    """Manifests, readings, series and rejected lines of the files; what was read is written below `folder`."""
    storage = open_storage(folder)
    writers = {kind: TableWriter(storage, kind, new_id()) for kind in ("readings", "series", "rejected")}
    options = MetricOptions(writers, "c", broker_id, inputs)
    manifests = [read_metric_file(number, file, options) for number, file in enumerate(find_metric_files(inputs))]
    files = files_by_kind(manifests)

    def of_kind(kind: str) -> list[pa.Table]:
        return [pq.read_table(folder / file.path) for file in files[kind]]

    readings = pa.concat_tables([READINGS_SCHEMA.empty_table(), *of_kind("readings")])
    series = pa.concat_tables([SERIES_SCHEMA.empty_table(), *of_kind("series")])
    return manifests, readings, series, [row for table in of_kind("rejected") for row in table.to_pylist()]


def usage_of(
    folder: Path,
    inputs: MetricInputs,
    *,
    broker_id: int = 0,
    covered: Mapping[int, Sequence[tuple[int, int]]] | None = None,
) -> tuple[list[dict[str, Any]], ReadingCounts]:
    """Rows of `usage` in order of time, and what became of the readings."""
    _, readings, series, _ = read_metrics(folder, inputs, broker_id=broker_id)
    spans = {broker: Intervals.joined(list(one)) for broker, one in (covered or {}).items()}
    usage, counts = usage_of_readings(readings, series, covered=spans, default_step_ms=11_000, cluster="c")
    return sorted(usage.to_pylist(), key=lambda row: (row["broker_id"], row["key"], row["cell_start_ms"])), counts
