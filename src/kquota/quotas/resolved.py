"""What resolving gives: the rules that could bind a client, the one that does, and what it is counted against."""

from enum import Enum
from typing import Final, NamedTuple

from kquota.quotas.entity import ClientQuotaEntity
from kquota.quotas.meter import MeterKey

__all__ = ["STATIC", "STATIC_LEVEL", "Candidate", "ResolvedQuota", "StaticSource"]


class StaticSource(Enum):
    """The source of a limit that comes from the broker's own settings instead of an entity."""

    STATIC = "static"

    def __str__(self) -> str:
        return self.value

    def to_text(self) -> str:
        """Canonical text, as :meth:`ClientQuotaEntity.to_text`."""
        return self.value


STATIC: Final = StaticSource.STATIC
STATIC_LEVEL: Final = 9


class Candidate(NamedTuple):
    """One rule that could bind a client: where it is set, its level and its value."""

    source: ClientQuotaEntity | StaticSource
    level: int
    value: float


class ResolvedQuota(NamedTuple):
    """What binds one client for one key. Without a limit, ``value``, ``source``, ``level`` and ``meter`` are None."""

    key: str
    value: float | None
    source: ClientQuotaEntity | StaticSource | None
    level: int | None
    meter: MeterKey | None
    overridden: tuple[Candidate, ...]
    """The rules that would bind this client if those above were removed, in order."""
