"""`kquota serve` as a process of its own, and what it uses of the machine. Linux only, as `/proc` is what says that."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ServerProcess", "server_process"]

KQUOTA: Final = (sys.executable, "-c", "from kquota.cli import main; main()")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that listens."""

    process: subprocess.Popen[str]
    address: str
    log_path: Path

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def log(self) -> str:
        """What it wrote to standard error so far."""
        return self.log_path.read_text(encoding="utf-8")

    def memory_mb(self) -> float:
        """What it has in memory now, in MiB."""
        return self._status("VmRSS")

    def peak_memory_mb(self) -> float:
        """The most that it had in memory since :meth:`forget_peak`, in MiB."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Begin to look for a new peak."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")

    def open_files(self) -> int:
        """How many files and sockets it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal; the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(timeout=60)

    def _status(self, name: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        [kib] = [line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:")]
        return int(kib) / 1024


@contextlib.contextmanager
def server_process(*arguments: str, cwd: Path | None = None, under: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """`kquota serve` on any free port of 127.0.0.1, with further arguments; it ends with the block.

    :param under: a program, with its arguments, that runs it, such as ``strace``.
    """
    with tempfile.TemporaryDirectory() as folder:
        log_path = Path(folder) / "serve.log"
        with log_path.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*under, *KQUOTA, "serve", "--listen", "127.0.0.1:0", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=cwd,
                start_new_session=True,  # so that signals reach the server below another program, too
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), log_path.read_text(encoding="utf-8")
            yield ServerProcess(process, line.removeprefix("listening on ").strip(), log_path)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
