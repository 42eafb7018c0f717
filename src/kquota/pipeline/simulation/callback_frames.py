"""What a quota callback does to recorded requests, meter by meter of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.pipeline.simulation.request_frames import with_counting
from kquota.pipeline.simulation.simulated import SIMULATED, Recording
from kquota.pipeline.spark.workers import drop_zip_importers
from kquota.quotas import KAFKA, USER

if TYPE_CHECKING:
    from kquota.pipeline.simulation.callback import CallbackSetup
    from kquota.pipeline.spark.parquet_source import Batches

__all__ = ["callback_bindings", "simulate_callback_frames"]

_MEMBERS: Final = pa.list_(pa.struct([("user", pa.string()), ("client_id", pa.string())]))
_HELD: Final = pa.schema([*SIMULATED, ("members", _MEMBERS)])
_PLACE: Final = ("cluster", "home", "key")


class _Request(NamedTuple):
    """A request of a broker."""

    cluster: str
    home: int
    key: str
    connection: str
    user: str
    client_id: str
    is_strict: bool
    at_ms: float
    amount: float
    is_unknown: bool
    told: bool


def simulate_callback_frames(requests: DataFrame, setup: CallbackSetup, replay: Recording) -> DataFrame:
    """Columns of :data:`~kquota.pipeline.simulation.simulated.SIMULATED`, and members: who counted on the meter.

    A callback sees all that a broker does, so all requests of one on a key are one task.

    :param requests: rows of the `requests` table.
    """
    keys = [key.name for key in KAFKA.keys if frozenset({USER}) in key.shapes]
    known = F.col("user").isNotNull() & F.col("client_id").isNotNull() & F.col("key").isin(keys)
    return (
        with_counting(requests.where(known))
        .repartition(*_PLACE)
        .sortWithinPartitions(*_PLACE, "connection", "user", "client_id", "is_strict", "at_ms", "seq")
        .select(*_Request._fields)
        .mapInArrow(_held(setup, replay), from_arrow_schema(_HELD))
    )


def callback_bindings(held: DataFrame, bindings: DataFrame) -> DataFrame:
    """Clients with the meters that a callback gave them, beside what they are bound by under `bindings`.

    :param held: as :func:`simulate_callback_frames` gives it.
    :param bindings: as :func:`~kquota.pipeline.advice.what_if.to_bindings` gives it, of all clients.
    """
    members = held.select("cluster", "key", "meter", "limit", F.explode("members").alias("client")).select(
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


def _held(setup: CallbackSetup, replay: Recording) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for _, group in groupby(map(_Request._make, rows), key=lambda one: (one.cluster, one.home, one.key)):
            found = list(_simulated_broker(list(group), setup, replay))
            columns = zip(*found, strict=True) if found else [()] * len(_HELD)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _HELD, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_HELD)

    return work


def _simulated_broker(
    requests: Sequence[_Request], setup: CallbackSetup, replay: Recording
) -> Iterator[tuple[object, ...]]:
    from kquota.pipeline.simulation.callback import simulate_callback
    from kquota.pipeline.simulation.requests import Connection

    one = requests[0]
    first_ms, last_ms = replay.spans[one.cluster, one.home]
    connections: list[Connection] = []
    clients: list[tuple[str, str]] = []
    told: list[tuple[int, int, int]] = []
    of_client = groupby(requests, key=lambda one: (one.connection, one.user, one.client_id, one.is_strict))
    for (_, user, client_id, is_strict), of_connection in of_client:
        group = list(of_connection)
        counted = [(request.at_ms, request.amount) for request in group if request.amount > 0]
        if counted:
            at_ms, amounts = zip(*counted, strict=True)
            connections.append(Connection(at_ms, amounts, is_strict))
            clients.append((user, client_id))
            unknown = sum(request.is_unknown for request in group)
            told.append((sum(request.told for request in group), len(group), unknown))
    found = simulate_callback(
        connections,
        clients,
        one.key,
        setup.managers(one.home),
        in_flight=replay.arrivals.in_flight_of(one.key),
        end_ms=last_ms,
    )
    for meter in found:
        if not meter.meter:
            continue
        own = meter.connections
        yield (
            one.cluster,
            one.home,
            meter.meter,
            one.key,
            inf if meter.limit is None else meter.limit,
            sum(sum(connections[number].amounts) for number in own),
            sum(told[number][0] for number in own),
            sum(told[number][1] for number in own),
            max(max(connections[number].amounts) for number in own),
            last_ms - first_ms,
            None,
            sum(told[number][2] for number in own),
            *meter.outcome,
            [dict(zip(("user", "client_id"), client, strict=True)) for client in sorted({clients[n] for n in own})],
        )
