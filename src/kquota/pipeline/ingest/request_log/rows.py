"""The requests of a chunk as columns of numbers, and what they charged."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from kquota.pipeline.dataset.tables import REQUESTS
from kquota.pipeline.ingest.request_log.cells import CELL_KEYS, Charges, Floats, Ints, named, repeated
from kquota.pipeline.ingest.request_log.charges import (
    FOLLOWER,
    NO_KEY,
    PERCENT_SECONDS_PER_MS,
    PERCENTAGE,
    charge_requests,
)
from kquota.pipeline.ingest.request_log.line import LogLine, RejectedLineError
from kquota.pipeline.ingest.request_log.origins import Names, OriginIds

__all__ = ["COLUMNS", "FORWARDED", "FirstSeconds", "Rows", "to_rows"]

FirstSeconds = list[tuple[int, int]]
"""Numbers of connections, each with the second that it was first seen in."""

COLUMNS: Final = (
    "line",
    "end_ms",
    "record_ms",
    "origin",
    "api_key",
    "api_version",
    "key",
    "amount",
    "timed",
    "throttle_ms",
    "local_ms",
    "remote_ms",
)
"""One row per request: its line's number in the range; when it was completed, and when it was recorded; what
:func:`~kquota.pipeline.ingest.request_log.charges.charge_requests` says (`key`, `amount`, `timed`); client and
connection by one number.
"""

FORWARDED: Final = -4
"""In `key`: the controller's copy of a request, which stands in the log of the broker that got it, too."""


def to_rows(requests: Sequence[LogLine], end_ms: Floats, origins: OriginIds, *, first_line: int) -> Floats:
    """Requests of consecutive lines as columns: an array of shape (columns, requests).

    Doubles hold every integer of a log exactly.

    :raises RejectedLineError: what a line says cannot be.
    """
    headers = [request.requestHeader for request in requests]
    columns = {
        "line": np.arange(first_line, first_line + len(requests)),
        "end_ms": end_ms,
        "record_ms": end_ms
        - np.array([request.sendTimeMs for request in requests])
        - np.array([request.responseQueueTimeMs for request in requests]),
        "origin": [
            origins[request.principal, header.clientId, request.connection]
            for request, header in zip(requests, headers, strict=True)
        ],
        "api_key": [header.requestApiKey for header in headers],
        "api_version": [header.requestApiVersion for header in headers],
        "throttle_ms": [request.throttleTimeMs for request in requests],
        "local_ms": [request.localTimeMs for request in requests],
        "remote_ms": [request.remoteTimeMs for request in requests],
    }
    if (columns["record_ms"] < 0).any():
        raise RejectedLineError("impossible times: recorded before 1970")
    keys, charged, timed = zip(*charge_requests(requests), strict=True)
    forwarded = [request.isForwarded for request in requests]
    columns["key"] = np.where(forwarded, FORWARDED, keys) if True in forwarded else keys
    columns["amount"] = charged
    columns["timed"] = timed
    rows = np.empty((len(COLUMNS), len(requests)))
    for row, name in zip(rows, COLUMNS, strict=True):
        row[:] = columns[name]
    return rows


class Rows:
    """The requests of a chunk."""

    def __init__(self, blocks: Sequence[Floats], origins: OriginIds) -> None:
        """Take blocks of :func:`to_rows`, and what numbered their origins."""
        self._values = np.concatenate(blocks, axis=1) if blocks else np.empty((len(COLUMNS), 0))
        self._client = origins.clients[self.ints("origin")]
        self._connection = origins.connections[self.ints("origin")]

    def floats(self, name: str) -> Floats:
        """A column."""
        column: Floats = self._values[COLUMNS.index(name)]
        return column

    def ints(self, name: str) -> Ints:
        """A column of integers."""
        return self.floats(name).astype(np.int64)

    @property
    def forwarded(self) -> int:
        """How many are copies made by the controller."""
        return int(np.count_nonzero(self.floats("key") == FORWARDED))

    @property
    def followers(self) -> int:
        """How many are other brokers' fetches."""
        return int(np.count_nonzero(self.floats("key") == FOLLOWER))

    @property
    def unknown_amounts(self) -> int:
        """How many lines do not say the bytes that were charged."""
        return int(np.count_nonzero((self.floats("key") >= 0) & np.isnan(self.floats("amount"))))

    def seconds_seen(self) -> tuple[int, int] | None:
        """The first and the last second that anything of a client, or of its connection, was recorded in."""
        record_ms = self.floats("record_ms")[self.floats("key") != FORWARDED]
        return (int(record_ms.min() // 1000), int(record_ms.max() // 1000)) if len(record_ms) else None

    def first_seconds(self) -> FirstSeconds:
        """Numbers of the connections of clients, each with the second of its first request."""
        at = np.flatnonzero(self.floats("key") != FORWARDED)
        connections, first = np.unique(self._connection[at], return_index=True)
        seconds = (self.floats("record_ms")[at[first]] // 1000).astype(np.int64)
        return list(zip(connections.tolist(), seconds.tolist(), strict=True))

    def versions(self) -> dict[str, int]:
        """Requests by ``"api key:version"``."""
        pairs, counts = np.unique(self.ints("api_key") << 32 | self.ints("api_version"), return_counts=True)
        return {
            f"{pair >> 32}:{pair & 0xFFFFFFFF}": count
            for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)
        }

    @cached_property
    def _charged(self) -> tuple[Ints, Ints, Floats, Ints]:
        """Per charge, in line order: the row that it is of, key, amount, throttle time told on that key."""
        key, throttle_ms = self.ints("key"), self.ints("throttle_ms")
        bytes_at = np.flatnonzero(key >= 0)
        timed_at = np.flatnonzero((self.floats("timed") != 0) & (key > FOLLOWER))
        at = np.concatenate([bytes_at, timed_at])
        keys = np.concatenate([key[bytes_at], np.full(len(timed_at), PERCENTAGE)])
        used = self.floats("local_ms")[timed_at] * PERCENT_SECONDS_PER_MS
        amounts = np.concatenate([self.floats("amount")[bytes_at], used])
        # A throttle time counts on the key of its API, and on the request percentage only where there is none.
        told = np.concatenate([throttle_ms[bytes_at], np.where(key == NO_KEY, throttle_ms, 0)[timed_at]])
        order = np.argsort(at, kind="stable")
        return at[order], keys[order], amounts[order], told[order]

    @property
    def charges(self) -> Charges:
        """What was charged to clients by second and key."""
        at, keys, amounts, told = self._charged
        second = self.floats("record_ms")[at] // 1000
        return Charges(
            second=second.astype(np.int64),
            client=self._client[at],
            key=keys,
            amount=amounts,
            throttle_ms=told,
            connection=self._connection[at],
        )

    def requests(
        self, names: Names, listeners: Sequence[str], *, cluster: str, broker_id: int, range_index: int
    ) -> pa.Table:
        """The charges one by one, in the `requests` table."""
        at, keys, amounts, told = self._charged
        count = len(at)
        users, client_ids = zip(*names.clients, strict=True) if names.clients else ((), ())
        columns = {
            "cluster": repeated(cluster, count),
            "broker_id": pa.repeat(pa.scalar(broker_id, pa.int32()), count),
            "connection": named(self._connection[at], names.connections),
            "seq": pa.array(range_index << 32 | self.ints("line")[at]),
            "end_ms": pa.array(self.floats("end_ms")[at]),
            "record_ms": pa.array(self.floats("record_ms")[at]),
            "api_key": pa.array(self.ints("api_key")[at], pa.int32()),
            "api_version": pa.array(self.ints("api_version")[at], pa.int32()),
            "user": named(self._client[at], users),
            "client_id": named(self._client[at], client_ids),
            "ip": pa.nulls(count, pa.string()),
            "key": named(keys, CELL_KEYS),
            "amount": pa.array(amounts, mask=np.isnan(amounts)),
            "local_ms": pa.array(self.floats("local_ms")[at]),
            "remote_ms": pa.array(self.floats("remote_ms")[at]),
            "throttle_ms": pa.array(told),
            "listener": pa.array(listeners, pa.string()).take(pa.array(at)),
        }
        return pa.table({name: columns[name] for name in REQUESTS.columns})
