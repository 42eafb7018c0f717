"""The job behind ``kquota pipeline whatif``: what other quotas would have done to recorded usage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.errors import InputError
from kquota.files import QuotaFile
from kquota.pipeline.advice.what_if import (
    NEW,
    OLD,
    changed,
    is_changed,
    to_bindings,
    to_totals,
    to_what_if,
    under_new,
    under_old,
    worst_first,
)
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import JobOptions, spark_run
from kquota.pipeline.dataset.steps import QUOTAS, WHATIF_STEP
from kquota.pipeline.dataset.summary import GrainDifference, WhatIfRun
from kquota.pipeline.dataset.tables import CLIENTS, REQUESTS, USAGE, WHATIF
from kquota.pipeline.limits.clients import to_client_totals
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.callback_frames import callback_bindings, simulate_callback_frames
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames, simulate_cell_frames_by_quota_set
from kquota.pipeline.simulation.request_frames import simulate_request_frames
from kquota.pipeline.simulation.simulated import Recording, recording_spans
from kquota.pipeline.spark.persisted_frames import keep
from kquota.quotas import QuotaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.simulation.callback import CallbackSetup

__all__ = ["WORST_SHOWN", "WhatIf", "recorded_clients", "what_if"]

WORST_SHOWN = 30


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What came out: the dataset that was written to, and the rows of `whatif` that say most, worst first."""

    dataset: Dataset
    run: WhatIfRun
    rows: tuple[Row, ...]
    has_baseline: bool
    """Whether anything says what the old limits are; otherwise there are none."""


def what_if(
    usage: Path,
    new: QuotaFile,
    options: JobOptions,
    *,
    baseline: QuotaFile | None = None,
    arrivals: Arrivals | None = None,
    only_changed: bool = False,
    callback: CallbackSetup | None = None,
) -> WhatIf:
    """Replay the usage of a dataset under `new` quotas, into the table `whatif`.

    :param options: with the dataset that the table goes to; it may be that of the usage.
    :param baseline: the old quotas; without them those that the dataset was analysed with, or none.
    :param only_changed: leave out meters that the change does not touch.
    :param callback: what the new limits come from instead; it has been given `new`. It needs the table `requests`.
    :raises MissingTableError: the table is not there.
    """
    dataset = Dataset.open(usage)
    if callback is not None and not dataset.has(REQUESTS.name):
        raise InputError(
            f"--callback: {usage} has no table `requests`, and a callback is asked request by request: analyse the "
            "logs again with --keep-requests"
        )
    is_own = options.out.resolve() == usage.resolve()
    into = None if is_own else Dataset.create(options.out, overwrite=options.overwrite)
    old = baseline.snapshot() if baseline is not None else recorded_quotas(dataset)
    change = Change(
        old,
        new.snapshot(),
        arrivals or Arrivals(),
        is_recorded=baseline is None,
        only_changed=only_changed,
        callback=callback,
    )
    with spark_run(options, WHATIF_STEP, dataset, into=into) as run:
        found = what_if_step(run, change)
        rows = worst_rows(run.frame(WHATIF.name), WORST_SHOWN)
        written = run.commit()
    return WhatIf(written, found, rows, has_baseline=baseline is not None or dataset.has(QUOTAS))


def recorded_clients(run: Run) -> DataFrame:
    """Who is in the usage: at least cluster, user, client_id, ip and key, and if need be grain."""
    # Of metrics the table does not say what is known of a client; `usage` does.
    has_clients = run.has(CLIENTS.name) and run.summary.metrics is None
    return run.frame(CLIENTS.name) if has_clients else to_client_totals(run.source(USAGE.name))


def recorded_quotas(dataset: Dataset) -> QuotaSnapshot:
    """The quotas that a dataset was analysed with, the last of those that changed; none where it was not."""
    quotas = dataset.quotas()
    return {} if quotas is None or quotas.last is None else quotas.last.snapshot()


@dataclass(frozen=True, slots=True)
class Change:
    """From which quotas to which, and how it is to be tried."""

    old: QuotaSnapshot
    new: QuotaSnapshot
    arrivals: Arrivals
    is_recorded: bool
    """Whether the usage was recorded under the old ones."""
    only_changed: bool = False
    """Whether meters that nothing changes for are left out."""
    callback: CallbackSetup | None = None
    """What the new limits come from instead."""


@dataclass(frozen=True, slots=True)
class WhatIfFrames:
    """Both quotas, replayed but not run yet."""

    what_if: DataFrame
    held: DataFrame
    """Under the new quotas."""
    bindings: DataFrame
    replay: Recording
    grain: str


def simulate_both(run: Run, change: Change) -> WhatIfFrames:
    """`usage` and, where they were kept, `requests` under both quotas."""
    usage = run.source(USAGE.name)
    with run.stage("resolve both quotas"):
        defaults = run.broker.static_defaults
        bindings = keep(to_bindings(recorded_clients(run), change.old, change.new, static_defaults=defaults))
        if change.only_changed:
            bindings = keep(changed(bindings))
        replay = Recording(change.arrivals, run.broker, recording_spans(usage))
    # Where a part of the usage is from metrics, only cells have all of it.
    has_all_requests = run.has(REQUESTS.name) and run.summary.metrics is None
    grain = "request" if has_all_requests or change.callback is not None else "cell"

    def requests() -> DataFrame:
        return run.frame(REQUESTS.name)

    with run.stage("replay under both quotas"):
        if change.callback is not None:
            by_callback = keep(simulate_callback_frames(requests(), change.callback, replay))
            held_old = simulate_request_frames(requests(), under_old(bindings), replay)
            held_new = by_callback.drop("members")
            bindings = keep(callback_bindings(by_callback, bindings))
        elif grain == "request":
            held_old = simulate_request_frames(requests(), under_old(bindings), replay)
            held_new = keep(simulate_request_frames(requests(), under_new(bindings), replay))
        else:
            held_old, held_new = simulate_cell_frames_by_quota_set(usage, bindings, (OLD, NEW), replay)
        table = keep(
            to_what_if(
                bindings,
                held_new,
                held_old,
                model=change.arrivals.model,
                grain=grain,
                is_recorded=change.is_recorded,
            )
        )
        table.count()
    return WhatIfFrames(table, held_new, bindings, replay, grain)


def what_if_step(run: Run, change: Change) -> WhatIfRun:
    """`usage` and, where they were kept, `requests` to `whatif`; returns the part of the summary."""
    replayed = simulate_both(run, change)
    run.write(WHATIF.name, replayed.what_if)
    difference = None
    if replayed.grain == "request" and change.callback is None:
        with run.stage("compare with cells"):
            cells = simulate_cell_frames(run.source(USAGE.name), under_new(replayed.bindings), replayed.replay)
            difference = grain_difference(replayed.held, cells)
    found = to_totals(replayed.what_if).first()
    assert found is not None
    part = WhatIfRun(
        model=change.arrivals.model.value,
        in_flight=change.arrivals.in_flight,
        grain=replayed.grain,
        clients=replayed.bindings.count(),
        grain_difference=difference,
        **found.asDict(),
    )
    run.summary.whatif = part
    return part


def grain_difference(by_requests: DataFrame, by_cells: DataFrame) -> GrainDifference:
    """How far cells and requests are apart on the meters that either throttles: throughput, and share of time."""
    place = ("cluster", "broker_id", "meter", "key")
    cells = by_cells.select(
        *place,
        F.col("amount").alias("cell_amount"),
        F.col("muted_ms").alias("cell_muted_ms"),
        F.col("throttled_requests").alias("cell_throttled"),
    )
    both = by_requests.join(cells, list(place)).where((F.col("throttled_requests") > 0) | (F.col("cell_throttled") > 0))
    amount = F.abs(F.col("cell_amount") - F.col("amount")) / F.greatest("amount", F.lit(1.0))
    share = F.abs(F.col("cell_muted_ms") - F.col("muted_ms")) / F.col("recorded_ms")
    found = both.agg(
        F.count(F.lit(1)).alias("meters"),
        F.avg(amount).alias("amount_mean"),
        F.max(amount).alias("amount_worst"),
        F.max_by(F.concat_ws(" ", "meter", "key"), amount).alias("amount_worst_meter"),
        F.avg(share).alias("share_mean"),
        F.max(share).alias("share_worst"),
    ).first()
    assert found is not None
    return GrainDifference(**found.asDict())


def worst_rows(table: DataFrame, count: int) -> tuple[Row, ...]:
    """The `count` worst rows of `whatif` that are throttled, were, or have clients of other meters.

    Rows that the change does not touch are left out, unless there are no others.
    """
    is_news = (F.col("throttled_requests") > 0) | F.col("no_longer_throttled") | F.col("previous_meters").isNotNull()
    touched = table.where(is_changed())
    return tuple(worst_first((table if touched.isEmpty() else touched).where(is_news)).limit(count).collect())
