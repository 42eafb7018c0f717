"""What each changed value would have done: the rows of `whatif`, by the changes that they come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from kquota.pipeline.limits.identities import METER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["NAMED", "to_impacts"]

NAMED: Final = 5
"""How many meters of a kind are named; those throttled longest come first."""


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
    rank = Window.partitionBy(
        "entity", "key", "newly_throttled", "no_longer_throttled", F.col("previous_meters").isNotNull()
    ).orderBy(F.desc("throttled_share"), F.desc("amount_old"), "meter", "broker_id")
    ranked = affected.withColumn("is_named", F.row_number().over(rank) <= NAMED)
    is_moved = F.col("previous_meters").isNotNull()
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
        F.count_if(is_moved).alias("taken_over"),
        _names(F.col("newly_throttled")).alias("newly_throttled_meters"),
        _names(F.col("no_longer_throttled")).alias("no_longer_throttled_meters"),
        _names(is_moved).alias("taken_over_meters"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_set("unknowns")))).alias("unknowns"),
    )


def _names(which: Column) -> Column:
    """The names of some meters, those throttled longest first."""
    found = F.collect_set(
        F.when(which & F.col("is_named"), F.struct((-F.col("throttled_share")).alias("order"), "meter"))
    )
    names = F.transform(F.sort_array(found), lambda one: one["meter"])
    return F.slice(F.array_distinct(names), 1, NAMED)
