"""What has to change for quotas to become those of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType

from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, QuotaChange, QuotaSnapshot, is_same_value

__all__ = ["alterations", "difference"]

_NONE: Mapping[str, float] = MappingProxyType({})


def difference(current: QuotaSnapshot, wanted: QuotaSnapshot, *, prune: bool = False) -> tuple[QuotaChange, ...]:
    """The changes that lead from `current` to `wanted`, sorted by entity and key.

    :param prune: also remove what `current` has and `wanted` does not name: whole entities, and single keys.
    """
    return tuple(_changes(current, wanted, prune=prune))


def alterations(changes: Iterable[QuotaChange]) -> list[ClientQuotaAlteration]:
    """The changes as requests, one for each entity; changes of one entity stand together."""
    return [
        ClientQuotaAlteration(entity, [ClientQuotaAlteration.Op(change.key, change.after) for change in own])
        for entity, own in groupby(changes, key=lambda change: change.entity)
    ]


def _changes(current: QuotaSnapshot, wanted: QuotaSnapshot, *, prune: bool) -> Iterator[QuotaChange]:
    entities = {*wanted, *current} if prune else {*wanted}
    for entity in sorted(entities, key=ClientQuotaEntity.sort_key):
        before, after = current.get(entity, _NONE), wanted.get(entity, _NONE)
        for key in sorted({*before, *after} if prune else after):
            old, new = before.get(key), after.get(key)
            if not is_same_value(old, new):
                yield QuotaChange(entity, key, old, new)
