"""How close each meter comes to its limit, second by second, as Kafka's sampled rate sees it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kquota.config import BrokerConfig
from kquota.pipeline.tables import UTILISATION
from kquota.quotas import CONTROLLER_MUTATION_RATE

__all__ = ["enforced_rates", "to_utilisation", "window_seconds", "with_meters"]

_IDENTITY = ("cluster", "user", "client_id", "ip", "key")
PERCENTILE_ACCURACY = 10_000


def window_seconds(key: Column, broker_config: BrokerConfig) -> Column:
    """Seconds over which the rate of a key is taken: samples x sample length."""
    return F.when(
        key == CONTROLLER_MUTATION_RATE,
        F.lit(broker_config.controller_quota_window_num * broker_config.controller_quota_window_size_seconds),
    ).otherwise(F.lit(broker_config.quota_window_num * broker_config.quota_window_size_seconds))


def with_meters(usage: DataFrame, clients: DataFrame) -> DataFrame:
    """`usage` rows that count against a limited meter, with meter, limit and limit_source.

    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    """
    limited = clients.where(F.col("meter").isNotNull()).select(*_IDENTITY, "meter", "limit", "limit_source")
    same = [usage[name].eqNullSafe(limited[name]) for name in _IDENTITY]
    rows = usage.join(F.broadcast(limited), same, "inner")
    found = (limited[name] for name in ("meter", "limit", "limit_source"))
    return rows.select(*(usage[name] for name in usage.columns), *found)


def enforced_rates(metered: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The rate that is held against the limit, at the end of each second in which the meter was active.

    Rate = amount of the last ``quota.window.num`` windows / (num x size): Kafka's sampled rate on whole seconds
    (``Rate``, ``ClientQuotaManager``); for controller mutations the mean over the time that the bucket spans.

    :param metered: rows of :func:`with_meters`.
    :returns: one row per broker, meter, key and second: cluster, broker_id, meter, key, limit, limit_source,
        cell_start_ms, amount, rate, requests, throttled_requests, throttle_ms.
    """
    group = ("cluster", "broker_id", "meter", "key")
    # One shuffle: by meter, which serves the sums per second, the window and the sums per meter alike.
    seconds = (
        metered.repartition(*group)
        .groupBy(*group, "limit", "limit_source", "cell_start_ms")
        .agg(
            F.sum("amount").alias("amount"),
            F.sum("requests").alias("requests"),
            F.sum("throttled_requests").alias("throttled_requests"),
            F.sum("throttle_ms").alias("throttle_ms"),
        )
    )

    def over(num: int, size_seconds: int) -> Column:
        reach_ms = num * size_seconds * 1000
        window = Window.partitionBy(*group).orderBy("cell_start_ms").rangeBetween(1 - reach_ms, 0)
        return F.sum(F.coalesce("amount", F.lit(0.0))).over(window) / (num * size_seconds)

    ordinary = over(broker_config.quota_window_num, broker_config.quota_window_size_seconds)
    mutation = over(broker_config.controller_quota_window_num, broker_config.controller_quota_window_size_seconds)
    same = (
        broker_config.quota_window_num == broker_config.controller_quota_window_num
        and broker_config.quota_window_size_seconds == broker_config.controller_quota_window_size_seconds
    )
    rate = ordinary if same else F.when(F.col("key") == CONTROLLER_MUTATION_RATE, mutation).otherwise(ordinary)
    return seconds.withColumn("rate", rate)


def to_utilisation(rates: DataFrame) -> DataFrame:
    """The `utilisation` table: one row per broker, meter and key, over the seconds in which the meter was active.

    :param rates: rows of :func:`enforced_rates`.
    """
    percentiles = F.percentile_approx("rate", [0.5, 0.95, 0.99], PERCENTILE_ACCURACY)
    return UTILISATION.conform(
        rates.groupBy("cluster", "broker_id", "meter", "key", "limit", "limit_source")
        .agg(
            F.avg("rate").alias("rate_mean"),
            percentiles.alias("_percentiles"),
            F.max("rate").alias("rate_max"),
            F.max("amount").alias("peak_1s"),
            F.count(F.lit(1)).alias("seconds_active"),
            F.count_if(F.col("rate") > 0.8 * F.col("limit")).alias("seconds_over_80"),
            F.count_if(F.col("rate") > F.col("limit")).alias("seconds_over_100"),
            F.sum("requests").alias("requests"),
            F.sum("throttled_requests").alias("throttled_requests"),
            F.sum("throttle_ms").alias("throttle_ms"),
        )
        .withColumns(
            {
                "rate_p50": F.col("_percentiles")[0],
                "rate_p95": F.col("_percentiles")[1],
                "rate_p99": F.col("_percentiles")[2],
            }
        )
        .drop("_percentiles")
    )
