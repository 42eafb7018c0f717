"""The job behind ``kquota pipeline whatif``: what other quotas would have done to recorded usage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.errors import InputError
from kquota.files import QuotaFile
from kquota.pipeline.advice.what_if import (
    NEW,
    OLD,
    changed,
    grain_difference,
    to_bindings,
    to_totals,
    to_what_if,
    with_old_limits,
    worst_rows,
)
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import JobOptions, spark_run
from kquota.pipeline.dataset.steps import QUOTAS, WHATIF_STEP
from kquota.pipeline.dataset.summary import WhatIfRun
from kquota.pipeline.dataset.tables import CLIENTS, REQUESTS, USAGE, WHATIF
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames, simulate_cell_frames_by_quota_set
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.simulation.request_frames import (
    callback_bindings,
    simulate_callback_frames,
    simulate_request_frames,
)
from kquota.pipeline.spark.persisted_frames import persist
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
        simulated = simulate_both(
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


@dataclass(frozen=True, slots=True)
class WhatIfFrames:
    """A recording under the current limits and under the candidates."""

    what_if: DataFrame
    """The table `whatif`, persisted."""
    candidate: DataFrame
    """Columns of :data:`~kquota.pipeline.simulation.recording.SIMULATED`, under the candidates."""
    bindings: DataFrame
    """As :func:`~kquota.pipeline.advice.what_if.to_bindings` gives them."""
    recording: Recording
    grain: str
    """What was simulated one by one, ``request`` or ``cell``."""


def simulate_both(
    run: Run,
    old: QuotaSnapshot,
    new: QuotaSnapshot,
    arrivals: Arrivals,
    *,
    is_recorded: bool,
    only_changed: bool,
    callback: CallbackSetup | None = None,
) -> WhatIfFrames:
    """Simulate `usage`, or `requests` where all were kept, under the quotas `old`, and under `new` or a callback.

    :param is_recorded: whether `old` were in force during the recording.
    :param only_changed: leave out meters that nothing changes for.
    """
    usage = run.source(USAGE.name)
    with run.stage("resolve both quotas"):
        bindings = persist(to_bindings(recorded_clients(run), old, new, static_defaults=run.broker.static_defaults))
        if only_changed:
            bindings = persist(changed(bindings))
        recording = Recording(arrivals, run.broker, persist(recording_spans(usage)))
    # Where a part of the usage is from metrics, only cells have all of it.
    has_all_requests = run.has(REQUESTS.name) and run.summary.metrics is None
    grain = "request" if has_all_requests or callback is not None else "cell"
    with run.stage("simulate both quota sets"):
        if grain == "cell":
            current, candidate = simulate_cell_frames_by_quota_set(usage, bindings, (OLD, NEW), recording)
        else:
            requests = run.frame(REQUESTS.name)
            current = simulate_request_frames(requests, with_old_limits(bindings), recording)
            if callback is None:
                candidate = persist(simulate_request_frames(requests, bindings, recording))
            else:
                by_callback = persist(simulate_callback_frames(requests, callback, recording))
                candidate = by_callback.drop("members")
                bindings = persist(callback_bindings(by_callback, bindings))
        table = to_what_if(bindings, candidate, current, model=arrivals.model, grain=grain, is_recorded=is_recorded)
        table = persist(table)
        table.count()
    return WhatIfFrames(table, candidate, bindings, recording, grain)
