"""`kquota pipeline ingest` of the same generated log from an object store and from the disk, in turn.

The store is what the environment says (``AWS_ENDPOINT_URL`` and the usual keys), and is given the log first. Both write
their tables to the disk, which must be the same. Aim: at most 1.3 times the time.

Usage: ``python -m benchmarks.bench_object_store s3://bucket/prefix [--lines N] [--rounds 3] [--results DIR]``
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

from benchmarks.bench_analyze import WORK, log_with_quotas, spread
from benchmarks.measure import Measured, machine, measure
from benchmarks.results_page import RESULTS, write_readme
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.storage.opening import open_storage

DISK, STORE = PLACES = ("disk", "object store")
LINES: Final = 1_000_000


def rows(dataset: Path) -> int:
    """How many `usage` has."""
    return sum(file.rows for file in Dataset.open(dataset).files("usage"))


def compare(url: str, work: Path, lines: int, rounds: int) -> dict[str, Any]:
    """Measure both in turn; returns what the result file says."""
    state = machine()
    log, manifest = log_with_quotas(work, lines)
    store = open_storage(f"{url}/log")
    for path in sorted(log.glob("*.log")):
        store.put(path.name, path.read_bytes())
    inputs = {DISK: f"{log}/*.log", STORE: f"{url}/log/*.log"}
    runs: dict[str, list[Measured]] = {place: [] for place in PLACES}
    for number in range(rounds):
        for place in PLACES if number % 2 == 0 else reversed(PLACES):
            out = work / f"object-store-{PLACES.index(place)}"
            shutil.rmtree(out, ignore_errors=True)
            command = [str(Path(sys.executable).parent / "kquota"), "pipeline", "ingest", "--log", inputs[place]]
            found = measure([*command, "--out", str(out), "--no-keep-requests"], log=out.with_suffix(".txt"))
            runs[place].append(found)
            print(f"  {place}: {found.wall_s:.1f} s wall, {found.cpu_s:.1f} s CPU", file=sys.stderr, flush=True)
    same = {rows(work / f"object-store-{number}") for number in range(len(PLACES))}
    assert len(same) == 1, "the tables differ"
    wall = {place: statistics.median(run.wall_s for run in found) for place, found in runs.items()}
    cpu = {place: statistics.median(run.cpu_s for run in found) for place, found in runs.items()}
    ratios = {"wall": round(wall[STORE] / wall[DISK], 3), "cpu": round(cpu[STORE] / cpu[DISK], 3)}
    return {
        "lines": lines,
        "log_bytes": manifest["bytes"],
        "rounds": rounds,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": state,
        "versions": {name: version(name) for name in ("kquota", "pyspark", "obstore")},
        "places": {
            place: {"wall_s": spread([run.wall_s for run in found]), "cpu_s": spread([run.cpu_s for run in found])}
            for place, found in runs.items()
        },
        "object_store_beside_disk": ratios,
        "command": f"python -m benchmarks.bench_object_store s3://bucket/prefix --lines {lines} --rounds {rounds}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_object_store", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("url", help="where the log is put, s3://bucket/prefix")
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    options = parser.parse_args(arguments)
    found = compare(options.url.rstrip("/"), options.work, options.lines, options.rounds)
    print(json.dumps(found["object_store_beside_disk"]))
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "object-store.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
