"""What changes of quotas would have done to recorded traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kquota.quotas import ClientQuotaEntity

__all__ = ["NO_IMPACT", "Impact", "PlanImpact"]


@dataclass(frozen=True, slots=True)
class Impact:
    """What one changed value would have done to the meters that it binds."""

    throttled_share: float
    """Of the worst meter."""
    max_delay_ms: float
    throttled_requests: int
    total_delay_ms: float
    amount_old: float
    amount_new: float
    meters: int
    """How many there are, on each broker counted."""
    newly_throttled: int = 0
    """How many of them are throttled, and were not."""
    no_longer_throttled: int = 0
    taken_over: int = 0
    """How many take over clients of other meters."""
    newly_throttled_meters: tuple[str, ...] = ()
    """Some of them, those throttled longest first; the other names likewise."""
    no_longer_throttled_meters: tuple[str, ...] = ()
    taken_over_meters: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()

    @property
    def harm(self) -> tuple[float, ...]:
        """Sorts impacts: the greater, the more harm is done."""
        return (
            self.newly_throttled > 0,
            self.throttled_share,
            self.total_delay_ms,
            self.no_longer_throttled,
            self.taken_over,
        )


NO_IMPACT: Final = Impact(0.0, 0.0, 0, 0.0, 0.0, 0.0, 0)
"""Of a change that binds nobody who was recorded."""


@dataclass(frozen=True, slots=True)
class PlanImpact:
    """What each change of a plan would have done to a recording, and how that was simulated."""

    impacts: Mapping[tuple[ClientQuotaEntity, str], Impact]
    """By the entity and the key that are changed; :data:`NO_IMPACT` where nobody in the recording is bound."""
    grain: str
    """What was simulated one by one: ``request``, or ``cell`` (the requests of a client in one second)."""
    model: str
    """How requests arrive, ``open`` or ``closed``."""
    seconds: float
    """How long the recording is."""
