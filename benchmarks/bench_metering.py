"""Nanoseconds for a decision: our engine beside Kafka's own Java classes and the rate limiters of Python, interleaved.

The trace: ten records of 100 bytes a millisecond, by as many users in turn as there are meters, each with its own
limit. They are allowed, or throttled, or allowed by a callback that is asked each time; or each record is a new user's
first, and makes its meter. With 10,000 users each record begins a sample of its meter. Aims: within 3 x of the Java
classes, 10 x ahead of the Python limiters, flat in the number of meters.

The limiters answer a simpler question: allowed or not, without a throttle time. `limits` has keys of its own, the
others do not, so that a limiter for each user stands in a dictionary. Those of `aiolimiter` only wait: to decide, one
has to ask `has_capacity` before `acquire`; "acquire alone" is what it takes where nobody ever has to wait.

Usage: ``python -m benchmarks.bench_metering [--rounds N] [--records N] [--results DIR]``. Needs a JDK and Kafka's jars.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiolimiter import AsyncLimiter
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from pyrate_limiter import Duration, InMemoryBucket, Limiter, Rate

from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from examples.capture.jars import java, kafka_jars
from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback, KafkaPrincipal
from kquota.metering.managers import RateQuotaManager
from kquota.metering.statistics import Windows
from kquota.quotas import ClientQuotaEntity
from tests.kit.line_program import LineProgram

KAFKA: Final = "4.3.0"
METERS: Final = (1, 100, 10_000, 100_000)
START_MS: Final = 1_700_000_000_000
ALLOWED, THROTTLED, CALLBACK, NEW_METER = "allowed", "throttled", "with a callback", "a new meter"
LIMITS: Final = {ALLOWED: 1e12, THROTTLED: 8.0, CALLBACK: 1e12}
"""Small enough for 100,000 meters, and no wait beyond 32 bits for one."""
FEW: Final = 20  # of our records the limiters get one in so many: they are slow, and so is making meters


class ByUser(DefaultQuotaCallback):
    """The simplest of one's own."""

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        return {"user": principal.name}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return LIMITS[CALLBACK]


def manager_of(kind: str, meters: int) -> tuple[RateQuotaManager, list[str]]:
    """A manager whose meters are all there, and their users."""
    callback = ByUser() if kind == CALLBACK else DefaultQuotaCallback()
    manager = RateQuotaManager(ClientQuotaType.PRODUCE, Windows(), callback)
    manager.update_quota(ClientQuotaEntity({"user": None}), LIMITS[kind])
    users = [f"user-{number}" for number in range(meters)]
    for user in users:
        manager.record(user, "client", 1, START_MS)
    return manager, users


def ours(kind: str, meters: int, records: int) -> float:
    manager, users = manager_of(kind, meters)
    asked = [(users[number % meters], START_MS + number // 10) for number in range(records)]
    record = manager.record
    started = time.perf_counter()
    for user, now_ms in asked:
        record(user, "client", 100.0, now_ms)
    return (time.perf_counter() - started) / records * 1e9


def our_new_meters(records: int) -> float:
    manager, _ = manager_of(ALLOWED, 0)
    users = [f"user-{number}" for number in range(records)]
    record = manager.record
    started = time.perf_counter()
    for user in users:
        record(user, "client", 100.0, START_MS)
    return (time.perf_counter() - started) / records * 1e9


def with_limits(kind: str, users: list[str], records: int) -> float:
    limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
    item = RateLimitItemPerSecond(10**9 if kind == ALLOWED else 1, 10)
    started = time.perf_counter()
    for number in range(records):
        limiter.hit(item, users[number % len(users)], "client", cost=100)
    return (time.perf_counter() - started) / records * 1e9


def with_pyrate_limiter(kind: str, users: list[str], records: int) -> float:
    rate = Rate(10**9 if kind == ALLOWED else 1, Duration.SECOND * 10)
    limiters = {user: Limiter(InMemoryBucket([rate])) for user in users}
    started = time.perf_counter()
    for number in range(records):
        user = users[number % len(users)]
        limiters[user].try_acquire(user, blocking=False)
    return (time.perf_counter() - started) / records * 1e9


def with_aiolimiter(kind: str, users: list[str], records: int) -> float:
    async def run() -> float:
        limiters = {user: AsyncLimiter(1e12 if kind == ALLOWED else 1, 10) for user in users}
        started = time.perf_counter()
        for number in range(records):
            limiter = limiters[users[number % len(users)]]
            if limiter.has_capacity(100):
                await limiter.acquire(100)
        return (time.perf_counter() - started) / records * 1e9

    return asyncio.run(run())


def with_aiolimiter_alone(_kind: str, _users: list[str], records: int) -> float:
    async def run() -> float:
        limiter = AsyncLimiter(1e12, 10)
        started = time.perf_counter()
        for _ in range(records):
            await limiter.acquire(100)
        return (time.perf_counter() - started) / records * 1e9

    return asyncio.run(run())


LIMITERS: Final[dict[str, Callable[[str, list[str], int], float]]] = {
    "limits": with_limits,
    "pyrate-limiter": with_pyrate_limiter,
    "aiolimiter": with_aiolimiter,
}
LIMITERS_METERS: Final = (1, 100)  # a thread of its own belongs to each of pyrate-limiter's


def bytes_per_meter(meters: int = 10_000) -> float:
    """What a meter with all its samples takes, its place in the manager's tables included."""
    gc.collect()
    tracemalloc.start()
    manager, users = manager_of(ALLOWED, meters)
    for second in range(12):
        for user in users:
            manager.record(user, "client", 100.0, START_MS + second * 1000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / meters


def measured(judge: LineProgram, rounds: int, records: int) -> dict[str, dict[str, list[float]]]:
    """By what was done and by whom, the nanoseconds of each round."""
    found: dict[str, dict[str, list[float]]] = {}

    def note(what: str, who: str, ns: float) -> None:
        found.setdefault(what, {}).setdefault(who, []).append(ns)

    def kafka(kind: str, meters: int, records: int) -> float:
        answer: Any = judge.ask({"kind": kind, "meters": meters, "limit": LIMITS.get(kind, 1e12), "records": records})
        ns: float = answer["ns"]
        return ns

    for kind in LIMITS:
        kafka(kind, 100, 2_000_000)
    kafka(NEW_METER, 0, records // FEW)
    for _ in range(rounds):
        for kind in LIMITS:
            for meters in METERS:
                what = f"{kind}, {meters:,} meters"
                note(what, "kquota", ours(kind, meters, records))
                note(what, f"Kafka {KAFKA}", kafka(kind, meters, records))
        note(NEW_METER, "kquota", our_new_meters(records // FEW))
        note(NEW_METER, f"Kafka {KAFKA}", kafka(NEW_METER, 0, records // FEW))
        for kind in (ALLOWED, THROTTLED):
            for meters in LIMITERS_METERS:
                users = [f"user-{number}" for number in range(meters)]
                for who, limiter in LIMITERS.items():
                    note(f"{kind}, {meters:,} meters", who, limiter(kind, users, records // FEW))
        note(f"{ALLOWED}, 1 meters", "aiolimiter (acquire alone)", with_aiolimiter_alone(ALLOWED, [], records // FEW))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_metering", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where metering.json is written")
    options = parser.parse_args()
    program = Path(__file__).parent / "java" / "MeteringSpeed.java"
    command = [str(java()), "-Xmx2g", "-cp", f"{kafka_jars(KAFKA)}/*", str(program)]
    with TemporaryDirectory() as folder, LineProgram(command, errors=Path(folder) / "errors") as judge:
        found = measured(judge, options.rounds, options.records)
    medians = {what: {who: statistics.median(ns) for who, ns in by.items()} for what, by in found.items()}
    report = {
        "command": f"python -m benchmarks.bench_metering --rounds {options.rounds} --records {options.records}",
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "median_ns": {what: {who: round(ns) for who, ns in by.items()} for what, by in medians.items()},
        "beside_kquota": {
            what: {who: round(ns / by["kquota"], 2) for who, ns in by.items() if who != "kquota"}
            for what, by in medians.items()
        },
        "bytes_per_meter": round(bytes_per_meter()),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "metering.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    for what, by in medians.items():
        print(f"{what:24}", ", ".join(f"{who} {ns:,.0f} ns" for who, ns in by.items()))
    print(f"{report['bytes_per_meter']} bytes for a meter")


if __name__ == "__main__":
    main()
