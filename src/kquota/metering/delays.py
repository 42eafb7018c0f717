"""Who is muted until when (KIP-219): a client is answered at once, and nothing is read from it until
its throttle time is over.

Sources: ``ThrottledChannel``, ``ClientQuotaManager.ThrottledChannelReaper``.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

__all__ = ["DelayQueue"]

T = TypeVar("T")


class DelayQueue(Generic[T]):
    """The channels that are muted; how many there are is the metric ``queue-size``.

    A channel that is closed while it is muted stays until its wait is over, as it does on a broker.
    """

    def __init__(self) -> None:
        # The number keeps channels with equal ends in the order in which they came, and from being compared.
        self._waiting: list[tuple[int, int, T]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_end_ms(self) -> int | None:
        """When the first of them is to be released; None where nobody waits."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, channel: T, throttle_ms: int, now_ms: int) -> None:
        """Mute a channel from now on."""
        heappush(self._waiting, (now_ms + throttle_ms, self._number, channel))
        self._number += 1

    def release(self, now_ms: int) -> list[T]:
        """The clients that are not muted any more, sorted by the time at which that ended."""
        released = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            released.append(heappop(self._waiting)[2])
        return released
