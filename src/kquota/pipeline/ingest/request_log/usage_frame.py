"""Requests as usage: what each client used, second by second, in a frame of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.ingest.request_log.cells import CELL_MS, GRAIN, SOURCE
from kquota.quotas import CONNECTION_CREATION_RATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["to_usage"]

_CELL: Final = ("cluster", "broker_id", "cell_start_ms", "user", "client_id", "ip", "key")
_AGGREGATES: Final = {
    "amount": F.sum,
    "amount_max": F.max,
    "requests": F.sum,
    "throttled_requests": F.sum,
    "throttle_ms": F.sum,
    "throttle_max_ms": F.max,
    "unknown_amounts": F.sum,
}


def to_usage(requests: DataFrame) -> DataFrame:
    """The `usage` table: one row per broker, second, client and key.

    :param requests: as :meth:`~kquota.pipeline.ingest.request_log.frames.RequestLog.requests` gives them. Rows of the
        table `requests` lack the connections.
    """
    charged = requests.select(
        *(name for name in _CELL if name != "cell_start_ms"),
        (F.floor(F.col("record_ms") / CELL_MS) * CELL_MS).alias("cell_start_ms"),
        "connection",
        "amount",
        F.col("amount").alias("amount_max"),
        F.lit(1).cast("long").alias("requests"),
        (F.col("throttle_ms") > 0).cast("long").alias("throttled_requests"),
        "throttle_ms",
        F.col("throttle_ms").alias("throttle_max_ms"),
        F.col("amount").isNull().cast("long").alias("unknown_amounts"),
    )
    sums = [how(name).alias(name) for name, how in _AGGREGATES.items()]
    of_connection = charged.groupBy(*_CELL, "connection").agg(*sums)
    cells = of_connection.groupBy(*_CELL).agg(*sums, F.count("connection").cast("int").alias("connections"))
    is_connection = F.col("key") == CONNECTION_CREATION_RATE
    return USAGE.conform(
        cells.withColumns(
            {
                "cell_ms": F.lit(CELL_MS),
                "source": F.lit(SOURCE),
                "grain": F.when(is_connection, "meter").otherwise(GRAIN),
                "date": F.date_from_unix_date((F.col("cell_start_ms") / 86_400_000).cast("int")),
            }
        )
    )
