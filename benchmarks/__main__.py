"""All benchmarks: ``python -m benchmarks`` for a quick look, ``--full`` for the numbers that are kept.

The quick look (a few minutes) runs each benchmark small and once, and writes below build/benchmarks/results. ``--full``
(an hour or so, 13 GB of disk) runs 1 and 10 million lines with three rounds, memory at 1, 3 and 10 million lines, the
resolver, the codec, the server and the gateway in full, what-if over 5 and 50 million rows of usage, and writes
benchmarks/results.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.bench_analyze import RESULTS, ROOT, WORK

QUICK_LINES = 200_000
QUICK_USAGE_ROWS = 200_000
FULL_LINES = (1_000_000, 10_000_000)
MEMORY_LINES = (1_000_000, 3_000_000, 10_000_000)


def _steps(*, full: bool, work: Path, results: Path) -> list[list[str]]:
    analyze = ["benchmarks.bench_analyze", "--work", str(work), "--results", str(results)]
    resolve = ["benchmarks.bench_resolve", "--results", str(results), "--quiet"]
    codec = ["benchmarks.bench_codec", "--results", str(results)]
    server = ["benchmarks.bench_server", "--results", str(results)]
    metering = ["benchmarks.bench_metering", "--results", str(results)]
    gateway = ["benchmarks.bench_gateway", "--results", str(results)]
    what_if = ["benchmarks.bench_what_if", "--work", str(work), "--results", str(results)]
    if not full:
        quick = ["--processes", "2", "--values", "3", "--warmups", "1"]
        return [
            [*resolve, *quick],
            [*codec, "--rounds", "5"],
            [*server, "--quick"],
            [*metering, "--rounds", "1", "--records", "100000"],
            [*gateway, "--quick"],
            [*analyze, "--lines", str(QUICK_LINES), "--rounds", "1"],
            [*what_if, "--rows", str(QUICK_USAGE_ROWS), "--rounds", "1"],
        ]
    return [
        resolve,
        codec,
        server,
        metering,
        gateway,
        ["benchmarks.bench_hostile"],
        *([*analyze, "--lines", str(lines)] for lines in FULL_LINES),
        [*analyze, "--memory", *map(str, MEMORY_LINES)],
        what_if,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[0])
    parser.add_argument("--full", action="store_true", help="what benchmarks/results keeps: an hour, 13 GB")
    parser.add_argument("--work", type=Path, default=WORK, help="where logs and outputs lie")
    parser.add_argument("--results", type=Path, help="where results are written")
    options = parser.parse_args()
    results = (options.results or (RESULTS if options.full else options.work / "results")).absolute()
    for step in _steps(full=options.full, work=options.work.absolute(), results=results):
        code = subprocess.run([sys.executable, "-m", *step], cwd=ROOT, check=False).returncode
        if code != 0:
            return code
    print((results / "README.md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
