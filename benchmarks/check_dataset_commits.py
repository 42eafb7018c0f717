"""Does anybody ever see a part of a commit? Writers of a dataset are killed at every point while it is read.

Two processes, as if on two machines, replace the same two tables, of three files each. They are killed (SIGKILL) at
points that are spread evenly over all their changes to the disk, from the mark that they leave at first to its removal;
in each third pair one lives. Meanwhile this process opens the dataset and reads both tables, again and again. Aims: the
rows of both tables are always whole and of one run, a run that came to its end has committed, and when all is cleaned,
nothing is left that is not of the newest commit. Otherwise the check ends with 1.

Usage: ``python -m benchmarks.check_dataset_commits [--kills N] [--url URL] [--results DIR]``; a minute or two.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from tests.kit.killed_runs import Place, Trial, trial


def report(found: Trial) -> dict[str, Any]:
    """What is written down: a row for each kind of point."""
    return {
        "points": found.points,
        "killed": {
            point: {"kills": kills, "committed": found.committed[point]} for point, kills in sorted(found.kills.items())
        },
        "survived": found.survived,
        "reads": found.reads,
        "commits": found.versions,
        "problems": found.problems,
    }


def to_text(rows: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"{'killed':34}{'kills':>7}{'committed':>11}"]
    lines += [f"{point:34}{row['kills']:7}{row['committed']:11}" for point, row in rows["killed"].items()]
    lines.append(
        f"{rows['survived']} writers came to their end, {rows['commits']} commits, {rows['reads']} reads of both "
        f"tables, {len(rows['problems'])} problems"
    )
    return "\n".join([*lines, *rows["problems"]])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_dataset_commits", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=18, help="of the order of points")
    parser.add_argument(
        "--url", help="of a dataset that is not there yet, such as s3://bucket/trial; results are not kept"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    options = parser.parse_args(arguments)
    before = machine()
    with TemporaryDirectory() as folder:
        place = Place(options.url or f"{folder}/data", Path(folder), dict(os.environ))
        rows = report(trial(place, options.kills, seed=options.seed))
    print(to_text(rows))
    if options.url:
        return 1 if rows["problems"] else 0
    found = {
        "command": f"python -m benchmarks.check_dataset_commits --kills {options.kills} --seed {options.seed}",
        "machine": before,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        **rows,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "dataset-commits.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    return 1 if rows["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
