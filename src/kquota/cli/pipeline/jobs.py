"""Options and print-outs that `analyze` and the steps of `pipeline` share."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kquota.cli.options.metrics import metric_lines
from kquota.cli.options.paths import as_path
from kquota.cli.options.quotas_over_time import moment, over_time_lines
from kquota.errors import InputError, KquotaError
from kquota.figures import duration, limit_text

if TYPE_CHECKING:
    from kquota.pipeline.dataset.summary import (
        AmbiguousHour,
        BackwardClock,
        CalibrationTotals,
        DuplicateLogFile,
        Overlap,
        Summary,
    )
    from kquota.pipeline.jobs import Analysis

__all__ = [
    "dataset_option",
    "load_jobs",
    "load_pipeline",
    "log_options",
    "naming_log_options",
    "plain_cell",
    "print_analysis",
    "read_topics",
    "spark_options",
    "wide_console",
]

F = TypeVar("F", bound=Callable[..., Any])

_WHOSE_LOG = "with --log 1=GLOB --log 2=GLOB, or --log 'logs/broker-{broker}/*'"
_SHOWN_LOGS = 5
_SHOWN_REASONS = 5


def log_options(command: F) -> F:
    """Which logs, and how they are to be read."""
    for option in (
        click.argument("more_logs", nargs=-1, metavar="[LOG]..."),
        click.option(
            "--keep-requests/--no-keep-requests",
            default=None,
            help="Write the table `requests`, a row per request and key. Without either: up to about 5 million lines.",
        ),
        click.option(
            "--max-rejected",
            default="10%",
            show_default=True,
            metavar="N|P%",
            help="Fail where more lines than this cannot be used. Everything is written all the same.",
        ),
        click.option(
            "--topics",
            "topics_file",
            callback=as_path,
            metavar="FILE",
            help="Partition counts from before the log begins: CSV with the header topic,partitions. "
            "Tells what deleting and growing those topics cost.",
        ),
        click.option("--cluster", default="", metavar="NAME", help="Name of the cluster, a column of all tables."),
        click.option(
            "--timezone",
            default="UTC",
            show_default=True,
            metavar="NAME",
            help="The zone in which the brokers log, such as Europe/Berlin: the log itself does not say.",
        ),
        click.option(
            "--broker-id",
            type=click.IntRange(0, 2**31 - 1),  # Kafka's are signed integers of four bytes
            default=0,
            show_default=True,
            help="The broker of the logs whose option does not say it.",
        ),
        click.option(
            "--log",
            "logs",
            multiple=True,
            metavar="[N=]GLOB",
            help="A request log, or a quoted glob of them, plain or gzip; N is the id of their broker. Of many "
            "brokers: {broker} stands for the id in the path, as in 'logs/broker-{broker}/*'. Repeatable.",
        ),
    ):
        command = option(command)
    return command


dataset_option = click.option(
    "--dataset",
    callback=as_path,
    required=True,
    metavar="URL",
    help="A dataset that `kquota pipeline ingest` or `kquota analyze` wrote; the step's tables are added to it.",
)


def spark_options(command: F) -> F:
    """How to run; the command gets it as one argument, `spark`, for ``JobOptions``."""
    options = (
        click.option("-q", "--quiet", is_flag=True, help="Do not tell what is being done."),
        click.option(
            "--conf",
            multiple=True,
            callback=_spark_settings,
            metavar="KEY=VALUE",
            help="A setting of Spark, such as spark.driver.memory=8g, over those of spark-defaults.conf. Repeatable.",
        ),
        click.option(
            "--master",
            metavar="URL",
            help="Spark master.  [default: what spark-submit or Spark's settings say, otherwise local[*]]",
        ),
    )

    @wraps(command)
    def with_spark(**arguments: Any) -> Any:
        given = {name: arguments.pop(name) for name in ("master", "conf", "quiet")}
        return command(spark=given, **arguments)

    found: Any = with_spark
    for option in options:
        found = option(found)
    return found  # type: ignore[no-any-return] # what click makes of a function is one


def _spark_settings(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(
                f"{text}: write it as KEY=VALUE, with a key such as spark.driver.memory", ctx, param
            )
        settings[key] = value
    return settings


def load_jobs() -> Any:
    """The module :mod:`kquota.pipeline.jobs`.

    :raises KquotaError: Spark's Python packages are not installed.
    """
    return load_pipeline("jobs")


def load_pipeline(module: str) -> Any:
    """A module of :mod:`kquota.pipeline`.

    :raises KquotaError: Spark's Python packages are not installed.
    """
    try:
        return import_module(f"kquota.pipeline.{module}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in (
            "pyspark",
            "pyarrow",
            "numpy",
            "pandas",
            "numba",
        ):
            raise KquotaError(
                f"{error.name} is not installed, and this runs on Spark: pip install 'kquota[spark,report]'"
            ) from None
        raise


@contextmanager
def naming_log_options() -> Iterator[None]:
    """Around what reads logs: logs of several brokers that were given as those of one are told with the option."""
    try:
        yield
    except load_pipeline("ingest.request_log.overlaps").MixedBrokersError as error:
        raise InputError(f"{error}: say whose each is, {_WHOSE_LOG}") from None


def read_topics(path: str | None) -> dict[str, int]:
    """Partition counts by topic from a CSV file.

    :raises InputError: it cannot be read, or a row is not a topic and a count.
    """
    if path is None:
        return {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            rows = csv.DictReader(stream)
            if rows.fieldnames is None or not {"topic", "partitions"} <= set(rows.fieldnames):
                raise InputError(f"{path}:1: the header must be topic,partitions")
            counts: dict[str, int] = {}
            for row in rows:
                count = (row["partitions"] or "").strip()
                if not row["topic"] or not count.isascii() or not count.isdigit():
                    raise InputError(f"{path}:{rows.line_num}: not a topic and its number of partitions")
                counts[row["topic"]] = int(count)
            return counts
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the topics: {error}") from None


def print_analysis(analysis: "Analysis") -> None:
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
            "partitions, which the log does not always tell (see --topics)."
        )
    if summary.calibration is not None and summary.calibration.waits:
        console.print(_calibration(summary.calibration))
    console.print(f"\ntables: {analysis.dataset.url}")
    if analysis.dataset.has("report"):
        console.print(f"report: {analysis.dataset.url}/report.html", soft_wrap=True)


def wide_console() -> Any:
    """Standard output, for tables."""
    from rich.console import Console

    # Piped output is for reading by people too: keep the columns, whatever the width of no terminal.
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=150)


def _summary_lines(summary: "Summary") -> Iterator[str]:
    """What was read, who is limited, and what is known of the limits' past."""
    has_log = summary.metrics is None or any(one.source == "request-log" for one in summary.inputs)
    if has_log:
        yield _counts(summary)
        yield from _repeated(summary.duplicate_logs)
        yield from map(_overlap, summary.overlaps)
        yield from map(_clock_went_backwards, summary.clock_went_backwards)
        yield from map(_ambiguous_hour, summary.ambiguous_hours)
    if summary.metrics is not None:
        yield from metric_lines(summary.metrics)
    if summary.limited_meters is not None:
        text = (
            f"{summary.clients:,} clients, {summary.limited_meters:,} limited meters, "
            f"{summary.throttled_meters:,} throttled"
        )
        if has_log:
            waited = f"{summary.throttled_requests:,} requests were told to wait {duration(summary.throttle_ms or 0)}"
            text += f"; {waited} in all" + (" by the logs" if summary.metrics is not None else "")
        yield text
    yield from over_time_lines(summary)


def _counts(summary: "Summary") -> str:
    good, rejected, blank = summary.good, summary.rejected, summary.blank
    if (metrics := summary.metrics) is not None:
        good, rejected, blank = good - metrics.readings, rejected - metrics.rejected, blank - metrics.blank
    text = f"{good + rejected + blank:,} lines: {good:,} good, {rejected:,} rejected"
    if blank:
        text += f", {blank:,} blank"
    left_out = [
        f"{count:,} {what}"
        for count, what in ((summary.forwarded, "forwarded duplicates"), (summary.followers, "followers' fetches"))
        if count
    ]
    return text + (f" (not counted: {', '.join(left_out)})" if left_out else "")


def _repeated(logs: "Sequence[DuplicateLogFile]") -> Iterator[str]:
    for log in logs[:_SHOWN_LOGS]:
        yield f"not counted: {log.file}: all of it is in {log.of}"
    if len(logs) > _SHOWN_LOGS:
        yield f"not counted: {len(logs) - _SHOWN_LOGS:,} more copies of logs (`duplicate_logs` in summary.json)"


def _overlap(logs: "Overlap") -> str:
    one, other = logs.files
    if logs.overlap_ms:
        found, follows = f"overlap by {duration(logs.overlap_ms)}", "lines that stand in both count twice"
    else:
        found, follows = "are of different addresses", "a broker may have come back with another one"
    return (
        f"broker {logs.broker_id}: its logs {one} and {other} {found}: {follows}, and if they are of two brokers, "
        f"what both used is added up: say whose each is, {_WHOSE_LOG}"
    )


def _clock_went_backwards(step: "BackwardClock") -> str:
    return (
        f"broker {step.broker_id}: its log goes back in time by {duration(step.by_ms)} after "
        f"{moment(step.from_ms)}: the clock was set back, or summer time ended; what was used before and after "
        "counts on the same seconds, so that rates and waits of that time are too high; cut the log there, and analyse "
        "both parts on their own"
    )


def _ambiguous_hour(log: "AmbiguousHour") -> str:
    return (
        f"broker {log.broker_id}: {log.file} begins in the hour that the end of summer time repeats, and does "
        "not say in which of the two: the first is taken; put it behind the log before it, in one file, to know"
    )


def _calibration(calibration: "CalibrationTotals") -> str:
    close, waits = calibration.within_5ms_or_5pct, calibration.waits
    return (
        f"calibration: Kafka's arithmetic on this log gives {close:,} of {waits:,} waits ({close / waits:.1%}) within "
        f"5 ms or 5 %: {duration(calibration.throttle_ms_predicted)} in all, logged "
        f"{duration(calibration.throttle_ms_logged)}"
    )


def _meter_table(meters: Sequence[Any]) -> Any:
    from rich.table import Table

    table = Table(title="Meters, worst first", title_justify="left", box=None, pad_edge=False, header_style="bold")
    several = len({line.broker_id for line in meters}) > 1
    if several:
        table.add_column("broker", justify="right")
    for name in ("meter", "key"):
        table.add_column(name, overflow="fold")
    table.add_column("limit", justify="right")
    table.add_column("by rule", overflow="fold")
    for name in ("p95", "max", "over", "throttled", "told to wait"):
        table.add_column(name, justify="right")
    for line in meters:
        cells = [
            line.meter,
            line.key,
            limit_text(line.key, line["limit"]),
            f"{line.limit_source} (level {line.level})",
            _share(line.rate_p95, line["limit"]) + (" (+)" if line.unknown_amounts else ""),
            _share(line.rate_max, line["limit"]) + (" (+)" if line.unknown_amounts else ""),
            f"{line.seconds_over_100:,} of {line.seconds_active:,} s",
            _throttled(line) + (" (?)" if line.ambiguous and line.episodes else ""),
            duration(line.throttle_ms) if line.throttle_ms else "-",
        ]
        table.add_row(*([str(line.broker_id)] if several else []), *map(plain_cell, cells))
    return table


def _requests(line: Any) -> str:
    return "requests" if line.throttled_requests is None else f"{line.throttled_requests:,} requests"


def _throttled(line: Any) -> str:
    if line.throttled_requests is None:
        return "yes"
    return f"{line.throttled_requests:,}" if line.throttled_requests else "-"


def plain_cell(text: str) -> Any:
    """A cell whose brackets are not markup, and which cannot move the cursor."""
    from rich.text import Text

    return Text("".join(character if character.isprintable() else "\ufffd" for character in text))


def _share(rate: float | None, limit: float) -> str:
    return "-" if rate is None else f"{rate / limit * 100:,.0f} %"
