"""Brokers' metrics to the table `usage`: workers read files, and then the readings of each meter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING, Final, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.errors import InputError
from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.summary import Input, MetricsRead
from kquota.pipeline.ingest.chunks import files_by_kind, write_usage
from kquota.pipeline.ingest.counts import total
from kquota.pipeline.ingest.from_logs import Spans
from kquota.pipeline.ingest.metrics.metric_files import MetricFile, MetricInputs, find_metric_files
from kquota.pipeline.ingest.metrics.reader import read_metric_file
from kquota.pipeline.ingest.metrics.readings import READINGS_SCHEMA, SERIES_SCHEMA, MetricManifest, MetricOptions
from kquota.pipeline.ingest.metrics.usage import Conflict, Intervals, ReadingCounts, usage_of_readings
from kquota.pipeline.spark.arrow import decode_dictionaries
from kquota.pipeline.spark.shuffle import (
    BLOCKS,
    bucket_count,
    from_blocks_by_kind,
    shuffle_by_bucket,
    to_blocks,
    with_kind,
)
from kquota.pipeline.spark.workers import (
    MANIFESTS,
    balanced_tasks,
    collect_manifests,
    decode_manifests,
    default_parallelism,
    manifest_batch,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.spark.parquet_source import Batches

__all__ = ["MetricSource", "ingest_metrics"]

_SHOWN: Final = 3
_SHOWN_METRICS: Final = 20
_TASK_BYTES: Final = 1024**3

NO_QUOTA_METRICS: Final = (
    "no metric of client quotas is in {files}. A broker has them only while a quota is set (kafka.server:type=Produce, "
    "Fetch, Request, ControllerMutation), and some exporters' configurations leave them out: that of Strimzi's "
    "examples (kafka-metrics.yaml) has no rule for them. Add the rules of examples/metrics/jmx-exporter-quotas.yaml, "
    "or give rules for their names: `metrics_mapping` (docs/usage-sources.md)"
)


@dataclass(frozen=True, slots=True)
class MetricSource:
    """Files of metrics, and how to read them; `broker_id` is the broker of series that do not say one."""

    files: Sequence[MetricFile] = ()
    inputs: MetricInputs = field(default_factory=MetricInputs)
    broker_id: int = 0

    @classmethod
    def of(cls, inputs: MetricInputs, *, broker_id: int) -> Self:
        """Find the files.

        :raises InputError: a pattern matches none, or one cannot be used.
        """
        return cls(find_metric_files(inputs), inputs, broker_id)


class _MeterUsage(msgspec.Struct, frozen=True):
    """What a worker made of one bucket of meters."""

    files: list[DataFile]
    counts: ReadingCounts
    span_ms: tuple[int, int] | None
    """From the start of the first cell to the end of the last."""


def ingest_metrics(run: Run, source: MetricSource, *, cluster: str, covered: Spans) -> None:
    """Read metrics, add to the tables `usage` and `rejected`, and count in the summary: a reading counts as a line.

    :param covered: the times that logs cover: there the log is believed, and the metrics are left out.
    :raises InputError: a file has no quota metric, or it is unclear which broker a series is of.
    """
    writers = {"rejected": run.writer("rejected")} | {kind: run.temporary(kind) for kind in ("readings", "series")}
    files, options = source.files, MetricOptions(writers, cluster, source.broker_id, source.inputs)
    with run.stage("read the metrics"):
        manifests = _read_files(run.spark, files, options)
        written = files_by_kind(manifests)
        run.check_shared([file for files_of_kind in written.values() for file in files_of_kind])
        _check(manifests, files, options)
    with run.stage("metrics to usage"):
        # A rate that was read only once is over the broker's windows.
        windows_ms = run.broker.quota_window_num * run.broker.quota_window_size_seconds * 1000
        default_step_ms = _usual_step_ms(manifests, files) or windows_ms
        found = _to_usage(run, written, covered, default_step_ms=default_step_ms, cluster=cluster)
    counts = total(ReadingCounts, (one.counts for one in found))
    if counts.conflicts:
        raise InputError(_conflict_text(counts.conflicts[0]))
    run.add("usage", [file for one in found for file in one.files])
    run.add("rejected", written["rejected"])
    read, summary = _metrics_read(manifests, counts), run.summary
    summary.inputs = summary.inputs + [Input(file.path, file.source, file.broker_id, file.size_bytes) for file in files]
    summary.lines += read.readings + read.rejected + read.blank
    summary.good += read.readings
    summary.rejected += read.rejected
    summary.blank += read.blank
    spans = [one.span_ms for one in found if one.span_ms is not None]
    if summary.start_ms is not None and summary.end_ms is not None:
        spans.append((summary.start_ms, summary.end_ms))
    summary.start_ms = min((start for start, _ in spans), default=None)
    summary.end_ms = max((end for _, end in spans), default=None)
    summary.metrics = read


def _metrics_read(manifests: Sequence[MetricManifest], counts: ReadingCounts) -> MetricsRead:
    other = Counter[str]()
    for manifest in manifests:
        other |= Counter(manifest.other)  # many files have the same series
    brokers = {value: broker for one in manifests for value, broker in one.brokers.items()}
    return MetricsRead(
        readings=sum(one.readings for one in manifests),
        rejected=sum(one.rejected for one in manifests),
        blank=sum(one.blank for one in manifests),
        meters=counts.meters,
        cells=counts.cells,
        step_ms=max(counts.steps, key=lambda step: (counts.steps[step], -step), default=None),
        duplicates=counts.duplicates,
        contradictions=counts.contradictions,
        covered_by_log=counts.covered_by_log,
        gaps=counts.gaps,
        resets=counts.resets,
        without_value=sum(one.without_value for one in manifests),
        related=max((one.related for one in manifests), default=0),
        untagged=max((one.untagged for one in manifests), default=0),
        foreign=max((one.foreign for one in manifests), default=0),
        other_series=other.total(),
        other_metrics=len(other),
        largest_other_metrics=dict(other.most_common(_SHOWN_METRICS)),
        brokers=dict(sorted(brokers.items())),
    )


def _read_files(spark: SparkSession, files: Sequence[MetricFile], options: MetricOptions) -> list[MetricManifest]:
    """Read files on workers; a manifest for each, in their order.

    A task reads whole files: an answer of Prometheus cannot be read from its middle. It reads several, because a scrape
    each minute makes many small files.
    """
    sizes = [file.plain_bytes for file in files]
    grouped = balanced_tasks(sizes, default_parallelism(spark), max_bytes=_TASK_BYTES)
    tasks = [[(number, files[number]) for number in task] for task in grouped]

    def read(task: Sequence[tuple[int, MetricFile]]) -> Iterator[MetricManifest]:
        for number, file in task:
            yield read_metric_file(number, file, options)

    return sorted(collect_manifests(spark, tasks, read, MetricManifest), key=lambda one: one.file)


def _check(manifests: Sequence[MetricManifest], files: Sequence[MetricFile], options: MetricOptions) -> None:
    """Check that there are quota metrics, and that it is clear which broker each series is of.

    :raises InputError: otherwise; it says what to give.
    """
    label = options.inputs.broker_label
    unknown = sorted({value for one in manifests for value in one.unknown_brokers})
    if unknown:
        raise InputError(
            f"`broker_label` {label}: which broker is {unknown[0]!r}? Say it with `broker_ids` "
            + quote(f"{unknown[0]}=N")
            + (f", and the same of {', '.join(unknown[1:_SHOWN])}" if len(unknown) > 1 else "")
        )
    values: dict[int, str] = {}
    for manifest in manifests:
        for value, broker_id in manifest.brokers.items():
            if values.setdefault(broker_id, value) != value and not options.inputs.broker_ids.keys() >= {value}:
                raise InputError(
                    f"`broker_label` {label}: both {values[broker_id]!r} and {value!r} seem to be broker {broker_id}: "
                    "say which they are with `broker_ids`, VALUE=N"
                )
    without = [
        files[one.file].path
        for one in manifests
        if one.other and not (one.series or one.related or one.untagged or one.foreign)
    ]
    nothing = not any(one.series for one in manifests) and not any(one.rejected for one in manifests)
    if without or nothing:
        named = without or [file.path for file in files]
        shown = ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else "")
        raise InputError(NO_QUOTA_METRICS.format(files=shown))


def _usual_step_ms(manifests: Sequence[MetricManifest], files: Sequence[MetricFile]) -> int | None:
    """The time between readings, as most files have it; of files with one scrape each, between them."""
    steps = [one.step_ms for one in manifests if one.step_ms]
    if steps:
        return int(median(steps))
    scrapes: dict[object, set[int]] = defaultdict(set)
    for one in manifests:
        if one.first_ms is not None:
            scrapes[files[one.file].source, files[one.file].broker_id].add(one.first_ms)
    between = [int(step) for times in scrapes.values() for step in np.diff(sorted(times))]
    return int(median(between)) if between else None


def _to_usage(
    run: Run, files: Mapping[str, list[DataFile]], covered: Spans, *, default_step_ms: int, cluster: str
) -> list[_MeterUsage]:
    """Shuffle readings and series by meter, and write the usage of each meter."""
    if not files.get("readings"):
        return []
    buckets, writer = bucket_count(run.spark), run.writer("usage")
    intervals = {broker: Intervals.joined(list(spans)) for broker, spans in covered.items()}

    def blocks_of(kind: str, schema: pa.Schema) -> DataFrame:
        def to_block_batches(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = with_kind(decode_dictionaries(batch), kind)
                yield to_blocks(rows, batch.column("meter").to_numpy() % buckets)

        return run.temporary_source(schema, files[kind]).mapInArrow(to_block_batches, BLOCKS)

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        rows = from_blocks_by_kind(blocks)
        if "readings" not in rows:
            return
        usage, counts = usage_of_readings(
            rows["readings"], rows["series"], covered=intervals, default_step_ms=default_step_ms, cluster=cluster
        )
        yield manifest_batch(_MeterUsage(write_usage(writer, usage), counts, _span_ms(usage)))

    blocks = blocks_of("readings", READINGS_SCHEMA).union(blocks_of("series", SERIES_SCHEMA))
    return decode_manifests(shuffle_by_bucket(blocks, work, MANIFESTS), _MeterUsage)


def _span_ms(usage: pa.Table) -> tuple[int, int] | None:
    if not usage.num_rows:
        return None
    starts_ms = usage["cell_start_ms"]
    return pc.min(starts_ms).as_py(), pc.max(pc.add(starts_ms, usage["cell_ms"])).as_py()


def _conflict_text(conflict: Conflict) -> str:
    one, other = (msgspec.json.decode(text or "{}", type=dict[str, str]) for text in (conflict.one, conflict.other))
    label = next(name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name))
    values = " and ".join(repr(labels.get(label, "")) for labels in (one, other))
    return (
        f"two series of {conflict.meter} at one time differ by the label {label} ({values}): if it says the broker, "
        f"give `broker_label` {label}; if it says the replica of Prometheus, `replica_labels` {label}"
    )
