"""What `analyze` and the steps of `pipeline` say on the terminal when they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kquota.cli.console import broker_column, plain_table, wide_console
from kquota.cli.options.logs import NAMING_LOGS
from kquota.cli.options.quotas_over_time import moment, over_time_lines
from kquota.figures import duration, limit_text

if TYPE_CHECKING:
    from kquota.pipeline.dataset.summary import (
        AmbiguousHour,
        BackwardClock,
        CalibrationTotals,
        DuplicateLogFile,
        MetricsRead,
        Overlap,
        Summary,
    )
    from kquota.pipeline.jobs import Analysis

__all__ = ["print_analysis"]

_SHOWN_LOGS = 5


def print_analysis(analysis: Analysis) -> None:
    """The summary on the terminal: counts, the meters worst first, and where everything is."""
    console = wide_console()
    summary = analysis.summary
    for text in _summary_lines(summary):
        console.print(text)
    if analysis.meters:
        console.print()
        console.print(_meter_table(analysis.meters))
        if any(line.ambiguous for line in analysis.meters):
            console.print(
                "(?) may be this limit: the client has more than one, and the log does not mark throttles of a "
                "request percentage.\n"
            )
        if any(line.unknown_amounts for line in analysis.meters):
            console.print("(+) or more: the amounts of some requests are not known, and in no figure of the meter.\n")
    for line in analysis.unexplained:
        console.print(
            f"broker {line.broker_id}: {_requests(line)} on {line.key} were throttled"
            f"{'' if line.throttle_ms is None else f' ({duration(line.throttle_ms)})'} and no limit given explains it: "
            "are these the quotas that were in force?"
        )
    if summary.unknown_amounts:
        console.print(
            f"{summary.unknown_amounts:,} requests have an unknown amount: deleting and growing topics costs their "
            "partitions, which the log does not always have (see --topics)."
        )
    if summary.calibration is not None and summary.calibration.compared:
        console.print(_calibration(summary.calibration))
    console.print(f"\ntables: {analysis.dataset.url}")
    if analysis.dataset.has("report"):
        console.print(f"report: {analysis.dataset.url}/report.html", soft_wrap=True)


def _summary_lines(summary: Summary) -> Iterator[str]:
    """What was read, who is limited, and what is known of the limits' past."""
    has_log = summary.metrics is None or any(one.source == "request-log" for one in summary.inputs)
    if has_log:
        yield _counts(summary)
        yield from _repeated(summary.duplicate_logs)
        yield from map(_overlap, summary.overlaps)
        yield from map(_clock_went_backwards, summary.clock_went_backwards)
        yield from map(_ambiguous_hour, summary.ambiguous_hours)
    if summary.metrics is not None:
        yield from _metric_lines(summary.metrics)
    if summary.limited_meters is not None:
        text = (
            f"{summary.clients:,} clients, {summary.limited_meters:,} limited meters, "
            f"{summary.throttled_meters:,} throttled"
        )
        if has_log:
            throttled = (
                f"{summary.throttled_requests:,} requests were throttled for {duration(summary.throttle_ms or 0)}"
            )
            text += f"; {throttled} in all" + (" by the logs" if summary.metrics is not None else "")
        yield text
    yield from over_time_lines(summary)


def _counts(summary: Summary) -> str:
    good, rejected, blank = summary.good, summary.rejected, summary.blank
    if (metrics := summary.metrics) is not None:
        good, rejected, blank = good - metrics.readings, rejected - metrics.rejected, blank - metrics.blank
    text = f"{good + rejected + blank:,} lines: {good:,} good, {rejected:,} rejected"
    if blank:
        text += f", {blank:,} blank"
    left_out = _counted((summary.forwarded, "forwarded duplicates"), (summary.followers, "followers' fetches"))
    return text + (f" (not counted: {', '.join(left_out)})" if left_out else "")


def _counted(*counts: tuple[int, str]) -> list[str]:
    """What there is any of, each with its number."""
    return [f"{count:,} {what}" for count, what in counts if count]


def _repeated(logs: Sequence[DuplicateLogFile]) -> Iterator[str]:
    for log in logs[:_SHOWN_LOGS]:
        yield f"not counted: {log.file}: all of it is in {log.of}"
    if len(logs) > _SHOWN_LOGS:
        yield f"not counted: {len(logs) - _SHOWN_LOGS:,} more copies of logs (`duplicate_logs` in summary.json)"


def _overlap(logs: Overlap) -> str:
    one, other = logs.files
    if logs.overlap_ms:
        found, follows = f"overlap by {duration(logs.overlap_ms)}", "lines that are in both count twice"
    else:
        found, follows = "are of different addresses", "a broker may have come back with another one"
    return (
        f"broker {logs.broker_id}: its logs {one} and {other} {found}: {follows}, and if they are of two brokers, "
        f"what both used is added up: say whose each is, {NAMING_LOGS}"
    )


def _clock_went_backwards(step: BackwardClock) -> str:
    return (
        f"broker {step.broker_id}: its log goes back in time by {duration(step.by_ms)} after "
        f"{moment(step.from_ms)}: the clock was set back, or summer time ended; what was used before and after "
        "counts on the same seconds, so that rates and throttle times are too high there; cut the log there, and "
        "analyse both parts on their own"
    )


def _ambiguous_hour(log: AmbiguousHour) -> str:
    return (
        f"broker {log.broker_id}: {log.file} begins in the hour that the end of summer time repeats, and does "
        "not say in which of the two: the first is taken; put it behind the log before it, in one file, to know"
    )


def _calibration(calibration: CalibrationTotals) -> str:
    close, compared = calibration.within_5ms_or_5pct, calibration.compared
    return (
        f"calibration: Kafka's arithmetic on this log gives {close:,} of {compared:,} throttle times "
        f"({close / compared:.1%}) within 5 ms or 5 %: {duration(calibration.throttle_ms_predicted)} in all, logged "
        f"{duration(calibration.throttle_ms_logged)}"
    )


def _metric_lines(metrics: MetricsRead) -> Iterator[str]:
    """The summary of metrics in words, from what summary.json has of them."""
    sources = " and ".join(sorted(metrics.cells)) or "none used"
    step = f", one each {metrics.step_ms / 1000:g} s" if metrics.step_ms else ""
    yield f"{metrics.readings:,} readings of {metrics.meters:,} meters from metrics ({sources}){step}" + (
        f", {metrics.rejected:,} rejected" if metrics.rejected else ""
    )
    left_out = _counted(
        (metrics.covered_by_log, "in times that a request log covers, which is taken there"),
        (metrics.duplicates, "more than once"),
        (metrics.without_value, "without a value"),
    )
    if left_out:
        yield f"  readings not counted: {'; '.join(left_out)}"
    left_out = _counted(
        (metrics.other_series, f"of {metrics.other_metrics:,} other metrics"),
        (metrics.untagged, "with neither a user nor a client-id"),
        (metrics.foreign, "with tags of a callback's own"),
    )
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


def _meter_table(meters: Sequence[Any]) -> Any:
    columns: dict[str, Callable[[Any], str]] = {
        **broker_column(meters),
        "meter": lambda line: line.meter,
        "key": lambda line: line.key,
        "limit": lambda line: limit_text(line.key, line["limit"]),
        "by rule": lambda line: f"{line.limit_source} (level {line.level})",
        "p95": lambda line: _share(line.rate_p95, line),
        "max": lambda line: _share(line.rate_max, line),
        "over": lambda line: f"{line.seconds_over_100:,} of {line.seconds_active:,} s",
        "throttled": lambda line: _throttled(line) + (" (?)" if line.ambiguous and line.episodes else ""),
        "throttled for": lambda line: duration(line.throttle_ms) if line.throttle_ms else "-",
    }
    return plain_table(meters, columns, folded=("meter", "key", "by rule"), title="Meters, worst first")


def _requests(line: Any) -> str:
    return "requests" if line.throttled_requests is None else f"{line.throttled_requests:,} requests"


def _throttled(line: Any) -> str:
    if line.throttled_requests is None:
        return "yes"
    return f"{line.throttled_requests:,}" if line.throttled_requests else "-"


def _share(rate: float | None, line: Any) -> str:
    text = "-" if rate is None else f"{rate / line['limit'] * 100:,.0f} %"
    return text + (" (+)" if line.unknown_amounts else "")
