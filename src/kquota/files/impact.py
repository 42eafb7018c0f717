"""What a change would have done to recorded traffic, in a few numbers, and how much of that is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from kquota.errors import InputError

__all__ = ["OBJECTIVES", "Impact", "Objective"]

OBJECTIVES: Final[Mapping[str, str]] = {
    "throttled_share": "the share of the recording, 0 to 1 or in %, during which the worst meter is muted",
    "max_delay_ms": "the longest that a request waits",
    "throttled_requests": "how many requests are told to wait",
}
"""What can be asked for, and what it is."""

_OBJECTIVE: Final = re.compile(r"\s*([a-z_]+)\s*<=\s*([0-9.]+)\s*(%?)\s*")


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
    starts: tuple[str, ...] = ()
    """Meters that start to be throttled."""
    stops: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    """Meters that take clients of others."""
    unknowns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As it stands in plan.json."""
        return {
            "throttled_share": self.throttled_share,
            "max_delay_ms": self.max_delay_ms,
            "throttled_requests": self.throttled_requests,
            "total_delay_ms": self.total_delay_ms,
            "amount_old": self.amount_old,
            "amount_new": self.amount_new,
            "meters": self.meters,
            "starts": list(self.starts),
            "stops": list(self.stops),
            "moved": list(self.moved),
            "unknowns": list(self.unknowns),
        }


@dataclass(frozen=True, slots=True)
class Objective:
    """The most that is allowed of one of :data:`OBJECTIVES`."""

    name: str
    most: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``throttled_share<=0.01`` or ``throttled_share<=1%``.

        :raises InputError: it is no such text.
        """
        found = _OBJECTIVE.fullmatch(text)
        if found is None or found[1] not in OBJECTIVES:
            raise InputError(
                f"{text!r} is no objective: write NAME<=VALUE, with one of {', '.join(OBJECTIVES)}, such as "
                "'throttled_share<=0.01'"
            )
        try:
            most = float(found[2])
        except ValueError:
            most = math.nan
        most = most / 100 if found[3] else most
        if math.isnan(most) or (found[3] and found[1] != "throttled_share"):
            raise InputError(f"{text!r}: {found[2]}{found[3]} is no value of {found[1]}")
        return cls(found[1], most)

    def is_met(self, impact: Impact) -> bool:
        """Whether an impact is no larger."""
        return float(getattr(impact, self.name)) <= self.most

    def __str__(self) -> str:
        return f"{self.name}<={self.most:g}"
