"""How close Kafka's own arithmetic, on the requests of a log, comes to the throttle times in it: table `calibration`.

A line of the log says when the answer was sent, and how long the parts before that took. When its request was counted
depends on its key, and a throttled fetch does not say with how much. One connection that fetches::

    line              1              2                  3
                 |--local--|    |--local--|        |--local--|-- waits for data --|
    counted                ^              ^                                       ^ at the end of a long wait
    amount            9,000 B        0 B, throttled        3,000 B
    replayed          9,000 B        3,000 B, refunded     3,000 B
                                     ^ what the fetch would have brought: it is the next answer with records
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DoubleType, LongType

from kquota.config import BrokerConfig
from kquota.pipeline.calibration.broker_replay import CLOSE_MS, CLOSE_SHARE
from kquota.pipeline.calibration.meters import replay_meters
from kquota.pipeline.dataset.tables import CALIBRATION
from kquota.pipeline.limits.clients import KAFKA_METER
from kquota.pipeline.limits.counting import counted_at_ms, counting_broker, in_purgatory
from kquota.pipeline.limits.identities import METER
from kquota.pipeline.limits.periods import VALID_FROM_MS, VALID_TO_MS, VALIDITY, has_periods
from kquota.pipeline.spark.lazy_values import LazyValue, map_in_arrow
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["to_calibration", "to_replayed_throttles"]

_CLIENT: Final = ("cluster", "user", "client_id")

LONGEST_PAUSE_MS: Final = 60.0
"""The longest pause of a handler, as in a garbage collection."""
JITTER_MS: Final = 2.0
NO_LIMIT: Final = 2.0**63
"""Long.MAX_VALUE as a double."""
EMPTY_ANSWER_BYTES: Final = 100
"""An answer to a fetch of at most this many bytes has no records."""

_THROTTLES: Final = pa.schema(
    [
        *((name, pa.string()) for name in METER),
        ("broker_id", pa.int32()),
        ("at_ms", pa.float64()),
        *((name, pa.int64()) for name in ("logged_ms", "predicted_ms", "unguided_ms", "low_ms", "high_ms")),
        ("is_compared", pa.bool_()),
    ]
)
"""The fields of a :class:`~kquota.pipeline.calibration.meters.ReplayedThrottle`."""


def to_calibration(throttles: DataFrame) -> DataFrame:
    """The `calibration` table: one row per broker, meter and key with a throttle time that was logged or predicted.

    :param throttles: as :func:`to_replayed_throttles` gives them.
    """
    logged, predicted, unguided = (F.col(name) for name in ("logged_ms", "predicted_ms", "unguided_ms"))
    is_estimate = F.col("key") == REQUEST_PERCENTAGE
    compared = F.col("is_compared")
    predicted_of = compared | is_estimate  # an estimate is of all requests, whichever limit throttled them
    both = compared & ((logged > 0) | (predicted > 0))
    either_unguided = compared & ((logged > 0) | (unguided > 0))
    error = F.when(both, F.abs(predicted - logged).cast(DoubleType()))

    def known(column: Column) -> Column:
        return F.when(~F.first(is_estimate), column)

    table = throttles.groupBy(*METER, "broker_id").agg(
        F.count_if(compared & (logged > 0)).alias("throttled_requests"),
        F.count_if(predicted_of & (predicted > 0)).alias("predicted_requests"),
        F.count_if(~compared & (logged > 0)).alias("not_compared"),
        known(F.count_if(compared & (logged > 0) & (predicted <= 0))).alias("false_negatives"),
        known(F.count_if(compared & (logged <= 0) & (predicted > 0))).alias("false_positives"),
        known(F.avg(F.when(both, _is_close(predicted, logged).cast("int")))).alias("within_5ms_or_5pct"),
        known(F.avg(F.when(either_unguided, _is_close(unguided, logged).cast("int")))).alias("within_as_logged"),
        known(F.percentile(error, F.lit(0.5))).alias("error_p50_ms"),
        known(F.percentile(error, F.lit(0.99))).alias("error_p99_ms"),
        _sum_ms(compared, logged).alias("throttle_ms_logged"),
        _sum_ms(predicted_of, predicted).alias("throttle_ms_predicted"),
        _sum_ms(predicted_of, F.col("low_ms")).alias("predicted_low_ms"),
        _sum_ms(predicted_of, F.col("high_ms")).alias("predicted_high_ms"),
    )
    return CALIBRATION.conform(table)


def _is_close(predicted: Column, logged: Column) -> Column:
    return F.abs(predicted - logged) <= F.greatest(F.lit(float(CLOSE_MS)), logged * CLOSE_SHARE)


def _sum_ms(which: Column, column: Column) -> Column:
    return F.coalesce(F.sum(F.when(which, column)), F.lit(0)).cast(LongType())


def to_replayed_throttles(requests: DataFrame, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """Each throttle time under a known limit that was logged, or that the replay predicts: one row per request and key.

    Columns: cluster, meter, key, broker_id, at_ms (since the epoch), logged_ms; predicted_ms, and unguided_ms without
    learning from what was logged (see :mod:`kquota.pipeline.calibration.broker_replay`); low_ms and high_ms, between
    which an estimate lies; is_compared.

    :param requests: rows of the `requests` table.
    :param clients: resolved clients of the same log, with the limits that were in force.
    """
    begins = requests.groupBy("cluster", "broker_id").agg(F.min("record_ms").alias("first_ms"))
    limited = requests.join(F.broadcast(_limits(clients)), [*_CLIENT, "key"])
    if has_periods(clients):
        at_ms = F.col("record_ms")
        limited = limited.where(
            (at_ms >= F.coalesce(VALID_FROM_MS, F.lit(0)))
            & (F.col(VALID_TO_MS).isNull() | (at_ms < F.col(VALID_TO_MS)))
        )
    on_meters = _counted(limited)
    in_order = on_meters.repartition(*_TASK).sortWithinPartitions(*_TASK, "at_ms", "end_ms", "seq").select(*_REPLAYED)
    first_ms = LazyValue.of(begins, _first_by_broker)
    return map_in_arrow(in_order, first_ms, _replay(broker_config), from_arrow_schema(_THROTTLES))


def _first_by_broker(begins: pa.Table) -> dict[tuple[str, int], float]:
    return {(row["cluster"], row["broker_id"]): row["first_ms"] for row in begins.to_pylist()}


_TASK: Final = ("cluster", "counting_broker_id", "key", "meter")
"""Requests with equal values are counted on the same meter, in the order of their times."""
_REPLAYED: Final = (
    *METER, "counting_broker_id", "broker_id", "limit", "is_throttled", "is_ambiguous",
    "connection", "api_key", "api_version", "at_ms", "jitter_ms", "amount", "logged_ms", "is_refunded", "remote_ms",
)  # fmt: skip


def _limits(clients: DataFrame) -> DataFrame:
    """By client and key: meter and limit, is_throttled (some client of the meter was), is_timed (the client's request
    time is limited). Clients with limited request time are here with keys that have no limit, too.
    """
    known = clients.where(F.col("ip").isNull() & F.col("user").isNotNull() & F.col("client_id").isNotNull())
    validity: tuple[str, ...] = ()
    if has_periods(clients):
        known, validity = _with_times_without_limit(known), VALIDITY
    of_meter, of_client = Window.partitionBy(*METER), Window.partitionBy(*_CLIENT)
    has_limit = F.col("meter").isNotNull()
    return (
        known.withColumn("is_throttled", F.sum("throttled_requests").over(of_meter) > 0)
        .withColumn("is_timed", F.max((F.col("key") == REQUEST_PERCENTAGE) & has_limit).over(of_client))
        .where(has_limit | F.col("is_timed"))
        .select(*_CLIENT, "key", "meter", "limit", "is_throttled", "is_timed", *validity)
    )


def _with_times_without_limit(clients: DataFrame) -> DataFrame:
    """The same, with Kafka's meter also for times at which it had no limit, where it has one at other times.

    A broker counts on it anyway (``ClientQuotaManager``: under a limit of Long.MAX_VALUE), so that its window, or
    its bucket, is not new when a limit comes.
    """
    of_kept = Window.partitionBy("cluster", KAFKA_METER, "key")
    counts = F.col(KAFKA_METER).isNotNull() & F.max(F.col("meter").isNotNull()).over(of_kept)
    return clients.withColumns(
        {
            "limit": F.when(counts, F.coalesce("limit", F.lit(NO_LIMIT))),
            "meter": F.when(counts, F.col(KAFKA_METER)),
        }
    )


def _counted(requests: DataFrame) -> DataFrame:
    """Requests on meters: when each was counted, with which amount, and for how long it was throttled.

    This is a matter of connections and of requests on several keys, so it comes before requests are put together by
    meter. Columns: those of `_REPLAYED`.
    """
    key = F.col("key")
    is_mutation = key == CONTROLLER_MUTATION_RATE
    is_rate = key.isin(PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
    waited = in_purgatory()
    at_ms = counted_at_ms()
    pause_ms = F.col("local_ms") + F.when(waited, F.col("remote_ms")).otherwise(0.0)
    jitter_ms = F.least(F.greatest(pause_ms, F.lit(JITTER_MS)), F.lit(LONGEST_PAUSE_MS))
    # A throttled fetch has no bytes in the log: it would have brought what the next one does.
    is_refunded = (key == CONSUMER_BYTE_RATE) & (F.col("throttle_ms") > 0)
    answered = F.when(~is_refunded & (F.col("amount") > EMPTY_ANSWER_BYTES), F.col("amount"))

    # Requests of a connection do not overlap, so they were counted in the order in which they were answered.
    connection = ("cluster", "broker_id", "connection")
    on_key, same_request = Window.partitionBy(*connection, "key"), Window.partitionBy(*connection, "seq")
    so_far = on_key.orderBy("end_ms", "seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Backwards: Spark counts a frame that ends with the last row anew for each row.
    from_here = on_key.orderBy(F.desc("end_ms"), F.desc("seq")).rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )
    next_answer = F.coalesce(
        F.last(answered, ignorenulls=True).over(from_here), F.last(answered, ignorenulls=True).over(so_far)
    )
    amount = F.when(is_refunded, next_answer).otherwise(F.col("amount"))
    # A limit of request time may have throttled any request, and another limit that the request has may have, too.
    is_time = key == REQUEST_PERCENTAGE
    logged_ms = F.when(is_time, F.max("throttle_ms").over(same_request))
    is_other = F.max((F.col("throttle_ms") > 0) & F.col("meter").isNotNull() & ~is_time).over(same_request)
    return (
        requests.repartition(*connection)  # once, for all of the windows
        .withColumn("at_ms", F.when(is_rate, F.max(at_ms).over(so_far)).otherwise(at_ms))
        .withColumn("jitter_ms", F.when(is_rate, jitter_ms).otherwise(0.0))
        .withColumn("amount", F.when(is_mutation, F.coalesce("amount", F.lit(0.0))).otherwise(amount))
        .withColumn("is_refunded", is_refunded)
        .withColumn("logged_ms", F.coalesce(logged_ms, F.col("throttle_ms")))
        .withColumn("is_ambiguous", F.when(is_time, is_other).otherwise(F.col("is_timed")))
        .where(F.col("meter").isNotNull() & F.col("amount").isNotNull())
        .withColumn("counting_broker_id", counting_broker())
    )


def _replay(
    broker_config: BrokerConfig,
) -> Callable[[Mapping[tuple[str, int], float], Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def replay(
        first_ms: Mapping[tuple[str, int], float], batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        throttles = replay_meters(rows, broker_config, first_ms)
        while some := list(islice(throttles, _BATCH_ROWS)):
            columns = zip(*some, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _THROTTLES, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_THROTTLES)

    return replay


_BATCH_ROWS: Final = 16_384
