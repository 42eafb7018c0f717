"""What each client used: usage summed by client and key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.limits.identities import IDENTITY
from kquota.pipeline.spark.partial_sums import partial_sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["to_client_totals"]

_AGGREGATES: Final = {
    "throttle_max_ms": "max",
    "amount": "sum",
    "requests": "sum",
    "throttled_requests": "sum",
    "throttle_ms": "sum",
    "unknown_amounts": "sum",
}


def to_client_totals(usage: ArrowSource) -> DataFrame:
    """Sum usage by client and key.

    :param usage: rows of the `usage` table.
    :returns: one row per cluster, user, client_id, ip and key: these, and grain, throttle_max_ms, amount, requests,
        throttled_requests, throttle_ms, unknown_amounts. Sums are of what is known, and null where nothing is.
    """
    keys = (*IDENTITY, "grain")
    columns = [*keys, *_AGGREGATES]
    schema = StructType([USAGE.schema[name] for name in columns])
    by_grain = partial_sums(usage.select(*columns), keys, _AGGREGATES, schema)
    totals = [getattr(F, how)(name).alias(name) for name, how in _AGGREGATES.items()]
    return by_grain.groupBy(*IDENTITY).agg(F.max("grain").alias("grain"), *totals)
