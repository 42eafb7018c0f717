"""The job behind ``kquota pipeline whatif``: what other quotas would have done to recorded usage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.errors import InputError
from kquota.files import QuotaFile
from kquota.pipeline.advice.what_if import (
    grain_difference,
    to_totals,
    worst_rows,
)
from kquota.pipeline.advice.what_if_frames import WhatIfFrames, simulate_both
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import JobOptions, spark_run
from kquota.pipeline.dataset.steps import QUOTAS, WHATIF_STEP
from kquota.pipeline.dataset.summary import WhatIfRun
from kquota.pipeline.dataset.tables import CLIENTS, REQUESTS, USAGE, WHATIF
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames
from kquota.pipeline.storage.opening import open_storage
from kquota.quotas import QuotaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.simulation.limiters import CallbackSetup

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
    usage: str | Path,
    new: QuotaFile,
    options: JobOptions,
    *,
    baseline: QuotaFile | None = None,
    arrivals: Arrivals | None = None,
    only_changed: bool = False,
    callback: CallbackSetup | None = None,
) -> WhatIf:
    """Simulate the usage of a dataset under `new` quotas, into the table `whatif`.

    :param options: with the dataset that the table goes to; it may be that of the usage.
    :param baseline: the old quotas; without them those that the dataset was analysed with, or none.
    :param only_changed: leave out meters that the change does not touch.
    :param callback: what the new limits come from instead; it has been given `new`. It needs the table `requests`.
    :raises MissingTableError: the table is not there.
    """
    dataset = Dataset.open(usage)
    if callback is not None and not dataset.has(REQUESTS.name):
        raise InputError(
            f"`callback`: {usage} has no table `requests`, and a callback is asked request by request: analyse the "
            "logs again with `keep_requests`"
        )
    is_own = open_storage(options.out).identity == dataset.storage.identity
    into = None if is_own else Dataset.create(options.out, overwrite=options.overwrite)
    arrivals = arrivals or Arrivals()
    old = baseline.snapshot() if baseline is not None else recorded_quotas(dataset)
    with spark_run(options, WHATIF_STEP, dataset, into=into) as run:
        simulated = simulated_in(
            run,
            old,
            new.snapshot(),
            arrivals,
            is_recorded=baseline is None,
            only_changed=only_changed,
            callback=callback,
        )
        run.write(WHATIF.name, simulated.what_if)
        difference = None
        if simulated.grain == "request" and callback is None:
            with run.stage("compare with cells"):
                cells = simulate_cell_frames(run.source(USAGE.name), simulated.bindings, simulated.recording)
                difference = grain_difference(simulated.candidate, cells)
        totals = to_totals(simulated.what_if).first()
        assert totals is not None
        run.summary.whatif = found = WhatIfRun(
            model=arrivals.model.value,
            in_flight=arrivals.in_flight,
            grain=simulated.grain,
            clients=simulated.bindings.count(),
            grain_difference=difference,
            **totals.asDict(),
        )
        rows = tuple(worst_rows(run.frame(WHATIF.name), WORST_SHOWN).collect())
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


def simulated_in(
    run: Run,
    old: QuotaSnapshot,
    new: QuotaSnapshot,
    arrivals: Arrivals,
    *,
    is_recorded: bool,
    only_changed: bool,
    callback: CallbackSetup | None = None,
) -> WhatIfFrames:
    """What :func:`~kquota.pipeline.advice.what_if_frames.simulate_both` gives of a dataset; its table is ready then."""
    # Where a part of the usage is from metrics, only cells have all of it.
    has_all_requests = run.has(REQUESTS.name) and run.summary.metrics is None
    with run.stage("simulate both quota sets"):
        frames = simulate_both(
            run.source(USAGE.name),
            recorded_clients(run),
            old,
            new,
            requests=run.frame(REQUESTS.name) if has_all_requests or callback is not None else None,
            arrivals=arrivals,
            broker_config=run.broker,
            is_recorded=is_recorded,
            only_changed=only_changed,
            callback=callback,
        )
        frames.what_if.count()
    return frames
