"""Room for large requests: what ``queued.max.request.bytes`` allows all connections together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["LARGE_REQUEST_BYTES", "RequestMemory"]

LARGE_REQUEST_BYTES: Final = 64 * 1024
"""Smaller requests need no room: ``max.connections`` bounds what they take together, so none of them ever waits."""


class RequestMemory:
    """Reserved when a large request announces its size, released when it is answered: first come, first served.

    As in Kafka's ``SimpleMemoryPool`` a connection that finds no room is not read from. A request larger than all the
    room is let in alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._reserved: dict[object, int] = {}
        self._waiting: dict[object, tuple[int, Callable[[], None]]] = {}

    def reserve(self, owner: object, size: int, granted: Callable[[], None]) -> bool:
        """Whether `owner` has room for a request of `size` bytes; where it has none, `granted` is called once it has.

        An owner has one request at a time, and may ask again for the same one.
        """
        if owner in self._reserved:
            return True
        if self._waiting or not self._has_room_for(size):
            self._waiting.setdefault(owner, (size, granted))
            return False
        self._reserved[owner] = size
        return True

    def release(self, owner: object) -> None:
        """What `owner` has, or waits for, is for the next ones."""
        self._waiting.pop(owner, None)
        if self._reserved.pop(owner, None) is None:
            return
        while self._waiting:
            first, (size, granted) = next(iter(self._waiting.items()))
            if not self._has_room_for(size):
                break
            del self._waiting[first]
            self._reserved[first] = size
            granted()

    def _has_room_for(self, size: int) -> bool:
        return not self._reserved or sum(self._reserved.values()) + size <= self._max_bytes
