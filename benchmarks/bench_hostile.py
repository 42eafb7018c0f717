"""Hostile frames at size: 5 million mutants on the decoder, 200,000 frames on the sockets of `kquota serve`.

Not a speed but a check. The decoder gives a request or a typed error, never anything else; the server stays alive, its
memory and its open files flat, every connection ends, and a client that asks in between gets the right answer.

Usage: ``python -m benchmarks.bench_hostile [--mutants N] [--frames N] [--seed N]``; exit code 1 where one is not so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.bench_server import serving
from kquota.admin import QuotaAdmin
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent
from tests.kit.hostile import decoded, hostile_frames, mutants, send_and_end

PROCESSES: Final = 2
AT_ONCE: Final = 4
ASK_EVERY: Final = 1_000
PATIENCE_S: Final = 30.0
MOST_GROWTH_MB: Final = 30.0
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
    with TemporaryDirectory() as folder, serving(Path(folder)) as address:
        pid = _child()
        host, _, port = address.rpartition(":")
        with QuotaAdmin(address) as admin:
            set_once = ClientQuotaAlteration(WITNESS, [ClientQuotaAlteration.Op("producer_byte_rate", 5.0)])
            admin.alter_client_quotas([set_once]).all()
            batch: list[bytes] = []
            sent = answers = asked = stuck = 0
            before_mb, files = 0.0, _open_files(pid)
            for frame in hostile_frames(seed, count):
                batch.append(frame)
                sent += 1
                if len(batch) == AT_ONCE:
                    outcome = send_and_end((host, int(port)), batch, patience_s=PATIENCE_S)
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
                    before_mb = _rss_mb(pid)
            time.sleep(1)  # for the last connections to be forgotten
            growth_mb, left = _rss_mb(pid) - before_mb, _open_files(pid) - files
    print(
        f"{sent:,} frames on {sent // AT_ONCE:,} connections: {answers:,} answers, {stuck} of them did not end, "
        f"{asked:,} right answers in between, memory {growth_mb:+.1f} MB after the first tenth, {left:+} open files"
    )
    return stuck == 0 and growth_mb < MOST_GROWTH_MB and left <= 0


def _child() -> int:
    """The one process that this one started."""
    [pid] = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())
    return pid


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_hostile", description=__doc__.split("\n\n")[0])
    parser.add_argument("--mutants", type=int, default=5_000_000)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    holds = attack(options.seed, options.frames)
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
