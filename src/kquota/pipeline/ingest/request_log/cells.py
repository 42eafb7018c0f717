"""One-second cells of usage: what was charged in a chunk of log, summed, as Arrow tables of the `usage` shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kquota.pipeline.ingest.request_log.origins import Names
from kquota.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

__all__ = [
    "CELL_KEYS",
    "CELL_MS",
    "EDGE_SCHEMA",
    "GRAIN",
    "SOURCE",
    "USAGE_SCHEMA",
    "Cells",
    "Charges",
    "named",
    "repeated",
    "to_cells",
]

CELL_MS: Final = 1000
SOURCE: Final = "request-log"
GRAIN: Final = "client"

CELL_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
"""The keys whose usage a line tells by itself; a cell names its key by position here."""

_HEAD: Final = (
    ("cluster", pa.string()),
    ("broker_id", pa.int32()),
    ("cell_start_ms", pa.int64()),
    ("cell_ms", pa.int32()),
    ("source", pa.string()),
    ("grain", pa.string()),
    ("user", pa.string()),
    ("client_id", pa.string()),
    ("ip", pa.string()),
    ("key", pa.string()),
    ("amount", pa.float64()),
    ("amount_max", pa.float64()),
    ("requests", pa.int64()),
)
_TAIL: Final = (
    ("throttled_requests", pa.int64()),
    ("throttle_ms", pa.int64()),
    ("throttle_max_ms", pa.int64()),
    ("unknown_amounts", pa.int64()),
)
USAGE_SCHEMA: Final = pa.schema([*_HEAD, ("connections", pa.int32()), *_TAIL])
"""The `usage` table without its partition column."""
EDGE_SCHEMA: Final = pa.schema([*_HEAD, ("connection_id", pa.int64()), *_TAIL])
"""`usage` rows, one per connection, of cells that other pieces of the log may hold, too."""

_EPOCH: Final = date(1970, 1, 1)
_DAY_SECONDS: Final = 86_400

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Charges:
    """Columns, one element per request and key: `key` is a position in :data:`CELL_KEYS`, `second` since the epoch.

    `amount` is what the broker charged, NaN where the line does not say; `throttle_ms` what the client was told, 0
    where that does not count on the key. `client` and `connection` are numbers, see :class:`Names`.
    """

    second: Ints
    client: Ints
    key: Ints
    amount: Floats
    throttle_ms: Ints
    connection: Ints

    def __len__(self) -> int:
        return len(self.second)

    @classmethod
    def none(cls) -> Charges:
        """No charges."""
        no_ints = np.empty(0, np.int64)
        return cls(no_ints, no_ints, no_ints, np.empty(0), no_ints, no_ints)

    def merged_with(self, others: Charges) -> Charges:
        """These, and then the others."""
        columns = ((getattr(self, column.name), getattr(others, column.name)) for column in fields(self))
        return Charges(*map(np.concatenate, columns))

    def where(self, chosen: Bools) -> Charges:
        """Some of them."""
        return Charges(
            second=self.second[chosen],
            client=self.client[chosen],
            key=self.key[chosen],
            amount=self.amount[chosen],
            throttle_ms=self.throttle_ms[chosen],
            connection=self.connection[chosen],
        )


@dataclass(frozen=True, slots=True)
class Cells:
    """Columns, one element per cell, in order of second, client and key.

    `amount` is the sum of the known amounts, NaN where none is known; `unknown_amounts` counts the requests whose
    amount is not. `connections` counts those that a cell was charged for; where cells are summed by connection it is
    the number of that one.
    """

    second: Ints
    client: Ints
    key: Ints
    amount: Floats
    amount_max: Floats
    requests: Ints
    throttled_requests: Ints
    throttle_ms: Ints
    throttle_max_ms: Ints
    unknown_amounts: Ints
    connections: Ints

    def usage(self, names: Names, *, cluster: str, broker_id: int) -> pa.Table:
        """The cells in :data:`USAGE_SCHEMA`."""
        columns = self._columns(np.arange(len(self.second)), names, cluster, broker_id)
        columns["connections"] = pa.array(self.connections, pa.int32())
        return _table(columns, USAGE_SCHEMA)

    def edges(self, names: Names, *, cluster: str, broker_id: int) -> pa.Table:
        """Cells that were summed by connection, in :data:`EDGE_SCHEMA`."""
        columns = self._columns(np.arange(len(self.second)), names, cluster, broker_id)
        numbers, back = np.unique(self.connections, return_inverse=True)
        ids = np.fromiter((_connection_id(names.connections[one]) for one in numbers.tolist()), np.int64, len(numbers))
        columns["connection_id"] = pa.array(ids[back])
        return _table(columns, EDGE_SCHEMA)

    def _columns(self, rows: Ints, names: Names, cluster: str, broker_id: int) -> dict[str, pa.Array]:
        count = len(rows)
        unknown = np.isnan(self.amount[rows])
        client = self.client[rows]
        users, client_ids = zip(*names.clients, strict=True) if names.clients else ((), ())
        return {
            "cluster": repeated(cluster, count),
            "broker_id": pa.repeat(pa.scalar(broker_id, pa.int32()), count),
            "cell_start_ms": pa.array(self.second[rows] * CELL_MS),
            "cell_ms": pa.repeat(pa.scalar(CELL_MS, pa.int32()), count),
            "source": repeated(SOURCE, count),
            "grain": repeated(GRAIN, count),
            "user": named(client, users),
            "client_id": named(client, client_ids),
            "ip": pa.nulls(count, pa.string()),
            "key": named(self.key[rows], CELL_KEYS),
            "amount": pa.array(self.amount[rows], mask=unknown),
            "amount_max": pa.array(self.amount_max[rows], mask=unknown),
            "requests": pa.array(self.requests[rows]),
            "throttled_requests": pa.array(self.throttled_requests[rows]),
            "throttle_ms": pa.array(self.throttle_ms[rows]),
            "throttle_max_ms": pa.array(self.throttle_max_ms[rows]),
            "unknown_amounts": pa.array(self.unknown_amounts[rows]),
        }


def to_cells(charges: Charges, *, by_connection: bool = False) -> Cells:
    """Sum charges to cells, or to one for each connection of a cell."""
    if not len(charges):
        no_ints, no_floats = np.empty(0, np.int64), np.empty(0, np.float64)
        return Cells(*(no_ints,) * 3, no_floats, no_floats, *(no_ints,) * 6)
    # One sort by (second, client, key, connection), packed into one number each; the parts are counted up from 0 so
    # that their product stays far below 2**63.
    seconds, second = np.unique(charges.second, return_inverse=True)
    slots = (int(charges.client.max()) + 1) * len(CELL_KEYS)
    width = int(charges.connection.max()) + 1
    packed = (second * slots + charges.client * len(CELL_KEYS) + charges.key) * width + charges.connection
    order = np.argsort(packed, kind="stable")
    packed = packed[order]
    cell = packed // width
    first_of_connection = np.concatenate([[True], packed[1:] != packed[:-1]])
    first_of_cell = np.concatenate([[True], cell[1:] != cell[:-1]])
    starts = np.flatnonzero(first_of_connection if by_connection else first_of_cell)
    amount, throttle_ms = charges.amount[order], charges.throttle_ms[order]
    known = ~np.isnan(amount)
    some_known = np.logical_or.reduceat(known, starts)
    amount = np.where(known, amount, 0.0)
    return Cells(
        second=seconds[cell[starts] // slots],
        client=cell[starts] % slots // len(CELL_KEYS),
        key=cell[starts] % len(CELL_KEYS),
        amount=np.where(some_known, np.add.reduceat(amount, starts), np.nan),
        amount_max=np.where(some_known, np.maximum.reduceat(amount, starts), np.nan),
        requests=np.diff(np.append(starts, len(cell))),
        throttled_requests=np.add.reduceat((throttle_ms > 0).astype(np.int64), starts),
        throttle_ms=np.add.reduceat(throttle_ms, starts),
        throttle_max_ms=np.maximum.reduceat(throttle_ms, starts),
        unknown_amounts=np.add.reduceat((~known).astype(np.int64), starts),
        connections=packed[starts] % width
        if by_connection
        else np.add.reduceat(first_of_connection.astype(np.int64), starts),
    )


def named(numbers: Ints, names: Sequence[str]) -> pa.DictionaryArray:
    """The names that numbers stand for; some may have the same."""
    # Parquet keeps a dictionary only where no name is given twice in it.
    distinct = pa.array(names, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(pa.array(numbers)), distinct.dictionary)


def repeated(text: str, count: int) -> pa.DictionaryArray:
    """One text for all rows, which costs next to nothing to write."""
    return named(np.zeros(count, np.int64), (text,))


def _table(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.Table:
    # Dictionaries are Arrow's encoding in memory only: in Parquet these are plain strings.
    return pa.table({name: columns[name] for name in schema.names})


def _connection_id(name: str) -> int:
    """A number for a connection that other chunks give it, too."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
