"""The file that undoes an apply: written before anything is changed, and never over another one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from kquota.errors import InputError
from kquota.policy import Plan, read_plan, write_plan

__all__ = ["RollbackFileError", "write_rollback_file"]


class RollbackFileError(InputError):
    """The file that undoes an apply cannot be written, so nothing should be changed."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: cannot write the rollback file: {reason}; nothing was changed")


def write_rollback_file(plan: Plan, *, source: Path, path: Path | None = None, reviewed: Plan | None = None) -> Path:
    """Write what is about to be done, so that it can be undone; it is on the disk when this returns.

    Where an apply is resumed that ended midway, the file of its first start has all that is left to be done: that file
    stays as it is.

    :param source: the plan or quota file that is applied. The rollback file of ``plan.json`` is
        ``plan.rollback.json`` in the same folder, with a number where others of that name are there.
    :param path: the rollback file instead.
    :param reviewed: the plan that is applied, if it is one.
    :returns: the rollback file.
    :raises RollbackFileError: it cannot be written, or there is a file at `path` that does not undo this.
    """
    text = write_plan(plan)
    for candidate in _names(source) if path is None else [path]:
        try:
            _write(candidate, text)
        except FileExistsError:
            if _is_of_first_start(candidate, plan, reviewed, is_chosen=path is not None):
                return candidate
        except OSError as error:
            raise RollbackFileError(candidate, str(error.strerror)) from None
        else:
            return candidate
    assert path is not None  # the names do not end
    raise RollbackFileError(path, "there is such a file, and it does not undo this")


def _names(source: Path) -> Iterator[Path]:
    """plan.rollback.json for plan.json, and numbered ones after it."""
    yield source.with_name(f"{source.stem}.rollback.json")
    for number in count(2):
        yield source.with_name(f"{source.stem}.rollback-{number}.json")


def _is_of_first_start(path: Path, plan: Plan, reviewed: Plan | None, *, is_chosen: bool) -> bool:
    """Whether the file was written when the same apply began.

    Of a quota file that cannot be told apart from what was done long ago, and undone by hand since: its file is taken
    only where it was named.
    """
    try:
        first = read_plan(path.read_bytes(), name=str(path))
    except (InputError, OSError):
        return False
    is_same_apply = is_chosen if reviewed is None else reviewed.includes(first.changes)
    return is_same_apply and first.target.id == plan.target.id and first.includes(plan.changes)


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
