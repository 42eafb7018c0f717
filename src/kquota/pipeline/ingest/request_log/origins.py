"""Numbers for names that many lines of a log have, so that rows can be columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kquota.pipeline.ingest.request_log.line import RejectedLineError

__all__ = ["Names", "OriginIds", "client_of"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Names:
    """The names by number: (user, client id) of clients, and connections."""

    clients: Sequence[tuple[str, str]]
    connections: Sequence[str]


class OriginIds(dict[tuple[str, str | None, str], int]):
    """Numbers by what a line says of where it comes from: (principal, client id, connection), counted up.

    One look-up for both numbers that rows need: of the client and of the connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[tuple[str, str], int] = {}
        self._connections: dict[str, int] = {}
        self._client_of: list[int] = []
        self._connection_of: list[int] = []

    def __missing__(self, logged: tuple[str, str | None, str]) -> int:
        """Number a new origin.

        :raises RejectedLineError: the principal has no name.
        """
        principal, client_id, connection = logged
        client = client_of(principal, client_id)
        self._client_of.append(self._clients.setdefault(client, len(self._clients)))
        self._connection_of.append(self._connections.setdefault(connection, len(self._connections)))
        return self.setdefault(logged, len(self))

    @property
    def names(self) -> Names:
        """The names by number."""
        return Names(list(self._clients), list(self._connections))

    @property
    def clients(self) -> Ints:
        """The number of the client, by origin."""
        return np.array(self._client_of, np.int64)

    @property
    def connections(self) -> Ints:
        """The number of the connection, by origin."""
        return np.array(self._connection_of, np.int64)


def client_of(principal: str, client_id: str | None) -> tuple[str, str]:
    """User and client id as quotas know them: whatever the principal's type, and none is an empty client id.

    :raises RejectedLineError: the principal has no name.
    """
    kind, colon, name = principal.partition(":")
    if not kind or not colon:
        raise RejectedLineError("not the request that Kafka logs: `principal` has no type")
    return name, client_id or ""
