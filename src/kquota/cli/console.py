"""Tables for people, on the terminal or in a file."""

from typing import Any

__all__ = ["plain_cell", "wide_console"]


def wide_console() -> Any:
    """Standard output, for tables."""
    from rich.console import Console

    # Piped output is for reading by people too: keep the columns, whatever the width of no terminal.
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=150)


def plain_cell(text: str) -> Any:
    """A cell whose brackets are not markup, and which cannot move the cursor."""
    from rich.text import Text

    return Text("".join(character if character.isprintable() else "\ufffd" for character in text))
