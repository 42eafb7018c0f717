"""What limits do to recorded traffic, meter by meter: one row per broker, meter, key and candidate limit.

Two grains: requests, each through the metering classes, and cells, through the compiled replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.config import BrokerConfig
from kquota.metering.requests import STRICT_SINCE
from kquota.metering.statistics import Windows
from kquota.pipeline.gathering import order_of, starts_of
from kquota.pipeline.replay.arrivals import NOTHING, ArrivalModel, Arrivals, Outcome
from kquota.pipeline.transforms.counted_times import CONTROLLER, counted_by, counted_ms
from kquota.pipeline.transforms.identities import IDENTITY, IdentityNumbers
from kquota.pipeline.transforms.meter_cells import Cells, Ints, gather_by_meter
from kquota.pipeline.transforms.meter_series import Meters
from kquota.pipeline.workers import forget_zip_importers
from kquota.quotas import CONTROLLER_MUTATION_RATE

if TYPE_CHECKING:
    from kquota.pipeline.arrow_source import ArrowSource, Batches

__all__ = [
    "HELD",
    "Candidates",
    "Replay",
    "held_by_cells",
    "held_by_requests",
    "only_its_limit",
    "recorded_times",
    "with_counting",
]

HELD: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("broker_id", pa.int32()),
        ("meter", pa.string()),
        ("key", pa.string()),
        ("limit", pa.float64()),
        ("recorded", pa.float64()),
        ("told_requests", pa.int64()),
        ("requests", pa.int64()),
        ("largest", pa.float64()),
        ("recorded_ms", pa.int64()),
        ("cell_ms", pa.int64()),
        ("amount", pa.float64()),
        ("throttled_requests", pa.int64()),
        ("throttled_ms", pa.float64()),
        ("muted_ms", pa.float64()),
        ("max_delay_ms", pa.float64()),
        ("total_delay_ms", pa.float64()),
        ("backlog_max", pa.float64()),
        ("peak", pa.float64()),
    ]
)
"""`limit` is the candidate, infinite for none. Of the recording: `recorded` is the amount, `told_requests` are those
that were told to wait then, `largest` is the largest request, `recorded_ms` how long it lasted,
`cell_ms` the longest cell, null for requests. The rest is an
:class:`~kquota.pipeline.replay.arrivals.Outcome`."""

Span = tuple[int, int]


class Candidates(Protocol):
    """Which limits to try on a meter."""

    def __call__(self, limit: float, cell_rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Sequence[float]:
        """Those for a meter with this limit, infinite for none, and this much per second in each of its cells."""


def only_its_limit(limit: float, cell_rates: object) -> Sequence[float]:
    """The one that the meter has."""
    del cell_rates
    return [limit]


@dataclass(frozen=True, slots=True)
class Replay:
    """What all meters of a recording have in common."""

    arrivals: Arrivals
    broker_config: BrokerConfig
    spans: Mapping[tuple[str, int], Span]
    """By cluster and broker, first and last millisecond of the recording: see :func:`recorded_times`."""

    def windows(self, key: str) -> Windows:
        """Over which a key is measured."""
        config = self.broker_config
        if key == CONTROLLER_MUTATION_RATE:
            return Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        return Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)


_SPAN: Final = pa.schema(
    [("cluster", pa.string()), ("broker_id", pa.int32()), ("first", pa.int64()), ("last", pa.int64())]
)


def recorded_times(usage: ArrowSource) -> dict[tuple[str, int], Span]:
    """When the recording of each cluster and broker begins and ends; the controller's is its cluster's.

    :param usage: rows of the `usage` table.
    """

    def ends(batches: Batches) -> Iterator[pa.RecordBatch]:
        forget_zip_importers()
        found: list[pa.Table] = []
        for batch in batches:
            last = pc.add(batch.column("cell_start_ms"), batch.column("cell_ms").cast(pa.int64()))
            names = [batch.column(name) for name in ("cluster", "broker_id", "cell_start_ms")]
            found.append(_ends(pa.table([*names, last], names=_SPAN.names)))
        if found:
            yield from _ends(pa.concat_tables(found)).to_batches()

    columns = ("cluster", "broker_id", "cell_start_ms", "cell_ms")
    rows = usage.select(*columns).mapInArrow(ends, from_arrow_schema(_SPAN)).collect()
    spans: dict[tuple[str, int], Span] = {}
    for cluster, broker_id, first_ms, last_ms in rows:
        for place in ((cluster, broker_id), (cluster, CONTROLLER)):
            known = spans.get(place, (first_ms, last_ms))
            spans[place] = (min(known[0], first_ms), max(known[1], last_ms))
    return spans


def _ends(rows: pa.Table) -> pa.Table:
    ends = rows.group_by(["cluster", "broker_id"], use_threads=False).aggregate([("first", "min"), ("last", "max")])
    return ends.select(["cluster", "broker_id", "first_min", "last_max"]).rename_columns(_SPAN.names).cast(_SPAN)


_COLUMNS: Final = ("broker_id", "cell_start_ms", "cell_ms", "amount", "amount_max", "requests", "throttled_requests")
_CELL: Final = np.dtype(
    [
        ("meter", np.int32),
        ("client", np.int32),
        ("broker_id", np.int32),
        ("cell_start_ms", np.int64),
        ("cell_ms", np.int32),
        ("amount", np.float64),
        ("amount_max", np.float64),
        ("requests", np.int32),
        ("throttled_requests", np.int32),
    ]
)


def held_by_cells(
    usage: ArrowSource, clients: DataFrame, replay: Replay, candidates: Candidates = only_its_limit
) -> DataFrame:
    """Columns of :data:`HELD`, from cells.

    :param usage: rows of the `usage` table; those of other clients are left aside.
    :param clients: one row per cluster, user, client_id, ip and key, with meter, limit (null: none) and limit_source.
    """
    spark = clients.sparkSession
    known = Meters.of(clients)
    meters = spark.sparkContext.broadcast((known, IdentityNumbers(known.clients), known.of_client))
    by_client = replay.arrivals.model is ArrivalModel.CLOSED
    return gather_by_meter(
        spark,
        usage,
        (*IDENTITY, *_COLUMNS),
        lambda batch: _cells(batch, *meters.value, by_client=by_client),
        lambda cells: _held_cells(cells, meters.value[0], replay, candidates),
        HELD,
    )


def _cells(
    batch: pa.RecordBatch, meters: Meters, numbers: IdentityNumbers, meter_of_client: Ints, *, by_client: bool
) -> Cells:
    """Of usage rows those that count on a meter; all of a meter's clients are one unless `by_client`."""
    client = numbers.of(batch)
    is_known = client >= 0
    if not is_known.all():
        batch, client = batch.filter(pa.array(is_known)), client[is_known]
    cells = np.empty(batch.num_rows, _CELL)
    cells["meter"] = meter_of_client[client]
    cells["client"] = client if by_client else 0
    for name in _COLUMNS:
        column = batch.column(name)
        cells[name] = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    is_mutation = np.array([key == CONTROLLER_MUTATION_RATE for key in meters.names["key"].to_pylist()], bool)
    if is_mutation.any():
        cells["broker_id"][is_mutation[cells["meter"]]] = CONTROLLER
    return cells


def _held_cells(cells: Cells, meters: Meters, replay: Replay, candidates: Candidates) -> pa.Table:
    # Compiled code is loaded where it is needed, not wherever a plan is made.
    from kquota.pipeline.replay.held_cells import MeterCells, outcomes_of_cells

    if not len(cells):
        return HELD.empty_table()
    sorted_cells = cells.take(order_of(cells["cell_start_ms"], cells["client"], cells["broker_id"], cells["meter"]))
    places = starts_of(*(sorted_cells[name] for name in ("meter", "broker_id", "client", "cell_start_ms")))
    sums = {name: np.add.reduceat(sorted_cells[name], places) for name in ("amount", "requests", "throttled_requests")}
    most = {name: np.maximum.reduceat(sorted_cells[name], places) for name in ("amount_max", "cell_ms")}
    sorted_cells = sorted_cells.take(places)
    starts = starts_of(sorted_cells["meter"], sorted_cells["broker_id"])
    number, broker_id = sorted_cells["meter"][starts], sorted_cells["broker_id"][starts]
    names = meters.names.take(number)
    keys = names["key"].to_pylist()
    spans = [replay.spans[place] for place in zip(names["cluster"].to_pylist(), broker_id.tolist(), strict=True)]
    first_ms, last_ms = np.array(spans, np.int64).T
    requests = _requests(sums["requests"], most["cell_ms"])
    size = sums["amount"] / np.maximum(requests, 1)
    largest = np.maximum.reduceat(np.maximum(most["amount_max"], size), starts)
    rates = np.split(sums["amount"] / most["cell_ms"] * 1000, starts[1:])
    own = pc.fill_null(names["limit"], inf).to_pylist()
    limits = [candidates(limit, those) for limit, those in zip(own, rates, strict=True)]
    outcomes = outcomes_of_cells(
        MeterCells(
            sorted_cells["cell_start_ms"].astype(np.int64),
            most["cell_ms"].astype(np.int64),
            sums["amount"],
            requests,
            sorted_cells["client"].astype(np.int64),
            np.append(starts, len(places)),
            keys,
            largest,
            last_ms,
        ),
        limits,
        replay.windows,
        replay.arrivals.in_flight_of,
    )
    rows = np.repeat(np.arange(len(starts)), [len(those) for those in limits])
    recorded = {
        "broker_id": broker_id,
        "recorded": np.add.reduceat(sums["amount"], starts),
        "told_requests": np.add.reduceat(sums["throttled_requests"], starts, dtype=np.int64),
        "requests": np.add.reduceat(sums["requests"], starts, dtype=np.int64),
        "largest": largest,
        "recorded_ms": last_ms - first_ms,
        "cell_ms": np.maximum.reduceat(most["cell_ms"], starts),
    }
    held = names.select(["cluster", "meter", "key"]).take(rows)
    columns = {name: column[rows] for name, column in recorded.items()}
    columns["limit"] = np.concatenate(limits)
    columns |= {name: outcomes[:, place] for place, name in enumerate(Outcome._fields)}
    for name, column in columns.items():
        held = held.append_column(name, pa.array(column))
    return held.select(HELD.names).cast(HELD)


def _requests(counted: Ints, cell_ms: Ints) -> Ints:
    """How many requests cells have. A broker's metrics do not say: they tell a rate, as of many and small ones."""
    unknown = _ASSUMED_PER_S * np.maximum(cell_ms // 1000, 1)
    return np.where(counted > 0, counted, unknown).astype(np.int64)


_ASSUMED_PER_S: Final = 4


def _held_table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(HELD)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, HELD, strict=True)], schema=HELD)


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
    told: bool


def held_by_requests(requests: DataFrame, clients: DataFrame, replay: Replay) -> DataFrame:
    """Columns of :data:`HELD`, from requests, each meter with its own limit.

    :param requests: rows of the `requests` table.
    :param clients: as for :func:`held_by_cells`.
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
        .mapInArrow(_held_requests(replay), from_arrow_schema(HELD))
    )


def with_counting(requests: DataFrame) -> DataFrame:
    """Rows of `requests` with what their counting depends on: home, at_ms, amount, told, is_strict."""
    is_strict = F.lit(False)
    for api_key, version in STRICT_SINCE.items():
        is_strict |= (F.col("api_key") == api_key) & (F.col("api_version") >= version)
    return requests.withColumns(
        {
            "home": counted_by(),
            "at_ms": counted_ms(),
            "amount": F.coalesce("charged", F.lit(0.0)),
            "told": F.col("throttle_ms") > 0,
            "is_strict": is_strict,
        }
    )


def _held_requests(replay: Replay) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        forget_zip_importers()
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        requests = map(_Request._make, rows)
        for place, group in groupby(requests, key=lambda one: (one.cluster, one.home, one.meter, one.key)):
            yield from _held_table([(*place, *_held_meter(list(group), replay))]).to_batches()

    return work


def _held_meter(requests: Sequence[_Request], replay: Replay) -> tuple[object, ...]:
    # The module counts with numpy, which a plan does not need.
    from kquota.pipeline.replay.held_requests import Connection, held_requests

    one = requests[0]
    first_ms, last_ms = replay.spans[one.cluster, one.home]
    connections = []
    for (_, is_strict), group in groupby(requests, key=lambda one: (one.connection, one.is_strict)):
        counted = [(request.at_ms, request.amount) for request in group if request.amount > 0]
        if counted:  # a throttled fetch brought nothing, and came again
            at_ms, amounts = zip(*counted, strict=True)
            connections.append(Connection(at_ms, amounts, is_strict))
    outcome = NOTHING
    if connections:
        in_flight = replay.arrivals.in_flight_of(one.key)
        outcome = held_requests(
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
        *outcome,
    )
