"""Table `curve` as the page shows it: each meter with its present limit, the one recommended, and what others would do.

A meter is on many brokers; the one where its present limit throttles most of the time stands for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kquota.pipeline.limits.identities import METER
from kquota.pipeline.report import model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["RULE", "curve_from", "curves_by_meter", "curves_of", "worst_of"]

RULE: Final = ("cluster", "entity", "key")
_SAME: Final = 1 + 1e-9
"""A limit that went through text is the same up to this factor."""


def curves_of(
    curve: DataFrame, clients: DataFrame, recommendations: DataFrame | None, bounds: model.Bounds
) -> model.Curves:
    """The meters that their present limits throttle most of the time; those without one come last."""
    meters = curves_by_meter(curve, clients, recommendations, bounds)
    rows = meters.orderBy(F.desc_nulls_last("at.share"), F.desc("at.share_mean"), *METER).limit(bounds.curves).collect()
    total = meters.count() if len(rows) == bounds.curves else len(rows)
    return model.Curves(total, tuple(curve_from(row) for row in rows))


def curves_by_meter(
    curve: DataFrame, clients: DataFrame, recommendations: DataFrame | None, bounds: model.Bounds
) -> DataFrame:
    """One row per meter and key.

    Columns: cluster, meter, key, entity (its rule, or itself where it has none), brokers, recommended; `at`: broker_id,
    own (the present limit), share, max_delay_ms, share_mean, points (limit, throttled_share, max_delay_ms).
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
    points = F.sort_array(F.collect_list(F.struct("limit", "throttled_share", "max_delay_ms")))
    by_broker = (
        drawable.join(limits, list(METER), "left")
        .groupBy(*METER, "broker_id")
        .agg(
            F.max("own").alias("own"),
            F.max("source").alias("source"),
            F.max_by("throttled_share", up_to_own).alias("share"),
            F.max_by("max_delay_ms", up_to_own).alias("max_delay_ms"),
            F.avg("throttled_share").alias("share_mean"),
            points.alias("points"),
        )
    )
    figures = ("broker_id", "own", "share", "max_delay_ms", "share_mean", "points")
    size = F.size("points")
    step = F.greatest(F.lit(1), F.ceil(size / bounds.curve_points).cast("int"))
    fewer = F.filter(
        "points",
        lambda point, place: (place % step == 0) | (place == size - 1) | (point.getField("limit") == F.col("own")),
    )
    meters = (
        by_broker.withColumn("points", fewer)
        .groupBy(*METER)
        .agg(
            F.coalesce(F.max("source"), F.col("meter")).alias("entity"),
            F.count(F.lit(1)).alias("brokers"),
            F.max_by(
                F.struct(*figures),
                F.struct(F.coalesce("share", F.lit(-1.0)), "share_mean", -F.col("broker_id")),
            ).alias("at"),
        )
    )
    if recommendations is None:
        return meters.withColumn("recommended", F.lit(None).cast("double"))
    return meters.join(recommendations.select(*RULE, F.col("value_new").alias("recommended")), list(RULE), "left")


def worst_of(meters: DataFrame) -> DataFrame:
    """One meter for each rule: the one that its present limit throttles most of the time."""
    order = F.struct(F.coalesce("at.share", F.lit(-1.0)), "at.share_mean", "meter")
    return meters.groupBy(*RULE).agg(
        *(F.max_by(name, order).alias(name) for name in ("meter", "brokers", "recommended", "at"))
    )


def curve_from(row: Row) -> model.Curve:
    """From a row of :func:`curves_by_meter`."""
    at = row["at"]
    return model.Curve(
        name=model.MeterName(row.cluster or "", row.meter, row.key),
        broker_id=at.broker_id,
        brokers=row.brokers,
        points=tuple(model.CurvePoint(one.limit, one.throttled_share, one.max_delay_ms or 0.0) for one in at["points"]),
        limit=at.own,
        share=at.share,
        max_delay_ms=at.max_delay_ms,
        recommended=row.recommended,
    )
