"""Hostile frames at size: 5 million mutants on the decoder, 200,000 frames on the sockets of `kquota serve`, and
requests that cost it as much as its limits allow.

Not a speed but a check. The decoder gives a request or a typed error, never anything else; the server stays alive, its
memory and its open files flat, every connection ends, and a client that asks in between gets the right answer. No
request takes more memory than ten times the frame limit, nor keeps another client waiting for more than half a second.

Usage: ``python -m benchmarks.bench_hostile [--mutants N] [--frames N] [--seed N]``; exit code 1 where one is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from kquota.admin import QuotaAdmin
from kquota.config import ConnectionLimits
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent
from tests.kit.hostile import (
    costly_requests,
    decoded,
    hostile_frames,
    mutants,
    poisonous_request,
    rules_for_costly_requests,
    send_and_end,
)
from tests.kit.server_process import ServerProcess, server_process

PROCESSES: Final = 2
AT_ONCE: Final = 4
ASK_EVERY: Final = 1_000
PATIENCE_S: Final = 30.0
MOST_GROWTH_MB: Final = 30.0
MOST_FRAMES: Final = 10
MOST_WAIT_MS: Final = 500
WITNESS: Final = ClientQuotaEntity({"user": "witness"})


def decode(seed: int, count: int) -> tuple[int, float]:
    """How many mutants are requests, and by how many MB this process grew after the first tenth."""
    requests = sum(decoded(frame) for frame in mutants(seed, count // 10))
    before = _rss_mb(os.getpid())
    requests += sum(decoded(frame) for frame in mutants(seed + 1, count - count // 10))
    return requests, _rss_mb(os.getpid()) - before


def attack(seed: int, count: int) -> bool:
    """Whether all held that is checked on the sockets; what was seen is printed."""
    witness = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity("user", "witness")])
    with contextlib.ExitStack() as running:
        folder = running.enter_context(TemporaryDirectory())
        server = running.enter_context(server_process("--store", f"sqlite:///{folder}/quotas.db"))
        with QuotaAdmin(server.address) as admin:
            set_once = ClientQuotaAlteration(WITNESS, [ClientQuotaAlteration.Op("producer_byte_rate", 5.0)])
            admin.alter_client_quotas([set_once]).all()
            batch: list[bytes] = []
            sent = answers = asked = stuck = 0
            before_mb, files = 0.0, server.open_files()
            for frame in hostile_frames(seed, count):
                batch.append(frame)
                sent += 1
                if len(batch) == AT_ONCE:
                    outcome = send_and_end(server.host_and_port, batch, patience_s=PATIENCE_S)
                    answers += outcome.answers
                    stuck += not outcome.ended
                    batch = []
                if sent % ASK_EVERY == 0:
                    asked += 1
                    found = admin.describe_client_quotas(witness).entities()
                    if found != {WITNESS: {"producer_byte_rate": 5.0}}:
                        print(f"after {sent:,} frames the server describes {found}")
                        return False
                if sent == count // 10:
                    before_mb = server.memory_mb()
            time.sleep(1)  # for the last connections to be forgotten
            growth_mb, left = server.memory_mb() - before_mb, server.open_files() - files
    print(
        f"{sent:,} frames on {sent // AT_ONCE:,} connections: {answers:,} answers, {stuck} of them did not end, "
        f"{asked:,} right answers in between, memory {growth_mb:+.1f} MB after the first tenth, {left:+} open files"
    )
    return stuck == 0 and growth_mb < MOST_GROWTH_MB and left <= 0


def drown() -> bool:
    """Whether each costly request keeps within its memory, and nobody waits long for it; what was seen is printed."""
    limits = ConnectionLimits()
    limit_mb = limits.socket_request_max_bytes / 2**20
    requests = costly_requests(limits.socket_request_max_bytes, limits.request_max_elements)
    print(f"{len(requests)} costly requests, the frame limit being {limit_mb:.0f} MiB:")
    holds = True
    for what, frame in requests.items():
        with server_process("--store", "memory:") as server, QuotaAdmin(server.address) as admin:
            admin.alter_client_quotas(rules_for_costly_requests()).all()
            before_mb = server.memory_mb()
            server.forget_peak()
            waits_ms = _waits_beside(admin, server, frame)
            taken = (server.peak_memory_mb() - before_mb) / limit_mb
        holds = holds and taken <= MOST_FRAMES and waits_ms[-1] <= MOST_WAIT_MS
        p99_ms = waits_ms[int(0.99 * len(waits_ms))]
        print(
            f"  {what:27} {len(frame) / 2**20:4.2f} MiB sent, {taken:4.1f} x the limit in memory;"
            f" {len(waits_ms)} requests of another client: p99 {p99_ms:.0f} ms, longest {waits_ms[-1]:.0f} ms"
        )
    return holds


def poison(seed: int, count: int) -> bool:
    """Whether all quotas can be described after each alteration with names that grow when they are read, and after a
    new start; what was seen is printed.
    """
    random = Random(seed)
    refused = 0
    with TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/quotas.db"
        with server_process("--store", store) as server, QuotaAdmin(server.address) as admin:
            set_once = ClientQuotaAlteration(WITNESS, [ClientQuotaAlteration.Op("producer_byte_rate", 5.0)])
            admin.alter_client_quotas([set_once]).all()
            for frame in (poisonous_request(random) for _ in range(count)):
                outcome = send_and_end(server.host_and_port, [frame], patience_s=PATIENCE_S)
                refused += not outcome.answers
                if not outcome.ended or WITNESS not in admin.describe_client_quotas(ClientQuotaFilter.all()).entities():
                    return False
        with server_process("--store", store) as server, QuotaAdmin(server.address) as admin:
            kept = admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
    print(
        f"{count} alterations with long names, {refused} not answered: all described after each, {len(kept)} kept"
    )
    return WITNESS in kept


def _waits_beside(admin: QuotaAdmin, server: ServerProcess, frame: bytes) -> list[float]:
    """How long another client's requests took while `frame` was answered, in milliseconds, shortest first."""
    waits_ms: list[float] = []
    everything_of_one = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity("user", "witness")])
    with ThreadPoolExecutor(1) as beside:
        working = beside.submit(send_and_end, server.host_and_port, [frame], patience_s=PATIENCE_S)
        while not working.done() or not waits_ms:
            started = time.monotonic()
            admin.describe_client_quotas(everything_of_one)
            waits_ms.append(1000 * (time.monotonic() - started))
    working.result()
    return sorted(waits_ms)


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_hostile", description=__doc__.split("\n\n")[0])
    parser.add_argument("--mutants", type=int, default=5_000_000)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--poison", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    holds = poison(options.seed, options.poison) and drown()
    holds = attack(options.seed, options.frames) and holds
    print(f"{time.monotonic() - started:.0f} s")
    each = options.mutants // PROCESSES
    with ProcessPoolExecutor(PROCESSES) as processes:
        seeds = [options.seed * 1000 + 10 * number for number in range(PROCESSES)]
        found = list(processes.map(decode, seeds, [each] * PROCESSES))
    requests, growth_mb = sum(one for one, _ in found), max(grown for _, grown in found)
    print(
        f"{each * PROCESSES:,} mutants decoded: {requests:,} are requests, the others typed errors; "
        f"memory {growth_mb:+.1f} MB after the first tenth; {time.monotonic() - started:.0f} s in all"
    )
    return 0 if holds and growth_mb < MOST_GROWTH_MB else 1


if __name__ == "__main__":
    sys.exit(main())
