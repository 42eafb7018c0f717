"""Who is writing to a directory of results, so that two jobs do not take each other's files.

A job announces itself by a file beside its staging folder: who it is, and which tables it writes. It then looks for
others. One that was announced before it, lives, and writes any of the same tables goes first; those that do not live
any more are cleaned up after. Nothing of it needs locks of the file system, and all times that are compared are the
file system's own, so that the jobs may run on machines whose clocks differ.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from socket import gethostname
from threading import Event, Thread
from typing import Final, Self
from uuid import uuid4

import msgspec

from kquota.clock import SystemClock
from kquota.errors import KquotaError

__all__ = ["DEAD_AFTER_S", "STAGING_PREFIX", "BusyError", "Lease", "Writer"]

STAGING_PREFIX: Final = ".staging-"
DEAD_AFTER_S: Final = 300
"""So long without a sign of life, and a job on another machine counts as dead. NFS may show a time a minute late."""
_BEAT_S: Final = 30
_SHOWN: Final = 3
_REPLACED: Final = "old-"
_ENDED_STATES: Final = ("Z", "X")
"""Of proc(5): processes that have ended, and that nobody has waited for yet."""


class Writer(msgspec.Struct, frozen=True):
    """A job that writes `tables`. Process ids are those of a `pid_namespace`, as each container may have its own."""

    tables: list[str]
    user: str
    host: str
    pid_namespace: str
    pid: int
    pid_started: str
    """In the system's units; another process with the same id began at another time. Empty where it is not known."""
    since: str

    @classmethod
    def of_this_process(cls, tables: Collection[str]) -> Self:
        """A job of this process, from now on."""
        try:
            user = getuser()
        except (KeyError, OSError):  # a container's user may have no name
            user = f"user {os.getuid()}"
        now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
        started = _process(os.getpid()) or ""
        return cls(
            sorted(tables), user, gethostname(), _pid_namespace(), os.getpid(), started, f"{now:%Y-%m-%d %H:%M:%S} UTC"
        )

    def is_running(self) -> bool | None:
        """Whether the process runs; None where it is of another machine, and cannot be asked for."""
        if (self.host, self.pid_namespace) != (gethostname(), _pid_namespace()):
            return None
        return _process(self.pid) == self.pid_started

    def __str__(self) -> str:
        return f"{self.user} on {self.host} (process {self.pid}) since {self.since}"


class BusyError(KquotaError):
    """Another job is writing the same tables."""

    def __init__(self, directory: Path, tables: Collection[str], writer: Writer) -> None:
        self.directory, self.tables, self.writer = directory, tables, writer
        names = sorted(tables)
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        ending = (
            ""
            if writer.is_running()
            else f"; if it was killed, it counts as dead {DEAD_AFTER_S} s after its last sign of life"
        )
        super().__init__(
            f"{directory} is being written to by {writer}, the same tables ({shown}): try again when that job has "
            f"ended, or write to another directory{ending}"
        )


class Lease:
    """The right to write some tables of a directory, and a staging folder of one's own in it."""

    def __init__(self, directory: Path, tables: Collection[str]) -> None:
        self.directory = directory
        self.tables = frozenset(tables)
        # Workers write here, too, and their current directory is another.
        self.staging = directory.absolute() / f"{STAGING_PREFIX}{uuid4().hex[:12]}"
        self._file = _file_of(self.staging)
        self._ended = Event()

    def acquire(self) -> None:
        """Make the staging folder, once what dead jobs left is cleaned up.

        :raises BusyError: another job writes one of the tables.
        :raises OSError: the directory cannot be written to.
        """
        with self._file.open("xb") as file:
            file.write(msgspec.json.encode(Writer.of_this_process(self.tables)))
        try:
            self._clean_up(self._living())
            self.staging.mkdir()
        except BaseException:
            self._file.unlink(missing_ok=True)
            raise
        Thread(target=self._beat, name="lease", daemon=True).start()

    def release(self) -> None:
        """Remove the staging folder, and let others write."""
        self._ended.set()
        shutil.rmtree(self.staging, ignore_errors=True)
        self._file.unlink(missing_ok=True)

    def check(self) -> None:
        """See that it is still ours: a machine may have slept for so long that others took this job for dead.

        :raises KquotaError: it is not.
        """
        if not self._file.exists():
            raise KquotaError(
                f"{self.directory}: this job gave no sign of life for {DEAD_AFTER_S} s, and another has taken its "
                "place: run it again"
            )

    def replaced(self, name: str) -> Path:
        """Where the old version of a table goes until the job ends; one that died in between is put back."""
        return self.staging / f"{_REPLACED}{name}"

    def _living(self) -> set[Path]:
        """The staging folders of other jobs that run.

        :raises BusyError: one has been announced before this, and writes one of the tables.
        """
        announced_ns = self._file.stat().st_mtime_ns
        living = set()
        for file in self.directory.absolute().glob(f"{STAGING_PREFIX}*.json"):
            if file == self._file:
                continue
            with suppress(FileNotFoundError):  # that job has ended
                writer, theirs_ns = _read(file), file.stat().st_mtime_ns
                is_running = writer.is_running() if writer is not None else None
                if is_running is None:
                    is_running = announced_ns - _last_sign_ns(file) < DEAD_AFTER_S * 10**9
                if not is_running:
                    continue
                living.add(file.with_suffix(""))
                # One without a content has not looked for others yet, and will find this.
                if writer is not None and theirs_ns <= announced_ns and (both := self.tables & set(writer.tables)):
                    raise BusyError(self.directory, both, writer)
        return living

    def _clean_up(self, living: set[Path]) -> None:
        """Remove what dead jobs left; a table that one was about to replace is put back."""
        for folder in self._leftovers():
            if folder in living or folder == self.staging:
                continue
            for old in folder.glob(f"{_REPLACED}*"):
                target = self.directory / old.name.removeprefix(_REPLACED)
                if not target.exists():
                    with suppress(OSError):  # another job does the same
                        old.rename(target)
            shutil.rmtree(folder, ignore_errors=True)
            _file_of(folder).unlink(missing_ok=True)

    def _leftovers(self) -> Iterator[Path]:
        """The staging folders that are there, or are announced."""
        yield from {
            path.with_suffix("") if path.suffix == ".json" else path
            for path in self.directory.absolute().glob(f"{STAGING_PREFIX}*")
        }

    def _beat(self) -> None:
        """Touch the staging folder every 30 s, until it is released: for other machines a sign of life."""
        while not self._ended.wait(_BEAT_S):
            with suppress(OSError):
                os.utime(self.staging)


def _file_of(staging: Path) -> Path:
    return staging.with_name(f"{staging.name}.json")


def _read(file: Path) -> Writer | None:
    """What is in it; None where that is not written yet."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Writer)
    except msgspec.DecodeError:
        return None


def _last_sign_ns(file: Path) -> int:
    """When the job that is announced by this gave a sign of life."""
    with suppress(FileNotFoundError):
        return max(file.stat().st_mtime_ns, file.with_suffix("").stat().st_mtime_ns)
    return file.stat().st_mtime_ns


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # a system without
        return ""


def _process(pid: int) -> str | None:
    """When a process began, in the system's units, empty where it does not tell; None where there is none."""
    try:
        # proc(5): the name, in brackets, may hold anything; after it the state is the first field, the start the 20th.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in _ENDED_STATES else fields[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""
