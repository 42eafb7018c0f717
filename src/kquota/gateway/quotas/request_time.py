"""How much of a broker's time a request is taken to use, where the gateway's settings say to estimate it.

A broker counts the time that its own threads work on a request (``request_percentage``, KIP-124). A gateway does not
see it: it sees how long the answer took, which has the network, the broker's queues and, for some requests, a wait that
is part of what was asked for. The estimate is what is left of that time without such waits:

* a request that is answered as soon as it is handled: the time from its header to its answer's;
* a request whose answer waits on purpose (Fetch, JoinGroup, SyncGroup, Produce with acks from all replicas, the
  heartbeats of the newer groups): a fixed time, and one for each mebibyte that it carries.

One per cent is a hundredth of one thread's second, as in Kafka: a request of 10 ms is 1 % of a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["WAITING_APIS", "RequestTimes"]

WAITING_APIS: Final = frozenset({0, 1, 11, 14, 68, 76, 88})
"""Keys of Produce, Fetch, JoinGroup, SyncGroup and the heartbeats of consumer, share and streams groups."""
_MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The estimate's parameters: measured on one broker, and right within a factor of a few on another one."""

    waiting_request_ms: float = 0.2
    waiting_mebibyte_ms: float = 1.0

    def percent(self, api_key: int, carried_bytes: int, elapsed_ms: float) -> float:
        """What a request is charged, in per cent of a thread's second."""
        if api_key in WAITING_APIS:
            elapsed_ms = self.waiting_request_ms + self.waiting_mebibyte_ms * carried_bytes / _MEBIBYTE
        return max(elapsed_ms, 0.0) / 10
