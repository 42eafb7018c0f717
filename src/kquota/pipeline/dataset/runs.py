"""Who is writing to a dataset, and what runs that were killed left.

A run marks itself by ``_runs/ID.running`` before it writes anything, and removes the mark when all is done. Every file
that it writes has its id in its name. So a file that is not live, of a run without a mark, is of no use to
anybody. That a mark's process still runs is known for this machine only; correctness does not depend on it, as two runs
that write the same tables find out at the commit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from socket import gethostname
from typing import Final, Self

import msgspec

from kquota.clock import SystemClock
from kquota.pipeline.dataset.errors import BusyError
from kquota.pipeline.dataset.manifest import RUNS
from kquota.pipeline.dataset.storage import Storage

__all__ = ["Writer", "begin", "dead_runs", "end", "ended_files", "is_marked", "new_path", "written_files"]

_WRITTEN: Final = re.compile(r"(?:.*/)([0-9a-f]{12})-[0-9a-f]{12}\.\w+")
"""The path of a file that :func:`new_path` made, with its run."""
_RUNNING: Final = ".running"
_ENDED_STATES: Final = ("Z", "X")
"""Of proc(5): processes that have ended, and that nobody has waited for yet."""


class Writer(msgspec.Struct, frozen=True):
    """A run that writes `tables`. Process ids are those of a `pid_namespace`, as each container may have its own."""

    tables: list[str]
    user: str
    host: str
    pid_namespace: str
    pid: int
    pid_started: str
    """In the system's units; another process with the same id began at another time. Empty where it is not known."""
    since_ms: int

    @classmethod
    def of_this_process(cls, tables: Collection[str]) -> Self:
        """A run of this process, from now on."""
        try:
            user = getuser()
        except (KeyError, OSError):  # a container's user may have no name
            user = f"user {os.getuid()}"
        started = _process(os.getpid()) or ""
        now_ms = SystemClock().now_ms()
        return cls(sorted(tables), user, gethostname(), _pid_namespace(), os.getpid(), started, now_ms)

    def is_running(self) -> bool | None:
        """Whether the process runs; None where it is of another machine, and cannot be asked for."""
        if (self.host, self.pid_namespace) != (gethostname(), _pid_namespace()):
            return None
        return _process(self.pid) == self.pid_started

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        return f"{self.user} on {self.host} (process {self.pid}) since {since:%Y-%m-%d %H:%M:%S} UTC"


def new_path(folder: str, run: str, unique: str, ending: str) -> str:
    """A file that a run writes into a folder: `run` and `unique` are 12 hex digits, so that no other has its path."""
    return f"{folder}/{run}-{unique}.{ending}"


def begin(storage: Storage, run: str, tables: Collection[str]) -> None:
    """Mark a run.

    :raises BusyError: a run that lives on this machine writes one of the tables.
    :raises UnsupportedStorageError: the storage lacks what a commit needs; so it is known before the work is done.
    """
    for writer in _marks(storage).values():
        both = set(tables).intersection(writer.tables)
        if both and writer.is_running():
            raise BusyError(storage.url, both, writer)
    storage.put_new(_mark(run), msgspec.json.encode(Writer.of_this_process(tables)))


def end(storage: Storage, *runs: str) -> None:
    """Remove the marks of runs, at the very end."""
    storage.delete(map(_mark, runs))


def is_marked(storage: Storage, run: str) -> bool:
    """Whether nobody has taken the run for dead."""
    return run in _marks(storage)


def dead_runs(storage: Storage, *, older_than_s: float | None = None) -> list[str]:
    """Runs that were killed on this machine.

    :param older_than_s: so old, those of other machines are taken for killed, too.
    """
    now_ms = SystemClock().now_ms()
    dead = []
    for run, writer in _marks(storage).items():
        is_running = writer.is_running()
        if is_running is None:
            is_running = older_than_s is None or now_ms - writer.since_ms < older_than_s * 1000
        if not is_running:
            dead.append(run)
    return dead


def written_files(storage: Storage) -> list[tuple[str, str]]:
    """Files that runs wrote, of tables and temporary ones, live or not, each with its run."""
    found = ((file.path, _WRITTEN.fullmatch(file.path)) for file in storage.list())
    return [(path, match[1]) for path, match in found if match is not None]


def ended_files(storage: Storage, dead: Collection[str]) -> list[str]:
    """Of them those of runs that have ended, or are `dead`."""
    # Files first, then marks: of a run that ends in between, what it committed is live before its mark is gone.
    written = written_files(storage)
    running = _marks(storage).keys() - set(dead)
    return [path for path, run in written if run not in running]


def _mark(run: str) -> str:
    return f"{RUNS}/{run}{_RUNNING}"


def _marks(storage: Storage) -> dict[str, Writer]:
    """By run."""
    marks = {}
    for file in storage.list(f"{RUNS}/"):
        if file.path.endswith(_RUNNING):
            try:
                marks[Path(file.path).name.removesuffix(_RUNNING)] = msgspec.json.decode(
                    storage.read(file.path), type=Writer
                )
            except FileNotFoundError:  # it ended in this moment
                continue
    return marks


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
