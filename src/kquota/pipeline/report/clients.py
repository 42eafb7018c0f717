"""Clients and the meters that they count on, as the page lists them: how near they come to their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from kquota.figures import QUOTA_KEYS
from kquota.pipeline.limits.identities import METER
from kquota.pipeline.report.contents import Bounds, Listed
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["limited_clients", "to_use", "total_throttling", "unlimited_clients"]

_CLIENT: Final = ("user", "client_id", "ip")


def total_throttling(clients: DataFrame) -> Row:
    """throttled_requests and throttle_ms of all clients."""
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("throttled_requests", "throttle_ms"))
    return clients.agg(*sums).collect()[0]


def _closeness(rate: str = "rate_p95") -> Column:
    """Part of the limit that a rate is; -1 where unknown, so that it sorts last."""
    known = F.nanvl(F.try_divide(F.col(rate), F.when(F.col("limit") > 0, F.col("limit"))), F.lit(-1.0))
    return F.coalesce(known, F.lit(-1.0))


def to_use(utilisation: DataFrame, bounds: Bounds) -> DataFrame:
    """utilisation, all brokers of a meter together: cluster, meter, key, `use`, `closeness` and `closest`.

    `closeness`: the part of its limit that it reached. `use`: broker_id, rate_p95, rate_max and seconds_over_100 of the
    broker where that was, and of all brokers: brokers (how many), unknown_amounts. `closest`: (broker_id, limit) of
    those to draw.
    """
    by_closeness = F.struct(_closeness(), _closeness("rate_max"), -F.col("broker_id"))
    closest_first = F.sort_array(F.collect_list(F.struct(by_closeness.alias("order"), "broker_id", "limit")), asc=False)
    of_all = {"brokers": F.count_distinct("broker_id"), "unknown_amounts": F.sum("unknown_amounts")}
    figures = F.struct("broker_id", "rate_p95", "rate_max", "seconds_over_100")
    meters = (
        utilisation.where(F.col("limit").isNotNull() & F.col("meter").isNotNull())
        .groupBy(*METER)
        .agg(
            F.max(_closeness()).alias("closeness"),
            F.max_by(figures, by_closeness).alias("use"),
            F.slice(closest_first, 1, bounds.brokers_per_meter).alias("closest"),
            *(figure.alias(name) for name, figure in of_all.items()),
        )
    )
    use = F.col("use")
    for name in of_all:
        use = use.withField(name, F.col(name))
    return meters.withColumn("use", use).drop(*of_all)


def limited_clients(clients: DataFrame, use: DataFrame, bounds: Bounds) -> Listed:
    """Clients with a limit, those throttled longest first, then those closest to it. Count: total.

    Rows: those of `clients`, and of their meter: `sharers` (how many clients count on it), `largest` (user, client_id
    and ip of some of them), `use` (see :func:`to_use`) and `throttle` (see :func:`throttled_by_meter`); the last two
    are null where nothing is known.
    """
    limited = clients.where(F.col("limit").isNotNull())
    of_meter = Window.partitionBy(*METER)
    whole_meter = of_meter.orderBy(F.desc_nulls_last("amount"), *_CLIENT).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    one = F.struct(*_CLIENT)
    largest = F.array(*(F.nth_value(one, place).over(whole_meter) for place in range(1, bounds.names + 1)))
    shared = limited.select(
        "*", F.count(F.lit(1)).over(of_meter).alias("sharers"), F.array_compact(largest).alias("largest")
    )
    of_request_time = F.when(F.col("key") == REQUEST_PERCENTAGE, F.col("throttle.throttle_ms"))
    rows = (
        shared.join(use.drop("bins", "closest"), on=list(METER), how="left")
        .orderBy(
            # A request percentage throttles requests of every kind, and those are counted on the key of their API.
            F.greatest(F.col("throttle_ms"), of_request_time).desc_nulls_last(),
            F.desc_nulls_last("closeness"),
            F.desc_nulls_last("amount"),
            "cluster",
            "key",
            *_CLIENT,
        )
        .limit(bounds.clients)
        .collect()
    )
    return Listed(Row(total=limited.count() if len(rows) == bounds.clients else len(rows)), rows)


def unlimited_clients(clients: DataFrame, bounds: Bounds) -> list[Row]:
    """Clients without a limit for a key, by key, those with the largest amount first.

    Rows: those of `clients`, and by_request_time (whether a request percentage holds for the client, which can throttle
    requests of every kind), and of all clients without a limit for the key total and unexplained (how many of them were
    throttled although no request percentage holds for them either).
    """
    of_key = Window.partitionBy("key")
    largest = (F.desc_nulls_last(name) for name in ("amount", "throttle_ms", "requests"))
    largest_first = of_key.orderBy(*largest, "cluster", *_CLIENT)
    has_request_time = F.max((F.col("key") == REQUEST_PERCENTAGE) & F.col("limit").isNotNull())
    by_request_time = has_request_time.over(Window.partitionBy("cluster", "user", "client_id"))
    unlimited = clients.withColumn("by_request_time", by_request_time).where(F.col("limit").isNull())
    ranked = unlimited.select(
        "*",
        F.row_number().over(largest_first).alias("rank"),
        F.count(F.lit(1)).over(of_key).alias("total"),
        F.count_if((F.col("throttled_requests") > 0) & ~F.col("by_request_time")).over(of_key).alias("unexplained"),
    )
    rows = ranked.where(F.col("rank") <= bounds.unlimited_per_key).collect()
    places = {key: place for place, key in enumerate(QUOTA_KEYS)}
    return sorted(rows, key=lambda row: (places.get(row.key, len(places)), row.key, row["rank"]))
