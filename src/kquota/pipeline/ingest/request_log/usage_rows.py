"""From temporary rows to rows of the `usage` table: functions over Arrow tables, which workers run after a shuffle.

Each needs all rows of any cell, connection, topic or request that it is given a row of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kquota.pipeline.dataset.tables import REQUESTS
from kquota.pipeline.ingest.request_log.cells import CELL_MS, EDGE_SCHEMA, GRAIN, SOURCE, USAGE_SCHEMA, Ints
from kquota.pipeline.spark.shuffle import group_starts
from kquota.quotas import CONNECTION_CREATION_RATE, CONTROLLER_MUTATION_RATE

__all__ = [
    "CELL_SCHEMA",
    "REQUEST_COST_SCHEMA",
    "by_second",
    "by_text",
    "charge_mutations",
    "connection_usage",
    "merge_cells",
    "mutation_costs",
    "mutation_usage",
    "opened_connections",
    "to_mergeable",
]

CELL_SCHEMA: Final = pa.schema([*USAGE_SCHEMA, EDGE_SCHEMA.field("connection_id")])
"""Cells to be merged: `connection_id` is null in a row for all connections of a cell, otherwise `connections` is 0."""

REQUEST_COST_SCHEMA: Final = pa.schema(
    [*(field for field in REQUESTS.arrow_schema if field.name not in ("amount", "ip", "key")), ("cost", pa.float64())]
)
"""One row per topic of a mutation; `cost` in partitions, null where it is not known."""

_CELL: Final = ("cluster", "broker_id", "cell_start_ms", "user", "client_id", "ip", "key")
"""What identifies a cell; the rest of a `usage` row is the same in all cells of a request log."""
_SUMS: Final = (
    ("amount", "sum"),
    ("amount_max", "max"),
    ("requests", "sum"),
    ("throttled_requests", "sum"),
    ("throttle_ms", "sum"),
    ("throttle_max_ms", "max"),
    ("unknown_amounts", "sum"),
)

_COUNTED_AS_NONE: Final = ("throttled_requests", "throttle_ms", "throttle_max_ms", "unknown_amounts")
"""Of connections."""


def to_mergeable(rows: pa.Table) -> pa.Table:
    """Rows of ``EDGE_SCHEMA`` or ``USAGE_SCHEMA`` as :data:`CELL_SCHEMA`."""
    count = rows.num_rows
    if "connections" in rows.schema.names:
        return rows.append_column("connection_id", pa.nulls(count, pa.int64())).select(CELL_SCHEMA.names)
    return rows.append_column("connections", pa.repeat(pa.scalar(0, pa.int32()), count)).select(CELL_SCHEMA.names)


def merge_cells(rows: pa.Table) -> pa.Table:
    """Merge rows of the same cell of client usage into one.

    :param rows: :data:`CELL_SCHEMA`, any number per cell and connection. Where rows for all connections meet rows
        for one, the merged count of connections is the least possible.
    :returns: ``USAGE_SCHEMA``, one row per broker, second, client and key.
    """
    by_connection = _grouped(rows, (*_CELL, "connection_id"), (*_SUMS, ("connections", "max")))
    merged = _grouped(by_connection, _CELL, (*_SUMS, ("connection_id", "count"), ("connections", "max")))
    connections = pc.max_element_wise(merged["connection_id"], merged["connections"])
    return _usage(merged, grain=GRAIN, connections=connections)


def connection_usage(connections: pa.Table, *, cluster: str) -> pa.Table:
    """Connections by first sight, an estimate of those accepted: the log does not say when one was opened.

    :param connections: ``CONNECTIONS_SCHEMA``: one row per connection and chunk.
    :returns: ``USAGE_SCHEMA`` on connection_creation_rate, one row per broker, second and ip; user and client_id null.
    """
    first = opened_connections(connections)
    counted = _grouped(first, ("broker_id", "second", "ip"), [("connection", "count")])
    count = counted.num_rows
    opened = counted["connection"]
    columns = {
        "cluster": pa.repeat(cluster, count),
        "broker_id": counted["broker_id"],
        "cell_start_ms": pc.multiply(counted["second"], CELL_MS),
        "user": pa.nulls(count, pa.string()),
        "client_id": pa.nulls(count, pa.string()),
        "ip": counted["ip"],
        "key": pa.repeat(CONNECTION_CREATION_RATE, count),
        "amount": opened.cast(pa.float64()),
        "amount_max": pa.repeat(1.0, count),
        "requests": opened,
        **{name: pa.repeat(0, count) for name in _COUNTED_AS_NONE},
    }
    return _usage(pa.table(columns), grain="meter", connections=opened)


def opened_connections(connections: pa.Table) -> pa.Table:
    """The same columns, one row per connection with a known ip: when it was first seen."""
    known = connections.filter(connections["ip"].is_valid())
    return _grouped(known, ("broker_id", "connection", "ip"), [("second", "min")])


def mutation_costs(mutations: pa.Table, topics: Mapping[str, int]) -> pa.Table:
    """What each topic of CreateTopics, CreatePartitions and DeleteTopics requests cost, in partitions (KIP-599).

    Creating costs the topic's partitions, growing those added, deleting those that there are. The log says how many
    there were only where it holds the topic's creation or growth; otherwise `topics` may.

    :param mutations: ``MUTATIONS_SCHEMA``, one row per topic of a request.
    :param topics: counts from before the log begins.
    :returns: :data:`REQUEST_COST_SCHEMA`.
    """
    rows = mutations.sort_by([("topic", "ascending"), ("record_ms", "ascending"), ("seq", "ascending")])
    topic = rows["topic"].combine_chunks().dictionary_encode()
    starts = group_starts(topic.indices.fill_null(-1).to_numpy())
    operation = rows["operation"].to_numpy()
    partitions = _floats(rows["partitions"])
    changes = (operation != "none") & ~pc.fill_null(rows["validate_only"], False).to_numpy()
    after = np.where(operation == "delete", 0.0, partitions)
    given = np.array(
        [topics.get(name, np.nan) for name in rows["topic"].take(pa.array(starts)).to_pylist()], np.float64
    )
    before = _last_before(np.where(changes, after, np.nan), starts, given)
    cost = np.select(
        [operation == "none", operation == "create", operation == "grow", operation == "delete"],
        [np.zeros(len(before)), partitions, partitions - before, before],
    )
    return rows.append_column("cost", _known(cost)).select(REQUEST_COST_SCHEMA.names).cast(REQUEST_COST_SCHEMA)


def _last_before(
    values: npt.NDArray[np.float64], starts: npt.NDArray[np.int64], first: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """By row the last known value of the rows before it in its group; `first` by group where there is none."""
    count = len(values)
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, count)))
    known = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(count)))
    before = np.concatenate([[-1], known[:-1]])[:count]
    return np.where(before >= starts[group], values[before], first[group])


def charge_mutations(costs: pa.Table) -> pa.Table:
    """What whole requests cost: the `requests` table on controller_mutation_rate, `amount` null where not known.

    :param costs: :data:`REQUEST_COST_SCHEMA`.
    """
    rows = costs.sort_by([("broker_id", "ascending"), ("seq", "ascending")])
    starts = group_starts(rows["broker_id"].to_numpy(), rows["seq"].to_numpy())
    charged = np.add.reduceat(_floats(rows["cost"]), starts) if len(starts) else np.empty(0)
    requests = rows.take(pa.array(starts))
    columns = {
        **{name: requests[name] for name in requests.schema.names},
        "amount": _known(charged),
        "ip": pa.nulls(len(starts), pa.string()),
        "key": pa.repeat(CONTROLLER_MUTATION_RATE, len(starts)),
    }
    return pa.table({name: columns[name] for name in REQUESTS.columns}, schema=REQUESTS.arrow_schema)


def mutation_usage(requests: pa.Table) -> pa.Table:
    """Charged requests (the `requests` table) by second: ``USAGE_SCHEMA``, a row per broker, second, client and key."""
    second = np.floor(requests["record_ms"].to_numpy() / CELL_MS).astype(np.int64)
    logged_ms = requests["throttle_ms"]
    rows = pa.table(
        {
            **{name: requests[name] for name in (*_CELL, "connection") if name != "cell_start_ms"},
            "cell_start_ms": pa.array(second * CELL_MS),
            "amount": requests["amount"],
            "amount_max": requests["amount"],
            "requests": pa.repeat(1, requests.num_rows),
            "throttled_requests": pc.greater(logged_ms, 0).cast(pa.int64()),
            "throttle_ms": logged_ms,
            "throttle_max_ms": logged_ms,
            "unknown_amounts": requests["amount"].is_null().cast(pa.int64()),
        }
    )
    counted = _grouped(rows, _CELL, (*_SUMS, ("connection", "count_distinct")))
    return _usage(counted, grain=GRAIN, connections=counted["connection"])


def by_second(times_ms: pa.ChunkedArray) -> Ints:
    """Numbers that are the same within a second."""
    seconds: Ints = np.floor(times_ms.to_numpy() / CELL_MS).astype(np.int64)
    return seconds


def by_text(column: pa.ChunkedArray) -> Ints:
    """Numbers that are the same for the same text, whichever worker asks."""
    encoded = column.combine_chunks().dictionary_encode()
    numbers = np.array([*(crc32(text.encode()) for text in encoded.dictionary.to_pylist()), 0], np.int64)
    indices: Ints = encoded.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
    return numbers[indices]


def _grouped(rows: pa.Table, keys: Sequence[str], sums: Sequence[tuple[str, str]]) -> pa.Table:
    """Rows by keys, with each summed column under its own name."""
    grouped = rows.group_by(list(keys), use_threads=False).aggregate(list(sums))
    return grouped.select([*keys, *(f"{name}_{how}" for name, how in sums)]).rename_columns(
        [*keys, *(name for name, _ in sums)]
    )


def _usage(rows: pa.Table, *, grain: str, connections: pa.ChunkedArray) -> pa.Table:
    count = rows.num_rows
    columns = {
        **{name: rows[name] for name in rows.schema.names},
        "cell_ms": pa.repeat(pa.scalar(CELL_MS, pa.int32()), count),
        "source": pa.repeat(SOURCE, count),
        "grain": pa.repeat(grain, count),
        "connections": connections.cast(pa.int32()),
    }
    return pa.table({name: columns[name] for name in USAGE_SCHEMA.names}).cast(USAGE_SCHEMA)


def _floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """A column of numbers, NaN for null."""
    values: npt.NDArray[np.float64] = column.cast(pa.float64()).fill_null(np.nan).to_numpy()
    return values


def _known(values: npt.NDArray[np.float64]) -> pa.Array:
    """Numbers, null for NaN."""
    return pa.array(values, mask=np.isnan(values))
