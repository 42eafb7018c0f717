"""The directory that results are written to: refused where it is not ours, and never left half replaced.

Everything new is written to a hidden staging folder inside the directory, and each table is swapped in on its own
once it is whole. A run that fails leaves the old tables as they were. Several jobs may add different tables at the
same time (:mod:`kquota.pipeline.dataset.lease`).
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kquota import __version__
from kquota.errors import InputError
from kquota.files.local_paths import check_local
from kquota.pipeline.dataset.lease import STAGING_PREFIX, Lease
from kquota.pipeline.dataset.tables import OCCASIONAL, TABLES

__all__ = ["MARKER", "OutputDirectory"]

MARKER: Final = "_kquota.json"
"""Says that a directory is ours, and of which format."""
FORMAT: Final = 1
_FILES: Final = ("quotas.yaml", "quotas", "report.html", "summary.json")
_OURS: Final = (*TABLES, *OCCASIONAL, *_FILES)


class OutputDirectory:
    """A context: enter to get a staging folder, :meth:`publish` what is whole; leaving removes the staging folder."""

    def __init__(self, path: Path, *, overwrite: bool = False, adds: Collection[str] | None = None) -> None:
        """Check that `path` may be written to.

        :param adds: tables and files that are added to earlier results; what others put there stays, too.
        :raises InputError: it is a URL, holds what kquota did not write, or is ours and `overwrite` is not given.
        """
        check_local(path)
        self.path = path
        self._overwrite = overwrite
        self._adds = adds is not None
        self._lease = Lease(path, _OURS if adds is None else adds)
        self._check()

    @classmethod
    def existing(cls, path: Path, *tables: str) -> Self:
        """The directory of an earlier run, to add to.

        :param tables: those tables and files that will be published; without any, it may be all.
        :raises InputError: it is not one.
        """
        check_local(path)
        if not (path / MARKER).is_file():
            raise InputError(
                f"{path} is not a directory that `kquota analyze` or `kquota pipeline ingest` wrote: {_instead(path)}"
            )
        return cls(path, adds=tables or _OURS)

    @property
    def staging(self) -> Path:
        """The folder for what is not whole yet; workers find it from anywhere."""
        return self._lease.staging

    def _check(self) -> None:
        path = self.path
        if self._adds or not path.exists():
            return
        if not path.is_dir():
            raise InputError(f"the output {path} is not a directory: give another --out")
        entries = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith(STAGING_PREFIX))
        if not entries:
            return
        foreign = [name for name in entries if name not in _OURS and name != MARKER]
        if MARKER not in entries or foreign:
            shown = ", ".join((foreign or entries)[:3])
            raise InputError(
                f"the output directory {path} holds what kquota did not write ({shown}): "
                "give another --out, nothing was touched"
            )
        if not self._overwrite:
            raise InputError(
                f"the output directory {path} holds earlier results: give --overwrite to replace them, or another --out"
            )

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lease.acquire()
        except OSError as error:
            raise InputError(f"the output directory {self.path} cannot be written to: {error.strerror}") from None
        try:
            self._check()  # again: another job may have ended in between
        except InputError:
            self._lease.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.release()
        if kind is not None and not any(self.path.iterdir()):
            self.path.rmdir()

    @contextmanager
    def updating(self) -> Iterator[None]:
        """While what is there is read, changed and published: other jobs that add tables wait so long."""
        with (self.path / MARKER).open("r+b") as marker:
            with suppress(OSError):  # a file system without locks: two would have to end in the same moment
                fcntl.flock(marker, fcntl.LOCK_EX)
            yield

    def publish(self, name: str) -> None:
        """Swap in the table or file `name` from the staging folder in place of its old version.

        :raises KquotaError: another job took this one for dead.
        """
        self._lease.check()
        marker = self.path / MARKER
        if not marker.exists():
            marker.write_text(json.dumps({"format": FORMAT, "kquota": __version__}) + "\n", encoding="utf-8")
        new, target = self.staging / name, self.path / name
        if target.is_dir():
            target.rename(self._lease.replaced(name))
        new.replace(target)

    def remove(self, *names: str) -> None:
        """Remove tables and files that do not belong to what is there now."""
        for name in names:
            target = self.path / name
            if target.exists():
                target.rename(self.staging / f"removed-{name}")

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
    if all(name.startswith(STAGING_PREFIX) for name in names):
        return "a run that wrote to it has not come to its end; run that again" if names else "it is empty"
    return f"it has no {MARKER}"
