"""What has to change for quotas to become those of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType

from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, QuotaChange, QuotaSnapshot, is_same_value

__all__ = ["alterations", "difference"]

_NONE: Mapping[str, float] = MappingProxyType({})


def difference(current: QuotaSnapshot, desired: QuotaSnapshot, *, prune: bool = False) -> tuple[QuotaChange, ...]:
    """The changes that lead from `current` to `desired`, sorted by entity and key.

    :param prune: also remove what `current` has and `desired` does not name: whole entities, and single keys.
    """
    return tuple(_changes(current, desired, prune=prune))


def alterations(changes: Iterable[QuotaChange]) -> list[ClientQuotaAlteration]:
    """The changes as requests, one for each entity; changes of one entity are neighbours."""
    return [
        ClientQuotaAlteration(entity, [ClientQuotaAlteration.Op(change.key, change.after) for change in own])
        for entity, own in groupby(changes, key=lambda change: change.entity)
    ]


def _changes(current: QuotaSnapshot, desired: QuotaSnapshot, *, prune: bool) -> Iterator[QuotaChange]:
    # Sorted are only those that change: of many thousand that is mostly a handful.
    changed = [entity for entity, after in desired.items() if not _is_met(current.get(entity, _NONE), after)]
    if prune:
        changed += [entity for entity, before in current.items() if not _is_met(desired.get(entity, _NONE), before)]
    for entity in sorted(dict.fromkeys(changed), key=ClientQuotaEntity.sort_key):
        before, after = current.get(entity, _NONE), desired.get(entity, _NONE)
        for key in sorted({*before, *after} if prune else after):
            old, new = before.get(key), after.get(key)
            if not is_same_value(old, new):
                yield QuotaChange(entity, key, old, new)


def _is_met(values: Mapping[str, float], desired: Mapping[str, float]) -> bool:
    """Whether each value that is desired is there."""
    if values is desired or values == desired:
        return True
    return all(is_same_value(values.get(key), value) for key, value in desired.items())
