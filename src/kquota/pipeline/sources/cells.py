"""One-second cells of usage, filled while lines are read, and given out as Arrow tables of the `usage` shape."""

from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kquota.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

__all__ = ["CELL_KEYS", "CELL_MS", "EDGE_SCHEMA", "SOURCE", "USAGE_SCHEMA", "CellBlock", "split_by_date"]

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
)
USAGE_SCHEMA: Final = pa.schema([*_HEAD, ("connections", pa.int32()), *_TAIL])
"""The `usage` table without its partition column."""
EDGE_SCHEMA: Final = pa.schema([*_HEAD, ("connection_ids", pa.list_(pa.int64())), *_TAIL])
"""`usage` rows that other pieces of the log may hold too: connections are named, so that they can be merged."""

_EPOCH: Final = date(1970, 1, 1)


class CellBlock:
    """The cells of one stretch of one broker's log: (second, client, key) and what was asked there.

    Clients and connections are numbered within the block.
    """

    __slots__ = ("_clients", "_connections", "_current", "_current_second", "_seconds", "count")

    def __init__(self) -> None:
        self._seconds: dict[int, dict[int, list[Any]]] = {}
        self._current: dict[int, list[Any]] = {}
        self._current_second = -1
        self._clients: list[tuple[str, str]] = []
        self._connections: list[tuple[str, int]] = []
        self.count = 0

    def add_client(self, user: str, client_id: str) -> int:
        """The number of a new client."""
        self._clients.append((user, client_id))
        return len(self._clients) - 1

    def add_connection(self, connection: str, second: int) -> int:
        """The number of a new connection, first seen in `second`."""
        self._connections.append((connection, second))
        return len(self._connections) - 1

    @property
    def connections(self) -> list[tuple[str, int]]:
        """(connection, the second in which it was first seen)."""
        return self._connections

    def add(self, second: int, client: int, key: int, amount: float | None, throttle_ms: int, connection: int) -> None:
        """Count one request.

        :param second: epoch second at which the broker recorded it.
        :param key: position of the quota key in :data:`CELL_KEYS`.
        :param amount: what the broker charged on that key; None where the line does not say.
        :param throttle_ms: what the client was told, where it counts on that key; otherwise 0.
        """
        if second != self._current_second:
            self._current_second = second
            self._current = self._seconds.setdefault(second, {})
        slot = client * 3 + key
        cell = self._current.get(slot)
        if cell is None:
            self.count += 1
            # Sum and largest of the known amounts; how many are known; requests; throttled requests; sum and longest
            # of their throttle times; the only connection, or the set of them.
            if amount is None:
                self._current[slot] = [0.0, 0.0, 0, 1, 1 if throttle_ms else 0, throttle_ms, throttle_ms, connection]
            else:
                self._current[slot] = [
                    amount, amount, 1, 1, 1 if throttle_ms else 0, throttle_ms, throttle_ms, connection
                ]  # fmt: skip
            return
        if amount is not None:
            cell[0] += amount
            cell[2] += 1
            if amount > cell[1]:
                cell[1] = amount
        cell[3] += 1
        if throttle_ms:
            cell[4] += 1
            cell[5] += throttle_ms
            if throttle_ms > cell[6]:
                cell[6] = throttle_ms
        seen = cell[7]
        if seen != connection:
            if seen.__class__ is set:
                seen.add(connection)
            else:
                cell[7] = {seen, connection}

    @property
    def seconds(self) -> list[int]:
        """Epoch seconds that have cells."""
        return list(self._seconds)

    def usage(self, seconds: list[int], *, cluster: str, broker_id: int) -> pa.Table:
        """The cells of some seconds in :data:`USAGE_SCHEMA`, one row per second, client and key."""
        return self._table(seconds, USAGE_SCHEMA, cluster, broker_id)

    def edges(self, seconds: list[int], *, cluster: str, broker_id: int) -> pa.Table:
        """The cells of some seconds in :data:`EDGE_SCHEMA`, one row per second, client and key."""
        return self._table(seconds, EDGE_SCHEMA, cluster, broker_id)

    def _table(self, seconds: list[int], schema: pa.Schema, cluster: str, broker_id: int) -> pa.Table:
        rows = [(second, slot, *cell) for second in sorted(seconds) for slot, cell in self._seconds[second].items()]
        if not rows:
            return schema.empty_table()
        start, slot, amount, largest, known, requests, throttled, throttle, longest, connections = zip(
            *rows, strict=True
        )
        count = len(rows)
        slots = np.fromiter(slot, dtype=np.int64, count=count)
        unknown = np.fromiter(known, dtype=np.int64, count=count) == 0
        clients = pa.array(slots // 3)
        users, client_ids = zip(*self._clients, strict=True)
        columns = {
            "cluster": pa.repeat(pa.scalar(cluster), count),
            "broker_id": pa.repeat(pa.scalar(broker_id, pa.int32()), count),
            "cell_start_ms": pa.array(np.fromiter(start, dtype=np.int64, count=count) * CELL_MS),
            "cell_ms": pa.repeat(pa.scalar(CELL_MS, pa.int32()), count),
            "source": pa.repeat(pa.scalar(SOURCE), count),
            "grain": pa.repeat(pa.scalar(GRAIN), count),
            "user": pa.array(users, pa.string()).take(clients),
            "client_id": pa.array(client_ids, pa.string()).take(clients),
            "ip": pa.nulls(count, pa.string()),
            "key": pa.array(CELL_KEYS, pa.string()).take(pa.array(slots % 3)),
            "amount": pa.array(np.fromiter(amount, dtype=np.float64, count=count), mask=unknown),
            "amount_max": pa.array(np.fromiter(largest, dtype=np.float64, count=count), mask=unknown),
            "requests": pa.array(requests, pa.int64()),
            "throttled_requests": pa.array(throttled, pa.int64()),
            "throttle_ms": pa.array(throttle, pa.int64()),
            "throttle_max_ms": pa.array(longest, pa.int64()),
        }
        if "connections" in schema.names:
            counts = [len(seen) if seen.__class__ is set else 1 for seen in connections]
            columns["connections"] = pa.array(counts, pa.int32())
        else:
            number = lru_cache(maxsize=None)(self._connection_id)
            ids = [[number(one) for one in seen] if seen.__class__ is set else [number(seen)] for seen in connections]
            columns["connection_ids"] = pa.array(ids, pa.list_(pa.int64()))
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def _connection_id(self, number: int) -> int:
        """A number for the connection that other blocks give it, too."""
        name = self._connections[number][0]
        return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def split_by_date(seconds: list[int]) -> dict[date, list[int]]:
    """Epoch seconds by UTC day."""
    days: dict[date, list[int]] = {}
    for second in seconds:
        days.setdefault(_EPOCH + timedelta(days=second // 86400), []).append(second)
    return days
