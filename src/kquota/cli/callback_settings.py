"""What a callback is given: the broker's settings and its own, and the modules of the directory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kquota.cli.paths import as_path
from kquota.config import read_properties
from kquota.errors import InputError

__all__ = ["callback_options", "callback_settings", "import_from_here"]

F = TypeVar("F", bound=Callable[..., Any])


def callback_options(command: F) -> F:
    """What a callback is given beside the broker's settings: ``--callback-config`` and ``-C``."""
    command = click.option(
        "-C",
        "--callback-setting",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="One of its settings, over those of --callback-config. Repeatable.",
    )(command)
    return click.option(
        "--callback-config", callback=as_path, metavar="FILE", help="The callback's settings, a Java properties file."
    )(command)


def import_from_here() -> None:
    """So that a module in the directory is found; after all that is installed, which it must not replace."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def callback_settings(
    broker_config: str | None, defines: Iterable[str], callback_config: str | None, settings: Iterable[str]
) -> dict[str, str]:
    """What a broker would hand to the callback: its own settings, and the callback's.

    :raises InputError: a file cannot be read, or a setting is not written as key=value.
    """
    configs: dict[str, str] = {}
    if broker_config is not None:
        configs |= read_properties(broker_config, "the broker's settings")
        for name in ("broker.id", "node.id"):  # each broker of the traffic has its own
            configs.pop(name, None)
    configs |= _pairs(defines, "-D")
    if callback_config is not None:
        configs |= read_properties(callback_config, "the callback's settings")
    return configs | _pairs(settings, "-C")


def _pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{option} {text}: write it as key=value")
        pairs[key.strip()] = value
    return pairs
