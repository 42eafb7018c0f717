"""The summary that is shown where people first look: the meters, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.pipeline.limits.periods import VALID_FROM_MS, has_periods
from kquota.pipeline.utilisation.episodes import AMBIGUOUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["UnexplainedThrottle", "WorstMeter", "unexplained_throttles", "worst_meters"]

_METER = ("cluster", "broker_id", "meter", "key")


@dataclass(frozen=True, slots=True)
class WorstMeter:
    """One meter of one broker. Rates are in the unit of the key; times in milliseconds.

    `throttled_requests` and `throttle_ms` are what this limit caused in its `episodes`, or may have caused where
    `ambiguous`; None where metrics told that there were some, and not how many.
    """

    broker_id: int
    meter: str
    key: str
    limit: float
    limit_source: str
    level: int
    clients: int
    rate_p95: float | None
    rate_max: float | None
    seconds_active: int
    seconds_over_100: int
    throttled_requests: int | None
    throttle_ms: int | None
    ambiguous: bool
    episodes: int = 0
    unknown_amounts: int = 0
    """How many of its requests are in no rate."""


@dataclass(frozen=True, slots=True)
class UnexplainedThrottle:
    """Throttles of an API's key that no limit given could have caused."""

    broker_id: int
    key: str
    throttled_requests: int | None
    throttle_ms: int | None


def worst_meters(utilisation: DataFrame, throttled: DataFrame, clients: DataFrame, *, count: int) -> list[WorstMeter]:
    """The `count` meters that were throttled longest, then those that came closest to their limit.

    :param clients: resolved clients.
    """
    told = (
        throttled.where(F.col("meter").isNotNull())
        .groupBy(*_METER)
        .agg(
            F.count(F.lit(1)).alias("_episodes"),
            F.sum("requests").alias("_requests"),
            F.sum("throttle_ms").alias("_ms"),
            F.every(F.col("cause") == AMBIGUOUS).alias("_ambiguous"),
        )
    )
    limited = clients.where(F.col("meter").isNotNull()).groupBy("cluster", "meter", "key")
    if has_periods(clients):
        since = F.coalesce(VALID_FROM_MS, F.lit(0))
        of_meter = limited.agg(
            F.count_distinct(F.struct("user", "client_id", "ip")).alias("_clients"),
            F.max_by("level", since).alias("_level"),
        )
    else:
        of_meter = limited.agg(F.count(F.lit(1)).alias("_clients"), F.min("level").alias("_level"))
    worst = (
        utilisation.join(told, list(_METER), "left")
        .join(of_meter, ["cluster", "meter", "key"], "left")
        .orderBy(
            F.coalesce("_ms", F.lit(0)).desc(),
            F.coalesce("_episodes", F.lit(0)).desc(),
            (F.col("rate_max") / F.col("limit")).desc_nulls_last(),
            "meter",
            "key",
        )
        .limit(count)
    )
    return [
        WorstMeter(
            broker_id=row.broker_id,
            meter=row.meter,
            key=row.key,
            limit=row["limit"],
            limit_source=row.limit_source,
            level=row["_level"],
            clients=row["_clients"],
            rate_p95=row.rate_p95,
            rate_max=row.rate_max,
            seconds_active=row.seconds_active,
            seconds_over_100=row.seconds_over_100,
            throttled_requests=row["_requests"] if row["_episodes"] else 0,
            throttle_ms=row["_ms"] if row["_episodes"] else 0,
            ambiguous=bool(row["_ambiguous"]),
            episodes=row["_episodes"] or 0,
            unknown_amounts=row.unknown_amounts or 0,
        )
        for row in worst.collect()
    ]


def unexplained_throttles(throttled: DataFrame) -> list[UnexplainedThrottle]:
    """Throttles without a limit that explains them, by broker and key (as many rows as there are of those)."""
    rows = (
        throttled.where(F.col("meter").isNull())
        .groupBy("broker_id", "key")
        .agg(F.sum("requests").alias("requests"), F.sum("throttle_ms").alias("throttle_ms"))
        .orderBy(F.col("throttle_ms").desc_nulls_last())
    )
    return [UnexplainedThrottle(row.broker_id, row.key, row.requests, row.throttle_ms) for row in rows.collect()]
