"""The directory that results are written to: refused where it is not ours, and never left half replaced.

Everything new is written to a hidden staging folder inside the directory, and each table is swapped in on its own
once it is whole. A run that fails leaves the old tables as they were.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from kquota import __version__
from kquota.errors import InputError
from kquota.files.local_paths import check_local
from kquota.pipeline.tables import OCCASIONAL, TABLES

__all__ = ["MARKER", "OutputDirectory"]

MARKER: Final = "_kquota.json"
"""Says that a directory is ours, and of which format."""
FORMAT: Final = 1
_STAGING_PREFIX: Final = ".staging-"
_FILES: Final = ("quotas.yaml", "quotas", "report.html", "summary.json")
_OURS: Final = (*TABLES, *OCCASIONAL, *_FILES)


class OutputDirectory:
    """A context: enter to get a staging folder, :meth:`publish` what is whole; leaving removes the staging folder."""

    def __init__(self, path: Path, *, overwrite: bool = False, adds: bool = False) -> None:
        """Check that `path` may be written to.

        :param adds: whether earlier results stay, and with them what others put there.
        :raises InputError: it is a URL, holds what kquota did not write, or is ours and `overwrite` is not given.
        """
        check_local(path)
        self.path = path
        # Workers write here, too, and their current directory is another.
        self.staging = path.absolute() / f"{_STAGING_PREFIX}{uuid4().hex[:12]}"
        if not adds:
            self._check(overwrite=overwrite)

    @classmethod
    def existing(cls, path: Path) -> Self:
        """The directory of an earlier run, to add to.

        :raises InputError: it is not one.
        """
        check_local(path)
        if not (path / MARKER).is_file():
            raise InputError(
                f"{path} is not a directory that `kquota analyze` or `kquota pipeline ingest` wrote: {_instead(path)}"
            )
        return cls(path, adds=True)

    def _check(self, *, overwrite: bool) -> None:
        path = self.path
        if not path.exists():
            return
        if not path.is_dir():
            raise InputError(f"the output {path} is not a directory: give another --out")
        entries = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith(_STAGING_PREFIX))
        if not entries:
            return
        foreign = [name for name in entries if name not in _OURS and name != MARKER]
        if MARKER not in entries or foreign:
            shown = ", ".join((foreign or entries)[:3])
            raise InputError(
                f"the output directory {path} holds what kquota did not write ({shown}): "
                "give another --out, nothing was touched"
            )
        if not overwrite:
            raise InputError(
                f"the output directory {path} holds earlier results: give --overwrite to replace them, or another --out"
            )

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in self.path.glob(f"{_STAGING_PREFIX}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            self.staging.mkdir()
        except OSError as error:
            raise InputError(f"the output directory {self.path} cannot be written to: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)
        if kind is not None and not any(self.path.iterdir()):
            self.path.rmdir()

    def publish(self, name: str) -> None:
        """Swap in the table or file `name` from the staging folder in place of its old version."""
        marker = self.path / MARKER
        if not marker.exists():
            marker.write_text(json.dumps({"format": FORMAT, "kquota": __version__}) + "\n", encoding="utf-8")
        new, target, old = self.staging / name, self.path / name, self.staging / f"old-{name}"
        if target.exists():
            target.rename(old)
        new.rename(target)

    def remove(self, *names: str) -> None:
        """Remove tables and files that do not belong to what is there now."""
        for name in names:
            target = self.path / name
            if target.exists():
                target.rename(self.staging / f"old-{name}")

    def remove_others(self, kept: Iterable[str]) -> list[str]:
        """Remove tables and files of an earlier run that this one did not write: they no longer belong together.

        Returns the names of those that were there.
        """
        others = [name for name in _OURS if name not in set(kept) and (self.path / name).exists()]
        self.remove(*others)
        return others


def _instead(path: Path) -> str:
    """What stands there."""
    if not path.exists():
        return "there is no such directory"
    if not path.is_dir():
        return "it is a file"
    names = [entry.name for entry in path.iterdir()]
    if all(name.startswith(_STAGING_PREFIX) for name in names):
        return "a run that wrote to it has not come to its end; run that again" if names else "it is empty"
    return f"it has no {MARKER}"
