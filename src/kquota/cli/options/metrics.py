"""Brokers' metrics as a source of usage, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.cli.options.paths import as_path
from kquota.cli.options.taking import option
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.pipeline.ingest.metrics.metric_files import MetricInputs

__all__ = ["MetricOptions"]


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """Which metrics of brokers, and how they are to be read."""

    prometheus: tuple[str, ...] = option(
        "--prometheus",
        multiple=True,
        metavar="[N=]GLOB",
        help="Answers of Prometheus to query_range, or scrapes in its text format, plain, gzip or zstd; N is the id of "
        "the broker, with {broker} in its place in the path. Repeatable.",
    )
    jmx: tuple[str, ...] = option(
        "--jmx",
        multiple=True,
        metavar="[N=]GLOB",
        help="What Kafka's JmxTool printed, plain, gzip or zstd; N is the id of the broker, with {broker} in its place "
        "in the path. Repeatable.",
    )
    broker_label: str | None = option(
        "--broker-label",
        metavar="LABEL",
        help="The label of Prometheus' series that says the broker, such as instance or pod.",
    )
    brokers: tuple[str, ...] = option(
        "--broker",
        multiple=True,
        metavar="VALUE=N",
        help="The broker of a value of --broker-label. Repeatable.",
    )
    replica_labels: tuple[str, ...] = option(
        "--replica-label",
        multiple=True,
        metavar="LABEL",
        help="A label by which replicas of one Prometheus differ, beside the usual ones. Repeatable.",
    )
    mapping: str | None = option(
        "--metrics-mapping",
        callback=as_path,
        metavar="FILE",
        help="How series of other names are read, in TOML; see docs/usage-sources.md.",
    )

    def __bool__(self) -> bool:
        """Whether any are given."""
        return bool(self.prometheus or self.jmx)

    def inputs(self) -> MetricInputs:
        """For the pipeline.

        :raises InputError: they do not go together, or the mapping cannot be used.
        """
        from kquota.pipeline.ingest.metrics.mapping import parse_metric_rules
        from kquota.pipeline.ingest.metrics.metric_files import REPLICA_LABELS, MetricInputs, parse_broker_ids

        if self.broker_label is None and self.brokers:
            raise InputError("--broker says which broker a value of a label is: give --broker-label, too")
        try:
            text = "" if self.mapping is None else Path(self.mapping).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--metrics-mapping {self.mapping}: cannot be read: {error}") from None
        return MetricInputs(
            prometheus=self.prometheus,
            jmx=self.jmx,
            broker_label=self.broker_label,
            broker_ids=parse_broker_ids(self.brokers),
            replica_labels=(*REPLICA_LABELS, *self.replica_labels),
            rules=() if self.mapping is None else tuple(parse_metric_rules(text, name=self.mapping)),
        )
