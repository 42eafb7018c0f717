"""How far Kafka's own arithmetic, on what the log says, gives the waits that the broker told: table `calibration`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from kquota.config import BrokerConfig
from kquota.pipeline.replay.meters import MeterWaits, replay_meters
from kquota.pipeline.replay.recorded import CLOSE_MS, CLOSE_SHARE
from kquota.pipeline.tables import CALIBRATION
from kquota.pipeline.workers import forget_zip_importers
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["to_calibration", "to_replayed_waits"]

_CLIENT: Final = ("cluster", "user", "client_id")
_METER: Final = ("cluster", "meter", "key")

IN_PURGATORY_MS: Final = 5.0
"""A request whose answer took longer than this to come, after its handler was done, had waited for something else and
was counted at the end of that; otherwise it was counted before."""
LONGEST_PAUSE_MS: Final = 60.0
"""A handler that stood still, as in a garbage collection, did so for this long at most."""
JITTER_MS: Final = 2.0
EMPTY_ANSWER_BYTES: Final = 100
"""An answer to a fetch with at most so many bytes has no records."""

_WAITS: Final = StructType(
    [
        *(StructField(name, StringType()) for name in _METER),
        StructField("broker_id", IntegerType()),
        StructField("at_ms", DoubleType()),
        StructField("told_ms", LongType()),
        StructField("predicted_ms", LongType()),
        StructField("plain_ms", LongType()),
        StructField("low_ms", LongType()),
        StructField("high_ms", LongType()),
        StructField("is_compared", BooleanType()),
    ]
)


def to_calibration(waits: DataFrame) -> DataFrame:
    """The `calibration` table: one row per broker, meter and key with limits, that some wait was told or predicted on.

    :param waits: as :func:`to_replayed_waits` gives them.
    """
    told, predicted, plain = (F.col(name) for name in ("told_ms", "predicted_ms", "plain_ms"))
    is_estimate = F.col("key") == REQUEST_PERCENTAGE
    compared = F.col("is_compared")
    both = compared & ((told > 0) | (predicted > 0))
    either_plain = compared & ((told > 0) | (plain > 0))
    error = F.when(both, F.abs(predicted - told).cast(DoubleType()))

    def known(column: Column) -> Column:
        return F.when(~F.first(is_estimate), column)

    table = waits.groupBy(*_METER, "broker_id").agg(
        F.count_if(compared & (told > 0)).alias("throttled_requests"),
        F.count_if(compared & (predicted > 0)).alias("predicted_requests"),
        F.count_if(~compared & (told > 0)).alias("not_compared"),
        known(F.count_if(compared & (told > 0) & (predicted <= 0))).alias("missed"),
        known(F.count_if(compared & (told <= 0) & (predicted > 0))).alias("invented"),
        known(F.avg(F.when(both, _is_close(predicted, told).cast("int")))).alias("within_5ms_or_5pct"),
        known(F.avg(F.when(either_plain, _is_close(plain, told).cast("int")))).alias("within_as_logged"),
        known(F.percentile(error, F.lit(0.5))).alias("error_p50_ms"),
        known(F.percentile(error, F.lit(0.99))).alias("error_p99_ms"),
        _sum_ms(compared, told).alias("throttle_ms_logged"),
        _sum_ms(compared, predicted).alias("throttle_ms_predicted"),
        _sum_ms(compared, F.col("low_ms")).alias("predicted_low_ms"),
        _sum_ms(compared, F.col("high_ms")).alias("predicted_high_ms"),
    )
    return CALIBRATION.conform(table)


def _is_close(predicted: Column, told: Column) -> Column:
    return F.abs(predicted - told) <= F.greatest(F.lit(float(CLOSE_MS)), told * CLOSE_SHARE)


def _sum_ms(which: Column, column: Column) -> Column:
    return F.coalesce(F.sum(F.when(which, column)), F.lit(0)).cast(LongType())


def to_replayed_waits(requests: DataFrame, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """Each wait that the broker told under a known limit, or that the replay finds: one row per request and key.

    Columns: cluster, meter, key, broker_id, at_ms, told_ms; predicted_ms, and plain_ms without learning from what was
    told (see :mod:`kquota.pipeline.replay.recorded`); low_ms and high_ms, between which an estimate lies; is_compared.

    :param requests: rows of the `requests` table.
    :param clients: the `clients` table of the same log; its limits are taken for those that were in force.
    """
    limits = clients.where(F.col("meter").isNotNull() & F.col("ip").isNull())
    told = limits.groupBy(*_METER).agg((F.sum("throttled_requests") > 0).alias("is_throttled"))
    limits = limits.join(F.broadcast(told), [*_METER])
    timed = limits.where(F.col("key") == REQUEST_PERCENTAGE).select(*_CLIENT).withColumn("is_timed", F.lit(True))
    limits = limits.select(*_CLIENT, "key", "meter", "limit", "is_throttled").join(
        F.broadcast(timed), [*_CLIENT], "left"
    )
    first = requests.groupBy("cluster", "broker_id").agg(F.min("record_ms").alias("first_ms"))
    limited = requests.join(F.broadcast(limits), [*_CLIENT, "key"])
    counted = _of_byte_rates(limited).unionByName(_of_mutations(limited))
    told = _told_by_request(requests, timed)
    counted = counted.unionByName(_of_time(limited, told))
    prepared = (
        counted.join(F.broadcast(first), ["cluster", "broker_id"])
        # Mutations are counted by the controller, whichever broker the client asked.
        .withColumn("home", F.when(F.col("key") == CONTROLLER_MUTATION_RATE, -1).otherwise(F.col("broker_id")))
        .withColumn("is_timed", F.coalesce("is_timed", F.lit(False)))
    )
    order = ("cluster", "home", "key", "meter", "at_ms", "end_ms", "seq")
    return (
        prepared.repartition("cluster", "home", "key", "meter")
        .sortWithinPartitions(*order)
        .select(*_REPLAYED)
        .mapInArrow(_replay(broker_config), _WAITS)
    )


_REPLAYED: Final = (
    *_METER, "home", "broker_id", "limit", "is_throttled", "is_timed", "first_ms",
    "connection", "api_key", "api_version", "at_ms", "earlier_ms", "amount", "told_ms", "taken_back", "remote_ms",
)  # fmt: skip
_COUNTED: Final = (
    *_METER, "limit", "is_throttled", "is_timed", "broker_id", "connection", "seq", "end_ms", "api_key", "api_version",
    "at_ms", "earlier_ms", "amount", "told_ms", "taken_back", "remote_ms",
)  # fmt: skip


def _of_byte_rates(requests: DataFrame) -> DataFrame:
    """Produce and fetch: what was counted when, a throttled fetch with what it would have brought."""
    throttled_fetch = (F.col("key") == CONSUMER_BYTE_RATE) & (F.col("throttle_ms") > 0)
    answered = F.when(~throttled_fetch & (F.col("charged") > EMPTY_ANSWER_BYTES), F.col("charged"))
    waited = F.col("remote_ms") >= IN_PURGATORY_MS
    at_ms = F.col("record_ms") - F.when(waited, 0.0).otherwise(F.col("remote_ms"))
    pause_ms = F.col("local_ms") + F.when(waited, F.col("remote_ms")).otherwise(0.0)
    # Requests of a connection do not overlap, so they were counted in the order in which they were answered.
    connection = Window.partitionBy("cluster", "broker_id", "connection", "key")
    so_far = connection.orderBy("end_ms", "seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Backwards: Spark counts a frame that ends with the last row anew for each row.
    from_here = connection.orderBy(F.desc("end_ms"), F.desc("seq")).rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )
    next_answer = F.coalesce(
        F.last(answered, ignorenulls=True).over(from_here), F.last(answered, ignorenulls=True).over(so_far)
    )
    return (
        requests.where(F.col("key").isin(PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE))
        .withColumn("at_ms", F.max(at_ms).over(so_far))
        .withColumn("earlier_ms", F.least(F.greatest(pause_ms, F.lit(JITTER_MS)), F.lit(LONGEST_PAUSE_MS)))
        .withColumn("amount", F.when(throttled_fetch, next_answer).otherwise(F.col("charged")))
        .withColumn("told_ms", F.col("throttle_ms"))
        .withColumn("taken_back", throttled_fetch)
        .where(F.col("amount").isNotNull())
        .select(*_COUNTED)
    )


def _of_mutations(requests: DataFrame) -> DataFrame:
    """Counted when the controller began with it: what came after that is in `remote_ms`."""
    return (
        requests.where(F.col("key") == CONTROLLER_MUTATION_RATE)
        .withColumn("at_ms", F.col("record_ms") - F.col("remote_ms"))
        .withColumn("earlier_ms", F.lit(0.0))
        .withColumn("amount", F.coalesce("charged", F.lit(0.0)))
        .withColumn("told_ms", F.col("throttle_ms"))
        .withColumn("taken_back", F.lit(False))
        .select(*_COUNTED)
    )


def _told_by_request(requests: DataFrame, timed: DataFrame) -> DataFrame:
    """What clients whose time is limited were told on any key, by request."""
    return (
        requests.join(F.broadcast(timed), [*_CLIENT])
        .where(F.col("throttle_ms") > 0)
        .groupBy("cluster", "broker_id", "seq")
        .agg(F.max("throttle_ms").alias("told_ms"))
    )


def _of_time(requests: DataFrame, told: DataFrame) -> DataFrame:
    """The time of all requests of clients whose time is limited, with the wait that each was told, on any key."""
    return (
        requests.where((F.col("key") == REQUEST_PERCENTAGE) & F.col("charged").isNotNull())
        .join(told, ["cluster", "broker_id", "seq"], "left")
        .withColumn("told_ms", F.coalesce("told_ms", F.lit(0)))
        .withColumn("at_ms", F.col("record_ms"))
        .withColumn("earlier_ms", F.lit(0.0))
        .withColumn("amount", F.col("charged"))
        .withColumn("taken_back", F.lit(False))
        .select(*_COUNTED)
    )


def _replay(broker_config: BrokerConfig) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    schema = to_arrow_schema(_WAITS)

    def replay(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_zip_importers()
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        held: list[MeterWaits] = []
        for wait in replay_meters(rows, broker_config):
            held.append(wait)
            if len(held) == _BATCH_ROWS:
                yield _batch(held, schema)
                held = []
        if held:
            yield _batch(held, schema)

    return replay


_BATCH_ROWS: Final = 16_384


def _batch(waits: list[MeterWaits], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*waits, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
