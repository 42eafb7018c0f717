"""``kquota dataset``: what is in a dataset, and what killed runs left there. Nothing here starts Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from kquota.cli.options.paths import as_url
from kquota.cli.options.quotas_over_time import moment
from kquota.cli.output import align
from kquota.figures import duration
from kquota.files import dump_json

if TYPE_CHECKING:
    from kquota.pipeline.dataset.dataset import Dataset

__all__ = ["dataset"]

_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}

_dataset_argument = click.argument("dataset", metavar="URL", callback=as_url)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  kquota dataset describe report
  kquota dataset files report --table usage --format paths
  kquota dataset clean report --dry-run""",
)
def dataset() -> None:
    """The datasets that analyze and the steps of pipeline write: their tables, files, and leftovers."""


@dataset.command(
    epilog="""\b
Examples:
  kquota dataset describe report
  kquota dataset describe report --format json"""
)
@_dataset_argument
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print.")
def describe(*, dataset: str, format: str) -> None:
    """Which tables there are, how large they are, and which step wrote each, when."""
    found = _open(dataset)
    tables = [_table(found, name) for name in sorted(found.tables)]
    if format == "json":
        summary = found.summary
        about = {"url": found.url, "commit": found.version, "cluster": summary.cluster}
        about |= {"start_ms": summary.start_ms, "end_ms": summary.end_ms, "tables": tables}
        click.echo(dump_json(about))
        return
    click.echo(f"{found.url}, commit {found.version}{_recorded(found)}")
    rows = [("table", "rows", "bytes", "files", "written by", "at")]
    rows += [
        (
            table["name"],
            f"{table['rows']:,}",
            f"{table['bytes']:,}",
            f"{table['files']:,}",
            table["step"],
            moment(table["committed_ms"]),
        )
        for table in tables
    ]
    for line in align(rows):
        click.echo(line)


@dataset.command(
    epilog="""\b
Examples:
  kquota dataset files report
  kquota dataset files report --table usage --table clients --format json
  duckdb -c "select key, sum(amount) from read_parquet([$(kquota dataset files report --table usage \\
             --format paths | sed "s/.*/'&'/" | paste -sd,)]) group by key"

\b
A table without rows has no files. While a step runs, a plain `usage/**/*.parquet` may also find files that do not
belong to the table yet, or no longer."""
)
@_dataset_argument
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Of these tables. Repeatable.  [default: all]")
@click.option(
    "--format",
    type=click.Choice(["text", "json", "paths"]),
    default="text",
    show_default=True,
    help="How to print; paths is one a line, for other programs.",
)
def files(*, dataset: str, tables: tuple[str, ...], format: str) -> None:
    """The files that tables consist of now."""
    found = _open(dataset)
    from kquota.pipeline.dataset.tables import ALL_TABLES

    for name in tables:
        if name not in ALL_TABLES:
            raise click.BadParameter(f"{name}: there is {', '.join(ALL_TABLES)}", param_hint="--table")
        found.require(name)
    listed = [file for name in tables or sorted(found.tables & ALL_TABLES.keys()) for file in found.files(name)]
    match format:
        case "json":
            click.echo(
                dump_json(
                    [
                        {
                            "table": file.table,
                            "path": f"{found.url}/{file.path}",
                            "rows": file.rows,
                            "bytes": file.bytes,
                            "partition": file.partition,
                        }
                        for file in listed
                    ]
                )
            )
        case "paths":
            for file in listed:
                click.echo(f"{found.url}/{file.path}")
        case _:
            rows = [("file", "rows", "bytes")]
            rows += [(file.path, f"{file.rows:,}", f"{file.bytes:,}") for file in listed]
            for line in align(rows):
                click.echo(line)


def _age(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Seconds of ``90 s``, ``30min``, ``12h``, ``7d``."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h|d)", text.strip())
    if match is None:
        raise click.BadParameter(f"{text}: write it as 90s, 30min, 12h or 7d", ctx, param)
    return float(match[1]) * _SECONDS[match[2]]


@dataset.command(
    epilog="""\b
Examples:
  kquota dataset clean report --dry-run
  kquota dataset clean report
  kquota dataset clean /shared/report --older-than 1d"""
)
@_dataset_argument
@click.option(
    "--older-than",
    "older_than_s",
    callback=_age,
    metavar="AGE",
    help="Also what runs of other machines left that began so long ago, such as 12h or 7d. If one of them is at work "
    "after all, it fails.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def clean(*, dataset: str, older_than_s: float | None, dry_run: bool) -> None:
    """Remove what killed runs left: files that no table has, and their marks. Tables stay as they are.

    The next run does the same, but for what runs of other machines left: whether those are at work is known there only.
    """
    found = _open(dataset)
    removed = found.clean(older_than_s=older_than_s, dry_run=dry_run)
    for path in removed:
        click.echo(path)
    files = f"{len(removed):,} file{'' if len(removed) == 1 else 's'}"
    click.echo(f"{files} {'would be removed' if dry_run else 'removed'}", err=True)


def _open(url: str) -> Dataset:
    from kquota.pipeline.dataset.dataset import Dataset

    return Dataset.open(url)


def _table(found: Dataset, name: str) -> dict[str, Any]:
    """What there is of a table, the quotas or the report, and which commit changed it last."""
    files = found.files(name)
    commit = next(one for one in reversed(found.changes_since(0)) if name in one.changed)
    return {
        "name": name,
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "files": len(files),
        "step": commit.step,
        "run": commit.run,
        "committed_ms": commit.committed_ms,
    }


def _recorded(found: Dataset) -> str:
    start_ms, end_ms = found.summary.start_ms, found.summary.end_ms
    if start_ms is None or end_ms is None:
        return ""
    cluster = f" of {found.summary.cluster}" if found.summary.cluster else ""
    return f": {duration(end_ms - start_ms)}{cluster} from {moment(start_ms)}"
