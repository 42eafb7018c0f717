"""How much a change of quotas may do to recorded traffic."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from kquota.errors import InputError

__all__ = ["OBJECTIVES", "Objective"]

OBJECTIVES: Final[Mapping[str, str]] = {
    "throttled_share": "the share of the recording, 0 to 1 or in %, during which the worst meter is muted",
    "max_delay_ms": "the longest delay of a request by throttling, in milliseconds",
    "throttled_requests": "how many requests are throttled",
}
"""What can be asked for, and what it is."""

_OBJECTIVE: Final = re.compile(r"\s*([a-z_]+)\s*<=\s*([0-9.]+)\s*(%?)\s*")


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
        if found[1] == "throttled_share" and most > 1:
            # Read as a share it would allow everything, and nobody might notice.
            raise InputError(f"{text!r}: a share is at most 1, or 100%; 1 % is written 1% or 0.01")
        return cls(found[1], most)

    def is_met(self, value: float | None) -> bool:
        """Whether the value is no larger; one that is not known is."""
        return value is not None and value <= self.most

    def __str__(self) -> str:
        return f"{self.name}<={self.most:g}"
