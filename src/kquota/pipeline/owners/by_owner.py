"""Who used how much: usage by owner and day, with what the owners' clients may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType
from pyspark.sql.window import Window

from kquota.pipeline.dataset.tables import SHOWBACK, USAGE
from kquota.pipeline.limits.identities import IDENTITY
from kquota.pipeline.limits.periods import VALID_FROM_MS, VALID_TO_MS, has_periods
from kquota.pipeline.spark.partial_sums import partial_sums
from kquota.pipeline.spark.workers import drop_zip_importers
from kquota.policy import UNOWNED, OwnerMap
from kquota.quotas import CONTROLLER_MUTATION_RATE

if TYPE_CHECKING:
    from pyspark.sql import Column

    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["OWNER", "add_owner", "local_date", "to_client_days", "to_showback", "to_unowned", "with_owners"]

OWNER: Final = "owner"
LAST_MS: Final = "last_ms"
"""Column with the start of the last cell of a client, key and day."""

_DAY: Final = (*IDENTITY, "date")
_AGGREGATES: Final = {"amount": "sum", "unknown_amounts": "sum", LAST_MS: "max"}
_CACHED_OWNERS: Final = 1_000_000
_MINUTE_MS: Final = 60_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def local_date(at_ms: int, zone: ZoneInfo) -> date:
    """The day that a moment lies in, where the clocks are those of the zone."""
    return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone).date()


def local_dates(at_ms: npt.NDArray[np.int64], zone: ZoneInfo) -> npt.NDArray[np.datetime64]:
    """:func:`local_date` of each; days begin at whole minutes everywhere (since 1972)."""
    minutes, inverse = np.unique(at_ms // _MINUTE_MS, return_inverse=True)
    days = [local_date(minute * _MINUTE_MS, zone) for minute in minutes.tolist()]
    dates: npt.NDArray[np.datetime64] = np.array(days, "datetime64[D]")[inverse]
    return dates


def to_client_days(usage: ArrowSource, zone: ZoneInfo) -> DataFrame:
    """Sums by client, key, day and broker: cluster, user, client_id, ip, key, date, broker_id, amount, unknown_amounts,
    LAST_MS.

    `amount` is the sum of the known amounts, null where none is known.

    :param usage: rows of the `usage` table.
    """
    keys = (*_DAY, "broker_id")
    schema = StructType(
        [
            *(USAGE.schema[name] for name in IDENTITY),
            StructField("date", DateType()),
            *(USAGE.schema[name] for name in ("broker_id", "amount", "unknown_amounts")),
            StructField(LAST_MS, LongType()),
        ]
    )

    def with_dates(cells: pa.Table) -> pa.Table:
        dates = local_dates(cells["cell_start_ms"].to_numpy(), zone)
        cells = cells.append_column(LAST_MS, cells["cell_start_ms"])
        return cells.append_column("date", pa.array(dates, pa.date32()))

    cells = usage.select(*IDENTITY, "broker_id", "cell_start_ms", "amount", "unknown_amounts")
    parts = partial_sums(cells, keys, _AGGREGATES, schema, with_dates)
    return parts.groupBy(*keys).agg(*_sums(), F.max(LAST_MS).alias(LAST_MS))


def _sums() -> tuple[Column, Column]:
    """Of what is known, and of the requests of which it is not."""
    return F.sum("amount").alias("amount"), F.sum("unknown_amounts").alias("unknown_amounts")


def with_owners(clients: DataFrame, owners: OwnerMap) -> DataFrame:
    """Add OWNER, as :meth:`OwnerMap.owner` says it.

    :param clients: any columns, among them user, client_id and ip; with far fewer rows than `usage`.
    """
    return add_owner(clients, ("user", "client_id", "ip"), owners.owner)


def add_owner(frame: DataFrame, names: Sequence[str], owner: Callable[..., str]) -> DataFrame:
    """Add OWNER: what `owner` says of the values in the columns `names`. Many rows have the same values."""
    columns = frame.columns

    def add(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        drop_zip_importers()
        owner_of = lru_cache(_CACHED_OWNERS)(owner)
        for batch in batches:
            values = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            found = pa.array([owner_of(*one) for one in values], pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, found], names=[*columns, OWNER])

    return frame.mapInArrow(add, StructType([*frame.schema.fields, StructField(OWNER, StringType())]))


def to_showback(days: DataFrame, limits: DataFrame | None) -> DataFrame:
    """The `showback` table: by owner, day and key the amount, its share of the cluster's, and the limit.

    `limit` is what the meters of an owner's clients may use, in the whole cluster: each meter's limit (the one in force
    when it was last used that day) counts once, for every broker that was seen that day, mutations once, as the
    controller counts them. A meter that clients of several owners count on is divided by their amounts.

    :param days: as :func:`to_client_days` gives them, with OWNER.
    :param limits: the `clients` table of the same usage, or `limits` where they changed; None: nothing is limited.
    """
    brokers = days.groupBy("cluster", "date").agg(F.count_distinct("broker_id").alias("brokers"))
    of_day = days.groupBy(*_DAY, OWNER).agg(*_sums(), F.max(LAST_MS).alias(LAST_MS))
    # By meter; clients without a meter are added up together.
    by_meter = (
        _with_meters(of_day, limits)
        .groupBy("cluster", OWNER, "date", "key", "meter")
        .agg(*_sums(), F.max_by("limit", LAST_MS).alias("limit"), F.max(LAST_MS).alias(LAST_MS))
    )
    on_meter = Window.partitionBy("cluster", "date", "key", "meter")
    total = F.sum("amount").over(on_meter)
    part = F.when(total > 0, F.coalesce("amount", F.lit(0.0)) / total).otherwise(1 / F.count(F.lit(1)).over(on_meter))
    counted = F.when(F.col("key") == CONTROLLER_MUTATION_RATE, 1).otherwise(F.col("brokers"))
    by_owner = (
        by_meter.withColumn("limit", F.max_by("limit", LAST_MS).over(on_meter) * part)
        .join(F.broadcast(brokers), ["cluster", "date"])
        .groupBy("cluster", OWNER, "date", "key")
        .agg(*_sums(), F.sum(F.col("limit") * counted).alias("limit"))
    )
    of_cluster = F.sum("amount").over(Window.partitionBy("cluster", "date", "key"))
    return SHOWBACK.conform(by_owner.withColumn("share", F.when(of_cluster > 0, F.col("amount") / of_cluster)))


def _with_meters(of_day: DataFrame, limits: DataFrame | None) -> DataFrame:
    """The meter and limit of clients, null for none."""
    if limits is None:
        return of_day.withColumns({"meter": F.lit(None).cast("string"), "limit": F.lit(None).cast("double")})
    limited, used = F.broadcast(limits.where(F.col("meter").isNotNull())).alias("limited"), of_day.alias("used")

    def of_limit(name: str) -> Column:
        return F.col(f"limited.{name}")

    conditions = [F.col(f"used.{name}").eqNullSafe(of_limit(name)) for name in IDENTITY]
    if has_periods(limits):
        conditions.append(F.col(LAST_MS) >= F.coalesce(of_limit(VALID_FROM_MS), F.lit(0)))
        conditions.append(of_limit(VALID_TO_MS).isNull() | (F.col(LAST_MS) < of_limit(VALID_TO_MS)))
    return used.join(limited, conditions, "left").select("used.*", of_limit("meter"), of_limit("limit"))


def to_unowned(days: DataFrame) -> DataFrame:
    """Clients without an owner, those that used most first: user, client_id, ip, share.

    `share` is the largest part that a client has of what was used of some key.

    :param days: as :func:`to_client_days` gives them, with OWNER.
    """
    of_key = F.sum("amount").over(Window.partitionBy("cluster", "key"))
    return (
        days.groupBy(*IDENTITY, OWNER)
        .agg(F.sum("amount").alias("amount"))
        .withColumn("share", F.when(of_key > 0, F.col("amount") / of_key))
        .where(F.col(OWNER) == UNOWNED)
        .groupBy("user", "client_id", "ip")
        .agg(F.max("share").alias("share"))
        .orderBy(F.col("ip").isNotNull(), F.desc_nulls_last("share"), "user", "client_id", "ip")
    )
