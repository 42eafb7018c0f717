"""Who is writing to a dataset, and what runs that were killed left.

A run marks itself by ``_runs/ID.running`` before it writes anything, and removes the mark when all is done. Every file
that it writes has its id in its name. So a file that is not live, of a run without a mark, is of no use to
anybody. That a mark's process still runs is known on its own machine only. Correctness does not depend on it: runs that
write the same tables find out at the commit, and one that was taken for dead cannot commit (:mod:`.commits`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from socket import gethostname
from typing import Final, Self

import msgspec

from kquota.clock import SystemClock
from kquota.pipeline.dataset.errors import BusyError
from kquota.pipeline.dataset.manifest import RUNS
from kquota.pipeline.storage.port import Storage

__all__ = ["Writer", "begin", "dead_runs", "end", "ended_files", "new_path", "old_runs", "written_files"]

_FOLDER: Final = rf"(?:{RUNS}/[0-9a-f]{{12}}\.tmp/)?\w+(?:/\w+=[^/]*)*"
"""Of a table with its partitions, of the quotas or the report, or of temporary files; not of a dataset below this."""
_WRITTEN: Final = re.compile(rf"{_FOLDER}/([0-9a-f]{{12}})-[0-9a-f]{{12}}\.\w+")
"""The path of a file that :func:`new_path` made, with its run."""
_RUNNING: Final = ".running"
_ENDED_STATES: Final = ("Z", "X")
"""Of proc(5): processes that have ended, and that nobody has waited for yet."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Of random(4): another one each time that a machine is started."""
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")
"""Of namespaces(7): each container has its own process ids."""


class Writer(msgspec.Struct, frozen=True):
    """A run that writes `tables`."""

    tables: list[str]
    user: str
    host: str
    """For people: containers are often called alike."""
    machine: str
    """Where `pid` is of this process: a machine since it was started, and one of its containers."""
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
        return cls(sorted(tables), user, gethostname(), _machine(), os.getpid(), started, SystemClock().now_ms())

    def is_running(self) -> bool | None:
        """Whether the process runs; None where it is of another machine, and cannot be asked for."""
        return _process(self.pid) == self.pid_started if self.machine == _machine() else None

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        return f"{self.user} on {self.host} (process {self.pid}) since {since:%Y-%m-%d %H:%M:%S} UTC"


def new_path(folder: str, run: str, unique: str, ending: str) -> str:
    """A file that a run writes into a folder: `run` and `unique` are 12 hex digits, so that no other has its path."""
    return f"{folder}/{run}-{unique}.{ending}"


def begin(storage: Storage, run: str, tables: Collection[str]) -> None:
    """Mark a run.

    :raises BusyError: a run that lives on this machine, also in this process, writes one of the tables.
    """
    for writer in _marks(storage).values():
        both = set(tables).intersection(writer.tables)
        if both and writer.is_running():
            raise BusyError(storage.url, both, writer)
    storage.put(_mark(run), msgspec.json.encode(Writer.of_this_process(tables)), durable=True)


def end(storage: Storage, *runs: str) -> None:
    """Remove the marks of runs, at the very end."""
    storage.delete(map(_mark, runs))


def dead_runs(storage: Storage) -> list[str]:
    """Runs that were killed on this machine."""
    return [run for run, writer in _marks(storage).items() if writer.is_running() is False]


def old_runs(storage: Storage, older_than_s: float) -> list[str]:
    """Runs of other machines that began so long ago; whether they live is not known."""
    before_ms = SystemClock().now_ms() - older_than_s * 1000
    return [
        run for run, writer in _marks(storage).items() if writer.is_running() is None and writer.since_ms <= before_ms
    ]


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


def _machine() -> str:
    """What no other machine has, nor another container of this one, where the system says so."""
    boot_id, pid_namespace = gethostname(), ""
    with suppress(OSError):
        boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
    with suppress(OSError):
        pid_namespace = str(_PID_NAMESPACE.readlink())
    return f"{boot_id} {pid_namespace}"


def _process(pid: int) -> str | None:
    """When a process began, in the system's units, empty where it does not say; None where there is none."""
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
