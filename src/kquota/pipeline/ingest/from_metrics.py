"""Brokers' metrics to the table `usage`: files read by workers, readings gathered by meter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, Self

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.errors import InputError
from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.summary import Input, MetricsRead
from kquota.pipeline.ingest.chunks import write_usage, written
from kquota.pipeline.ingest.metrics.metric_files import MetricFile, MetricInputs, find_metric_files
from kquota.pipeline.ingest.metrics.reader import read_metric_file
from kquota.pipeline.ingest.metrics.readings import READINGS_SCHEMA, SERIES_SCHEMA, MetricManifest, MetricOptions
from kquota.pipeline.ingest.metrics.usage import Conflict, Intervals, ReadingCounts, usage_of_readings
from kquota.pipeline.limits.identities import decode_dictionaries
from kquota.pipeline.spark.shuffle import BLOCKS, bucket_count, shuffle_by_bucket, to_blocks
from kquota.pipeline.spark.workers import drop_zip_importers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.spark.parquet_source import Batches

__all__ = ["MetricSource", "MetricsResult", "ingest_metrics"]

_MANIFEST: Final = from_arrow_schema(pa.schema([("manifest", pa.string())]))
_SHOWN: Final = 3
_SUMMED_METRICS: Final = 20

NO_QUOTA_METRICS: Final = (
    "no metric of client quotas is in {files}. A broker has them only while a quota is set (kafka.server:type=Produce, "
    "Fetch, Request, ControllerMutation), and some exporters' configurations leave them out: that of Strimzi's "
    "examples (kafka-metrics.yaml) has no rule for them. Add the rules of examples/metrics/jmx-exporter-quotas.yaml, "
    "or give --metrics-mapping FILE where they have other names (docs/usage-sources.md)"
)


@dataclass(frozen=True, slots=True)
class MetricSource:
    """Files of metrics, and how they are to be read; `broker_id` is the broker of what does not say one."""

    files: Sequence[MetricFile] = ()
    inputs: MetricInputs = field(default_factory=MetricInputs)
    broker_id: int = 0

    @classmethod
    def of(cls, inputs: MetricInputs, *, broker_id: int) -> Self:
        """Find the files.

        :raises InputError: a pattern matches none, or one cannot be used.
        """
        return cls(find_metric_files(inputs), inputs, broker_id)

    @property
    def plain_bytes(self) -> int:
        """About how much there is to read."""
        return sum(file.plain_bytes for file in self.files)

    def inputs_read(self) -> list[Input]:
        """The files, for summary.json."""
        return [Input(file.path, file.source, file.broker_id, file.size_bytes) for file in self.files]


class _Part(msgspec.Struct, frozen=True):
    """What a worker made of one bucket of meters."""

    files: list[DataFile]
    counts: ReadingCounts


@dataclass(frozen=True, slots=True)
class MetricsResult:
    """Counts over all files of metrics; a reading is counted as a line is of a log."""

    manifests: Sequence[MetricManifest]
    counts: ReadingCounts

    @property
    def readings(self) -> int:
        """Values that were read."""
        return sum(one.readings for one in self.manifests)

    @property
    def rejected(self) -> int:
        """Rows of `rejected`."""
        return sum(one.rejected for one in self.manifests)

    @property
    def blank(self) -> int:
        """Blank lines."""
        return sum(one.blank for one in self.manifests)

    def summary(self) -> MetricsRead:
        """The part of summary.json."""
        counts = self.counts
        other = Counter[str]()
        for manifest in self.manifests:
            other |= Counter(manifest.other)  # the same series stand in many files
        brokers = {value: broker for one in self.manifests for value, broker in one.brokers.items()}
        return MetricsRead(
            readings=self.readings,
            rejected=self.rejected,
            blank=self.blank,
            meters=counts.meters,
            cells=counts.cells,
            step_ms=max(counts.steps, key=lambda step: (counts.steps[step], -step), default=None),
            duplicates=counts.duplicates,
            contradictions=counts.contradictions,
            covered_by_log=counts.covered_by_log,
            gaps=counts.gaps,
            resets=counts.resets,
            without_value=sum(one.without_value for one in self.manifests),
            related=max((one.related for one in self.manifests), default=0),
            untagged=max((one.untagged for one in self.manifests), default=0),
            foreign=max((one.foreign for one in self.manifests), default=0),
            other_series=other.total(),
            other_metrics=len(other),
            largest_other_metrics=dict(other.most_common(_SUMMED_METRICS)),
            brokers=dict(sorted(brokers.items())),
        )


def ingest_metrics(
    run: Run,
    source: MetricSource,
    *,
    cluster: str,
    covered: Mapping[int, Sequence[tuple[int, int]]],
    window_ms: int,
) -> MetricsResult:
    """Read metrics, and add to the tables `usage` and `rejected`.

    :param covered: by broker the times that its log covers; there the log is believed, and the metrics are left out.
    :param window_ms: the time that a broker's rates are over; a reading that stands alone is of that long.
    :raises InputError: a file has no quota metric, or brokers cannot be told apart.
    """
    writers = {"rejected": run.writer("rejected")} | {kind: run.temporary(kind) for kind in ("readings", "series")}
    files, options = source.files, MetricOptions(writers, cluster, source.broker_id, source.inputs)
    with run.stage("read the metrics"):
        manifests = _read_files(run.spark, files, options)
        found = written(manifest.files for manifest in manifests)
        run.check_shared([file for those in found.values() for file in those])
        _check(manifests, files, options)
    with run.stage("metrics to usage"):
        spans = {broker: Intervals.joined(list(stretches)) for broker, stretches in covered.items()}
        default_step_ms = _usual_step_ms(manifests, files) or window_ms
        parts = _to_usage(run, found, spans, default_step_ms=default_step_ms, cluster=cluster)
    counts = ReadingCounts()
    for part in parts:
        counts.add(part.counts)
    if counts.conflicts:
        raise InputError(_conflict_text(counts.conflicts[0]))
    run.add("usage", [file for part in parts for file in part.files])
    run.add("rejected", found["rejected"])
    return MetricsResult(manifests, counts)


def _read_files(spark: SparkSession, files: Sequence[MetricFile], options: MetricOptions) -> list[MetricManifest]:
    """A task reads whole files: an answer of Prometheus cannot be entered in its middle."""
    files = tuple(files)
    tasks = _tasks(files, spark.sparkContext.defaultParallelism)

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for number in tasks[task]:
                    manifest = read_metric_file(number, files[number], options)
                    yield pa.RecordBatch.from_pydict({"manifest": [msgspec.json.encode(manifest).decode()]})

    frame = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(work, _MANIFEST)
    decoder = msgspec.json.Decoder(MetricManifest)
    return sorted((decoder.decode(row.manifest) for row in frame.collect()), key=lambda one: one.file)


def _tasks(files: Sequence[MetricFile], parallelism: int) -> list[list[int]]:
    """Files by task, of about the same size each, the largest first: a scrape each minute is many small files."""
    target = sum(file.plain_bytes for file in files) / (parallelism * 3)
    tasks: list[list[int]] = []
    filled = target
    for number in sorted(range(len(files)), key=lambda number: (-files[number].plain_bytes, number)):
        if filled >= target:
            tasks.append([])
            filled = 0
        tasks[-1].append(number)
        filled += files[number].plain_bytes
    return tasks


def _check(manifests: Sequence[MetricManifest], files: Sequence[MetricFile], options: MetricOptions) -> None:
    """See that there is something, and that brokers can be told apart.

    :raises InputError: what is to be given.
    """
    label = options.inputs.broker_label
    unknown = sorted({value for one in manifests for value in one.unknown_brokers})
    if unknown:
        raise InputError(
            f"--broker-label {label}: which broker is {unknown[0]!r}? Give --broker '{unknown[0]}=N'"
            + (f", and the same for {', '.join(unknown[1:_SHOWN])}" if len(unknown) > 1 else "")
        )
    values: dict[int, str] = {}
    for manifest in manifests:
        for value, broker_id in manifest.brokers.items():
            if values.setdefault(broker_id, value) != value and not options.inputs.broker_ids.keys() >= {value}:
                raise InputError(
                    f"--broker-label {label}: both {values[broker_id]!r} and {value!r} seem to be broker {broker_id}: "
                    "say which they are with --broker VALUE=N"
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
    run: Run,
    files: Mapping[str, list[DataFile]],
    covered: Mapping[int, Intervals],
    *,
    default_step_ms: int,
    cluster: str,
) -> list[_Part]:
    if not files.get("readings"):
        return []
    buckets, writer = bucket_count(run.spark), run.writer("usage")

    def deal(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield to_blocks(decode_dictionaries(batch), batch.column("meter").to_numpy() % buckets)

    def work(blocks: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        tables = [pa.ipc.open_stream(block).read_all() for block in blocks]
        readings = [table for table in tables if "value" in table.schema.names]
        series = [table for table in tables if "value" not in table.schema.names]
        if not readings:
            return
        usage, counts = usage_of_readings(
            pa.concat_tables(readings),
            pa.concat_tables(series),
            covered=covered,
            default_step_ms=default_step_ms,
            cluster=cluster,
        )
        part = _Part(write_usage(writer, usage), counts)
        yield pa.RecordBatch.from_pydict({"manifest": [msgspec.json.encode(part).decode()]})

    def dealt(kind: str, schema: pa.Schema) -> DataFrame:
        return run.temporary_source(schema, files[kind]).mapInArrow(deal, BLOCKS)

    blocks = dealt("readings", READINGS_SCHEMA).union(dealt("series", SERIES_SCHEMA))
    decoder = msgspec.json.Decoder(_Part)
    return [decoder.decode(row.manifest) for row in shuffle_by_bucket(blocks, work, _MANIFEST).collect()]


def _conflict_text(conflict: Conflict) -> str:
    one, other = (msgspec.json.decode(text or "{}", type=dict[str, str]) for text in (conflict.one, conflict.other))
    label = next(name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name))
    values = " and ".join(repr(labels.get(label, "")) for labels in (one, other))
    return (
        f"two series of {conflict.meter} at one time differ by the label {label} ({values}): where it tells brokers "
        f"apart give --broker-label {label}, where it tells Prometheus' replicas apart --replica-label {label}"
    )
