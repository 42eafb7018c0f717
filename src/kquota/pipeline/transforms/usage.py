"""From staged rows to the `usage` table: merging what more than one piece of a log holds, and connections."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kquota.pipeline.sources.cells import CELL_MS, GRAIN, SOURCE
from kquota.pipeline.tables import USAGE
from kquota.quotas import CONNECTION_CREATION_RATE, CONTROLLER_MUTATION_RATE

__all__ = ["charge_mutations", "merge_cells", "to_connection_usage", "to_mutation_requests", "to_mutation_usage"]

_CELL = ("broker_id", "cell_start_ms", "user", "client_id", "key")
"""What tells cells of one log apart; the rest of a `usage` row is the same in all of them."""


def _with_date(usage: DataFrame) -> DataFrame:
    return usage.withColumn("date", F.to_date(F.timestamp_millis("cell_start_ms")))


def merge_cells(edges: DataFrame, usage: DataFrame, *, cluster: str) -> DataFrame:
    """Merge rows of the same cell of client usage into one.

    :param edges: rows of ``EDGE_SCHEMA``, any number per cell and connection.
    :param usage: rows of the `usage` table without date, any number per cell. Their connections are only counted, so
        that where such rows meet, the merged count is the least that it can be.
    :returns: `usage`, one row per broker, second, client and key.
    """
    rows = (
        edges.withColumn("connections", F.lit(0))
        .unionByName(usage.withColumn("connection_id", F.lit(None).cast("bigint")))
        # One shuffle for both sums.
        .repartition(*_CELL)
    )
    sums = (
        F.sum("amount").alias("amount"),
        F.max("amount_max").alias("amount_max"),
        F.sum("requests").alias("requests"),
        F.sum("throttled_requests").alias("throttled_requests"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.max("throttle_max_ms").alias("throttle_max_ms"),
    )
    by_connection = rows.groupBy(*_CELL, "connection_id").agg(*sums, F.max("connections").alias("connections"))
    named = F.count("connection_id").cast("int")
    merged = by_connection.groupBy(*_CELL).agg(*sums, F.greatest(named, F.max("connections")).alias("connections"))
    constants = {
        "cluster": F.lit(cluster),
        "cell_ms": F.lit(CELL_MS),
        "source": F.lit(SOURCE),
        "grain": F.lit(GRAIN),
        "ip": F.lit(None).cast("string"),
    }
    return USAGE.conform(_with_date(merged.withColumns(constants)))


def to_connection_usage(connections: DataFrame, *, cluster: str) -> DataFrame:
    """Connections by first sight, an estimate of those accepted: the log does not say when one was opened.

    :param connections: broker_id, connection, ip, second: one row per connection and piece of log.
    :returns: `usage` on connection_creation_rate, one row per broker, second and ip; user and client_id null.
    """
    first = (
        connections.where(F.col("ip").isNotNull())
        .groupBy("broker_id", "connection", "ip")
        .agg(F.min("second").alias("second"))
    )
    counted = first.groupBy("broker_id", "second", "ip").agg(F.count(F.lit(1)).alias("requests"))
    nothing = F.lit(None).cast("string")
    return USAGE.conform(
        _with_date(
            counted.select(
                F.lit(cluster).alias("cluster"),
                "broker_id",
                (F.col("second") * CELL_MS).alias("cell_start_ms"),
                F.lit(CELL_MS).alias("cell_ms"),
                F.lit(SOURCE).alias("source"),
                F.lit("meter").alias("grain"),
                nothing.alias("user"),
                nothing.alias("client_id"),
                "ip",
                F.lit(CONNECTION_CREATION_RATE).alias("key"),
                F.col("requests").cast("double").alias("amount"),
                F.lit(1.0).alias("amount_max"),
                "requests",
                F.col("requests").cast("int").alias("connections"),
                F.lit(0).cast("bigint").alias("throttled_requests"),
                F.lit(0).cast("bigint").alias("throttle_ms"),
                F.lit(0).cast("bigint").alias("throttle_max_ms"),
            )
        )
    )


def charge_mutations(mutations: DataFrame, topics: DataFrame) -> DataFrame:
    """What each CreateTopics, CreatePartitions and DeleteTopics request cost, in partitions (KIP-599).

    Creating costs the topic's partitions, growing those added, deleting those that there are. The log says how many
    there were only where it holds the topic's creation or growth; otherwise `topics` may.

    :param mutations: rows of ``MUTATIONS_SCHEMA``, one per topic of a request.
    :param topics: topic string, partitions long: counts before the log begins.
    :returns: one row per request: the columns of `mutations` that describe it, and charged double (null where a count
        is not known).
    """
    before = topics.select("topic", "partitions", F.lit("given").alias("operation"))
    after = (
        F.when(F.col("operation") == "given", F.col("partitions"))
        .when(F.coalesce("validate_only", F.lit(False)), None)
        .when(F.col("operation").isin("create", "grow"), F.col("partitions"))
        .when(F.col("operation") == "delete", F.lit(0))
    )
    history = Window.partitionBy("topic").orderBy(F.col("record_ms").asc_nulls_first(), "seq")
    known = mutations.unionByName(before, allowMissingColumns=True).withColumn(
        "_before",
        F.last(after, ignorenulls=True).over(history.rowsBetween(Window.unboundedPreceding, -1)),
    )
    cost = (
        F.when(F.col("operation") == "none", F.lit(0))
        .when(F.col("operation") == "create", F.col("partitions"))
        .when(F.col("operation") == "grow", F.col("partitions") - F.col("_before"))
        .when(F.col("operation") == "delete", F.col("_before"))
    )
    request = [name for name in mutations.columns if name not in ("topic", "operation", "partitions", "validate_only")]
    return (
        known.where(F.col("operation") != "given")
        .withColumn("_cost", cost.cast("double"))
        .groupBy(*request)
        .agg(F.when(F.count("_cost") == F.count(F.lit(1)), F.sum("_cost")).alias("charged"))
    )


def to_mutation_requests(charged: DataFrame) -> DataFrame:
    """`requests` rows on controller_mutation_rate of charged mutations."""
    return charged.withColumn("ip", F.lit(None).cast("string")).withColumn("key", F.lit(CONTROLLER_MUTATION_RATE))


def to_mutation_usage(charged: DataFrame) -> DataFrame:
    """`usage` on controller_mutation_rate, one row per broker, second and client."""
    told = F.col("throttle_ms")
    counted = charged.groupBy(
        "cluster",
        "broker_id",
        (F.floor(F.col("record_ms") / CELL_MS) * CELL_MS).cast("bigint").alias("cell_start_ms"),
        F.lit(CELL_MS).alias("cell_ms"),
        F.lit(SOURCE).alias("source"),
        F.lit("client").alias("grain"),
        "user",
        "client_id",
        F.lit(None).cast("string").alias("ip"),
        F.lit(CONTROLLER_MUTATION_RATE).alias("key"),
    ).agg(
        F.sum("charged").alias("amount"),
        F.max("charged").alias("amount_max"),
        F.count(F.lit(1)).alias("requests"),
        F.size(F.collect_set("connection")).alias("connections"),
        F.count_if(told > 0).alias("throttled_requests"),
        F.sum(told).alias("throttle_ms"),
        F.max(told).alias("throttle_max_ms"),
    )
    return USAGE.conform(_with_date(counted))
