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

from kquota.pipeline.analysis import read_table, read_usage, resolved
from kquota.pipeline.dataset.table_files import write_table

from benchmarks import idiomatic_usage as idiomatic
from benchmarks.generate_usage import CANDIDATE
from benchmarks.shuffled_rows import shuffled_as_rows
from kquota.config import BrokerConfig
from kquota.files import QuotaTimeline, read_quota_file
from kquota.pipeline.advice.what_if import NEW, OLD, to_bindings, to_what_if, under_new, under_old
from kquota.pipeline.dataset.tables import CLIENTS, USAGE, UTILISATION, WHATIF
from kquota.pipeline.jobs import recorded_bytes
from kquota.pipeline.limits.clients import to_client_totals, with_limits
from kquota.pipeline.limits.identities import identities
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames, simulate_cell_frames_by_quota_set
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.spark.session import SHUFFLE_PARTITIONS, start_session
from kquota.pipeline.utilisation.rates import to_utilisation
from kquota.quotas import QuotaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["BOTH", "FORMS", "STEPS", "TOTALS", "UTILISATION_STEP", "WHAT_IF", "Form", "run_step", "shuffle_bytes"]

MASTER: Final = "local[2]"
TOTALS, UTILISATION_STEP, WHAT_IF, BOTH = STEPS = ("totals", "utilisation", "what-if", "both-quotas")
BY_METER: Final = (UTILISATION_STEP, WHAT_IF, BOTH)
"""Those that bring together the rows of each meter."""

OWN, ADAPTIVE, SHORT = "kquota's own", "adaptive", "adaptive, for short jobs"
"""Sessions: as kquota starts one; with generated code, adaptive plans and Java's optimising compiler; without this."""


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
    """Write the tables of a step below `out`."""
    with shuffled_as_rows() if form.shuffles_rows else nullcontext():
        {TOTALS: _totals, UTILISATION_STEP: _utilisation, WHAT_IF: _what_if, BOTH: _both_quotas}[step](
            spark, form, usage, out
        )


def _rows(spark: SparkSession, form: Form, usage: Path) -> ArrowSource:
    return read_table(spark, usage, USAGE) if form.reads_by_spark else read_usage(spark, usage)


def _quotas(path: Path) -> QuotaSnapshot:
    return read_quota_file(path.read_bytes(), name=str(path)).snapshot()


def _totals(spark: SparkSession, form: Form, usage: Path, out: Path) -> None:
    write_table(_resolved_clients(spark, form, usage).select(*CLIENTS.columns), out, CLIENTS)


def _resolved_clients(spark: SparkSession, form: Form, usage: Path) -> DataFrame:
    quotas = QuotaTimeline.always(read_quota_file((usage / "quotas.yaml").read_bytes(), name="quotas.yaml"))
    if form.is_idiomatic or form.sums_by_spark:
        totals = idiomatic.client_totals(read_table(spark, usage, USAGE))
    else:
        totals = to_client_totals(_rows(spark, form, usage))
    return resolved(totals, quotas, None, BrokerConfig())


def _utilisation(spark: SparkSession, form: Form, usage: Path, out: Path) -> None:
    config = BrokerConfig()
    clients = _resolved_clients(spark, form, usage).persist()
    if form.is_idiomatic:
        table = idiomatic.to_utilisation(read_table(spark, usage, USAGE), clients, config, combine=form.combine)
    else:
        table = to_utilisation(_rows(spark, form, usage), clients, config)
    write_table(clients.select(*CLIENTS.columns), out, CLIENTS)
    write_table(table, out, UTILISATION)


def _recording(spark: SparkSession, form: Form, usage: Path) -> Recording:
    spans = (
        idiomatic.spans(read_table(spark, usage, USAGE))
        if form.is_idiomatic
        else recording_spans(_rows(spark, form, usage))
    )
    return Recording(Arrivals(), BrokerConfig(), spans)


def _what_if(spark: SparkSession, form: Form, usage: Path, out: Path) -> None:
    known = identities(read_table(spark, usage, CLIENTS))
    clients = with_limits(known, _quotas(usage / "quotas.yaml"), static_defaults=BrokerConfig().static_defaults)
    clients = clients.where("meter is not null").persist()
    recording = _recording(spark, form, usage)
    if form.is_idiomatic:
        cells = read_table(spark, usage, USAGE)
        held = idiomatic.simulated(cells, clients, recording, combine=form.combine).drop("quotas")
    else:
        held = simulate_cell_frames(_rows(spark, form, usage), clients, recording)
    held.write.parquet(str(out / "held"))


def _both_quotas(spark: SparkSession, form: Form, usage: Path, out: Path) -> None:
    old, new = _quotas(usage / "quotas.yaml"), _quotas(usage.parent / f"{usage.name}.{CANDIDATE}")
    clients = read_table(spark, usage, CLIENTS)
    bindings = to_bindings(clients, old, new, static_defaults=BrokerConfig().static_defaults).persist()
    recording = _recording(spark, form, usage)
    held_old, held_new = _held_by_both(spark, form, usage, bindings, recording)
    table = to_what_if(
        bindings, held_new, held_old, model=recording.arrivals.model, grain="cell", is_recorded=False
    )  # fmt: skip
    write_table(table, out, WHATIF)


def _held_by_both(
    spark: SparkSession, form: Form, usage: Path, bindings: DataFrame, recording: Recording
) -> tuple[DataFrame, DataFrame]:
    """What the old quotas do, and what the new ones do."""
    if not form.is_idiomatic:
        rows = _rows(spark, form, usage)
        if form.passes == 2:
            of_old, of_new = under_old(bindings), under_new(bindings)
            return simulate_cell_frames(rows, of_old, recording), simulate_cell_frames(rows, of_new, recording)
        held_old, held_new = simulate_cell_frames_by_quota_set(rows, bindings, (OLD, NEW), recording)
        return held_old, held_new
    cells = read_table(spark, usage, USAGE)
    if form.passes == 2:
        each = [
            idiomatic.simulated(cells, of_one, recording, combine=form.combine).drop("quotas")
            for of_one in (under_old(bindings), under_new(bindings))
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
    spark = start_session(master=MASTER, conf=conf, table_bytes=recorded_bytes(options.usage))
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
