"""What changes of quotas would have done to recorded traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kquota.policy.objectives import Impact
from kquota.quotas import ClientQuotaEntity

__all__ = ["PlanImpact"]


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
