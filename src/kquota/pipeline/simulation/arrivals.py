"""How traffic arrives where a limit holds it up: two models, and what comes of either.

A recording says when requests came under the limits of that time. Under others they would have come at other times, and
how is a matter of who sends them:

open     requests come as they were recorded, and queue up while their connection is muted: a schedule, or other people,
         bring them. What has queued up goes out joined, in requests as large as the largest that was recorded.
closed   a connection has so many requests in flight, and the next comes as long after the answer that it waited for as
         in the recording: a program that waits for its answers. What is held up moves all that comes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kquota.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE

__all__ = [
    "ANSWER_IN_HAND_MS",
    "ENVELOPE_BYTES",
    "IN_FLIGHT",
    "NO_THROTTLING",
    "ArrivalModel",
    "Arrivals",
    "Outcome",
    "peak_backlog",
]

IN_FLIGHT: Final = {PRODUCER_BYTE_RATE: 5, CONSUMER_BYTE_RATE: 1}
"""Requests in flight on a connection of a Java client, by key: its ``max.in.flight.requests.per.connection``, and one
fetch for each broker. One for all other keys."""


ENVELOPE_BYTES: Final = {PRODUCER_BYTE_RATE: 120.0, CONSUMER_BYTE_RATE: 75.0}
"""About what those requests have beside their records that can go out joined, and then need it once: a produce request
header, topic, partition and batch, an answer to a fetch the first three of them (Java clients against 4.3.0, one
partition)."""

Floats = npt.NDArray[np.float64]


ANSWER_IN_HAND_MS: Final = 10.0
"""A request that came so long after another had that one's answer in hand, whatever else may have been in flight."""


class ArrivalModel(Enum):
    """Whether arrivals wait for answers."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An arrival model, with the requests in flight for each connection; None is what Java clients have."""

    model: ArrivalModel = ArrivalModel.OPEN
    in_flight: int | None = None

    def in_flight_of(self, key: str) -> int:
        """For requests that count on this key; 0 in the open model, where any number may be."""
        if self.model is ArrivalModel.OPEN:
            return 0
        return IN_FLIGHT.get(key, 1) if self.in_flight is None else self.in_flight


class Outcome(NamedTuple):
    """What a limit does to a meter's recorded traffic, up to the end of the recording."""

    amount: float
    """What is let through."""
    throttled_requests: int
    throttled_ms: float
    """The sum of the throttle times told."""
    muted_ms: float
    """For how long some connection of the meter is muted."""
    max_delay_ms: float
    total_delay_ms: float
    """What each request waits between coming and being let through, summed; what still waits, waits until the end."""
    backlog_max: float
    """The most that waits at a time."""
    peak: float
    """The largest of the rates that the limit was compared with, by the limit; for mutations, of the tokens used."""


NO_THROTTLING: Final = Outcome(0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def peak_backlog(arrived_ms: Floats, left_ms: Floats, amounts: Floats) -> float:
    """The largest sum of what had come and had not left."""
    order = np.argsort(np.concatenate([left_ms, arrived_ms]), kind="stable")  # who leaves makes room for who comes then
    return float(np.cumsum(np.concatenate([-amounts, amounts])[order]).max(initial=0.0))
