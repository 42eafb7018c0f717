"""Tables for people, on the terminal or in a file."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

__all__ = ["broker_column", "plain_cell", "plain_table", "plain_text", "wide_console"]

T = TypeVar("T")


def wide_console() -> Any:
    """Standard output, for tables."""
    from rich.console import Console

    # Piped output is for reading by people too: keep the columns, whatever the width of no terminal.
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=150)


def plain_cell(text: str) -> Any:
    """A cell whose brackets are not markup, and which cannot move the cursor."""
    from rich.text import Text

    return Text(plain_text(text))


def plain_text(text: str) -> str:
    """Text that cannot move the cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def plain_table(
    rows: Iterable[T],
    columns: Mapping[str, Callable[[T], str]],
    *,
    folded: Collection[str],
    title: str | None = None,
    min_width: int | None = None,
    no_wrap: bool = False,
) -> Any:
    """A table without lines: by the name of a column what its cell of a row says.

    :param folded: the columns that break text where it is too long; all others have numbers, on the right.
    :param min_width: how narrow the folded columns may become, in characters.
    :param no_wrap: whether the other columns stay on one line.
    """
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        if name in folded:
            table.add_column(name, overflow="fold", min_width=min_width)
        else:
            table.add_column(name, justify="right", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*(plain_cell(cell(row)) for cell in columns.values()))
    return table


def broker_column(rows: Iterable[Any]) -> dict[str, Callable[[Any], str]]:
    """The column that says the broker, where the rows are of several."""
    several = len({row.broker_id for row in rows}) > 1
    return {"broker": lambda row: str(row.broker_id)} if several else {}
