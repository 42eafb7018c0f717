"""Who was throttled, when, and by which limit: episodes of told throttle times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kquota.config import BrokerConfig
from kquota.pipeline.tables import THROTTLED, USAGE
from kquota.pipeline.transforms.clients import CLIENT_TEXT
from kquota.pipeline.transforms.identities import plain_strings
from kquota.pipeline.transforms.utilisation import window_seconds
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from kquota.pipeline.arrow_source import ArrowSource, Batches

__all__ = ["AMBIGUOUS", "UNEXPLAINED", "to_throttled"]

AMBIGUOUS = "ambiguous"
"""More than one limit could have caused it: the log does not mark throttles of a request percentage."""
UNEXPLAINED = "unexplained"
"""No limit in the quotas given could have caused it: they are not those that were in force."""

MAX_CLIENTS = 1000


_CELL = (
    "cluster",
    "broker_id",
    "cell_start_ms",
    "cell_ms",
    "user",
    "client_id",
    "ip",
    "key",
    "throttled_requests",
    "throttle_ms",
    "throttle_max_ms",
)


def to_throttled(usage: ArrowSource, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The `throttled` table: one row per broker, meter, key and episode.

    An episode ends when no request of the meter was throttled for ``quota.window.num`` x size seconds. The cause is
    the key of the only limit that could apply; where the byte rate or mutation rate and the request percentage of a
    client are both limited it is :data:`AMBIGUOUS` (unless it is longer than a request percentage can throttle), and
    the episode stands once for each meter that it may be. So throttle times must not be summed over this table;
    `usage` and `clients` hold each once.

    :param usage: rows of the `usage` table.
    :param clients: the `clients` table with the column CLIENT_TEXT.
    """
    identity = ("cluster", "user", "client_id", "ip")
    cells = usage.select(*_CELL).mapInArrow(_only_throttled, StructType([USAGE.schema[name] for name in _CELL]))
    limited = clients.select(*identity, "key", "meter", CLIENT_TEXT)
    own = limited.withColumnsRenamed({"meter": "own_meter"})
    percentage = limited.where((F.col("key") == REQUEST_PERCENTAGE) & F.col("meter").isNotNull()).select(
        *identity, F.col("meter").alias("percentage_meter")
    )
    told = cells.join(own, [cells[name].eqNullSafe(own[name]) for name in (*identity, "key")], "left").select(
        *(cells[name] for name in cells.columns), own["own_meter"], own[CLIENT_TEXT]
    )
    told = told.join(percentage, [told[name].eqNullSafe(percentage[name]) for name in identity], "left").select(
        *(told[name] for name in told.columns), percentage["percentage_meter"]
    )
    is_percentage = F.col("key") == REQUEST_PERCENTAGE

    def candidate(key: Column, meter: str, cause: Column) -> Column:
        return F.struct(key.alias("key"), F.col(meter).alias("meter"), cause.alias("cause"))

    # A request percentage throttles for one window at most (ClientRequestQuotaManager).
    too_long = F.col("throttle_max_ms") > broker_config.quota_window_size_seconds * 1000
    all_too_long = too_long & (F.col("throttled_requests") == 1)
    has_own = F.col("own_meter").isNotNull()
    has_percentage = F.col("percentage_meter").isNotNull() & ~is_percentage
    by_own = candidate(
        F.col("key"), "own_meter", F.when(has_percentage & ~too_long, F.lit(AMBIGUOUS)).otherwise(F.col("key"))
    )
    by_percentage = candidate(
        F.lit(REQUEST_PERCENTAGE),
        "percentage_meter",
        F.when(has_own, F.lit(AMBIGUOUS)).otherwise(F.lit(REQUEST_PERCENTAGE)),
    )
    unexplained = candidate(F.col("key"), "own_meter", F.lit(UNEXPLAINED))
    candidates = (
        F.when(has_own & has_percentage & ~all_too_long, F.array(by_own, by_percentage))
        .when(has_own, F.array(by_own))
        .when(has_percentage, F.array(by_percentage))
        .otherwise(F.array(unexplained))
    )
    blamed = told.select(
        "cluster",
        "broker_id",
        F.explode(candidates).alias("blamed"),
        "cell_start_ms",
        "cell_ms",
        F.col("throttled_requests").alias("requests"),
        "throttle_ms",
        "throttle_max_ms",
        CLIENT_TEXT,
    ).select("*", "blamed.key", "blamed.meter", "blamed.cause")

    meter = ("cluster", "broker_id", "meter", "key")
    in_time = Window.partitionBy(*meter).orderBy("cell_start_ms")
    since_last_ms = F.col("cell_start_ms") - F.lag(F.col("cell_start_ms") + F.col("cell_ms")).over(in_time)
    begins = since_last_ms.isNull() | (since_last_ms >= window_seconds(F.col("key"), broker_config) * 1000)
    episodes = blamed.withColumn("_begins", begins.cast("int")).withColumn("_episode", F.sum("_begins").over(in_time))
    return THROTTLED.conform(
        episodes.groupBy(*meter, "_episode")
        .agg(
            # One request that only this limit explains makes the whole episode this limit's.
            F.min(F.struct(F.col("cause") == AMBIGUOUS, F.col("cause"))).getField("cause").alias("cause"),
            F.min("cell_start_ms").alias("start_ms"),
            F.max(F.col("cell_start_ms") + F.col("cell_ms")).alias("end_ms"),
            F.sum("requests").alias("requests"),
            F.sum("throttle_ms").alias("throttle_ms"),
            F.max("throttle_max_ms").alias("throttle_max_ms"),
            F.slice(F.array_sort(F.collect_set(CLIENT_TEXT)), 1, MAX_CLIENTS).alias("clients"),
        )
        .drop("_episode")
    )


def _only_throttled(batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        throttled = batch.filter(pc.greater(batch.column("throttled_requests"), 0))
        yield from plain_strings(throttled).to_batches()
