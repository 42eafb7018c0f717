"""Options that take a path or a URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from kquota.errors import InputError
from kquota.files.local_paths import STORAGE_SCHEMES, local_path, url_scheme

__all__ = ["as_path", "as_url", "reading"]


def as_path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A callback of click: the path that was given, also as ``file:///path``; other URLs are refused."""
    try:
        return None if value is None else local_path(value)
    except InputError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def as_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A callback of click: a path as :func:`as_path` gives it, or a URL that the pipeline opens or refuses."""
    return value if value is not None and url_scheme(value) in STORAGE_SCHEMES else as_path(ctx, param, value)


@contextmanager
def reading(path: str, what: str) -> Iterator[None]:
    """Around what reads a file.

    :raises InputError: it cannot be read; the error says `what` would have been.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot read the {what}: {error.strerror}") from None
