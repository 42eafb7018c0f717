"""Metrics as Prometheus series: a broker's own, under the names that exporters of brokers give them, and the limits.

The names are those of ``confluentinc/jmx-monitoring-stacks`` and of Strimzi's metrics reporter, so that dashboards made
for a broker read them: ``kafka_server_produce_byte_rate{user,client_id}``. A broker exports no limits; here they stand
beside the usage, with the same labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from kquota.metering.engine import QuotaManagers
from kquota.metering.metrics import SOCKET_SERVER, read_limits, read_metrics

__all__ = ["LIMIT_SOURCE", "QuotaCollector", "exposition", "series_labels", "series_name"]

_LABELS: Final[Mapping[str, tuple[str, ...]]] = {SOCKET_SERVER: ("listener", "ip")}
_CLIENT_LABELS: Final = ("user", "client_id")
LIMIT_SOURCE: Final = "limit_source"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")


class QuotaCollector(Collector):
    """Reads the metrics of a broker's quotas whenever Prometheus asks for them."""

    def __init__(self, managers: QuotaManagers, now_ms: Callable[[], int]) -> None:
        self._managers = managers
        self._now_ms = now_ms

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand: what there is depends on the traffic."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """A family for each metric, and one for the limits of each group."""
        families: dict[tuple[str, str], Metric] = {}
        for metric in read_metrics(self._managers, self._now_ms()):
            family = _family(families, metric.group, metric.name, metric.description)
            # What has no tags is of the whole broker.
            labels = series_labels(metric.group, metric.tags) if metric.tags else {}
            family.add_sample(family.name, labels, metric.value)
        for limit in read_limits(self._managers):
            family = _family(families, limit.group, "quota-limit", "The limit of the usage with the same labels")
            family.add_sample(
                family.name, {**series_labels(limit.group, limit.tags), LIMIT_SOURCE: limit.source}, limit.limit
            )
        yield from families.values()


def exposition(managers: QuotaManagers, now_ms: int) -> bytes:
    """All of it at one time, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(QuotaCollector(managers, lambda: now_ms))
    return generate_latest(registry)


def _family(families: dict[tuple[str, str], Metric], group: str, name: str, description: str) -> Metric:
    family = families.get((group, name))
    if family is None:
        family = families[group, name] = Metric(series_name(group, name), description, "gauge")
    return family


def series_name(group: str, name: str) -> str:
    """Of a metric of a broker, by its MBean's type and its attribute."""
    return _NOT_IN_NAMES.sub("_", f"kafka_server_{group.lower()}_{name}")


def series_labels(group: str, tags: Mapping[str, str]) -> dict[str, str]:
    """The labels that all series of a group have, empty where the tag is; then those of a callback's own tags."""
    labels = dict.fromkeys(_LABELS.get(group, _CLIENT_LABELS), "")
    for tag, name in tags.items():
        label = _NOT_IN_NAMES.sub("_", tag)
        if not label or label.startswith("__") or label[0].isdigit() or label == LIMIT_SOURCE:
            label = f"tag_{label}"
        while labels.get(label):  # another tag that looks the same without its odd characters
            label += "_"
        labels[label] = name
    return labels
