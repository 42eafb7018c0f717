"""kquota's own way through a table `usage` beside idiomatic PySpark with the same kernels, and what its parts earn.

Four steps: totals (of clients, with their limits), utilisation (with these before it), what-if under the limits that
there are, and what-if under two quotas. Each form of each runs in a process of its own, start included, on two cores
and with as much memory as the others, interleaved with them. All must write the same tables, integers exactly and
doubles to 1e-9; otherwise this fails and writes nothing. Over skewed usage half of the rows
are on one meter of one broker.

Usage: ``python -m benchmarks.bench_idiomatic [--rows 1000000 10000000 50000000] [--shape even|skewed] [--rounds 3]
       [--steps STEP ...] [--forms FORM ...] [--partitions N] [--memory 2g] [--results DIR]``
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_analyze import RESULTS, WORK, save, spread
from benchmarks.generate_usage import ensure
from benchmarks.idiomatic_steps import BOTH, FORMS, STEPS, TOTALS, UTILISATION_STEP, WHAT_IF
from benchmarks.measure import CommandFailedError, Measured, machine, measure
from benchmarks.same_tables import check_same_table
from benchmarks.sums import DifferentSumsError
from benchmarks.usage_traffic import EVEN, SHAPES, UsageProfile

__all__ = ["SPECIAL", "TABLES", "check_outputs", "compare", "figures_of", "summary_of"]

ROWS: Final = (1_000_000, 10_000_000, 50_000_000)
SPECIAL: Final = "special"
_METER: Final = ("cluster", "broker_id", "meter", "key")
_CLIENT: Final = ("cluster", "user", "client_id", "ip", "key")
TABLES: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    TOTALS: {"clients": _CLIENT},
    UTILISATION_STEP: {"clients": _CLIENT, "utilisation": _METER},
    WHAT_IF: {"held": _METER},
    BOTH: {"whatif": _METER},
}
"""By step the tables that it writes, and what tells their rows apart."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is run."""

    step: str
    forms: Sequence[str]
    partitions: int | None
    memory: str

    def chosen(self) -> list[str]:
        """Forms; kquota's own way is always among these, because all others are compared with it."""
        forms = [name for name in FORMS if name == SPECIAL or not self.forms or name in self.forms]
        return [form for form in forms if self.step in FORMS[form].steps]

    def command(self, form: str, usage: Path, out: Path) -> list[str]:
        partitions = ["--partitions", str(self.partitions)] if self.partitions else []
        return [sys.executable, "-m", "benchmarks.idiomatic_steps", self.step, form, str(usage), str(out), *partitions]


def compare(work: Path, profile: UsageProfile, rounds: int, wanted: _Wanted) -> dict[str, Any]:
    """Measure the forms in turn, check that they wrote the same, and return the result file's content.

    :raises CommandFailedError: a command failed.
    :raises DifferentSumsError: a form found something else than kquota's own way.
    """
    state = machine()
    usage, manifest = ensure(work / "usage", profile)
    out = work / "idiomatic"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    few, _ = ensure(work / "usage", UsageProfile(rows=10_000, seed=profile.seed))
    for directory in (few, usage):
        if not (directory / "clients").exists():
            _resolve(directory, out / "resolve.txt")
    # Compiled code is kept from one run to the next; the first does not pay for all others.
    measure(wanted.command(SPECIAL, few, out / "few"), log=out / "few.txt")
    usage_bytes = _warm(usage)
    forms = wanted.chosen()
    outputs = {form: out / str(list(FORMS).index(form)) for form in forms}
    runs: dict[str, list[dict[str, float]]] = {form: [] for form in forms}
    environment = os.environ | {"SPARK_DRIVER_MEMORY": wanted.memory}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, {profile.rows:,} rows, {profile.shape}", file=sys.stderr, flush=True)
        for place in range(len(forms)):
            form = forms[(number * len(forms) // rounds + place) % len(forms)]
            to = outputs[form]
            found = measure(
                wanted.command(form, usage, to),
                log=to.with_suffix(".txt"),
                environment=environment,
                memory_sample_s=1.0,
            )
            runs[form].append(figures_of(found, to / "steps.json"))
            print(
                f"  {wanted.step}, {form}: {found.wall_s:.1f} s wall, {runs[form][-1]['work_s']:.1f} s work, "
                f"{found.cpu_s:.1f} s CPU, {found.peak_pss_mb:.0f} MB, {runs[form][-1]['shuffle_mb']:.0f} MB shuffled",
                file=sys.stderr,
                flush=True,
            )
    rows = check_outputs(wanted.step, outputs)
    return {
        "rows": manifest["sums"]["rows"],
        "shape": profile.shape,
        "usage_bytes": usage_bytes,
        "rows_found": rows,
        "rounds": rounds,
        "partitions": wanted.partitions,
        "memory": wanted.memory,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": state,
        "versions": {name: version(name) for name in ("kquota", "pyspark", "pyarrow", "numpy", "numba")},
        "command": _command_in_words(profile, rounds, wanted),
        "same_figures": True,
        "steps": {wanted.step: {form: summary_of(found) for form, found in runs.items()}},
    }


def check_outputs(step: str, outputs: Mapping[str, Path]) -> dict[str, int]:
    """Compare what each form of a step wrote with what kquota's own way wrote; returns the rows by table.

    :param outputs: folders by form.
    :raises DifferentSumsError: they differ.
    """
    own = outputs[SPECIAL]
    return {
        table: max(check_same_table(own / table, folder / table, keys) for folder in outputs.values())
        for table, keys in TABLES[step].items()
    }


def _resolve(usage: Path, log: Path) -> None:
    """Make what an analysis leaves behind: the table `clients`, with which a what-if begins."""
    kquota = str(Path(sys.executable).parent / "kquota")
    resolve = [kquota, "pipeline", "resolve", "--dataset", str(usage), "--quotas", str(usage / "quotas.yaml")]
    measure([*resolve, "--master", "local[2]"], log=log)


def _warm(usage: Path) -> int:
    """Read all files, so that none is cold; returns how many bytes that is."""
    return sum(len(path.read_bytes()) for path in sorted((usage / "usage").rglob("*.parquet")))


def figures_of(found: Measured, steps_file: Path) -> dict[str, float]:
    """What is kept of a run: what was measured from outside, and what it wrote down itself."""
    steps = json.loads(steps_file.read_text(encoding="utf-8"))
    return {
        "wall_s": found.wall_s,
        "work_s": steps["work"],
        "cpu_s": found.cpu_s,
        "peak_pss_mb": found.peak_pss_mb,
        "shuffle_mb": steps["shuffle_bytes"] / 1e6,
    }


def summary_of(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Of the runs of one form: medians, least and most; of memory the most."""
    return {
        **{name: spread([run[name] for run in runs]) for name in ("wall_s", "work_s", "cpu_s")},
        "peak_pss_mb": round(max(run["peak_pss_mb"] for run in runs)),
        "shuffle_mb": round(statistics.median(run["shuffle_mb"] for run in runs), 1),
    }


def _command_in_words(profile: UsageProfile, rounds: int, wanted: _Wanted) -> str:
    parts = ["python -m benchmarks.bench_idiomatic", f"--rows {profile.rows} --shape {profile.shape} --rounds {rounds}"]
    parts += [f"--steps {wanted.step}"]
    parts += [f"--partitions {wanted.partitions}"] if wanted.partitions else []
    return " ".join([*parts, f"--memory {wanted.memory}"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_idiomatic", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--shape", choices=SHAPES, default=EVEN)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", choices=STEPS, nargs="+", default=list(STEPS))
    parser.add_argument(
        "--forms", choices=list(FORMS), nargs="+", default=[], help="beside kquota's own; all by default"
    )
    parser.add_argument("--partitions", type=int, help="of a shuffle; by default as kquota chooses them")
    parser.add_argument("--memory", default="2g", help="of the JVM, in which local Spark does everything")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=WORK, help="where usage and outputs lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for rows, step in product(options.rows, options.steps):
        profile = UsageProfile(rows=rows, seed=options.seed, shape=options.shape)
        wanted = _Wanted(step, options.forms, options.partitions, options.memory)
        try:
            result = compare(options.work.absolute(), profile, options.rounds, wanted)
        except (CommandFailedError, DifferentSumsError) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        partitions = f"-{options.partitions}-partitions" if options.partitions else ""
        save(options.results, f"idiomatic-{step}-{rows}-{options.shape}{partitions}.json", result)
        shutil.rmtree(options.work.absolute() / "idiomatic")
    return 0


if __name__ == "__main__":
    sys.exit(main())
