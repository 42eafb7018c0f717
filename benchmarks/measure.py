"""Run a command and measure what its whole process tree took: wall time, CPU time and peak memory.

Linux only: it makes itself the parent of orphaned descendants, so that the CPU time of Python workers that outlive
their JVM is counted as well, and looks at all processes in /proc while they run, because the time of children that
nobody waits for (Spark's Python workers) is lost when they end. Memory is the proportional share, so that pages which
forked workers share are counted once.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["CommandFailedError", "Measured", "machine", "measure"]

_PR_SET_CHILD_SUBREAPER: Final = 36
_SAMPLE_S: Final = 0.25
_ORPHANS_END_WITHIN_S: Final = 20.0


class CommandFailedError(RuntimeError):
    """A measured command did not end with exit code 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run. `peak_rss_mb` sums the resident memory of all processes, `peak_pss_mb` counts shared pages once."""

    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    peak_pss_mb: float
    peak_processes: int


def measure(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    memory_sample_s: float = 0.25,
) -> Measured:
    """Run `command`, its output in `log`, until it and every process it started have ended.

    Memory is looked at every `memory_sample_s` seconds: better seldom where time matters, because adding up a JVM's
    pages takes a good part of a tenth of a second from what is measured.

    :raises CommandFailedError: with the end of its output.
    """
    _adopt_orphans()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    rss = pss = 0.0
    most = 0
    seen_cpu_s: dict[tuple[int, str], float] = {}
    memory_at = 0.0
    with log.open("wb") as stream:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment
        )
        try:
            code: int | None = None
            while code is None:
                try:
                    code = process.wait(timeout=_SAMPLE_S)
                except subprocess.TimeoutExpired:
                    seen_cpu_s |= _cpu_s(process.pid)
                    if time.perf_counter() < memory_at:
                        continue
                    memory_at = time.perf_counter() + memory_sample_s
                    sample = _memory(process.pid)
                    rss, pss, most = max(rss, sample[0]), max(pss, sample[1]), max(most, sample[2])
        finally:  # interrupted: what was started does not go on alone
            process.terminate()
        wall_s = time.perf_counter() - started
    _reap_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise CommandFailedError(f"exit code {code}: {' '.join(command)[:500]}\n{tail}")
    waited_cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Each misses something: the one those that nobody waited for, the other the last moments of all.
    cpu_s = max(waited_cpu_s, sum(seen_cpu_s.values()))
    return Measured(wall_s=wall_s, cpu_s=cpu_s, peak_rss_mb=rss, peak_pss_mb=pss, peak_processes=most)


def machine() -> dict[str, str | int | float]:
    """What has to be known to read a result: processor, memory, versions."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in _text("/proc/cpuinfo").splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model,
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _reap_orphans() -> None:
    """Wait for descendants that outlived the command, so that their CPU time is counted.

    :raises CommandFailedError: one is still there after a while: the command leaves processes behind.
    """
    deadline = time.monotonic() + _ORPHANS_END_WITHIN_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                names = ", ".join(_text(f"/proc/{left}/comm").strip() for left in _descendants(os.getpid()))
                raise CommandFailedError(f"processes left behind: {names}")
            time.sleep(0.02)


def _descendants(root: int) -> list[int]:
    """The processes below `root` now, as far as they can still be seen."""
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            # The name may hold spaces and brackets; state and parent stand after its last bracket.
            fields = _text(f"{directory}/stat").rpartition(")")[2].split()
            if fields:
                children.setdefault(int(fields[1]), []).append(int(directory.name))
    found = list(children.get(root, ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def _cpu_s(root: int) -> dict[tuple[int, str], float]:
    """CPU seconds that a process and each of its descendants has used so far, by pid and time of start."""
    found = {}
    for pid in [root, *_descendants(root)]:
        # From the state on, which is the third field of all: utime, stime and starttime are 14th, 15th and 22nd.
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if fields:
            found[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def _memory(root: int) -> tuple[float, float, int]:
    """MB resident, MB with shared pages counted once, and processes, of a process and its descendants now."""
    tree = [root, *_descendants(root)]
    rss_kb = pss_kb = 0
    for pid in tree:
        for line in _text(f"/proc/{pid}/smaps_rollup").splitlines():
            name, _, value = line.partition(":")
            if name == "Rss":
                rss_kb += int(value.split()[0])
            elif name == "Pss":
                pss_kb += int(value.split()[0])
    return rss_kb / 1024, pss_kb / 1024, len(tree)


def _text(path: str) -> str:
    """A file of /proc, empty when its process has just ended."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
