"""One step over a table `usage`, in one form and a process of its own: kquota's way, a variant, or idiomatic Spark.

STEP is ``totals`` (usage summed by client, as the table `clients`), ``utilisation`` (`clients` and the table
`utilisation`), ``what-if`` (the limits that there are, as a table `held`) or ``both-quotas`` (the table `whatif` of
`kquota pipeline whatif --baseline`, from cells). The last two begin with the table `clients`. OUT receives the tables
and ``steps.json``: seconds with and without the start of Spark, and bytes of shuffles.

Usage: ``python -m benchmarks.idiomatic_steps STEP FORM USAGE OUT [--partitions N]``, FORM as ``--help`` lists them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import idiomatic_usage as idiomatic
from benchmarks.generate_usage import CANDIDATE
from benchmarks.shuffled_rows import shuffled_as_rows
from kquota.files import QuotaFile, QuotaTimeline, read_quota_file
from kquota.pipeline.advice.what_if import NEW, OLD, to_bindings, to_what_if, with_old_limits
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import QUOTAS, Step
from kquota.pipeline.dataset.tables import CLIENTS, UTILISATION, WHATIF
from kquota.pipeline.limits.clients import with_limits
from kquota.pipeline.limits.identities import identities
from kquota.pipeline.limits.step import resolved
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.meters.rates import to_utilisation
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames, simulate_cell_frames_by_quota_set
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.spark.persisted_frames import unpersisting
from kquota.pipeline.spark.session import SHUFFLE_PARTITIONS, start_session
from kquota.quotas import QuotaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["BOTH", "FORMS", "STEPS", "TOTALS", "UTILISATION_STEP", "WHAT_IF", "Form", "run_step", "shuffle_bytes"]

MASTER: Final = "local[2]"
TOTALS, UTILISATION_STEP, WHAT_IF, BOTH = STEPS = ("totals", "utilisation", "what-if", "both-quotas")
BY_METER: Final = (UTILISATION_STEP, WHAT_IF, BOTH)
"""Those that bring together the rows of each meter."""

OWN, ADAPTIVE, SHORT = "kquota's own", "adaptive", "adaptive, for short jobs"
"""Sessions: as kquota starts one; with generated code, adaptive plans and Java's optimising compiler; without this."""


_STEP: Final = Step(
    "steps", reads=("usage", QUOTAS), optional=("clients",), writes=("clients", "utilisation", "whatif")
)


@dataclass(frozen=True, slots=True)
class Form:
    """How a step is done."""

    is_idiomatic: bool = False
    combine: bool = False
    """Of the idiomatic form: whether cells are summed before the shuffle."""
    shuffles_rows: bool = False
    """Of kquota's own: whether rows are shuffled as rows, not in blocks."""
    reads_by_spark: bool = False
    """Of kquota's own: whether Spark reads Parquet, not the workers."""
    sums_by_spark: bool = False
    """Of kquota's own: whether Spark alone sums up clients."""
    passes: int = 1
    """For two quotas."""
    session: str = OWN
    """How Spark is set up."""
    steps: Sequence[str] = STEPS
    """For which it is another one."""


FORMS: Final = {
    "special": Form(),
    "special, Spark's reader": Form(reads_by_spark=True),
    "special, rows": Form(shuffles_rows=True, steps=BY_METER),
    "special, two passes": Form(passes=2, steps=(BOTH,)),
    "special, groupBy alone": Form(sums_by_spark=True, steps=(TOTALS,)),
    "idiomatic": Form(is_idiomatic=True, session=ADAPTIVE),
    "idiomatic, map-side combining": Form(is_idiomatic=True, combine=True, session=ADAPTIVE, steps=BY_METER),
    "idiomatic, Java's first compiler": Form(is_idiomatic=True, session=SHORT),
    "idiomatic, two passes": Form(is_idiomatic=True, passes=2, session=ADAPTIVE, steps=(BOTH,)),
}
"""By name. Of kquota's own (`special`) one part is taken out in each but the first."""


def run_step(spark: SparkSession, step: str, form: Form, usage: Path, out: Path) -> None:
    """Write the tables of a step to the dataset `out`; what limits do to meters is plain Parquet in its folder."""
    target = Dataset.create(out, overwrite=True)
    write = {TOTALS: _totals, UTILISATION_STEP: _utilisation, WHAT_IF: _what_if, BOTH: _both_quotas}[step]
    with (
        shuffled_as_rows() if form.shuffles_rows else nullcontext(),
        unpersisting(),
        Dataset.open(usage).run(_STEP, spark=spark, into=target) as run,
    ):
        write(run, form)
        run.commit()


def _rows(run: Run, form: Form) -> ArrowSource:
    return run.frame("usage") if form.reads_by_spark else run.source("usage")


def _quotas(run: Run) -> QuotaTimeline:
    quotas = run.quotas()
    assert quotas is not None  # the step needs them
    return quotas


def _snapshot(run: Run) -> QuotaSnapshot:
    return (_quotas(run).last or QuotaFile(())).snapshot()


def _totals(run: Run, form: Form) -> None:
    run.write(CLIENTS.name, _resolved_clients(run, form).select(*CLIENTS.columns))


def _resolved_clients(run: Run, form: Form) -> DataFrame:
    if form.is_idiomatic or form.sums_by_spark:
        totals = idiomatic.client_totals(run.frame("usage"))
    else:
        totals = to_client_totals(_rows(run, form))
    return resolved(totals, _quotas(run), None, run.broker)


def _utilisation(run: Run, form: Form) -> None:
    clients = _resolved_clients(run, form).persist()
    if form.is_idiomatic:
        table = idiomatic.to_utilisation(run.frame("usage"), clients, run.broker, combine=form.combine)
    else:
        table = to_utilisation(_rows(run, form), clients, run.broker)
    run.write(CLIENTS.name, clients.select(*CLIENTS.columns))
    run.write(UTILISATION.name, table)


def _recording(run: Run, form: Form) -> Recording:
    spans = idiomatic.spans(run.frame("usage")) if form.is_idiomatic else recording_spans(_rows(run, form))
    return Recording(Arrivals(), run.broker, spans)


def _what_if(run: Run, form: Form) -> None:
    known = identities(run.frame("clients"))
    clients = with_limits(known, _snapshot(run), static_defaults=run.broker.static_defaults)
    clients = clients.where("meter is not null").persist()
    recording = _recording(run, form)
    if form.is_idiomatic:
        held = idiomatic.simulated(run.frame("usage"), clients, recording, combine=form.combine).drop("quotas")
    else:
        held = simulate_cell_frames(_rows(run, form), clients, recording)
    held.write.parquet(str(Path(run.target.url) / "held"))


def _both_quotas(run: Run, form: Form) -> None:
    usage = Path(run.dataset.url)
    candidate = usage.with_name(f"{usage.name}.{CANDIDATE}")
    new = read_quota_file(candidate.read_bytes(), name=str(candidate)).snapshot()
    bindings = to_bindings(
        run.frame("clients"), _snapshot(run), new, static_defaults=run.broker.static_defaults
    ).persist()  # fmt: skip
    recording = _recording(run, form)
    held_old, held_new = _held_by_both(run, form, bindings, recording)
    table = to_what_if(
        bindings, held_new, held_old, model=recording.arrivals.model, grain="cell", is_recorded=False
    )  # fmt: skip
    run.write(WHATIF.name, table)


def _held_by_both(run: Run, form: Form, bindings: DataFrame, recording: Recording) -> tuple[DataFrame, DataFrame]:
    """What the old quotas do, and what the new ones do."""
    if not form.is_idiomatic:
        rows = _rows(run, form)
        if form.passes == 2:
            of_old, of_new = with_old_limits(bindings), bindings
            return simulate_cell_frames(rows, of_old, recording), simulate_cell_frames(rows, of_new, recording)
        held_old, held_new = simulate_cell_frames_by_quota_set(rows, bindings, (OLD, NEW), recording)
        return held_old, held_new
    cells = run.frame("usage")
    if form.passes == 2:
        each = [
            idiomatic.simulated(cells, of_one, recording, combine=form.combine).drop("quotas")
            for of_one in (with_old_limits(bindings), bindings)
        ]
        return each[0], each[1]
    held = idiomatic.simulated(cells, bindings, recording, (OLD, NEW), combine=form.combine).persist()
    return held.where("quotas = 0").drop("quotas"), held.where("quotas = 1").drop("quotas")


def shuffle_bytes(spark: SparkSession) -> int:
    """How many bytes all shuffles so far have written. It needs `spark.ui.liveUpdate.period` 0."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - Python has no name for it
    context.listenerBus().waitUntilEmpty()
    executors = context.statusStore().executorList(False)
    return sum(int(executors.apply(place).totalShuffleWrite()) for place in range(executors.length()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idiomatic_steps", description=__doc__.split("\n\n")[0])
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("form", choices=list(FORMS))
    parser.add_argument("usage", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--partitions", type=int, help="of a shuffle; by default as kquota chooses them")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    form = FORMS[options.form]
    conf = {"spark.ui.liveUpdate.period": "0"}
    if form.session != OWN:
        conf |= idiomatic.session_settings(optimise=form.session == ADAPTIVE)
    if options.partitions:
        conf[SHUFFLE_PARTITIONS] = str(options.partitions)
    spark = start_session(master=MASTER, conf=conf, table_bytes=Dataset.open(options.usage).nbytes("usage"))
    try:
        begun = time.perf_counter()
        run_step(spark, options.step, form, options.usage, options.out)
        done = time.perf_counter()
        shuffled = shuffle_bytes(spark)
    finally:
        spark.stop()
    steps = {"start Spark": begun - started, "work": done - begun, "shuffle_bytes": shuffled}
    (options.out / "steps.json").write_text(json.dumps(steps) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
