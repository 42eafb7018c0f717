"""What each change of a plan would have done to the usage of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kquota.pipeline.advice.impact import to_impacts
from kquota.pipeline.advice.what_if_job import simulate_both
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import spark_run
from kquota.pipeline.dataset.steps import WHATIF_STEP
from kquota.policy import NO_IMPACT, Impact, Plan, PlanImpact
from kquota.quotas import ClientQuotaEntity, QuotaSnapshot, apply_changes

if TYPE_CHECKING:
    from pyspark.sql import Row

    from kquota.pipeline.dataset.spark_run import JobOptions
    from kquota.pipeline.simulation.arrivals import Arrivals

__all__ = ["plan_impact"]


def plan_impact(
    dataset: Dataset, plan: Plan, current: QuotaSnapshot, options: JobOptions, arrivals: Arrivals
) -> PlanImpact:
    """Simulate the usage of a dataset under the quotas `current`, and under those that `plan` makes of them.

    Nothing is written there.

    :raises MissingTableError: it has none.
    """
    after = apply_changes(current, plan.changes)
    with spark_run(options, WHATIF_STEP, dataset, is_read_only=True) as run:
        simulated = simulate_both(run, current, after, arrivals, is_recorded=False, only_changed=True)
        with run.stage("impact of each change"):
            places = [(one.entity.to_text(), one.key) for one in plan.changes]
            rows = to_impacts(simulated.what_if, simulated.bindings, places).collect()
    spans = simulated.recording.spans.values()
    first_ms, last_ms = min((first for first, _ in spans), default=0), max((last for _, last in spans), default=0)
    return PlanImpact(_by_change(plan, rows), simulated.grain, arrivals.model.value, (last_ms - first_ms) / 1000)


def _by_change(plan: Plan, rows: list[Row]) -> dict[tuple[ClientQuotaEntity, str], Impact]:
    found: dict[tuple[str, str], Impact] = {}
    for row in rows:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in row.asDict().items()
        }
        place = values.pop("entity"), values.pop("key")
        found[place] = Impact(**values)
    return {(one.entity, one.key): found.get((one.entity.to_text(), one.key), NO_IMPACT) for one in plan.changes}
