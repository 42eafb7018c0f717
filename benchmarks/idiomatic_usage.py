"""The baseline of idiomatic PySpark: utilisation, throttles and what-if as a Spark engineer would write them.

``spark.read.parquet``; distinct identities are resolved once, and joined to the cells by broadcast, so that a number
stands for a meter before anything is shuffled; ``repartition`` by meter and broker, ``sortWithinPartitions``, and
``mapInArrow`` over plain columns, which calls the kernels that kquota calls. With `combine` cells are summed by meter,
broker and time before, which Spark begins on the side of the map, for a second shuffle.

Quotas that change while the log runs are not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.idiomatic_kernels import (
    COUNTS,
    HELD,
    PLACE,
    UTILISATION_SCHEMA,
    KnownMeters,
    replayed,
    utilisation_figures,
    whole_groups,
)
from kquota.config import BrokerConfig
from kquota.pipeline.dataset.tables import THROTTLED, USAGE, UTILISATION
from kquota.pipeline.limits.counting import CONTROLLER, counting_broker
from kquota.pipeline.limits.identities import IDENTITY, METER
from kquota.pipeline.meters.episodes import _COLUMNS as THROTTLE_COLUMNS
from kquota.pipeline.meters.episodes import _COUNTS as THROTTLE_COUNTS
from kquota.pipeline.meters.episodes import _SCHEMA as THROTTLED_SCHEMA
from kquota.pipeline.meters.episodes import _attribute, _episodes, _may_throttle, _ThrottleCandidates
from kquota.pipeline.meters.meter_series import SAMPLED_SOURCES
from kquota.pipeline.simulation.candidate_limits import QuotaColumns
from kquota.pipeline.simulation.recording import Recording, spans_by_place

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["client_totals", "session_settings", "simulated", "spans", "to_throttled", "to_utilisation"]

_SUMMED: Final = ("amount", "requests", "throttled_requests", "throttle_ms", "unknown_amounts")
_THROTTLE_CELL: Final = pa.schema(
    [
        *((name, pa.int32()) for name in ("meter", "client", "broker_id")),
        ("ambiguous", pa.bool_()),
        *((name, pa.int64()) for name in ("start_ms", "end_ms")),
        *((name, pa.float64()) for name in THROTTLE_COUNTS),
    ]
)


def client_totals(usage: DataFrame) -> DataFrame:
    """Distinct identities with their totals: what :func:`kquota.pipeline.limits.totals.to_client_totals` gives."""
    totals = usage.groupBy(*IDENTITY).agg(
        F.max("grain").alias("grain"),
        F.max("throttle_max_ms").alias("throttle_max_ms"),
        *(F.sum(name).alias(name) for name in _SUMMED),
    )
    return totals.select(*(field.name for field in USAGE.schema if field.name in totals.columns))


def spans(usage: DataFrame) -> DataFrame:
    """When the recording of each cluster and broker begins and ends; the controller's is its cluster's."""
    end_ms = F.col("cell_start_ms") + F.col("cell_ms")
    cells = usage.select("cluster", "broker_id", F.col("cell_start_ms").alias("first"), end_ms.alias("last"))
    ends = F.min("first").alias("first"), F.max("last").alias("last")
    of_broker = cells.groupBy("cluster", "broker_id").agg(*ends)
    of_cluster = of_broker.groupBy("cluster").agg(F.lit(CONTROLLER).alias("broker_id"), *ends)
    return of_broker.unionByName(of_cluster)


class _Bound(NamedTuple):
    """Which meters cells count on."""

    meters: DataFrame
    """number, cluster, meter, key, and the columns that were asked for."""
    identities: DataFrame
    """IDENTITY and the number of a meter."""


def _numbered(limited: DataFrame, group: Sequence[str], values: Sequence[Column]) -> _Bound:
    """Number the meters of resolved clients; both frames are small and kept.

    :param group: columns that tell meters apart, METER among them, none of them null.
    :param values: what else is to be known of a meter, as aggregates.
    """
    in_order = Window.orderBy(*group)
    meters = limited.groupBy(*group).agg(*values).withColumn("number", F.row_number().over(in_order) - 1).persist()
    numbers = F.broadcast(meters.select(*group, "number"))
    return _Bound(meters, limited.join(numbers, list(group)).select(*IDENTITY, "number"))


def _cells(usage: DataFrame, bound: _Bound) -> DataFrame:
    """The cells of limited meters, each with the number of its meter; several times where it counts on several."""
    of_meter = F.broadcast(bound.identities.select("number", *(F.col(name).alias(f"of_{name}") for name in IDENTITY)))
    return usage.join(of_meter, reduce(and_, (F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in IDENTITY)))


def _by_meter(
    cells: DataFrame, order: Sequence[str], work: Callable[[pa.Table], pa.Table], schema: pa.Schema
) -> DataFrame:
    """Apply `work` to rows of whole meters, in an order that begins with PLACE."""

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_groups(batches, PLACE):
            yield from work(rows).to_batches()

    sorted_cells = cells.repartition(*PLACE).sortWithinPartitions(*order)
    return sorted_cells.mapInArrow(each, from_arrow_schema(schema))


def to_utilisation(usage: DataFrame, clients: DataFrame, config: BrokerConfig, *, combine: bool = False) -> DataFrame:
    """The `utilisation` table.

    :param usage: rows of the `usage` table.
    :param clients: resolved, one row per cluster, user, client_id, ip and key.
    """
    limited = clients.where(F.col("meter").isNotNull())
    bound = _numbered(limited, METER, [F.first("limit").alias("limit"), F.first("limit_source").alias("limit_source")])
    names = bound.meters.orderBy("number").select(*METER, "limit", "limit_source").toArrow()
    known = KnownMeters(names, names["limit"].to_numpy().reshape(-1, 1))
    meters = usage.sparkSession.sparkContext.broadcast(known)
    cells = _cells(usage, bound).select(
        *PLACE,
        F.coalesce(F.col("source").isin(*SAMPLED_SOURCES), F.lit(False)).alias("is_sampled"),
        (F.col("cell_start_ms") + F.col("cell_ms")).alias("end_ms"),
        "cell_ms",
        F.coalesce("amount", F.lit(0.0)).alias("amount"),
        *(F.col(name).cast("double") for name in COUNTS),
    )
    if combine:
        # Cells of other lengths have other rates.
        same = (*PLACE, "is_sampled", "end_ms", "cell_ms")
        cells = cells.groupBy(*same).agg(*(F.sum(name).alias(name) for name in ("amount", *COUNTS)))
    table = _by_meter(
        cells,
        (*PLACE, "is_sampled", "end_ms"),
        lambda rows: utilisation_figures(rows, meters.value, config),
        UTILISATION_SCHEMA,
    )
    return UTILISATION.conform(table)


def to_throttled(usage: DataFrame, clients: DataFrame, config: BrokerConfig) -> DataFrame:
    """The `throttled` table. Which limits may have caused a throttle is found as kquota finds it, on whole batches."""
    candidates = usage.sparkSession.sparkContext.broadcast(_ThrottleCandidates.of(_may_throttle(clients).toArrow()))

    def attribute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            cells = _attribute(batch, candidates.value, config)
            yield pa.record_batch(
                [np.ascontiguousarray(cells[name]) for name in _THROTTLE_CELL.names], schema=_THROTTLE_CELL
            )

    def episodes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_groups(batches, place):
            columns = {name: rows[name].to_numpy() for name in rows.schema.names}
            cells = np.empty(rows.num_rows, [(name, column.dtype) for name, column in columns.items()])
            for name, column in columns.items():
                cells[name] = column
            yield from _episodes(cells, candidates.value, config).cast(THROTTLED_SCHEMA).to_batches()

    place = ("meter", "broker_id")
    throttled = usage.where(F.greatest(*(F.coalesce(name, F.lit(0)) for name in THROTTLE_COUNTS)) > 0)
    cells = throttled.select(*THROTTLE_COLUMNS).mapInArrow(attribute, from_arrow_schema(_THROTTLE_CELL))
    in_order = cells.repartition(*place).sortWithinPartitions(*place, "start_ms")
    return THROTTLED.conform(in_order.mapInArrow(episodes, from_arrow_schema(THROTTLED_SCHEMA)))


def simulated(
    usage: DataFrame,
    clients: DataFrame,
    recording: Recording,
    quotas: Sequence[QuotaColumns] = (QuotaColumns(),),
    *,
    combine: bool = False,
) -> DataFrame:
    """What limits do to the cells of meters: columns of :data:`~benchmarks.idiomatic_kernels.HELD`. Open arrivals only.

    :param clients: one row per cluster, user, client_id, ip and key, with the columns that `quotas` name.
    :param quotas: one or two; both are tried in one pass.
    """
    bound = _numbered(*_of_quotas(clients, quotas))
    limits = [f"limit_{number}" for number in range(len(quotas))]
    names = bound.meters.orderBy("number").select(*METER, *limits).toArrow()
    known = KnownMeters(names.select(METER), np.column_stack([names[name].to_numpy() for name in limits]))
    meters = usage.sparkSession.sparkContext.broadcast(known)
    replay, of_place = recording.replay, spans_by_place(recording.spans.toArrow())
    cells = _cells(usage, bound).select(
        "number",
        counting_broker().alias("broker_id"),
        "cell_start_ms",
        "cell_ms",
        *(F.coalesce(name, F.lit(0.0)).alias(name) for name in ("amount", "amount_max")),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("requests", "throttled_requests", "unknown_amounts")),
    )
    order = (*PLACE, "cell_start_ms")
    if combine:
        summed = [F.sum(name).alias(name) for name in ("amount", "requests", "throttled_requests", "unknown_amounts")]
        longest = [F.max(name).alias(name) for name in ("cell_ms", "amount_max")]
        cells = cells.groupBy(*order).agg(*summed, *longest)
    return _by_meter(cells, order, lambda rows: replayed(rows, meters.value, replay, of_place), HELD)


def _of_quotas(clients: DataFrame, quotas: Sequence[QuotaColumns]) -> tuple[DataFrame, list[str], list[Column]]:
    """Clients on meters, a row for each meter that a client counts on; what tells meters apart, and their limits.

    A meter that other clients count on under the other quotas stands once for each: its usage is not the same.
    """
    infinite = float("inf")
    of_each = [
        F.struct(
            F.lit(number).alias("quotas"),
            F.col(columns.meter).alias("meter"),
            F.coalesce(columns.limit, F.lit(infinite)).alias("limit"),
        )
        for number, columns in enumerate(quotas)
    ]
    moves = F.lit(False) if len(quotas) == 1 else ~F.col(quotas[0].meter).eqNullSafe(F.col(quotas[1].meter))
    rows = clients.select(*IDENTITY, moves.alias("moves"), F.inline(F.array(*of_each))).where(
        F.col("meter").isNotNull()
    )
    is_apart = F.max("moves").over(Window.partitionBy(*METER))
    rows = rows.withColumn("version", F.when(is_apart, F.col("quotas")).otherwise(-1))
    rows = rows.groupBy(*IDENTITY, "meter", "version").agg(
        *(
            F.max(F.when(F.col("quotas") == number, F.col("limit"))).alias(f"limit_{number}")
            for number in range(len(quotas))
        )
    )
    limits = [
        F.coalesce(F.max(f"limit_{number}"), F.lit(float("nan"))).alias(f"limit_{number}")
        for number in range(len(quotas))
    ]
    return rows, [*METER, "version"], limits


def session_settings(*, optimise: bool = True) -> dict[str, str]:
    """What suits rows in the JVM, where kquota's own session is made for work in Python: generated code, and plans that
    adapt.

    :param optimise: whether Java compiles what runs often a second time, which pays in long jobs.
    """
    java_options = "-XX:+UseParallelGC" if optimise else "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.driver.extraJavaOptions": java_options,
    }
