"""The rules of added entity types for one key, and where they stand among Kafka's.

KIP-546 leaves types open ("a server-side plugin mechanism allows for further expansion") and says nothing about their
precedence: a :class:`~kquota.quotas.model.AddedType` does.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from kquota.quotas.entity import ClientQuotaEntity
from kquota.quotas.meter import MeterKey
from kquota.quotas.model import AddedType
from kquota.quotas.resolved import Candidate, ResolvedQuota

__all__ = ["AddedLevels"]

_LEVELS_OF_A_TYPE: Final = 2
"""A name, and below it the default."""


class AddedLevels:
    """Levels are counted through: a level of Kafka's moves down by two for each added type above it."""

    __slots__ = ("_places", "_rules", "_types")

    def __init__(self, types: Iterable[AddedType], *, kafka_levels: int) -> None:
        """Take those types that the key may be set on, in their order, and how many levels Kafka has for it."""
        self._types = tuple(types)
        self._places = [min(one.level, kafka_levels + 1) for one in self._types]
        self._rules: dict[str, dict[str | None, Candidate]] = {one.name: {} for one in self._types}

    def add(self, entity: ClientQuotaEntity, value: float) -> None:
        """Take a rule, unless it is of no type of these."""
        [(entity_type, name)] = entity.entries.items()
        for number, (one, place) in enumerate(zip(self._types, self._places, strict=True)):
            if one.name == entity_type:
                level = place + _LEVELS_OF_A_TYPE * number + (name is None)
                self._rules[entity_type][name] = Candidate(entity, level, value)

    def merged(self, kafka: ResolvedQuota, names: Mapping[str, str]) -> ResolvedQuota:
        """What binds a client of these names that by Kafka's rules alone is bound as `kafka` says."""
        rules: list[tuple[Candidate, MeterKey]] = []
        if kafka.value is not None and kafka.source is not None and kafka.level is not None and kafka.meter is not None:
            candidates = Candidate(kafka.source, kafka.level, kafka.value), *kafka.overridden
            rules = [(self._moved(rule), kafka.meter) for rule in candidates]
        for one in self._types:
            name = names.get(one.name)
            if name:
                own = self._rules[one.name]
                meter = MeterKey({one.meter_tag: name})
                rules += [(own[each], meter) for each in (name, None) if each in own]
        if not rules:
            return kafka
        rules.sort(key=lambda rule: rule[0].level)
        (source, level, value), meter = rules[0]
        return ResolvedQuota(kafka.key, value, source, level, meter, tuple(rule for rule, _ in rules[1:]))

    def _moved(self, rule: Candidate) -> Candidate:
        return rule._replace(level=rule.level + _LEVELS_OF_A_TYPE * bisect_right(self._places, rule.level))
