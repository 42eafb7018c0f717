"""Options for brokers' metrics as a source of usage, and what is said of them afterwards."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kquota.cli.options.paths import as_path

if TYPE_CHECKING:
    from kquota.pipeline.dataset.summary import MetricsRead

__all__ = ["metric_lines", "metric_options"]

F = TypeVar("F", bound=Callable[..., Any])


def metric_options(command: F) -> F:
    """Which metrics of brokers, and how they are to be read; the command gets them as one argument, `metrics`."""
    options = (
        click.option(
            "--metrics-mapping",
            "mapping",
            callback=as_path,
            metavar="FILE",
            help="How series of other names are read, in TOML; see docs/usage-sources.md.",
        ),
        click.option(
            "--replica-label",
            "replica_labels",
            multiple=True,
            metavar="LABEL",
            help="A label that tells replicas of one Prometheus apart, beside the usual ones. Repeatable.",
        ),
        click.option(
            "--broker",
            "brokers",
            multiple=True,
            metavar="VALUE=N",
            help="The broker that a value of --broker-label stands for. Repeatable.",
        ),
        click.option(
            "--broker-label",
            metavar="LABEL",
            help="The label of Prometheus' series that says the broker, such as instance or pod.",
        ),
        click.option(
            "--jmx",
            multiple=True,
            metavar="[N=]GLOB",
            help="What Kafka's JmxTool printed, plain or gzip; N is the id of the broker, {broker} stands for it in "
            "the path. Repeatable.",
        ),
        click.option(
            "--prometheus",
            multiple=True,
            metavar="[N=]GLOB",
            help="Answers of Prometheus to query_range, or scrapes in its text format, plain or gzip; N is the id of "
            "the broker, {broker} stands for it in the path. Repeatable.",
        ),
    )

    @wraps(command)
    def with_metrics(**arguments: Any) -> Any:
        names = ("prometheus", "jmx", "broker_label", "brokers", "replica_labels", "mapping")
        given = {name: arguments.pop(name) for name in names}
        return command(metrics=given, **arguments)

    found: Any = with_metrics
    for option in options:
        found = option(found)
    return found  # type: ignore[no-any-return]


def metric_lines(metrics: "MetricsRead") -> Iterator[str]:
    """The summary of metrics in words, from what summary.json has of them."""
    sources = " and ".join(sorted(metrics.cells)) or "none used"
    step = f", one each {metrics.step_ms / 1000:g} s" if metrics.step_ms else ""
    yield f"{metrics.readings:,} readings of {metrics.meters:,} meters from metrics ({sources}){step}" + (
        f", {metrics.rejected:,} rejected" if metrics.rejected else ""
    )
    told = [
        f"{getattr(metrics, name):,} {what}"
        for name, what in (
            ("covered_by_log", "in times that a request log covers, which is taken there"),
            ("duplicates", "told more than once"),
            ("without_value", "without a value"),
        )
        if getattr(metrics, name)
    ]
    if told:
        yield f"  readings not counted: {'; '.join(told)}"
    left_out = [
        f"{getattr(metrics, name):,} {what}"
        for name, what in (
            ("other_series", f"of {metrics.other_metrics:,} other metrics"),
            ("untagged", "with neither a user nor a client-id"),
            ("foreign", "with tags of a callback's own"),
        )
        if getattr(metrics, name)
    ]
    if left_out:
        yield f"  series left out: {'; '.join(left_out)}"
    if metrics.gaps or metrics.resets:
        yield f"  {metrics.gaps:,} gaps, {metrics.resets:,} counters that began anew"
    if metrics.contradictions:
        yield (
            f"  {metrics.contradictions:,} readings say something else for the same time: are these files of "
            "several brokers? Say whose each is: N=FILE, or --broker-label"
        )
    if metrics.brokers:
        named = [f"{broker} is {value}" for value, broker in metrics.brokers.items()]
        yield f"  brokers: {', '.join(named[:12])}" + (f" and {len(named) - 12} more" if len(named) > 12 else "")
