"""The content of a quota file: entities, their values, and two fields of ours that Kafka never sees."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kquota.errors import QuotaFileProblem
from kquota.quotas import ClientQuotaEntity, QuotaSnapshot

__all__ = ["QuotaFile", "QuotaFileEntry"]


@dataclass(frozen=True, slots=True)
class QuotaFileEntry:
    """One entry. ``line`` is where it stands, from 1; None where it comes from no file, and no part of equality."""

    entity: ClientQuotaEntity
    values: Mapping[str, float]
    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """A whole file, in its own order. No entity appears twice, and each has at least one value."""

    entries: tuple[QuotaFileEntry, ...]
    left_out: tuple[QuotaFileProblem, ...] = field(default=(), compare=False)
    """What a file of another program says and Kafka has no quota for, with its place; no part of equality."""

    @classmethod
    def of(cls, snapshot: QuotaSnapshot) -> Self:
        """A file of these quotas, sorted by entity."""
        return cls(
            tuple(QuotaFileEntry(entity, snapshot[entity]) for entity in sorted(snapshot, key=lambda e: e.sort_key()))
        )

    def snapshot(self) -> dict[ClientQuotaEntity, Mapping[str, float]]:
        """The quotas alone."""
        return {entry.entity: entry.values for entry in self.entries}
