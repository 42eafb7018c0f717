"""What limits do to recorded requests: each goes through the metering classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.metering.requests import STRICT_SINCE
from kquota.pipeline.limits.counting import counted_at_ms, counting_broker
from kquota.pipeline.simulation.arrivals import NO_THROTTLING
from kquota.pipeline.simulation.simulated import SIMULATED, Recording
from kquota.pipeline.spark.workers import drop_zip_importers

if TYPE_CHECKING:
    from kquota.pipeline.spark.parquet_source import Batches

__all__ = ["simulate_request_frames", "with_counting"]

_PLACE: Final = ("cluster", "home", "key", "meter")


class _Request(NamedTuple):
    """A request on a meter."""

    cluster: str
    home: int
    key: str
    meter: str
    limit: float | None
    connection: str
    is_strict: bool
    at_ms: float
    amount: float
    is_unknown: bool
    told: bool


def simulate_request_frames(requests: DataFrame, clients: DataFrame, replay: Recording) -> DataFrame:
    """Columns of :data:`~kquota.pipeline.simulation.simulated.SIMULATED`, from requests, each meter with its own limit.

    :param requests: rows of the `requests` table.
    :param clients: as for :func:`~kquota.pipeline.simulation.cell_frames.simulate_cell_frames`.
    """
    on_meters = clients.where(F.col("meter").isNotNull() & F.col("user").isNotNull() & F.col("client_id").isNotNull())
    limits = on_meters.select("cluster", "user", "client_id", "key", "meter", "limit")
    # Made of values, because it meets every request.
    limits = clients.sparkSession.createDataFrame(limits.toArrow(), limits.schema)
    return (
        with_counting(requests.join(F.broadcast(limits), ["cluster", "user", "client_id", "key"]))
        .repartition(*_PLACE)
        .sortWithinPartitions(*_PLACE, "connection", "is_strict", "at_ms", "seq")
        .select(*_Request._fields)
        .mapInArrow(_simulated_requests(replay), from_arrow_schema(SIMULATED))
    )


def with_counting(requests: DataFrame) -> DataFrame:
    """Rows of `requests` with what their counting depends on: home, at_ms, amount, is_unknown, told, is_strict."""
    is_strict = F.lit(False)
    for api_key, version in STRICT_SINCE.items():
        is_strict |= (F.col("api_key") == api_key) & (F.col("api_version") >= version)
    return requests.withColumns(
        {
            "home": counting_broker(),
            "at_ms": counted_at_ms(),
            "amount": F.coalesce("amount", F.lit(0.0)),
            "is_unknown": F.col("amount").isNull(),
            "told": F.col("throttle_ms") > 0,
            "is_strict": is_strict,
        }
    )


def _simulated_requests(replay: Recording) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        requests = map(_Request._make, rows)
        for place, group in groupby(requests, key=lambda one: (one.cluster, one.home, one.meter, one.key)):
            yield from _simulated_table([(*place, *_simulated_meter(list(group), replay))]).to_batches()

    return work


def _simulated_meter(requests: Sequence[_Request], replay: Recording) -> tuple[object, ...]:
    # The module counts with numpy, which a plan does not need.
    from kquota.pipeline.simulation.requests import Connection, simulate_requests

    one = requests[0]
    first_ms, last_ms = replay.spans[one.cluster, one.home]
    connections = []
    for (_, is_strict), group in groupby(requests, key=lambda one: (one.connection, one.is_strict)):
        counted = [(request.at_ms, request.amount) for request in group if request.amount > 0]
        if counted:  # a throttled fetch brought nothing, and came again
            at_ms, amounts = zip(*counted, strict=True)
            connections.append(Connection(at_ms, amounts, is_strict))
    outcome = NO_THROTTLING
    if connections:
        in_flight = replay.arrivals.in_flight_of(one.key)
        outcome = simulate_requests(
            connections, one.key, one.limit, replay.windows(one.key), in_flight=in_flight, end_ms=last_ms
        )
    return (
        inf if one.limit is None else one.limit,
        sum(sum(one.amounts) for one in connections),
        sum(request.told for request in requests),
        len(requests),
        max((max(one.amounts) for one in connections), default=0.0),
        last_ms - first_ms,
        None,
        sum(request.is_unknown for request in requests),
        *outcome,
    )


def _simulated_table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(SIMULATED)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SIMULATED, strict=True)], schema=SIMULATED
    )
