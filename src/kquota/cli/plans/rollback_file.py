"""The file that undoes an apply: written before anything is changed, and never over another one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from kquota.errors import InputError
from kquota.policy import Plan, read_plan, write_plan

__all__ = ["keep_rollback_file"]


def keep_rollback_file(made: Plan, *, source: str, chosen: str | None, reviewed: Plan | None) -> Path:
    """Write what is about to be done, so that it can be undone; it is on the disk when this returns.

    Where an apply goes on that ended midway, the file of its first start holds all that is left to be done: it stays as
    it is. By default the file stands beside ``source``, with a number where others of that name are there.

    :param source: the plan or quota file that is applied; - is standard input.
    :param chosen: where it was said to go.
    :param reviewed: the plan that is applied, if it is one.
    :raises InputError: it cannot be written, or ``chosen`` is about something else.
    """
    text = write_plan(made)
    for path in [Path(chosen)] if chosen is not None else _names(source):
        try:
            _write(path, text)
        except FileExistsError:
            if _is_of_first_start(path, made, reviewed, is_chosen=chosen is not None):
                return path
            if chosen is not None:
                raise InputError(
                    f"--rollback-file {path}: there is such a file, and it does not undo this; name another one"
                ) from None
        except OSError as error:
            raise InputError(
                f"{path}: cannot write the rollback file: {error.strerror}; nothing was changed. Name another place "
                "with --rollback-file, or go without it: --no-rollback-file"
            ) from None
        else:
            return path
    raise AssertionError("names do not end")


def _names(source: str) -> Iterator[Path]:
    """plan.rollback.json for plan.json, and numbered ones after it."""
    path = Path("quotas" if source == "-" else source)
    yield path.with_name(f"{path.stem}.rollback.json")
    for number in count(2):
        yield path.with_name(f"{path.stem}.rollback-{number}.json")


def _is_of_first_start(path: Path, made: Plan, reviewed: Plan | None, *, is_chosen: bool) -> bool:
    """Whether the file was written when the same apply began.

    Of a quota file that cannot be told apart from what was done long ago, and undone by hand since: its file is taken
    only where it was named.
    """
    try:
        first = read_plan(path.read_bytes(), name=str(path))
    except (InputError, OSError):
        return False
    is_same_apply = is_chosen if reviewed is None else reviewed.holds(first.changes)
    return is_same_apply and first.target.id == made.target.id and first.holds(made.changes)


def _write(path: Path, text: str) -> None:
    """Make the file, and wait until it would survive a power cut.

    :raises FileExistsError: there is one.
    """
    with path.open("x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
