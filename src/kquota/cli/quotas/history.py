"""``kquota history``: who changed what, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

import click

from kquota.cli.options.entity_filter import EntityFilter
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, check_filter, target_options
from kquota.cli.output import Layout, align, format_option, write_records
from kquota.errors import NotSupportedError
from kquota.quotas import QuotaChange, format_number
from kquota.stores import Commit, HasHistory

__all__ = ["history"]


class _Entry(NamedTuple):
    """One value that was changed."""

    commit: Commit
    change: QuotaChange


@click.command(
    epilog="""\b
Examples:
  kquota history --store sqlite:///kquota.db
  kquota history --store sqlite:///kquota.db --name user=alice --format csv
  kquota history --store sqlite:///kquota.db --any ip --since 17 --format jsonl

\b
Exit codes: 0 done, 2 something given cannot be used, 6 there is no history: a cluster keeps none."""
)
@target_options()
@takes(entity_filter=EntityFilter)
@click.option(
    "--since", type=click.IntRange(min=0), default=0, metavar="NUMBER", help="Only commits after this number."
)
@format_option
def history(
    *,
    target: Target,
    entity_filter: EntityFilter,
    since: int,
    format: str,
) -> None:
    """Show every change of a store, oldest first: who made it, when, and what was set before and after.

    The filters are those of kquota describe. A commit is what was changed in one go.
    """
    check_filter(entity_filter.asked)
    if target.bootstrap_server is not None:
        raise NotSupportedError(
            "a cluster has no history of its quotas; that of kquota serve is in its store: give --store"
        )
    with target.open() as store:
        if not isinstance(store, HasHistory):
            raise NotSupportedError("this store keeps no history")
        found = (
            _Entry(commit, change)
            for commit in store.history(since=since)
            for change in commit.changes
            if entity_filter.matches(change.entity)
        )
        write_records(found, format, _LAYOUT)


def _text_lines(found: Iterable[_Entry]) -> Iterator[str]:
    for commit, entries in groupby(found, key=lambda entry: entry.commit):
        yield f"{commit.number}  {_time(commit)}  {commit.principal or '(unknown)'}"
        rows = []
        for entity, own in groupby(entries, key=lambda entry: entry.change.entity):
            text = entity.to_text()
            for _, change in own:
                rows.append((text, change.key, f"{_value(change.before) or '-'} -> {_value(change.after) or '-'}"))
                text = ""
        yield from align(rows, indent="  ")


def _time(commit: Commit) -> str:
    return datetime.fromtimestamp(commit.at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: float | None) -> str:
    return "" if value is None else format_number(value)


_LAYOUT: Layout[_Entry] = Layout(
    fields=lambda entry: {
        "commit": entry.commit.number,
        "at": _time(entry.commit),
        "principal": entry.commit.principal,
        "entity": dict(entry.change.entity.entries),
        "key": entry.change.key,
        "before": entry.change.before,
        "after": entry.change.after,
    },
    header=("commit", "at", "principal", "entity", "key", "before", "after"),
    rows=lambda entry: [
        (
            str(entry.commit.number),
            _time(entry.commit),
            entry.commit.principal,
            entry.change.entity.to_text(),
            entry.change.key,
            _value(entry.change.before),
            _value(entry.change.after),
        )
    ],
    text=_text_lines,
)
