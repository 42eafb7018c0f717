"""Which limits to set: for each rule the lowest that meets the objectives, on recorded traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kquota.pipeline.dataset.tables import RECOMMENDATIONS, USAGE
from kquota.pipeline.limits.counting import counting_broker
from kquota.pipeline.limits.identities import IDENTITY
from kquota.pipeline.owners.by_owner import OWNER, add_owner
from kquota.pipeline.spark.partial_sums import partial_sums
from kquota.policy import UNOWNED, OwnerMap
from kquota.quotas import KAFKA, STATIC, ClientQuotaEntity, ValueType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kquota.pipeline.spark.parquet_source import ArrowSource
    from kquota.policy import Objective

__all__ = [
    "at_percentile",
    "cut_to_capacity",
    "lowest_limits",
    "rule_values",
    "to_recommendations",
    "unchanged_limits",
    "with_rules",
    "with_values",
]

_PLACE: Final = ("cluster", "broker_id", "meter", "key")
_RULE: Final = ("cluster", "entity", "key")
_WHOLE: Final = tuple(key.name for key in KAFKA.keys if key.value_type is not ValueType.DOUBLE)


def with_rules(meters: DataFrame, owners: OwnerMap) -> DataFrame:
    """Add the rule of each meter, `entity`, and whose that is, `owner`: null where no owners are known.

    A client without a rule gets one of its own, on what it is measured by.

    :param meters: as :func:`~kquota.pipeline.advice.curve.to_meters` gives it.
    """
    entity = F.when(F.col("limit_source") != "", F.col("limit_source")).otherwise(F.col("meter"))
    ruled = meters.withColumn("entity", entity)
    if not owners:
        return ruled.withColumn(OWNER, F.lit(None).cast("string"))
    return add_owner(ruled, ("entity",), partial(_owner_of, owners=owners))


def _owner_of(rule: str, owners: OwnerMap) -> str:
    # A static default is a setting of the brokers.
    return UNOWNED if rule == STATIC.to_text() else owners.owner_of_entity(ClientQuotaEntity.from_text(rule))


def lowest_limits(simulated: DataFrame, objectives: Sequence[Objective]) -> DataFrame:
    """The lowest candidate that meets all objectives, as all higher ones do: one row per broker, meter and key.

    Columns: cluster, broker_id, meter, key, needed (null where no candidate does).

    :param simulated: columns of :data:`~kquota.pipeline.simulation.recording.SIMULATED`, for many candidates.
    """
    meets = F.lit(True)
    for objective in objectives:
        meets &= _measure(objective.name) <= objective.most
    too_low = simulated.withColumn("meets", meets).withColumn(
        "too_low", F.max(F.when(~F.col("meets"), F.col("limit"))).over(Window.partitionBy(*_PLACE))
    )
    enough = F.col("meets") & (F.col("limit") > F.coalesce("too_low", F.lit(-1.0)))
    return too_low.groupBy(*_PLACE).agg(F.min(F.when(enough, F.col("limit"))).alias("needed"))


def _measure(name: str) -> Column:
    return F.col("muted_ms") / F.col("recorded_ms") if name == "throttled_share" else F.col(name)


def at_percentile(utilisation: DataFrame, percentile: int, headroom: float) -> DataFrame:
    """A percentile of the rate that limits are compared with, times a headroom; columns as :func:`lowest_limits`.

    :param utilisation: rows of the `utilisation` table.
    :param percentile: 50, 95, 99 or 100.
    """
    rate = "rate_max" if percentile == 100 else f"rate_p{percentile}"
    return utilisation.select(*_PLACE, (F.col(rate) * headroom).alias("needed"))


def rule_values(needed: DataFrame, meters: DataFrame) -> DataFrame:
    """One value for each rule: the highest that a meter of it needs on any broker, rounded up to two digits.

    Columns: cluster, entity, key, owner, value_now, value_new (null where some meter's need cannot be met, or is zero,
    which is no limit that can be set), meters.

    :param needed: as :func:`lowest_limits` gives it.
    :param meters: as :func:`with_rules` gives it.
    """
    values = (
        needed.join(_rules(meters), ["cluster", "meter", "key"])
        .groupBy(*_RULE)
        .agg(
            F.first("owner").alias("owner"),
            F.first("limit").alias("value_now"),
            F.when(F.every(F.col("needed").isNotNull()), F.max("needed")).alias("value_new"),
            F.count_distinct("meter").alias("meters"),
        )
    )
    return values.withColumn("value_new", _rounded_up(F.col("value_new")))


def _rules(meters: DataFrame) -> DataFrame:
    """The rule of each meter: cluster, meter, key, limit, entity, owner."""
    return meters.select("cluster", "meter", "key", "limit", "entity", "owner").distinct()


def _rounded_up(value: Column) -> Column:
    """To two digits that count: limits are for people. Null for zero."""
    step = _step(value, 2)
    # What is two digits long already, but for the last bit of a double, stays.
    return F.when(value > 0, F.round(F.ceil(value / step - 1e-9) * step, 6))


def _rounded_down(value: Column) -> Column:
    """To three digits that count, and not to zero."""
    step = _step(value, 3)
    return F.when(value > 0, F.round(F.greatest(F.floor(value / step + 1e-9), F.lit(1)) * step, 6))


def _step(value: Column, digits: int) -> Column:
    """What a value of the row's key is a multiple of, with this many significant digits: at least one where Kafka takes
    whole numbers only.
    """
    return F.greatest(
        F.pow(F.lit(10.0), F.floor(F.log10(value)) - (digits - 1)), F.when(F.col("key").isin(*_WHOLE), F.lit(1.0))
    )


def unchanged_limits(usage: ArrowSource, meters: DataFrame) -> DataFrame:
    """What meters may use together that keep their limits: one row per broker and key.

    Columns: cluster, broker_id, key, kept.

    :param usage: rows of the `usage` table: a meter is on the brokers that its clients use.
    :param meters: as :func:`with_rules` gives it. One without a limit adds nothing.
    """
    columns = (*IDENTITY, "broker_id")
    schema = StructType([USAGE.schema[name] for name in columns])
    places = partial_sums(usage.select(*columns), columns, {}, schema)
    seen = places.select(*IDENTITY, counting_broker().alias("broker_id")).distinct().alias("seen")
    same = [F.col(f"seen.{name}").eqNullSafe(F.col(f"kept.{name}")) for name in IDENTITY]
    return (
        seen.join(meters.alias("kept"), same)
        .select("kept.cluster", "seen.broker_id", "kept.key", "kept.meter", "kept.limit")
        .distinct()
        .groupBy("cluster", "broker_id", "key")
        .agg(F.sum("limit").alias("kept"))
    )


def cut_to_capacity(
    values: DataFrame,
    needed: DataFrame,
    meters: DataFrame,
    capacity: Mapping[str, float],
    kept: DataFrame | None = None,
) -> DataFrame:
    """The values, cut where all meters of a broker together could use more than its capacity; and by how much: `cut`.

    All values of the key are cut by the same part, so that they fit on the fullest broker. `cut` is null where
    nothing is, and 0 where what stays as it is leaves nothing to give: there `value_new` is null.

    :param capacity: of each broker, per second, by key.
    :param kept: as :func:`unchanged_limits` gives it, of other meters; None without any.
    """
    if not capacity:
        return values.withColumn("cut", F.lit(None).cast("double"))
    spark = values.sparkSession
    capacities = spark.createDataFrame(sorted(capacity.items()), "key string, capacity double")
    place = ["cluster", "broker_id", "key"]
    if kept is None:
        kept = spark.createDataFrame([], "cluster string, broker_id int, key string, kept double")
    used = (
        needed.select("cluster", counting_broker().alias("broker_id"), "meter", "key")
        .distinct()
        .join(_rules(meters), ["cluster", "meter", "key"])
        .join(values.select(*_RULE, "value_now", "value_new"), [*_RULE])
        .groupBy(*place)
        .agg(
            F.sum("value_new").alias("used"),
            # A rule for which no value above zero was found stays as it is, too.
            F.sum(F.when(F.col("value_new").isNull(), F.col("value_now"))).alias("stays"),
        )
        .join(kept, place, "left")
        .join(capacities, ["key"])
        .withColumn("left", F.col("capacity") - F.coalesce("kept", F.lit(0.0)) - F.coalesce("stays", F.lit(0.0)))
        .where((F.col("used") > 0) & (F.col("used") > F.col("left")))
        .groupBy("cluster", "key")
        .agg(F.min(F.greatest("left", F.lit(0.0)) / F.col("used")).alias("cut"))
    )
    cut = _rounded_down(F.col("value_new") * F.col("cut"))
    return values.join(F.broadcast(used), ["cluster", "key"], "left").withColumn(
        "value_new", F.when(F.col("cut").isNull(), F.col("value_new")).when(F.col("cut") > 0, cut)
    )


def with_values(meters: DataFrame, values: DataFrame) -> DataFrame:
    """The meters with the limits that the rules would give them: as :func:`with_rules` gives them."""
    new = F.broadcast(values.select(*_RULE, F.col("value_new").alias("new_limit")))
    return meters.join(new, [*_RULE], "left").withColumn("limit", F.coalesce("new_limit", "limit")).drop("new_limit")


def to_recommendations(values: DataFrame, simulated: DataFrame, meters: DataFrame, reason: str) -> DataFrame:
    """The `recommendations` table: one row per rule and key, each prediction that of the worst of the rule's meters.

    :param simulated: the meters under their new limits, columns as for :func:`lowest_limits`.
    :param reason: how the values were found.
    """
    predicted = (
        simulated.join(_rules(meters), ["cluster", "meter", "key"])
        .groupBy(*_RULE)
        .agg(
            F.max(_measure("throttled_share")).alias("predicted_throttled_share"),
            F.max("max_delay_ms").alias("predicted_max_delay_ms"),
            F.max("throttled_requests").alias("predicted_throttled_requests"),
            F.sum("unknown_amounts").alias("unknown_amounts"),
        )
    )
    cut = F.format_string("; cut to %.0f %% of that, so that no broker exceeds its capacity", F.col("cut") * 100)
    no_room = "; the limits that stay as they are use up the capacity"
    of_all = F.when(F.col("meters") > 1, F.format_string(", of %d meters the one that needs most", F.col("meters")))
    of_unknown = F.when(
        F.col("unknown_amounts") > 0,
        F.format_string("; too low by what %d requests of unknown amount used", F.col("unknown_amounts")),
    )
    return RECOMMENDATIONS.conform(
        values.join(predicted, [*_RULE], "left").select(
            "cluster",
            "entity",
            "key",
            "value_now",
            "value_new",
            F.concat(
                F.lit(reason),
                F.coalesce(of_all, F.lit("")),
                F.coalesce(of_unknown, F.lit("")),
                F.when(F.col("cut") == 0, no_room)
                .when((F.col("cut") < 1) & F.col("value_new").isNotNull(), cut)
                .otherwise(""),
            ).alias("reason"),
            "predicted_throttled_share",
            "predicted_max_delay_ms",
            "predicted_throttled_requests",
            "owner",
        )
    )
