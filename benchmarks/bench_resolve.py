"""Nanoseconds to resolve one client's limits at 1, 1 k and 100 k entities, beside a linear scan, with pyperf.

The claim: resolving is a fixed number of look-ups whatever the number of entities. The baseline is what one writes
first when DescribeClientQuotas has answered: go through all entities, keep the best match of each key. Both give the
same limits, which is checked before anything is timed; the resolver also lists the overridden rules and the meter.

Usage: ``python -m benchmarks.bench_resolve [--fast] [--results DIR]`` and all options of pyperf.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyperf  # type: ignore[import-untyped]

from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from kquota.quotas import CLIENT_ID, USER, ClientQuotaEntity, QuotaResolver, QuotaSnapshot

__all__ = ["clients", "linear_scan", "snapshot"]

ENTITIES: Final = (1, 1_000, 100_000)
_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")

Limits = dict[str, tuple[float, ClientQuotaEntity]]


def snapshot(entities: int) -> QuotaSnapshot:
    """As many entities: the default user, then users, their pairs, client ids and pairs with defaults in turn."""
    found: dict[ClientQuotaEntity, dict[str, float]] = {}
    for number in range(entities):
        user, client_id = f"user-{number // 5}", f"client-{number // 5}"
        entries: tuple[dict[str, str | None], ...] = (
            {USER: None} if number == 0 else {USER: user, CLIENT_ID: client_id},
            {USER: user},
            {CLIENT_ID: client_id},
            {USER: user, CLIENT_ID: None},
            {USER: None, CLIENT_ID: client_id},
        )
        found[ClientQuotaEntity(entries[number % 5])] = dict.fromkeys(_KEYS[: 2 + number % 3], 1024.0 + number)
    return found


def clients(entities: int) -> list[tuple[str, str]]:
    """Sixteen clients: bound by pairs, by users, by client ids, by defaults, and not known at all."""
    known = max(1, entities // 5)
    found: list[tuple[str, str]] = []
    for number in range(4):
        index = known * number // 4
        user, client_id = f"user-{index}", f"client-{index}"
        found += [(user, client_id), (user, "unknown"), ("unknown", client_id), ("unknown", f"unknown-{number}")]
    return found


def linear_scan(described: QuotaSnapshot, user: str, client_id: str) -> Limits:
    """The winning value and rule of each key, found by going through everything that Describe has answered."""
    best: dict[str, tuple[int, float, ClientQuotaEntity]] = {}
    for entity, values in described.items():
        level = 0
        for entity_type, name, wanted, exact, default in (
            (USER, entity.entries.get(USER, ""), user, 6, 3),
            (CLIENT_ID, entity.entries.get(CLIENT_ID, ""), client_id, 2, 1),
        ):
            if entity_type not in entity.entries:
                continue
            if name is None:
                level += default
            elif name == wanted:
                level += exact
            else:
                break
        else:
            for key, value in values.items():
                if key not in best or best[key][0] < level:
                    best[key] = (level, value, entity)
    return {key: (value, entity) for key, (_, value, entity) in best.items()}


@cache
def _resolver(entities: int) -> QuotaResolver:
    return QuotaResolver(snapshot(entities))


@cache
def _described(entities: int) -> QuotaSnapshot:
    return snapshot(entities)


def _check(entities: int) -> None:
    """Raises AssertionError unless the resolver and the scan name the same limits."""
    resolver, described = _resolver(entities), _described(entities)
    for user, client_id in clients(entities):
        resolved = {
            key: (quota.value, quota.source)
            for key, quota in resolver.resolve(user, client_id).items()
            if quota.value is not None
        }
        scanned = linear_scan(described, user, client_id)
        if resolved != scanned:
            raise AssertionError(f"{entities} entities, {user}, {client_id}: {resolved} is not {scanned}")


def _time_resolver(loops: int, entities: int) -> float:
    resolve, asked = _resolver(entities).resolve, clients(entities)
    started = time.perf_counter()
    for _ in range(loops):
        for user, client_id in asked:
            resolve(user, client_id)
    return time.perf_counter() - started


def _time_scan(loops: int, entities: int) -> float:
    described, asked = _described(entities), clients(entities)
    started = time.perf_counter()
    for _ in range(loops):
        for user, client_id in asked:
            linear_scan(described, user, client_id)
    return time.perf_counter() - started


def _report(found: dict[str, dict[int, Any]], results: Path) -> None:
    ns = {
        tool: {entities: statistics.median(benchmark.get_values()) * 1e9 for entities, benchmark in by_size.items()}
        for tool, by_size in found.items()
    }
    last = ENTITIES[-1]
    ratios = {f"scan / resolve at {size}": ns["linear scan"][size] / ns["resolve"][size] for size in ENTITIES}
    for size in ENTITIES[:-1]:
        ratios[f"resolve at {last} / at {size}"] = ns["resolve"][last] / ns["resolve"][size]
    report = {
        "command": "python -m benchmarks.bench_resolve",
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "median_ns": {tool: {str(size): round(value, 1) for size, value in by.items()} for tool, by in ns.items()},
        "values": {tool: {str(size): b.get_nvalue() for size, b in by.items()} for tool, by in found.items()},
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
    }
    results.mkdir(parents=True, exist_ok=True)
    (results / "resolve.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    write_readme(results)
    for name, value in ratios.items():
        print(f"{name}: {value:.2f}")


def main() -> None:
    runner = pyperf.Runner(program_args=("-m", "benchmarks.bench_resolve"), add_cmdline_args=_pass_results)
    runner.argparser.add_argument("--results", type=Path, default=RESULTS, help="where resolve.json is written")
    arguments = runner.parse_args()
    tools: dict[str, Callable[[int, int], float]] = {"resolve": _time_resolver, "linear scan": _time_scan}
    if not arguments.worker:
        for entities in ENTITIES:
            _check(entities)
    found: dict[str, dict[int, Any]] = {tool: {} for tool in tools}
    for entities in ENTITIES:
        for tool, timer in tools.items():
            name = f"{tool}, {entities} entities"
            found[tool][entities] = runner.bench_time_func(name, timer, entities, inner_loops=len(clients(entities)))
    if not arguments.worker:
        _report(found, arguments.results)


def _pass_results(command: list[str], arguments: argparse.Namespace) -> None:
    """pyperf's workers parse the same options."""
    command += ["--results", str(arguments.results)]


if __name__ == "__main__":
    main()
