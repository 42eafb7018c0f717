"""Options of formats: text by name, in whatever case."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kquota.errors import InputError

__all__ = ["check_options", "whole_number"]


def check_options(options: Mapping[str, str], known: Collection[str], format: str) -> None:
    """:raises InputError: an option has a name that the format does not know."""
    if unknown := sorted({*map(str.lower, options)} - {*known}):
        raise InputError(
            f"format {format}: there is no option {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    """The value of an option.

    :raises InputError: it is no number.
    """
    text = options.get(name, str(default))
    if not text.isdecimal():
        raise InputError(f"option {name}: {text} is not a whole number")
    return int(text)
