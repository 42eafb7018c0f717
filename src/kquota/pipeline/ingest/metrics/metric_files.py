"""The files of metrics to read, with their brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kquota.errors import InputError
from kquota.pipeline.ingest.file_patterns import matching_files
from kquota.pipeline.ingest.input_file import InputFile, read_head
from kquota.pipeline.ingest.metrics.mapping import MetricRule

__all__ = [
    "JMX",
    "PROMETHEUS",
    "REPLICA_LABELS",
    "MetricFile",
    "MetricInputs",
    "broker_of_label",
    "find_metric_files",
    "parse_broker_ids",
]

PROMETHEUS: Final = "prometheus"
JMX: Final = "jmx"

REPLICA_LABELS: Final = ("prometheus_replica", "replica", "__replica__", "thanos_replica", "rule_replica")
"""Labels by which the two of a highly available pair of Prometheus differ."""

_PARQUET: Final = b"PAR1"
_ORDINAL: Final = re.compile(r"[A-Za-z].*-(\d{1,9})")


@dataclass(frozen=True, slots=True)
class MetricInputs:
    """What was given: patterns of files, and how to recognise brokers, replicas and series of other systems."""

    prometheus: tuple[str, ...] = ()
    jmx: tuple[str, ...] = ()
    broker_label: str | None = None
    """The label of Prometheus' series that says the broker."""
    broker_ids: Mapping[str, int] = field(default_factory=dict)
    """By value of that label."""
    replica_labels: tuple[str, ...] = REPLICA_LABELS
    rules: tuple[MetricRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.prometheus or self.jmx)


@dataclass(frozen=True, slots=True)
class MetricFile(InputFile):
    """A file of metrics; `source` is :data:`PROMETHEUS` or :data:`JMX`."""

    source: str


def find_metric_files(inputs: MetricInputs) -> list[MetricFile]:
    """Expand the patterns; a file that is given twice is read once.

    :raises InputError: a pattern matches no file, or a file cannot be read or used.
    """
    found: dict[str, MetricFile] = {}
    for source, patterns in ((PROMETHEUS, inputs.prometheus), (JMX, inputs.jmx)):
        for pattern in patterns:
            files = matching_files(pattern)
            if not files:
                raise InputError(f"--{source} {pattern}: no such file: give a file, or a quoted glob")
            for source_file, broker in files:
                path = source_file.path
                known = found.get(path)
                if known is not None and (known.broker_id, known.source) != (broker, source):
                    raise InputError(f"{path} is given twice, for different brokers or as different metrics")
                head, size, compressed = read_head(source_file)
                if head.startswith(_PARQUET):
                    raise InputError(f"{path} is Parquet: give what query_range answers, a scrape, or JmxTool's output")
                found[path] = MetricFile(source_file, broker, size, compressed, source)
    return list(found.values())


def broker_of_label(value: str, broker_ids: Mapping[str, int]) -> int | None:
    """The broker that a label's value names; None where that is unknown.

    It is what `broker_ids` says, or a number, or the number at the end of a host's name, ``kafka-2.kafka.svc:9404``.
    """
    if value in broker_ids:
        return broker_ids[value]
    if value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    ordinal = _ORDINAL.fullmatch(value.partition(":")[0].partition(".")[0])
    return int(ordinal[1]) if ordinal else None


def parse_broker_ids(given: Sequence[str]) -> dict[str, int]:
    """Read ``VALUE=N`` texts.

    :raises InputError: one is none.
    """
    ids = {}
    for text in given:
        value, equals, number = text.rpartition("=")
        if not equals or not value or not (number.isascii() and number.isdigit() and len(number) < 10):
            raise InputError(f"`broker_ids` {text}: write it as VALUE=N, such as 10.0.0.1:9404=1")
        ids[value] = int(number)
    return ids
