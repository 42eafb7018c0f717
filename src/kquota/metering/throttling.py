"""How long to wait. Sources: ``QuotaUtils.throttleTime``, ``ControllerMutationQuotaManager.throttleTimeMs``."""

from __future__ import annotations

from math import floor, isnan
from typing import Final

__all__ = ["LONGEST_MS", "bucket_throttle_ms", "java_round", "rate_throttle_ms"]

LONGEST_MS: Final = 2**31 - 1
"""An answer has 32 bits for it. Kafka cuts off the higher ones, so that a longer wait becomes any other, also
none; here it becomes the longest there is."""

_LONG_MAX: Final = 2**63 - 1
_BEYOND_LONG: Final = 2.0**63  # doubles are compared with doubles quickly


def rate_throttle_ms(rate: float, limit: float, covered_ms: int) -> int:
    """Until a rate that lasts `covered_ms` is back at the limit; negative below it, 0 where either is not a number."""
    return java_round((rate - limit) / limit * covered_ms if limit else _by_zero(rate) * covered_ms)


def bucket_throttle_ms(tokens: float, limit: float) -> int:
    """Until tokens that are missing have come back."""
    return java_round(-tokens / limit * 1000.0 if limit else _by_zero(-tokens) * 1000.0)


def java_round(value: float) -> int:
    """``Math.round``: half up, within 64 bits, and 0 for what is not a number."""
    if -_BEYOND_LONG < value < _BEYOND_LONG:
        whole = floor(value)
        return whole + 1 if value - whole >= 0.5 else whole  # adding a half first would round 0.49999999999999994 up
    return 0 if isnan(value) else _LONG_MAX if value > 0 else -_LONG_MAX - 1


def _by_zero(value: float) -> float:
    """As Java divides: infinite, or not a number."""
    return float("nan") if value == 0 or isnan(value) else value * float("inf")
