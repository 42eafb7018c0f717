"""Utilisation and what-if over a generated table `usage`: scale and speed, beside DuckDB and idiomatic PySpark.

All commands run interleaved, each in a process of its own, start included, on two cores. Each must give the same
figures meter by meter as kquota does; otherwise this fails and writes nothing.

Usage: ``python -m benchmarks.bench_what_if [--rows 5000000 50000000] [--largest] [--without-sweeps] [--rounds 3]
       [--results DIR]``
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import duckdb

from benchmarks.bench_analyze import RESULTS, WORK, save, spread
from benchmarks.generate_usage import CANDIDATE, ensure
from benchmarks.measure import CommandFailedError, Measured, machine, measure
from benchmarks.sums import DifferentSumsError
from benchmarks.usage_steps import GRIDS
from benchmarks.usage_traffic import UsageProfile
from kquota.pipeline.dataset.dataset import Dataset

__all__ = ["check_held", "check_utilisation", "compare"]

ROWS: Final = (5_000_000, 50_000_000)
LARGEST_ROWS: Final = 200_000_000
CANDIDATES: Final = (1, 8, 32)
TOLERANCE: Final = 1e-6

UTILISATION, UTILISATION_SQL = "kquota: resolve, utilisation", "DuckDB: utilisation"
HELD, HELD_SQL, HELD_IDIOMATIC = "kquota: what-if", "DuckDB, then kquota's replay", "idiomatic PySpark"
PLAN: Final = "kquota plan of all rules"
OF_LARGEST: Final = (UTILISATION, HELD, HELD_SQL, PLAN)
"""What is run over the most rows: enough to see whether cost stays linear.

DuckDB's windows over 200 million rows end in "out of memory" on a machine of 24 GB.
"""

_PLACE: Final = ("broker_id", "meter", "key")
_UTILISATION_COLUMNS: Final = (
    *("rate_mean", "rate_p50", "rate_p95", "rate_p99", "rate_max", "peak_1s"),
    *("seconds_active", "seconds_over_80", "seconds_over_100", "requests"),
)
_HELD_COLUMNS: Final = ("limit", "amount", "throttled_requests", "throttled_ms", "muted_ms")


def _commands(usage: Path, work: Path) -> dict[str, list[str]]:
    python = [sys.executable, "-m"]
    kquota = str(Path(sys.executable).parent / "kquota")
    duck = [*python, "benchmarks.baseline_duckdb_usage"]
    steps = [*python, "benchmarks.usage_steps"]
    quotas, candidate = usage / "quotas.yaml", usage.parent / f"{usage.name}.{CANDIDATE}"
    commands = {
        UTILISATION: [*steps, "utilisation", str(usage), str(work / "out-utilisation")],
        UTILISATION_SQL: [*duck, "utilisation", str(usage), str(usage), str(work / "out-duckdb")],
        HELD: [*steps, "held", str(usage), str(work / "out-held")],
        HELD_SQL: [*duck, "held", str(usage), str(usage), str(work / "out-duckdb")],
        HELD_IDIOMATIC: [
            *(*python, "benchmarks.idiomatic_steps", "what-if", "idiomatic", str(usage), str(work / "out-idiomatic"))
        ],
    }
    for grid in GRIDS:
        for count in CANDIDATES:
            commands[_swept(grid, count)] = [
                *(*steps, "held", str(usage), str(work / f"out-{grid}-{count}")),
                *("--candidates", str(count), "--grid", grid),
            ]
    # With an objective that nothing can miss the exit code says only whether it worked.
    commands[PLAN] = [
        *(kquota, "plan", "-f", str(candidate), "--quotas", str(quotas), "--dataset", str(usage)),
        *("--master", "local[2]", "--fail-on-impact", "throttled_share<=100%"),
    ]
    return commands


def _swept(grid: str, count: int) -> str:
    return f"kquota: {count} candidates, {grid}"


def _warm(usage: Path) -> int:
    """Read all files, so that none is cold; returns how many bytes that is."""
    total = 0
    for path in sorted((usage / "usage").rglob("*.parquet")):
        with path.open("rb") as stream:
            while block := stream.read(1 << 24):
                total += len(block)
    return total


def compare(work: Path, profile: UsageProfile, rounds: int, wanted: Sequence[str] = ()) -> dict[str, Any]:
    """Measure commands in turn, check what they found, and return the result file's content.

    :param wanted: which; all without any.
    :raises CommandFailedError: a command failed.
    :raises DifferentSumsError: a baseline found something else than kquota.
    """
    state = machine()
    usage, manifest = ensure(work / "usage", profile)
    out = work / "what-if"
    out.mkdir(parents=True, exist_ok=True)
    # What an analysis leaves behind: who counts on which meter. DuckDB is given that, and needs not resolve.
    kquota = str(Path(sys.executable).parent / "kquota")
    resolve = [kquota, "pipeline", "resolve", "--dataset", str(usage), "--quotas", str(usage / "quotas.yaml")]
    measure([*resolve, "--master", "local[2]"], log=out / "resolve.txt")
    usage_bytes = _warm(usage)
    commands = {name: command for name, command in _commands(usage, out).items() if not wanted or name in wanted}
    runs: dict[str, list[Measured]] = {name: [] for name in commands}
    steps: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    names = list(commands)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, {profile.rows:,} rows", file=sys.stderr, flush=True)
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            found = measure(commands[name], log=out / f"{names.index(name)}.txt", memory_sample_s=1.0)
            runs[name].append(found)
            if "benchmarks.usage_steps" in commands[name]:
                told = Path(commands[name][5]) / "steps.json"
                steps[name].append(json.loads(told.read_text(encoding="utf-8")))
            print(
                f"  {name}: {found.wall_s:.1f} s wall, {found.cpu_s:.1f} s CPU, {found.peak_pss_mb:.0f} MB",
                file=sys.stderr,
                flush=True,
            )
    if UTILISATION_SQL in commands:
        check_utilisation(out / "out-utilisation", out / "out-duckdb/utilisation.parquet")
    meters = check_held(out / "out-held", out / "out-duckdb/held.parquet")
    if HELD_IDIOMATIC in commands:
        check_held(out / "out-held", f"{out}/out-idiomatic/held/*.parquet")
    tools = {name: _summary(runs[name], steps[name]) for name in commands}
    summary = Dataset.open(usage).summary
    return {
        "rows": manifest["sums"]["rows"],
        "usage_bytes": usage_bytes,
        "seconds": ((summary.end_ms or 0) - (summary.start_ms or 0)) / 1000,
        "rules": profile.rules,
        "meters": meters,
        "rounds": rounds,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": state,
        "versions": {name: version(name) for name in ("kquota", "pyspark", "duckdb", "pyarrow", "numba", "pandas")},
        "command": f"python -m benchmarks.bench_what_if --rows {profile.rows} --rounds {rounds}"
        + (" --without-sweeps" if wanted else ""),
        "same_figures": True,
        "tools": tools,
        "ratios": _ratios(tools),
    }


def _summary(runs: Sequence[Measured], steps: Sequence[dict[str, float]]) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "wall_s": spread([run.wall_s for run in runs]),
        "cpu_s": spread([run.cpu_s for run in runs]),
        "peak_pss_mb": round(max(run.peak_pss_mb for run in runs)),
        "peak_rss_mb": round(max(run.peak_rss_mb for run in runs)),
    }
    if steps:
        summary["steps_s"] = {name: round(statistics.median(one[name] for one in steps), 2) for name in steps[0]}
    return summary


def _ratios(tools: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Ratios of medians."""
    ratios: dict[str, float] = {}
    for what in ("wall_s", "cpu_s"):
        of = {name: found[what]["median"] for name, found in tools.items()}
        ratios |= {
            f"{what[:-2]}: {one} / {other}": of[one] / of[other]
            for one, other in ((UTILISATION, UTILISATION_SQL), (HELD, HELD_SQL), (HELD_IDIOMATIC, HELD))
            if one in of and other in of
        }
    for grid in GRIDS:
        if _swept(grid, 1) not in tools:
            continue
        one = tools[_swept(grid, 1)]["steps_s"]["replay"]
        for count in CANDIDATES[1:]:
            name = _swept(grid, count)
            ratios[f"replay: {name} / 1"] = tools[name]["steps_s"]["replay"] / one
    return {name: round(value, 3) for name, value in ratios.items()}


def check_utilisation(ours: Path, theirs: Path) -> int:
    """Compare the table `utilisation` below `ours` with the one of DuckDB; returns how many meters there are.

    :raises DifferentSumsError: they differ.
    """
    return _compare(f"{ours}/utilisation/*.parquet", str(theirs), _UTILISATION_COLUMNS)


def check_held(ours: Path, theirs: Path | str) -> int:
    """Compare the table `held` below `ours` with a baseline's; returns how many meters were compared.

    :raises DifferentSumsError: they differ.
    """
    return _compare(f"{ours}/held/*.parquet", str(theirs), _HELD_COLUMNS)


def _compare(ours: str, theirs: str, columns: Sequence[str]) -> int:
    differs = " or ".join(
        f'abs(a."{name}" - b."{name}") > {TOLERANCE} * greatest(abs(a."{name}"), 1) '
        f'or (a."{name}" is null) <> (b."{name}" is null)'
        for name in columns
    )
    both = (
        "from read_parquet($ours) a full join read_parquet($theirs) b on "
        + " and ".join(f"a.{name} = b.{name}" for name in _PLACE)
    )  # fmt: skip
    files = {"ours": ours, "theirs": theirs}
    place = ", ".join(f"coalesce(a.{name}, b.{name})" for name in _PLACE)
    wrong = duckdb.execute(f"select {place}, count(*) over () {both} where {differs} limit 1", files).fetchone()
    if wrong is not None:
        raise DifferentSumsError(f"{wrong[-1]} meters differ between {ours} and {theirs}, such as {wrong[:-1]}")
    counted = duckdb.execute(f"select count(*) {both}", files).fetchone()
    assert counted is not None
    if not counted[0]:
        raise DifferentSumsError(f"{theirs} has no meters at all")
    return int(counted[0])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_what_if", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--largest", action="store_true", help=f"also {LARGEST_ROWS:,} rows")
    parser.add_argument("--without-sweeps", action="store_true", help="only what is run over the largest")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=WORK, help="where usage and outputs lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for rows in [*options.rows, *([LARGEST_ROWS] if options.largest else [])]:
        try:
            wanted = OF_LARGEST if options.without_sweeps or rows == LARGEST_ROWS else ()
            profile = UsageProfile(rows=rows, seed=options.seed)
            result = compare(options.work.absolute(), profile, options.rounds, wanted)
        except (CommandFailedError, DifferentSumsError) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        save(options.results, f"what-if-{rows}.json", result)
        shutil.rmtree(options.work.absolute() / "what-if")
    return 0


if __name__ == "__main__":
    sys.exit(main())
