"""Options that belong together as one typed argument of a command.

A dataclass says them, field by field, in the order of ``--help``::

    @dataclass(frozen=True, slots=True)
    class SparkOptions:
        master: str | None = option("--master", metavar="URL", help="Spark master.")

    @click.command()
    @takes(spark=SparkOptions)
    def report(*, spark: SparkOptions) -> None: ...
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

import click

__all__ = ["argument", "option", "takes"]

F = TypeVar("F", bound=Callable[..., Any])

_CLICK: Final = "click"


def option(*names: str, **settings: Any) -> Any:
    """A field that is given by an option: names and settings are those of :func:`click.option`."""
    return dataclasses.field(metadata={_CLICK: lambda name: click.option(*names, name, **settings)})


def argument(**settings: Any) -> Any:
    """A field that is given by an argument: the settings are those of :func:`click.argument`."""
    return dataclasses.field(metadata={_CLICK: lambda name: click.argument(name, **settings)})


def takes(**kinds: type[Any]) -> Callable[[F], F]:
    """A decorator: the command has the options of these dataclasses, and gets an object of each, by its name here.

    A dataclass may refuse what does not go together, in ``__post_init__``, by :class:`click.UsageError`.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_objects(**given: Any) -> Any:
            objects = {name: kind(**_taken(kind, given)) for name, kind in kinds.items()}
            return command(**objects, **given)

        decorated: Any = with_objects
        for kind in reversed(kinds.values()):
            for field in reversed(dataclasses.fields(kind)):
                decorated = field.metadata[_CLICK](field.name)(decorated)
        return decorated  # type: ignore[no-any-return] # what click makes of a function is one

    return decorate


def _taken(kind: type[Any], given: dict[str, Any]) -> Mapping[str, Any]:
    return {field.name: given.pop(field.name) for field in dataclasses.fields(kind)}
