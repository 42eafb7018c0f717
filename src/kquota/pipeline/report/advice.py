"""The tables `whatif`, `curve` and `recommendations` as the page lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from kquota.pipeline.advice.what_if import is_changed, to_totals, worst_first
from kquota.pipeline.limits.identities import METER
from kquota.pipeline.report.contents import Bounds, Listed
from kquota.policy import UNOWNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["curves", "recommendations", "what_if"]

_RULE: Final = ("cluster", "entity", "key")
_SAME: Final = 1 + 1e-9
"""A limit that went through text is the same up to this factor."""


def what_if(table: DataFrame, bounds: Bounds) -> Listed:
    """Rows of `whatif` that are changed: those throttled anew, then those muted longest. Counts: of all meters."""
    rows = worst_first(table.where(is_changed())).limit(bounds.what_if)
    return Listed(to_totals(table).collect()[0], rows.collect())


def curves(curve: DataFrame, clients: DataFrame, recommended: DataFrame | None, bounds: Bounds) -> Listed:
    """The meters that their present limits throttle most of the time; those without one come last.

    Rows: see :func:`_by_meter`. Count: total.

    :param clients: cluster, meter, key, limit and limit_source of the limits in force.
    :param recommended: the table `recommendations`, where there is one.
    """
    meters = _by_meter(curve, clients, recommended, bounds)
    order = (F.desc_nulls_last("throttled_share"), F.desc("share_mean"), *METER)
    rows = meters.orderBy(*order).limit(bounds.curves).collect()
    return Listed(Row(total=meters.count() if len(rows) == bounds.curves else len(rows)), rows)


def _by_meter(curve: DataFrame, clients: DataFrame, recommended: DataFrame | None, bounds: Bounds) -> DataFrame:
    """The curve of each meter: a meter is on many brokers, and the row is of the one where its limit throttles most.

    Columns: cluster, meter, key, entity (its rule, or itself where it has none), brokers (how many), recommended (what
    its rule should be set to), broker_id, limit (the present one), throttled_share and max_delay_ms (what that does),
    share_mean, points (limit, throttled_share; by limit, the lowest first, never none).
    """
    limits = (
        clients.where(F.col("meter").isNotNull() & (F.col("limit") > 0) & (F.col("limit") < float("inf")))
        .groupBy(*METER)
        .agg(F.max("limit").alias("own"), F.max("limit_source").alias("source"))
    )
    drawable = curve.where(
        (F.col("limit") > 0) & (F.col("limit") < float("inf")) & F.col("throttled_share").isNotNull()
    )
    up_to_own = F.when(F.col("limit") <= F.col("own") * _SAME, F.col("limit"))
    by_broker = (
        drawable.join(limits, list(METER), "left")
        .groupBy(*METER, "broker_id")
        .agg(
            F.max("own").alias("limit"),
            F.max("source").alias("source"),
            F.max_by("throttled_share", up_to_own).alias("throttled_share"),
            F.max_by("max_delay_ms", up_to_own).alias("max_delay_ms"),
            F.avg("throttled_share").alias("share_mean"),
            F.sort_array(F.collect_list(F.struct("limit", "throttled_share"))).alias("points"),
        )
    )
    size = F.size("points")
    step = F.greatest(F.lit(1), F.ceil(size / bounds.curve_points).cast("int"))
    fewer = F.filter(
        "points",
        lambda point, place: (place % step == 0) | (place == size - 1) | (point.getField("limit") == F.col("limit")),
    )
    figures = ("broker_id", "limit", "throttled_share", "max_delay_ms", "share_mean", "points")
    worst = F.struct(F.coalesce("throttled_share", F.lit(-1.0)), "share_mean", -F.col("broker_id"))
    meters = (
        by_broker.withColumn("points", fewer)
        .groupBy(*METER)
        .agg(
            F.coalesce(F.max("source"), F.col("meter")).alias("entity"),
            F.count(F.lit(1)).alias("brokers"),
            F.max_by(F.struct(*figures), worst).alias("at"),
        )
        .select(*METER, "entity", "brokers", "at.*")
    )
    if recommended is None:
        return meters.withColumn("recommended", F.lit(None).cast("double"))
    return meters.join(recommended.select(*_RULE, F.col("value_new").alias("recommended")), list(_RULE), "left")


def recommendations(table: DataFrame, curve: DataFrame | None, clients: DataFrame, bounds: Bounds) -> Listed:
    """Rules without an answer first, then those to add, then by how many times the value changes.

    Rows: those of `recommendations`, and `change` ('unmet', 'add', 'raise', 'lower' or 'keep') and `curve`: the row of
    :func:`_by_meter` of the rule's meter that its present limit throttles most; null where none were simulated on it.
    `owner` is null for a rule of nobody. Counts: total, raised, lowered, added. Parameters: those of :func:`curves`.
    """
    now, new = F.col("value_now"), F.col("value_new")
    change = (
        F.when(new.isNull(), "unmet")
        .when(now.isNull(), "add")
        .when(new > now, "raise")
        .when(new < now, "lower")
        .otherwise("keep")
    )
    changes = {"raised": "raise", "lowered": "lower", "added": "add"}
    counts = table.agg(
        F.count(F.lit(1)).alias("total"), *(F.count_if(change == one).alias(name) for name, one in changes.items())
    )
    times = F.abs(F.log(F.when((now > 0) & (new > 0), new / now)))
    order = (new.isNotNull(), now.isNotNull(), times.desc_nulls_first(), *_RULE)
    listed = table.withColumns({"change": change, "owner": F.nullif("owner", F.lit(UNOWNED))})
    rows = listed.orderBy(*order).limit(bounds.recommendations)
    if curve is None:
        return Listed(counts.collect()[0], rows.withColumn("curve", F.lit(None)).collect())
    meters = _by_meter(curve, clients, table, bounds).join(rows.select(*_RULE), list(_RULE), "left_semi")
    worst = F.struct(F.coalesce("throttled_share", F.lit(-1.0)), "share_mean", "meter")
    of_rule = meters.groupBy(*_RULE).agg(F.max_by(F.struct(*meters.columns), worst).alias("curve"))
    return Listed(counts.collect()[0], rows.join(of_rule, list(_RULE), "left").orderBy(*order).collect())
