"""Request logs as a source of usage, and how they are read."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kquota.cli.options.paths import as_path
from kquota.cli.options.taking import argument, option
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.pipeline.ingest.from_logs import LogSettings
    from kquota.pipeline.ingest.reject_limit import RejectLimit

__all__ = ["NAMING_LOGS", "LogOptions", "naming_logs", "read_topics"]

NAMING_LOGS: Final = "with --log 1=GLOB --log 2=GLOB, or --log 'logs/broker-{broker}/*'"
"""How to say which broker a log is of."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which logs, and how they are to be read."""

    logs: tuple[str, ...] = option(
        "--log",
        multiple=True,
        metavar="[N=]GLOB",
        help="A request log, or a quoted glob of them, also a URL such as 's3://bucket/logs/*', plain, gzip or zstd; N "
        "is the id of their broker. Of many brokers: with {broker} in place of the id in the path, as in "
        "'logs/broker-{broker}/*'. Repeatable.",
    )
    broker_id: int = option(
        "--broker-id",
        type=click.IntRange(0, 2**31 - 1),  # Kafka's are signed integers of four bytes
        default=0,
        show_default=True,
        help="The broker of the logs whose option does not say it.",
    )
    timezone: str = option(
        "--timezone",
        default="UTC",
        show_default=True,
        metavar="NAME",
        help="The zone in which the brokers log, such as Europe/Berlin: the log itself does not say.",
    )
    cluster: str = option("--cluster", default="", metavar="NAME", help="Name of the cluster, a column of all tables.")
    topics: str | None = option(
        "--topics",
        callback=as_path,
        metavar="FILE",
        help="Partition counts from before the log begins: CSV with the header topic,partitions. "
        "Tells what deleting and growing those topics cost.",
    )
    envelope: str = option(
        "--envelope",
        default="",
        metavar="FIELD",
        help="A shipper wrapped each line in JSON, and this field holds it: message (Filebeat, Vector), log (Fluent "
        "Bit), event.original.",
    )
    max_rejected: str = option(
        "--max-rejected",
        default="10%",
        show_default=True,
        metavar="N|P%",
        help="Fail where more lines than this cannot be used. Everything is written all the same.",
    )
    keep_requests: bool | None = option(
        "--keep-requests/--no-keep-requests",
        default=None,
        help="Write the table `requests`, a row per request and key. Without either: up to about 5 million lines.",
    )
    more_logs: tuple[str, ...] = argument(nargs=-1, metavar="[LOG]...")

    @property
    def patterns(self) -> list[str]:
        """Of all logs."""
        return [*self.logs, *self.more_logs]

    def settings(self) -> LogSettings:
        """For the pipeline.

        :raises InputError: the file of topics cannot be used.
        """
        topics = read_topics(self.topics)
        from kquota.pipeline.ingest.from_logs import LogSettings

        return LogSettings(self.timezone, self.cluster, self.keep_requests, topics, self.envelope)

    def reject_limit(self) -> RejectLimit:
        """How many lines may be rejected.

        :raises InputError: it is neither a number nor a share.
        """
        from kquota.pipeline.ingest.reject_limit import RejectLimit

        return RejectLimit.parse(self.max_rejected)


@contextmanager
def naming_logs() -> Iterator[None]:
    """Around what reads logs: where logs of several brokers were given as those of one, the error says the option."""
    from kquota.pipeline.ingest.request_log.overlaps import MixedBrokersError

    try:
        yield
    except MixedBrokersError as error:
        raise InputError(f"{error}: say whose each is, {NAMING_LOGS}") from None


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
