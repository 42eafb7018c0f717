"""How results are printed: ``--format``, text that lines up, CSV, JSON and YAML with plain numbers."""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import click

from kquota.errors import InputError
from kquota.files import dump_json
from kquota.files.writer import yaml_flow
from kquota.printable import printable

__all__ = ["FORMATS", "Layout", "align", "check_writable", "format_option", "write_records"]

FORMATS = ("text", "json", "jsonl", "yaml", "csv")

format_option = click.option(
    "--format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How to print. Numbers are plain in all formats; CSV is RFC 4180.",
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Layout(Generic[T]):
    """How one kind of record looks in each format."""

    fields: Callable[[T], Mapping[str, object]]
    """For JSON and YAML."""
    header: Sequence[str]
    """The columns of CSV."""
    rows: Callable[[T], Iterable[Sequence[str]]]
    """The rows of CSV for one record."""
    text: Callable[[Iterable[T]], Iterable[str]]
    """The lines for people."""


def write_records(records: Iterable[T], format: str, layout: Layout[T]) -> None:
    """Print ``records`` one by one, so that any number of them fits into memory."""
    write = sys.stdout.write
    match format:
        case "json":
            first = True
            for record in records:
                write(("[\n  " if first else ",\n  ") + dump_json(layout.fields(record)))
                first = False
            write("[]\n" if first else "\n]\n")
        case "jsonl":
            for record in records:
                write(dump_json(layout.fields(record)) + "\n")
        case "yaml":
            first = True
            for record in records:
                write(_yaml_item(layout.fields(record)))
                first = False
            if first:
                write("[]\n")
        case "csv":
            rows = csv.writer(sys.stdout)
            rows.writerow(layout.header)
            for record in records:
                rows.writerows(map(printable, row) for row in layout.rows(record))
        case _:
            for line in layout.text(records):
                write(line + "\n")
    # What is said of the records on standard error comes after them, also where both go to one file.
    sys.stdout.flush()


def check_writable(path: str | None, option: str) -> None:
    """Refuse a file that could not be written, before the work is done that it is to hold.

    :raises InputError: there is no such folder, it is a folder, or it may not be written.
    """
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{option} {path}: this is a directory; name a file")
    if not target.parent.is_dir():
        raise InputError(f"{option} {path}: there is no directory {target.parent}")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InputError(f"{option} {path}: it may not be written")


def align(rows: Iterable[Sequence[str]], *, indent: str = "") -> list[str]:
    """Lines with their cells in columns, two spaces apart; the last cell of a line is not padded.

    Cells are made printable: what a cluster answers is shown, and not obeyed by a terminal.
    """
    table = [[printable(text) for text in row] for row in rows]
    widths: dict[int, int] = {}
    for row in table:
        for i, text in enumerate(row[:-1]):
            widths[i] = max(widths.get(i, 0), _width(text))
    return [
        indent
        + "  ".join([text + " " * (widths[i] - _width(text)) for i, text in enumerate(row[:-1])] + row[-1:]).rstrip()
        for row in table
    ]


def _width(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _yaml_item(fields: Mapping[str, object]) -> str:
    """One item of a YAML list: a field in one line, a mapping of mappings in one line for each."""
    lines: list[str] = []
    for name, value in fields.items():
        if isinstance(value, Mapping) and any(isinstance(item, Mapping) for item in value.values()):
            lines.append(f"{yaml_flow(name)}:")
            lines += [f"  {yaml_flow(key)}: {yaml_flow(item)}" for key, item in value.items()]
        else:
            lines.append(f"{yaml_flow(name)}: {yaml_flow(value)}")
    return "- " + "\n  ".join(lines) + "\n"
