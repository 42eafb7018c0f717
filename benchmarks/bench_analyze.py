"""`kquota analyze` beside DuckDB and beside one plain Python process, over the same generated log.

The three commands run interleaved, start included, each in a process of its own. All must find the sums that the
generator wrote down, client by client and second by second; otherwise this fails and writes nothing.

Usage: ``python -m benchmarks.bench_analyze [--lines N] [--rounds 3] [--results DIR]``
       ``python -m benchmarks.bench_analyze --memory 1000000 3000000 10000000``
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

from benchmarks.generate_log import Profile, ensure, quotas
from benchmarks.measure import CommandFailedError, Measured, machine, measure
from benchmarks.results_page import RESULTS, write_readme
from benchmarks.sums import DifferentSumsError, check_sums

__all__ = ["RESULTS", "ROOT", "WORK", "compare_tools", "log_with_quotas", "memory_growth", "save", "spread"]

ROOT: Final = Path(__file__).parent.parent
WORK: Final = ROOT / "build" / "benchmarks"
START_LINES: Final = 1_000
SEED: Final = 1

KQUOTA, DUCKDB, PLAIN = "kquota analyze", "DuckDB, 2 threads", "one json.loads process"
TOOLS: Final = (KQUOTA, DUCKDB, PLAIN)


def _command(tool: str, log: Path, out: Path) -> list[str]:
    files = [str(path) for path in sorted(log.glob("kafka-request.*"))]
    if tool == DUCKDB:
        return [sys.executable, "-m", "benchmarks.baseline_duckdb", str(out), *files]
    if tool == PLAIN:
        return [sys.executable, "-m", "benchmarks.baseline_json", str(out), *files]
    return [
        str(Path(sys.executable).parent / "kquota"),
        *("analyze", "--log", f"{log}/*.log", "--quotas", str(log / "quotas.yaml")),
        *("--out", str(out), "--overwrite", "--no-keep-requests"),
    ]


def _commands_in_words() -> dict[str, str]:
    return {
        KQUOTA: "kquota analyze --log 'LOG/*.log' --quotas LOG/quotas.yaml --out OUT --overwrite --no-keep-requests",
        DUCKDB: "python -m benchmarks.baseline_duckdb OUT LOG/*.log",
        PLAIN: "python -m benchmarks.baseline_json OUT LOG/*.log",
    }


def log_with_quotas(work: Path, lines: int) -> tuple[Path, dict[str, Any]]:
    """A generated log with its quotas, read once so that no tool pays for a cold disk."""
    directory, manifest = ensure(work / "logs", Profile(lines=lines, bad=lines // 100_000, seed=SEED))
    (directory / "quotas.yaml").write_text(quotas(manifest), encoding="utf-8")
    for path in sorted(directory.glob("kafka-request.*")):
        with path.open("rb") as stream:
            while stream.read(1 << 24):
                pass
    return directory, manifest


def _run(tool: str, log: Path, out: Path, *, memory_sample_s: float = 2.0) -> Measured:
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    measured = measure(_command(tool, log, out), log=out.with_suffix(".txt"), memory_sample_s=memory_sample_s)
    print(
        f"  {tool}: {measured.wall_s:.1f} s wall, {measured.cpu_s:.1f} s CPU, {measured.peak_pss_mb:.0f} MB",
        file=sys.stderr,
        flush=True,
    )
    return measured


def compare_tools(work: Path, lines: int, rounds: int, tools: Sequence[str] = TOOLS) -> dict[str, Any]:
    """Measure the tools in turn, check their sums, and return the result file's content.

    :raises CommandFailedError: a tool failed.
    :raises DifferentSumsError: a tool's sums are not those of the log.
    """
    state = machine()
    start_log, _ = log_with_quotas(work, START_LINES)
    log, manifest = log_with_quotas(work, lines)
    started: dict[str, list[float]] = {tool: [] for tool in tools}
    runs: dict[str, list[Measured]] = {tool: [] for tool in tools}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, {lines:,} lines", file=sys.stderr, flush=True)
        for tool in tools:
            started[tool].append(_run(tool, start_log, work / "start").wall_s)
        # Every tool comes first, second and last as often as the others.
        for place in range(len(tools)):
            tool = tools[(number + place) % len(tools)]
            runs[tool].append(_run(tool, log, work / f"out-{tools.index(tool)}"))
    check_sums(manifest, {tool: work / f"out-{tools.index(tool)}" for tool in tools})
    return {
        "lines": lines,
        "log_bytes": manifest["bytes"],
        "bad_lines": manifest["profile"]["bad"],
        "rounds": rounds,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": state,
        "versions": {name: version(name) for name in ("kquota", "pyspark", "duckdb", "pyarrow", "msgspec")},
        "commands": {tool: _commands_in_words()[tool] for tool in tools},
        "same_sums": True,
        "tools": {tool: _summary(tool, runs, started) for tool in tools},
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {
        "median": round(statistics.median(values), 2),
        "least": round(min(values), 2),
        "most": round(max(values), 2),
    }


def _summary(tool: str, runs: dict[str, list[Measured]], started: dict[str, list[float]]) -> dict[str, Any]:
    wall = {name: statistics.median(run.wall_s for run in found) for name, found in runs.items()}
    cpu = {name: statistics.median(run.cpu_s for run in found) for name, found in runs.items()}
    ratios = {
        f"{what}_beside_{short}": round(times[tool] / times[other], 3)
        for what, times in (("wall", wall), ("cpu", cpu))
        for other, short in ((DUCKDB, "duckdb"), (PLAIN, "json"))
        if other in times
    }
    return {
        "wall_s": spread([run.wall_s for run in runs[tool]]),
        "cpu_s": spread([run.cpu_s for run in runs[tool]]),
        "start_s": round(statistics.median(started[tool]), 2),
        "peak_pss_mb": round(max(run.peak_pss_mb for run in runs[tool])),
        "peak_rss_mb": round(max(run.peak_rss_mb for run in runs[tool])),
        **ratios,
    }


def memory_growth(work: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """Peak memory of `kquota analyze` over logs of growing length, one run each."""
    state = machine()
    runs = []
    for lines in sorted(sizes):
        log, _ = log_with_quotas(work, lines)
        print(f"memory, {lines:,} lines", file=sys.stderr, flush=True)
        measured = _run(KQUOTA, log, work / "out-memory", memory_sample_s=0.25)
        runs.append(
            {
                "lines": lines,
                "peak_pss_mb": round(measured.peak_pss_mb),
                "peak_rss_mb": round(measured.peak_rss_mb),
                "processes": measured.peak_processes,
                "wall_s": round(measured.wall_s, 2),
            }
        )
    first, last = runs[0], runs[-1]
    return {
        "runs": runs,
        "growth": round(last["peak_pss_mb"] / first["peak_pss_mb"], 3),
        "line_growth": last["lines"] / first["lines"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": state,
        "versions": {name: version(name) for name in ("kquota", "pyspark", "pyarrow")},
    }


def save(results: Path, name: str, result: dict[str, Any]) -> None:
    """Write one result file and the page that shows all of them."""
    results.mkdir(parents=True, exist_ok=True)
    (results / name).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    write_readme(results)
    print(f"written: {name} and README.md in {results}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_analyze", description=__doc__.split("\n\n")[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, nargs="+", metavar="LINES", help="only peak memory at these lengths")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the result files are written")
    parser.add_argument("--work", type=Path, default=WORK, help="where logs and outputs lie: 1.1 GB per million lines")
    options = parser.parse_args(arguments)
    try:
        if options.memory:
            save(options.results, "memory.json", memory_growth(options.work, options.memory))
            return 0
        result = compare_tools(options.work, options.lines, options.rounds)
    except (CommandFailedError, DifferentSumsError) as error:
        print(error, file=sys.stderr)
        return 1
    save(options.results, f"analyze-{options.lines}.json", result)
    for tool, found in result["tools"].items():
        print(
            f"{tool}: {found['wall_s']['median']} s, {found['wall_beside_duckdb']} x DuckDB, "
            f"{found['wall_beside_json']} x json.loads; CPU {found['cpu_s']['median']} s, "
            f"{found['cpu_beside_duckdb']} x DuckDB; start {found['start_s']} s; {found['peak_pss_mb']} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
