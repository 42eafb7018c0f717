"""Plans: reviewed changes of quotas, with the values that they were made from.

A plan is taken only where what it touches is as it was, or as it will be: that is what makes a second start of an apply
go on where the first one ended. Read turned around, it undoes what it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import Self

from kquota.files.plain_json import dump_json
from kquota.policy.difference import difference
from kquota.policy.findings import Finding
from kquota.policy.impact import NO_IMPACT, Impact
from kquota.policy.side_effects import side_effects
from kquota.quotas import (
    ClientQuotaEntity,
    QuotaChange,
    QuotaSnapshot,
    apply_changes,
    format_number,
    is_same_value,
)

__all__ = ["Drift", "Plan", "PlanStatus", "PlanTarget", "PlannedChange", "fingerprint"]


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """A cluster or a store: its id, None where there is none, and how it was named, for messages."""

    id: str | None
    name: str


@dataclass(frozen=True, slots=True)
class PlannedChange(QuotaChange):
    """A change, with what is known about it. Neither `impact` nor `warnings` has a part in what is done."""

    impact: Impact | None = None
    """What it would have done to recorded traffic."""
    warnings: tuple[Finding, ...] = ()
    """What it does to others than those that it names."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A value that is neither what a plan was made from nor what it is to become. None is "not set"."""

    entity: ClientQuotaEntity
    key: str
    expected: float | None
    found: float | None


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """How far quotas are from a plan: what is left to be done, and what is in its way."""

    pending: tuple[PlannedChange, ...]
    drifted: tuple[Drift, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes to make on a target. Sorted by entity and key; none is there twice."""

    target: PlanTarget
    changes: tuple[PlannedChange, ...]
    unchanged: QuotaSnapshot
    """The other values of the entities that are changed."""

    @classmethod
    def of(cls, target: PlanTarget, current: QuotaSnapshot, changes: Iterable[QuotaChange]) -> Self:
        """A plan of `changes`, which were worked out from `current`."""
        planned = tuple(
            change
            if isinstance(change, PlannedChange)
            else PlannedChange(change.entity, change.key, change.before, change.after)
            for change in sorted(changes, key=lambda change: (change.entity.sort_key(), change.key))
        )
        return cls(target, planned, _others(planned, current))

    @classmethod
    def between(
        cls, target: PlanTarget, current: QuotaSnapshot, desired: QuotaSnapshot, *, prune: bool = False
    ) -> Self:
        """The plan that leads from `current` to `desired`, with what its changes do to others.

        :param prune: also remove what `current` has and `desired` does not name: whole entities, and single keys.
        """
        changes = difference(current, desired, prune=prune)
        return cls.of(target, current, changes).with_warnings(side_effects(current, apply_changes(current, changes)))

    @property
    def entities(self) -> tuple[ClientQuotaEntity, ...]:
        """The entities that are touched, in order."""
        return tuple(dict.fromkeys(change.entity for change in self.changes))

    @property
    def base(self) -> str:
        """The :func:`fingerprint` of the values that the plan was made from."""
        before: dict[ClientQuotaEntity, dict[str, float]] = {
            entity: dict(self.unchanged.get(entity, {})) for entity in self.entities
        }
        for change in self.changes:
            if change.before is not None:
                before[change.entity][change.key] = change.before
        return fingerprint(before, self.entities)

    def status(self, current: QuotaSnapshot) -> PlanStatus:
        """What is left of the plan where `current` are the quotas."""
        drifted = tuple(self._drifted(current))
        left_alone = {one.entity for one in drifted}
        pending = tuple(
            change
            for change in self.changes
            if change.entity not in left_alone
            and not is_same_value(current.get(change.entity, {}).get(change.key), change.after)
        )
        return PlanStatus(pending, drifted)

    def _drifted(self, current: QuotaSnapshot) -> Iterator[Drift]:
        found_others = _others(self.changes, current)
        for entity, own in groupby(self.changes, key=lambda change: change.entity):
            allowed = {change.key: (change.before, change.after) for change in own}
            others = self.unchanged.get(entity, {})
            for key in {**others, **found_others.get(entity, {})}:
                allowed[key] = others.get(key), others.get(key)
            for key, (before, after) in sorted(allowed.items()):
                found = current.get(entity, {}).get(key)
                if not is_same_value(found, before) and not is_same_value(found, after):
                    yield Drift(entity, key, before, found)

    def onto(self, current: QuotaSnapshot) -> tuple[QuotaChange, ...]:
        """The changes that lead from `current`, whatever that is, to where the plan leads."""
        changes = (
            QuotaChange(change.entity, change.key, current.get(change.entity, {}).get(change.key), change.after)
            for change in self.changes
        )
        return tuple(change for change in changes if not is_same_value(change.before, change.after))

    def reversed(self, current: QuotaSnapshot) -> Self:
        """The plan that undoes this one. What it does not change may have become anything: that is as in `current`."""
        changes = tuple(
            PlannedChange(change.entity, change.key, before=change.after, after=change.before)
            for change in self.changes
        )
        return replace(self, changes=changes, unchanged=_others(changes, current))

    def includes(self, changes: Iterable[QuotaChange]) -> bool:
        """Whether all `changes` are among those of the plan."""
        own = {_identity(change) for change in self.changes}
        return all(_identity(change) in own for change in changes)

    def by_entity(self) -> list[list[PlannedChange]]:
        """The changes of each entity. The most harmful impacts come first, entities without impacts in order."""
        groups = [list(own) for _, own in groupby(self.changes, key=lambda change: change.entity)]
        return sorted(groups, key=lambda own: max((one.impact or NO_IMPACT).harm for one in own), reverse=True)

    def with_impacts(self, impacts: Mapping[tuple[ClientQuotaEntity, str], Impact]) -> Self:
        """The plan with what changes would have done, by entity and key."""
        changes = (replace(change, impact=impacts.get((change.entity, change.key))) for change in self.changes)
        return replace(self, changes=tuple(changes))

    def with_warnings(self, findings: Iterable[Finding]) -> Self:
        """The plan with what changes do to others, each at the change that it is about."""
        by_change: dict[tuple[ClientQuotaEntity | None, str | None], list[Finding]] = {}
        for finding in findings:
            by_change.setdefault((finding.entity, finding.key), []).append(finding)
        changes = (
            replace(change, warnings=tuple(by_change.get((change.entity, change.key), ()))) for change in self.changes
        )
        return replace(self, changes=tuple(changes))


def fingerprint(snapshot: QuotaSnapshot, entities: Iterable[ClientQuotaEntity]) -> str:
    """A hash of the values of `entities`, whatever order they are in; the same in every version of kquota."""
    digest = sha256()
    for entity in sorted(set(entities), key=ClientQuotaEntity.sort_key):
        values = dict(sorted(snapshot.get(entity, {}).items()))
        digest.update(f"{dump_json([entity.to_text(), values])}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _others(changes: Iterable[QuotaChange], current: QuotaSnapshot) -> dict[ClientQuotaEntity, Mapping[str, float]]:
    """The values of the entities that are changed, without those that are."""
    changed: dict[ClientQuotaEntity, set[str]] = {}
    for change in changes:
        changed.setdefault(change.entity, set()).add(change.key)
    others = {
        entity: {key: value for key, value in sorted(current.get(entity, {}).items()) if key not in keys}
        for entity, keys in changed.items()
    }
    return {entity: values for entity, values in others.items() if values}


def _identity(change: QuotaChange) -> tuple[ClientQuotaEntity, str, str | None, str | None]:
    """What two changes that do the same have in common; as text, because NaN is not equal to itself."""
    before, after = (None if value is None else format_number(value) for value in (change.before, change.after))
    return change.entity, change.key, before, after
