"""What limits do to recorded requests, on Spark: those that are counted together are simulated by one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.metering.requests import STRICT_SINCE
from kquota.pipeline.limits.counting import counted_at_ms, counting_broker
from kquota.pipeline.simulation.recording import SIMULATED, Recording, Replay
from kquota.pipeline.spark.workers import drop_zip_importers
from kquota.quotas import KAFKA, USER

if TYPE_CHECKING:
    from kquota.pipeline.simulation.limiters import CallbackSetup, Connection, Limiter
    from kquota.pipeline.spark.parquet_source import Batches

__all__ = ["callback_bindings", "simulate_callback_frames", "simulate_request_frames"]

_MEMBERS: Final = pa.list_(pa.struct([("user", pa.string()), ("client_id", pa.string())]))
_METERS: Final = pa.schema([*SIMULATED, ("members", _MEMBERS)])
"""And the clients whose requests are charged to the meter."""
_TASK: Final = ("cluster", "counting_broker_id", "key", "meter")
"""Requests with equal values are charged in the order of their times."""


class _Request(NamedTuple):
    cluster: str
    counting_broker_id: int
    key: str
    meter: str
    limit: float | None
    connection: str
    user: str
    client_id: str
    is_strict: bool
    at_ms: float
    amount: float
    is_unknown: bool
    is_throttled: bool
    first_ms: int
    last_ms: int


_NewLimiter: TypeAlias = Callable[[_Request], "Limiter"]
"""Gives one for all requests that are counted together with this one."""


def simulate_request_frames(requests: DataFrame, clients: DataFrame, recording: Recording) -> DataFrame:
    """Columns of :data:`~kquota.pipeline.simulation.recording.SIMULATED`, from requests, each meter with its own limit.

    :param requests: rows of the `requests` table.
    :param clients: as for :func:`~kquota.pipeline.simulation.cell_frames.simulate_cell_frames`.
    """
    windows = recording.replay.windows

    def new_limiter(one: _Request) -> Limiter:
        # The module counts with numpy, which a plan does not need.
        from kquota.pipeline.simulation.limiters import MeterLimiter

        return MeterLimiter(one.key, one.limit, windows(one.key), meter=one.meter)

    on_meters = clients.where(F.col("meter").isNotNull() & F.col("user").isNotNull() & F.col("client_id").isNotNull())
    limits = on_meters.select("cluster", "user", "client_id", "key", "meter", "limit")
    limited = requests.join(F.broadcast(limits), ["cluster", "user", "client_id", "key"])
    # One limit for all clients of a meter: a connection is one queue, whichever client ids it names.
    limited = limited.withColumns({"user": F.lit(""), "client_id": F.lit("")})
    return _simulate(limited, new_limiter, recording).drop("members")


def simulate_callback_frames(requests: DataFrame, setup: CallbackSetup, recording: Recording) -> DataFrame:
    """The same with a quota callback, meter by meter of its own, and `members`: the clients that it charged to it.

    A callback sees all requests of a broker, so those of one broker and key are one task.

    :param requests: rows of the `requests` table.
    """

    def new_limiter(one: _Request) -> Limiter:
        from kquota.pipeline.simulation.limiters import CallbackLimiter

        return CallbackLimiter(one.key, setup.managers(one.counting_broker_id))

    keys = [key.name for key in KAFKA.keys if frozenset({USER}) in key.shapes]
    known = F.col("user").isNotNull() & F.col("client_id").isNotNull() & F.col("key").isin(keys)
    no_meter = {"meter": F.lit(""), "limit": F.lit(None).cast("double")}
    return _simulate(requests.where(known).withColumns(no_meter), new_limiter, recording)


def callback_bindings(meters: DataFrame, bindings: DataFrame) -> DataFrame:
    """Clients with the meters that a callback gave them, and what they are bound by under the old quotas.

    :param meters: as :func:`simulate_callback_frames` gives them.
    :param bindings: as :func:`~kquota.pipeline.advice.what_if.to_bindings` gives it, of all clients.
    """
    members = meters.select("cluster", "key", "meter", "limit", F.explode("members").alias("client")).select(
        "cluster", "key", F.col("client.user"), F.col("client.client_id"), "meter", "limit"
    )
    old = bindings.select("cluster", "key", "user", "client_id", "limit_old", "source_old", "meter_old")
    return (
        members.distinct()
        .join(old, ["cluster", "key", "user", "client_id"], "left")
        .withColumns(
            {
                "limit": F.when(F.col("limit") < float("inf"), F.col("limit")),
                "meter_old": F.coalesce("meter_old", "meter"),
                "ip": F.lit(None).cast("string"),
                "limit_source": F.lit(""),
            }
        )
    )


def _simulate(requests: DataFrame, new_limiter: _NewLimiter, recording: Recording) -> DataFrame:
    """Columns of `_METERS`.

    :param requests: rows of the `requests` table, with meter and limit.
    """
    is_strict = F.lit(False)
    for api_key, version in STRICT_SINCE.items():
        is_strict |= (F.col("api_key") == api_key) & (F.col("api_version") >= version)
    columns = {
        "counting_broker_id": counting_broker(),
        "at_ms": counted_at_ms(),
        "amount": F.coalesce("amount", F.lit(0.0)),
        "is_unknown": F.col("amount").isNull(),
        "is_throttled": F.col("throttle_ms") > 0,
        "is_strict": is_strict,
    }
    spans = recording.spans.select(
        "cluster",
        F.col("broker_id").alias("counting_broker_id"),
        F.col("first").alias("first_ms"),
        F.col("last").alias("last_ms"),
    )
    return (
        requests.withColumns(columns)
        .join(F.broadcast(spans), ["cluster", "counting_broker_id"])
        .repartition(*_TASK)
        .sortWithinPartitions(*_TASK, "connection", "user", "client_id", "is_strict", "at_ms", "seq")
        .select(*_Request._fields)
        .mapInArrow(_simulator(new_limiter, recording.replay), from_arrow_schema(_METERS))
    )


def _simulator(
    new_limiter: _NewLimiter, replay: Replay
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        requests = map(_Request._make, rows)
        for _, together in groupby(requests, key=lambda one: (one.cluster, one.counting_broker_id, one.key, one.meter)):
            meters = list(_simulated_meters(list(together), new_limiter, replay))
            if meters:
                columns = zip(*meters, strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, _METERS, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_METERS)

    return work


def _simulated_meters(
    requests: Sequence[_Request], new_limiter: _NewLimiter, replay: Replay
) -> Iterator[tuple[object, ...]]:
    """A row of `_METERS` for each meter that requests which are counted together are charged to."""
    from kquota.pipeline.simulation.requests import simulate_requests

    one = requests[0]
    by_connection = groupby(requests, key=lambda one: (one.connection, one.user, one.client_id, one.is_strict))
    recorded = [list(group) for _, group in by_connection]
    connections = [_connection(group) for group in recorded]
    in_flight = replay.arrivals.in_flight_of(one.key)
    for meter in simulate_requests(connections, new_limiter(one), in_flight=in_flight, end_ms=one.last_ms):
        if not meter.name:
            continue
        own = [connections[number] for number in meter.connections]
        of_meter = [request for number in meter.connections for request in recorded[number]]
        yield (
            one.cluster,
            one.counting_broker_id,
            meter.name,
            one.key,
            inf if meter.limit is None else meter.limit,
            sum(sum(connection.amounts) for connection in own),
            sum(request.is_throttled for request in of_meter),
            len(of_meter),
            max((max(connection.amounts, default=0.0) for connection in own), default=0.0),
            one.last_ms - one.first_ms,
            None,
            sum(request.is_unknown for request in of_meter),
            *meter.outcome,
            [{"user": user, "client_id": client_id} for user, client_id in sorted({each.client for each in own})],
        )


def _connection(requests: Sequence[_Request]) -> Connection:
    from kquota.pipeline.simulation.limiters import Connection

    one = requests[0]
    # A throttled fetch has no amount: it was answered empty, and came again.
    charged = [request for request in requests if request.amount > 0]
    return Connection(
        [request.at_ms for request in charged],
        [request.amount for request in charged],
        one.is_strict,
        client=(one.user, one.client_id),
    )
