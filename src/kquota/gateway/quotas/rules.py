"""Where limits are set, and how often and for how long clients are throttled because of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kquota.metering.callback import ClientQuotaType
from kquota.metering.engine import QuotaManagers
from kquota.metering.metrics import CALLBACK

__all__ = ["CONNECTION", "MOST_RULES", "Rules", "ThrottleCount", "ThrottleCounts"]

CONNECTION: Final = "Connection"
"""``connection_creation_rate``, beside the quota types of clients, which are called as their MBeans."""
MOST_RULES: Final = 1_000
"""Rules that are counted one by one, for each quota type; there may be a quota for each of a million users."""
REMEMBERED_METERS: Final = 100_000


class Rules:
    """The rule of each meter of one broker: the entity that its limit is set on, as canonical text.

    Asked again where the limit is another one, and after :meth:`clear`, which is for changes of quotas.
    """

    def __init__(self, managers: QuotaManagers) -> None:
        self._managers = managers
        self._known: dict[tuple[ClientQuotaType, frozenset[tuple[str, str]]], tuple[float, str]] = {}

    def of(self, quota_type: ClientQuotaType, tags: Mapping[str, str], limit: float) -> str:
        """``user=alice``, ``client-id=<default>``; ``static``, or ``callback`` where that does not say."""
        key = quota_type, frozenset(tags.items())
        known = self._known.get(key)
        if known is None or known[0] != limit:
            if len(self._known) >= REMEMBERED_METERS:
                self._known.clear()
            known = self._known[key] = limit, self._managers.source(quota_type, tags) or CALLBACK
        return known[1]

    def clear(self) -> None:
        """Quotas were changed."""
        self._known.clear()


class ThrottleCount:
    """Of one rule."""

    __slots__ = ("requests", "throttle_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.throttle_ms = 0


class ThrottleCounts:
    """Of all brokers together, since the gateway was started. The first rules have a count each, the others one."""

    def __init__(self, most_rules: int = MOST_RULES) -> None:
        self._most_rules = most_rules
        self._counts: dict[str, dict[str | None, ThrottleCount]] = {}

    def note(self, quota_type: str, rule: str, throttle_ms: int) -> None:
        """One request, or connection, is throttled."""
        counts = self._counts.setdefault(quota_type, {})
        count = counts.get(rule)
        if count is None:
            name = rule if len(counts) < self._most_rules else None
            count = counts.get(name)
            if count is None:
                count = counts[name] = ThrottleCount()
        count.requests += 1
        count.throttle_ms += throttle_ms

    def __iter__(self) -> Iterator[tuple[str, str | None, ThrottleCount]]:
        """Quota type, rule, and count; the rule is None for all that have no count of their own."""
        for quota_type, counts in list(self._counts.items()):
            for rule, count in list(counts.items()):
                yield quota_type, rule, count
