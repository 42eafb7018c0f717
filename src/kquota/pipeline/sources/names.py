"""Numbers for names that stand on many lines of a log, so that rows can be columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kquota.pipeline.sources.request_line import RejectedLineError

__all__ = ["ClientNumbers", "ConnectionNumbers", "Names", "user_of"]


@dataclass(frozen=True, slots=True)
class Names:
    """What the numbers in columns stand for: (user, client id), and connections."""

    clients: Sequence[tuple[str, str]]
    connections: Sequence[str]


class ClientNumbers(dict[tuple[str, str | None], int]):
    """Numbers by (principal, client id) as logged, counted up at first sight; a null client id is an empty one."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[tuple[str, str]] = []
        """(user, client id) by number."""

    def __missing__(self, logged: tuple[str, str | None]) -> int:
        """Number a new client.

        :raises RejectedLineError: the principal has no name.
        """
        principal, client_id = logged
        number = self.get((principal, client_id or ""))
        if number is None:
            number = len(self.names)
            self.names.append((user_of(principal), client_id or ""))
        self[logged] = self[principal, client_id or ""] = number
        return number


class ConnectionNumbers(dict[str, int]):
    """Numbers by connection id, counted up at first sight."""

    def __missing__(self, connection: str) -> int:
        return self.setdefault(connection, len(self))


def user_of(principal: str) -> str:
    """The principal's name: quotas do not look at its type.

    :raises RejectedLineError: it has none.
    """
    kind, colon, name = principal.partition(":")
    if not kind or not colon:
        raise RejectedLineError("not the request that Kafka logs: `principal` has no type")
    return name
