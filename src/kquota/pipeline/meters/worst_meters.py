"""The summary that is shown where people first look: the meters, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.pipeline.limits.periods import VALID_FROM_MS, has_periods
from kquota.pipeline.meters.episodes import AMBIGUOUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["unexplained_throttles", "worst_meters"]

_METER = ("cluster", "broker_id", "meter", "key")


def worst_meters(utilisation: DataFrame, throttled: DataFrame, clients: DataFrame, *, count: int) -> DataFrame:
    """The `count` meters that were throttled longest, then those that came closest to their limit, in this order.

    Columns: those of `utilisation`; level of the rule; clients; and of the meter's rows of `throttled`: episodes,
    throttled_requests and throttle_ms, which its limit caused, or may have caused where ambiguous. They are null where
    metrics say that requests were throttled, and not how many.

    :param clients: resolved clients.
    """
    caused = (
        throttled.where(F.col("meter").isNotNull())
        .groupBy(*_METER)
        .agg(
            F.count(F.lit(1)).alias("episodes"),
            F.sum("requests").alias("_requests"),
            F.sum("throttle_ms").alias("_ms"),
            F.every(F.col("cause") == AMBIGUOUS).alias("ambiguous"),
        )
    )
    limited = clients.where(F.col("meter").isNotNull()).groupBy("cluster", "meter", "key")
    if has_periods(clients):
        since = F.coalesce(VALID_FROM_MS, F.lit(0))
        of_meter = limited.agg(
            F.count_distinct(F.struct("user", "client_id", "ip")).alias("clients"),
            F.max_by("level", since).alias("level"),
        )
    else:
        of_meter = limited.agg(F.count(F.lit(1)).alias("clients"), F.min("level").alias("level"))
    return (
        utilisation.drop("throttled_requests", "throttle_ms")
        .join(caused, list(_METER), "left")
        .join(of_meter, ["cluster", "meter", "key"], "left")
        .orderBy(
            F.coalesce("_ms", F.lit(0)).desc(),
            F.coalesce("episodes", F.lit(0)).desc(),
            (F.col("rate_max") / F.col("limit")).desc_nulls_last(),
            "meter",
            "key",
        )
        .limit(count)
        .withColumns(
            {
                "throttled_requests": F.when(F.col("episodes").isNull(), 0).otherwise(F.col("_requests")),
                "throttle_ms": F.when(F.col("episodes").isNull(), 0).otherwise(F.col("_ms")),
                "episodes": F.coalesce("episodes", F.lit(0)),
                "ambiguous": F.coalesce("ambiguous", F.lit(False)),
                "unknown_amounts": F.coalesce("unknown_amounts", F.lit(0)),
            }
        )
        .drop("_requests", "_ms")
    )


def unexplained_throttles(throttled: DataFrame) -> DataFrame:
    """Throttles that no limit given could have caused, the longest first.

    Columns: broker_id, key, throttled_requests, throttle_ms (null where metrics do not say).
    """
    return (
        throttled.where(F.col("meter").isNull())
        .groupBy("broker_id", "key")
        .agg(F.sum("requests").alias("throttled_requests"), F.sum("throttle_ms").alias("throttle_ms"))
        .orderBy(F.col("throttle_ms").desc_nulls_last())
    )
