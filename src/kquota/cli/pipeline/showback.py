"""``kquota pipeline showback``: who used how much."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kquota.cli.console import plain_text
from kquota.cli.options.owners import owners_option, read_owners
from kquota.cli.options.paths import as_path, as_url
from kquota.cli.options.spark import SparkOptions
from kquota.cli.options.taking import takes
from kquota.cli.output import Layout, align, check_writable, write_records
from kquota.errors import KquotaError
from kquota.figures import amount_figure, rate_figure, share
from kquota.quotas import format_number

if TYPE_CHECKING:
    from kquota.pipeline.owners.job import Showback

__all__ = ["showback"]

_COLUMNS: Final = ("cluster", "owner", "date", "key", "amount", "limit", "share", "unknown_amounts")
_SHOWN_UNOWNED: Final = 10


@click.command(
    epilog="""\b
Examples:
  kquota pipeline showback --dataset report --owners owners.csv
  kquota pipeline showback --dataset report --owners owners.csv --timezone Europe/Berlin --format csv > july.csv
  kquota pipeline showback --dataset report --unowned nobodys.csv

\b
An owner map is CSV (or YAML with the same fields); the first rule that matches wins, empty cells are not looked at:
  owner,user,client-id,client-id-prefix
  payments,alice,,
  search,,,indexer-
Clients that no rule knows belong to whom an `owner:` in the quota file of the analysis says, otherwise to `unowned`.
Amounts are bytes, percent-seconds of a thread, partitions and connections; limits are per second, of all brokers."""
)
@click.option(
    "--dataset",
    callback=as_url,
    required=True,
    metavar="URL",
    help="A dataset that `kquota analyze` wrote; the table `showback` is added to it.",
)
@owners_option
@click.option(
    "--unowned",
    callback=as_path,
    metavar="FILE",
    help="Write the clients without an owner to FILE, as rows to complete for an owner map.",
)
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="NAME", help="Where days begin and end: Europe/Berlin."
)
@click.option(
    "--format",
    type=click.Choice(["text", "json", "jsonl", "csv"]),
    default="text",
    show_default=True,
    help="How to print. All but text have plain numbers.",
)
@takes(spark=SparkOptions)
def showback(
    *,
    dataset: str,
    owners: str | None,
    unowned: str | None,
    timezone: str,
    format: str,
    spark: SparkOptions,
) -> None:
    """Usage by owner and day, with its share of the cluster's and what the owners may use."""
    rules = read_owners(owners)
    check_writable(unowned, "--unowned")
    from kquota.pipeline.owners import job

    found = job.showback(rules, timezone, spark.job(dataset))
    write_records(found.rows, format, Layout(_fields, _COLUMNS, lambda row: [_cells(row)], _text))
    if unowned is not None:
        _write_unowned(unowned, found.unowned)
    for line in _remarks(found, dataset, unowned):
        click.echo(line, err=True)


def _fields(row: Mapping[str, Any]) -> dict[str, object]:
    """Values of the columns. Sums depend on the order of the rows in their last digits, which are left out."""
    values = {name: float(f"{row[name]:.12g}") if isinstance(row[name], float) else row[name] for name in _COLUMNS}
    return values | {"date": row["date"].isoformat()}


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        "" if value is None else format_number(value) if isinstance(value, float) else str(value)
        for value in _fields(row).values()
    ]


def _text(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A block for each day, and in it for each key the owners, largest first."""
    rows = list(rows)
    several = len({row["cluster"] for row in rows}) > 1
    for number, ((cluster, date), of_day) in enumerate(groupby(rows, key=lambda row: (row["cluster"], row["date"]))):
        if number:
            yield ""
        yield f"{date}  {cluster}" if several else f"{date}"
        by_size = sorted(of_day, key=lambda row: (row["key"], -(row["amount"] or 0.0), row["owner"]))
        lines = [("key", "owner", "amount", "share", "limit")]
        lines += [
            (
                row["key"],
                plain_text(row["owner"]),
                amount_figure(row["key"], row["amount"]).text + (" (+)" if _is_part(row) else ""),
                "-" if row["share"] is None else share(row["share"]),
                "-" if row["limit"] is None else rate_figure(row["key"], row["limit"]).text,
            )
            for row in by_size
        ]
        yield from align(lines, indent="  ")


def _is_part(row: Mapping[str, Any]) -> bool:
    """Whether the amount is that of some requests only."""
    return row["amount"] is not None and bool(row["unknown_amounts"])


def _remarks(found: Showback, dataset: str, unowned_file: str | None) -> Iterator[str]:
    if not found.rows:
        yield f"there is no usage in {dataset}"
        return
    if any(map(_is_part, found.rows)):
        yield "(+) or more: the amounts of some requests are not known"
    if not found.has_limits:
        yield f"no limits: `kquota pipeline resolve --dataset {dataset}` finds them"
    if not found.unowned:
        return
    yield f"without an owner: {len(found.unowned):,}, those with the largest part of anything first"
    yield from align(
        [
            (_client(row), "-" if row["share"] is None else f"{row['share']:.1%}")
            for row in found.unowned[:_SHOWN_UNOWNED]
        ],
        indent="  ",
    )
    if len(found.unowned) > _SHOWN_UNOWNED:
        yield f"  and {len(found.unowned) - _SHOWN_UNOWNED:,} more"
    if unowned_file is not None:
        yield f"{unowned_file}: fill in the owners, and put the rows below those of the owner map"
    else:
        yield "--unowned FILE lists them all, as rows to complete" + (
            " for --owners FILE" if not found.knows_owners else ""
        )


def _client(row: Mapping[str, Any]) -> str:
    names = (("user", row["user"]), ("client-id", row["client_id"]), ("ip", row["ip"]))
    return plain_text(" ".join(f"{kind}={name}" for kind, name in names if name)) or "(no user, no client-id)"


def _write_unowned(path: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows that name both halves first: below them, those that name one catch only what is left."""
    names = [(row["user"] or "", row["client_id"] or "", row["ip"] or "") for row in rows]
    in_order = sorted((row for row in names if any(row)), key=lambda row: not (row[0] and row[1]))
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("owner", "user", "client-id", "ip"))
            writer.writerows(("", *row) for row in in_order)
    except OSError as error:
        raise KquotaError(f"{path} cannot be written: {error.strerror}") from None
