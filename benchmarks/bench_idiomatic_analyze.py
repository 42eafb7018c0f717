"""`kquota analyze` with its defaults beside itself with idiomatic PySpark after the reading of logs.

Up to five million lines that means with single requests kept, and replayed for the calibration. All forms run
interleaved, start included, over the same generated log, and must write the same tables; otherwise this fails and
writes nothing.

Usage: ``python -m benchmarks.bench_idiomatic_analyze [--lines 1000000 4900000] [--rounds 3] [--results DIR]``
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_analyze import RESULTS, WORK, log_with_quotas, save
from benchmarks.bench_idiomatic import figures_of, summary_of
from benchmarks.idiomatic_analyze import FORMS, SPECIAL, TABLES
from benchmarks.measure import CommandFailedError, machine, measure
from benchmarks.same_tables import check_same_table
from benchmarks.sums import DifferentSumsError

__all__ = ["compare"]

LINES: Final = (1_000_000, 4_900_000)
STEP: Final = "analyze"


def compare(work: Path, lines: int, rounds: int, memory: str) -> dict[str, Any]:
    """Measure the forms in turn, check that they wrote the same, and return the result file's content.

    :raises CommandFailedError: a command failed.
    :raises DifferentSumsError: they found different things.
    """
    state = machine()
    log, manifest = log_with_quotas(work, lines)
    out = work / "idiomatic-analyze"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    outputs = {form: out / str(number) for number, form in enumerate(FORMS)}
    runs: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, {lines:,} lines", file=sys.stderr, flush=True)
        for place in range(len(FORMS)):
            form = list(FORMS)[(number + place) % len(FORMS)]
            to = outputs[form]
            shutil.rmtree(to, ignore_errors=True)
            command = [sys.executable, "-m", "benchmarks.idiomatic_analyze", f"{log}/*.log", str(log / "quotas.yaml")]
            found = measure(
                [*command, str(to), "--form", form],
                log=to.with_suffix(".txt"),
                environment=os.environ | {"SPARK_DRIVER_MEMORY": memory},
                memory_sample_s=1.0,
            )
            runs[form].append(figures_of(found, to.with_suffix(".steps.json")))
            print(f"  {form}: {found.wall_s:.1f} s wall, {found.cpu_s:.1f} s CPU", file=sys.stderr, flush=True)
    rows = {
        table: [check_same_table(outputs[SPECIAL] / table, to / table, keys) for to in outputs.values()]
        for table, keys in TABLES.items()
    }
    return {
        "rows": lines,
        "shape": "lines of log",
        "usage_bytes": manifest["bytes"],
        "rows_found": {table: found[0] for table, found in rows.items()},
        "rounds": rounds,
        "partitions": None,
        "memory": memory,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": state,
        "versions": {name: version(name) for name in ("kquota", "pyspark", "pyarrow", "numpy", "numba")},
        "command": f"python -m benchmarks.bench_idiomatic_analyze --lines {lines} --rounds {rounds}",
        "same_figures": True,
        "steps": {STEP: {form: summary_of(found) for form, found in runs.items()}},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_idiomatic_analyze", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--lines", type=int, nargs="+", default=list(LINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="2g", help="of the JVM, in which local Spark does everything")
    parser.add_argument("--work", type=Path, default=WORK, help="where logs and outputs lie: 1.1 GB per million lines")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for lines in options.lines:
        try:
            result = compare(options.work.absolute(), lines, options.rounds, options.memory)
        except (CommandFailedError, DifferentSumsError) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        save(options.results, f"idiomatic-analyze-{lines}.json", result)
        shutil.rmtree(options.work.absolute() / "idiomatic-analyze")
    return 0


if __name__ == "__main__":
    sys.exit(main())
