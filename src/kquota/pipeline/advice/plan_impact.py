"""What each change of a plan would have done to the usage of a dataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from kquota.pipeline.advice.what_if_job import simulated_in
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import spark_run
from kquota.pipeline.dataset.steps import WHATIF_STEP
from kquota.pipeline.limits.identities import METER
from kquota.policy import NO_IMPACT, Impact, Plan, PlanImpact
from kquota.quotas import ClientQuotaEntity, QuotaSnapshot, apply_changes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from kquota.pipeline.dataset.spark_run import JobOptions
    from kquota.pipeline.simulation.arrivals import Arrivals

__all__ = ["plan_impact", "to_impacts"]

_NAMED: Final = 5
"""How many meters of a kind are named; those throttled longest come first."""


def plan_impact(
    dataset: Dataset, plan: Plan, current: QuotaSnapshot, options: JobOptions, arrivals: Arrivals
) -> PlanImpact:
    """Simulate the usage of a dataset under the quotas `current`, and under those that `plan` makes of them.

    Nothing is written there.

    :raises MissingTableError: it has none.
    """
    after = apply_changes(current, plan.changes)
    with spark_run(options, WHATIF_STEP, dataset, is_read_only=True) as run:
        simulated = simulated_in(run, current, after, arrivals, is_recorded=False, only_changed=True)
        with run.stage("impact of each change"):
            places = [(one.entity.to_text(), one.key) for one in plan.changes]
            rows = to_impacts(simulated.what_if, simulated.bindings, places).collect()
            lasted = simulated.recording.spans.agg((F.max("last") - F.min("first")).alias("ms")).collect()[0].ms or 0
    return PlanImpact(_by_change(plan, rows), simulated.grain, arrivals.model.value, lasted / 1000)


def _by_change(plan: Plan, rows: list[Row]) -> dict[tuple[ClientQuotaEntity, str], Impact]:
    found: dict[tuple[str, str], Impact] = {}
    for row in rows:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in row.asDict().items()
        }
        place = values.pop("entity"), values.pop("key")
        found[place] = Impact(**values)
    return {(one.entity, one.key): found.get((one.entity.to_text(), one.key), NO_IMPACT) for one in plan.changes}


def to_impacts(what_if: DataFrame, bindings: DataFrame, changes: Iterable[tuple[str, str]]) -> DataFrame:
    """One row per changed entity and key that binds a recorded client, before or after the change.

    Columns: entity, key; meters (of all brokers); throttled_share and max_delay_ms of the worst, throttled_requests,
    total_delay_ms, amount_old and amount_new summed; newly_throttled, no_longer_throttled, taken_over: how many;
    newly_throttled_meters, no_longer_throttled_meters, taken_over_meters: the names of some; unknowns.

    :param what_if: rows of the `whatif` table.
    :param bindings: as :func:`~kquota.pipeline.advice.what_if.to_bindings` gives it.
    :param changes: canonical text of the entity, and key.
    """
    spark = what_if.sparkSession
    changed = F.broadcast(spark.createDataFrame(list(changes), "entity string, key string"))
    # A client is affected by the rule that binds it after the change, and by the one that did before.
    causes = bindings.select(*METER, F.explode(F.array("limit_source", "source_old")).alias("entity")).join(
        changed, ["entity", "key"]
    )
    affected = what_if.join(causes.distinct(), [*METER])
    is_taken_over = F.col("previous_meters").isNotNull()
    same_effect = Window.partitionBy("entity", "key", "newly_throttled", "no_longer_throttled", is_taken_over)
    rank = same_effect.orderBy(F.desc("throttled_share"), F.desc("amount_old"), "meter", "broker_id")
    ranked = affected.withColumn("is_named", F.row_number().over(rank) <= _NAMED)
    return ranked.groupBy("entity", "key").agg(
        F.count(F.lit(1)).alias("meters"),
        F.max("throttled_share").alias("throttled_share"),
        F.max("max_delay_ms").alias("max_delay_ms"),
        F.sum("throttled_requests").alias("throttled_requests"),
        F.sum("total_delay_ms").alias("total_delay_ms"),
        F.sum("amount_old").alias("amount_old"),
        F.sum("amount_new").alias("amount_new"),
        F.count_if("newly_throttled").alias("newly_throttled"),
        F.count_if("no_longer_throttled").alias("no_longer_throttled"),
        F.count_if(is_taken_over).alias("taken_over"),
        _names(F.col("newly_throttled")).alias("newly_throttled_meters"),
        _names(F.col("no_longer_throttled")).alias("no_longer_throttled_meters"),
        _names(is_taken_over).alias("taken_over_meters"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_set("unknowns")))).alias("unknowns"),
    )


def _names(which: Column) -> Column:
    """The names of some meters, those throttled longest first."""
    found = F.collect_set(
        F.when(which & F.col("is_named"), F.struct((-F.col("throttled_share")).alias("order"), "meter"))
    )
    names = F.transform(F.sort_array(found), lambda one: one["meter"])
    return F.slice(F.array_distinct(names), 1, _NAMED)
