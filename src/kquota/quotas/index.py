"""Quotas that are asked for often: a snapshot with the ways into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from kquota.errors import ApiError
from kquota.quotas.decision import QuotaChange, apply_changes
from kquota.quotas.entity import ClientQuotaEntity, QuotaSnapshot
from kquota.quotas.filter import ClientQuotaFilter, MatchType
from kquota.quotas.model import KAFKA, QuotaModel

__all__ = ["QuotaIndex"]

_Part = tuple[str, str | None]


class QuotaIndex:
    """A snapshot, and its entities by each of their parts. Frozen: :meth:`with_changes` gives another one."""

    __slots__ = ("_by_part", "_sorted", "snapshot")

    snapshot: QuotaSnapshot
    """All quotas; an entity without values is not in it."""

    def __init__(self, snapshot: QuotaSnapshot) -> None:
        self.snapshot = {entity: values for entity, values in snapshot.items() if values}
        self._sorted: list[ClientQuotaEntity] | None = None
        self._by_part = {part: tuple(entities) for part, entities in _by_part(self.snapshot).items()}

    def with_changes(self, changes: Iterable[QuotaChange]) -> Self:
        """The index after the changes; costs a shallow copy, and no look at the entities that stay."""
        changes = tuple(changes)
        changed = object.__new__(type(self))
        changed.snapshot = apply_changes(self.snapshot, changes)
        changed._sorted = self._sorted
        changed._by_part = self._by_part
        gone: set[ClientQuotaEntity] = set()
        new: list[ClientQuotaEntity] = []
        for entity in {change.entity for change in changes}:
            was, is_there = entity in self.snapshot, entity in changed.snapshot
            if was and not is_there:
                gone.add(entity)
            elif is_there and not was:
                new.append(entity)
        if gone or new:
            changed._by_part = dict(self._by_part)
            new_by_part = _by_part(new)
            for part in {part for entity in (*gone, *new) for part in entity.entries.items()}:
                kept = [entity for entity in self._by_part.get(part, ()) if entity not in gone]
                kept += new_by_part.get(part, ())
                if kept:
                    changed._by_part[part] = tuple(kept)
                else:
                    del changed._by_part[part]
            if self._sorted is not None:
                # Nearly in order, which is what Python's sort is fastest with.
                changed._sorted = [entity for entity in self._sorted if entity not in gone] + new
                changed._sorted.sort(key=ClientQuotaEntity.sort_key)
        return changed

    def describe(
        self, quota_filter: ClientQuotaFilter, *, model: QuotaModel = KAFKA
    ) -> dict[ClientQuotaEntity, Mapping[str, float]] | ApiError:
        """As :func:`kquota.quotas.describe`: the entities that match, sorted, or why the filter is refused."""
        error = quota_filter.refusal(model)
        if error is not None:
            return error
        snapshot = self.snapshot
        if not quota_filter.components and not quota_filter.strict:
            return {entity: snapshot[entity] for entity in self._in_order()}
        candidates = self._candidates(quota_filter)
        if candidates is None:
            return {entity: snapshot[entity] for entity in self._in_order() if quota_filter.matches(entity)}
        found = [entity for entity in candidates if quota_filter.matches(entity)]
        found.sort(key=ClientQuotaEntity.sort_key)
        return {entity: snapshot[entity] for entity in found}

    def candidates(self, quota_filter: ClientQuotaFilter) -> int:
        """How many entities :meth:`describe` has to look at."""
        candidates = self._candidates(quota_filter)
        return len(self.snapshot if candidates is None else candidates)

    def _candidates(self, quota_filter: ClientQuotaFilter) -> tuple[ClientQuotaEntity, ...] | None:
        """The entities with the rarest part that the filter names; None where it names none, which is all entities."""
        named: list[_Part] = [
            (component.entity_type, component.match)
            for component in quota_filter.components
            if component.match_type != MatchType.SPECIFIED
        ]
        return min((self._by_part.get(part, ()) for part in named), key=len) if named else None

    def _in_order(self) -> list[ClientQuotaEntity]:
        if self._sorted is None:
            self._sorted = sorted(self.snapshot, key=ClientQuotaEntity.sort_key)
        return self._sorted


def _by_part(entities: Iterable[ClientQuotaEntity]) -> dict[_Part, list[ClientQuotaEntity]]:
    by_part: dict[_Part, list[ClientQuotaEntity]] = {}
    for entity in entities:
        for part in entity.entries.items():
            by_part.setdefault(part, []).append(entity)
    return by_part
