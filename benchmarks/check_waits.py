"""Not a timing but a check: a describe waits for no commit, however slow the disk, whoever holds the file.

One client describes one entity of 1,000, again and again, while another alters: on a quiet server, beside commits, with
every ``fdatasync`` 200 ms slower (``strace`` delays it), and while another process holds SQLite's write lock for ten
seconds. Ends with 1 where the 99th percentile is more than twice that of the quiet server (or 5 ms, which is what the
machine's scheduler makes of it anyway).

Usage: ``python -m benchmarks.check_waits``; needs ``strace``.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Final

from kquota.admin import QuotaAdmin
from kquota.errors import ApiFailedError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent
from tests.kit.server_process import server_process

ENTITIES: Final = 1_000
SECONDS: Final = 10.0
LEAST_MS: Final = 5.0
DELAY_MS: Final = 200
STRACE: Final = ("strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync")
SLOW_DISK: Final = (*STRACE, "-e", f"inject=fdatasync:delay_enter={DELAY_MS}ms")


def describes(address: str, seconds: float) -> list[float]:
    """How long each took, in milliseconds, shortest first."""
    one = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity("user", "user-0500")])
    took_ms = []
    end = time.monotonic() + seconds
    with QuotaAdmin(address) as admin:
        while time.monotonic() < end:
            started = time.monotonic()
            assert admin.describe_client_quotas(one).entities()
            took_ms.append(1000 * (time.monotonic() - started))
    return sorted(took_ms)


def alter(admin: QuotaAdmin, number: int) -> None:
    """Set the one value of many entities."""
    entities = (ClientQuotaEntity({"user": f"user-{place:04}"}) for place in range(ENTITIES))
    op = ClientQuotaAlteration.Op("producer_byte_rate", float(number))
    admin.alter_client_quotas([ClientQuotaAlteration(entity, [op]) for entity in entities]).all()


@contextlib.contextmanager
def altering(address: str) -> Iterator[Callable[[], int]]:
    """Another client that alters as fast as it is answered; how often it was."""
    done = Event()
    altered = 0

    def run() -> None:
        nonlocal altered
        one = ClientQuotaEntity({"user": "other"})
        with QuotaAdmin(address, timeout_ms=60_000) as admin:
            while not done.is_set():
                op = ClientQuotaAlteration.Op("producer_byte_rate", float(altered + 1))
                # One that waits for the lock of the file for ten seconds is refused.
                with contextlib.suppress(ApiFailedError):
                    admin.alter_client_quotas([ClientQuotaAlteration(one, [op])]).all()
                    altered += 1

    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run)
        try:
            yield lambda: altered
        finally:
            done.set()
        running.result()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes the file, and takes its time."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def report(what: str, took_ms: list[float], altered: int) -> float:
    """Print what was measured; the 99th percentile."""
    p99_ms = took_ms[int(0.99 * len(took_ms))]
    print(
        f"{what:34} {len(took_ms):6,} describes: p50 {took_ms[len(took_ms) // 2]:6.2f} ms, p99 {p99_ms:6.2f} ms, "
        f"longest {took_ms[-1]:7.1f} ms; {altered:,} alters beside them"
    )
    return p99_ms


def main() -> int:
    if shutil.which("strace") is None:
        print("strace is not installed: apt install strace, or whatever your system calls it", file=sys.stderr)
        return 2
    p99s_ms: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for what, program in (("", STRACE), (f"fdatasync {DELAY_MS} ms slower", SLOW_DISK)):
            path = Path(folder) / f"{len(p99s_ms)}.db"
            with server_process("--store", f"sqlite:///{path}", under=program) as server:
                address = server.address
                with QuotaAdmin(address) as admin:
                    alter(admin, 1)
                if not what:
                    p99s_ms["quiet"] = report("quiet", describes(address, SECONDS), 0)
                with altering(address) as altered:
                    name = what or "beside commits"
                    p99s_ms[name] = report(name, describes(address, SECONDS), altered())
                if not what:
                    with altering(address) as altered, locked(path):
                        name = f"write lock held for {SECONDS:.0f} s"
                        p99s_ms[name] = report(name, describes(address, SECONDS), altered())
    most_ms = max(2 * p99s_ms["quiet"], LEAST_MS)
    return 1 if any(p99_ms > most_ms for p99_ms in p99s_ms.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
