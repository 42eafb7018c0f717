"""Steps of kquota's pipeline on a table `usage`, each alone in a session, for measuring.

``utilisation`` is resolve and utilisation, ``held`` what the what-if does for the limits that there are, and with
candidates what the sweep does. OUT receives the tables and ``steps.json``: seconds by step, start apart.

Usage: ``python -m benchmarks.usage_steps utilisation USAGE OUT``
       ``python -m benchmarks.usage_steps held USAGE OUT [--candidates N --grid wide|near]``
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kquota.clock import SystemClock
from kquota.config import BrokerConfig
from kquota.files import QuotaFile
from kquota.pipeline.advice.curve import Grid
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import QUOTAS, Step
from kquota.pipeline.dataset.tables import CLIENTS, UTILISATION
from kquota.pipeline.limits.clients import with_limits
from kquota.pipeline.limits.identities import identities
from kquota.pipeline.limits.step import resolve
from kquota.pipeline.meters.rates import to_utilisation
from kquota.pipeline.progress import Progress
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames
from kquota.pipeline.simulation.recording import Candidates, Recording, own_limit_only, recording_spans
from kquota.pipeline.spark.persisted_frames import unpersisting
from kquota.pipeline.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["GRIDS", "MASTER", "candidates", "held", "utilisation"]

MASTER: Final = "local[2]"
_STEP: Final = Step("steps", reads=("usage", QUOTAS), writes=("clients", "limits", "utilisation", QUOTAS))
GRIDS: Final = ("wide", "near")


@dataclass(frozen=True, slots=True)
class _NearMean:
    """Limits from a fifth below the mean rate to a quarter above it, where there is most to replay."""

    count: int

    def __call__(self, limit: float, mean: float, highest: float) -> Sequence[float]:
        del limit, highest
        limits: list[float] = np.geomspace(0.8 * mean, 1.25 * mean, self.count).tolist()
        return limits


def candidates(grid: str, count: int) -> Candidates:
    """So many limits for each meter, over a wide range or near its mean rate."""
    if count == 1:
        return own_limit_only if grid == "wide" else _NearMean(1)
    # The grid of the product adds the limit that the meter has.
    return Grid(count=count - 1) if grid == "wide" else _NearMean(count)


def utilisation(spark: SparkSession, usage: Path, out: Path, progress: Progress) -> None:
    """Usage to `clients` and `utilisation`, under the quotas of its dataset."""
    target = Dataset.create(out, overwrite=True)
    with Dataset.open(usage).run(_STEP, spark=spark, progress=progress, into=target) as run:
        quotas = run.quotas()
        assert quotas is not None
        clients = resolve(run, quotas)
        with progress.stage("utilisation"):
            run.write(UTILISATION.name, to_utilisation(run.source("usage"), clients, run.broker))
        run.commit()


def held(spark: SparkSession, usage: Path, out: Path, progress: Progress, limits: Candidates) -> None:
    """Usage and the table `clients` of its dataset to what limits do to each meter."""
    config = BrokerConfig()
    dataset = Dataset.open(usage)
    quotas = dataset.quotas()
    assert quotas is not None
    with progress.stage("resolve"):
        known = identities(dataset.frame(spark, CLIENTS.name))
        clients = with_limits(known, (quotas.last or QuotaFile(())).snapshot(), static_defaults=config.static_defaults)
        clients = clients.where("meter is not null").persist()
        replay = Recording(Arrivals(), config, recording_spans(dataset.source(spark, "usage")))
    with progress.stage("replay"):
        simulated = simulate_cell_frames(dataset.source(spark, "usage"), clients, replay, limits)
        simulated.write.parquet(str(out / "held"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.usage_steps", description=__doc__.split("\n\n")[0])
    parser.add_argument("step", choices=["utilisation", "held"])
    parser.add_argument("usage", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--candidates", type=int, default=1)
    parser.add_argument("--grid", choices=GRIDS, default="wide")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    progress = Progress(sys.stderr, SystemClock())
    with progress.stage("start Spark"):
        spark = start_session(master=MASTER, table_bytes=Dataset.open(options.usage).nbytes("usage"))
    try:
        with unpersisting():
            if options.step == "utilisation":
                utilisation(spark, options.usage, options.out, progress)
            else:
                held(spark, options.usage, options.out, progress, candidates(options.grid, options.candidates))
    finally:
        spark.stop()
    seconds = progress.seconds | {"all": time.perf_counter() - started}
    (options.out / "steps.json").write_text(json.dumps(seconds) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
