"""Room for large requests: what ``queued.max.request.bytes`` allows all connections together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["LARGE_REQUEST_BYTES", "RequestMemory"]

LARGE_REQUEST_BYTES: Final = 64 * 1024
"""Smaller requests need no room: ``max.connections`` bounds what they take together, so none of them ever waits."""


class RequestMemory:
    """Reserved as a large request arrives, released when it is answered.

    As in Kafka's ``SimpleMemoryPool`` a connection that finds no room is not read from: first come, first served. What
    is only announced reserves nothing. The oldest request never waits, so that there is always one that goes on, even
    if it is larger than all the room.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._reserved: dict[object, int] = {}
        self._waiting: dict[object, tuple[int, Callable[[], None]]] = {}

    def reserve(self, owner: object, size: int, granted: Callable[[], None]) -> bool:
        """Whether the request of `owner` may have `size` bytes in all; if not, `granted` is called once it may."""
        if size <= self._reserved.get(owner, 0):
            return True
        if not self._may_have(owner, size) or (self._waiting and owner is not self._oldest()):
            self._waiting[owner] = size, granted
            return False
        self._give(owner, size)
        return True

    def release(self, owner: object) -> None:
        """What `owner` has, or waits for, is for the others."""
        self._waiting.pop(owner, None)
        if owner not in self._reserved:
            return
        self._used_bytes -= self._reserved.pop(owner)
        while self._waiting:
            oldest = self._oldest()
            first = oldest if oldest in self._waiting else next(iter(self._waiting))
            size, granted = self._waiting[first]
            if not self._may_have(first, size):
                break
            del self._waiting[first]
            self._give(first, size)
            granted()

    def _oldest(self) -> object:
        return next(iter(self._reserved), None)

    def _may_have(self, owner: object, size: int) -> bool:
        more = size - self._reserved.get(owner, 0)
        return self._oldest() in (None, owner) or self._used_bytes + more <= self._max_bytes

    def _give(self, owner: object, size: int) -> None:
        self._used_bytes += size - self._reserved.get(owner, 0)
        self._reserved[owner] = size
