"""What can be limited: quota keys with their type, unit and range, and the entity types they are legal on.

Source: ``org.apache.kafka.server.config.QuotaConfig`` and ``ClientQuotaControlManager``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, Self, assert_never

from kquota.errors import IllegalArgumentError
from kquota.quotas.entity import CLIENT_ID, IP, USER

__all__ = [
    "CONNECTION_CREATION_RATE",
    "CONSUMER_BYTE_RATE",
    "CONTROLLER_MUTATION_RATE",
    "KAFKA",
    "LOWEST_LEVEL",
    "PRODUCER_BYTE_RATE",
    "REQUEST_PERCENTAGE",
    "AddedType",
    "QuotaKey",
    "QuotaModel",
    "ValueType",
]

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

LOWEST_LEVEL: Final = 9
"""The level of an added type that goes below Kafka's eight, and above the static default alone."""

MAX_ADDED_TYPES: Final = 50
"""Each brings two levels, and a level is sent in one byte."""

_LONGEST_FRACTION = 1e-6


class ValueType(Enum):
    """The ConfigDef type of a quota value. All are sent as doubles; LONG and INT must be whole."""

    LONG = "long"
    DOUBLE = "double"
    INT = "int"

    @property
    def maximum(self) -> float:
        """The largest value accepted. For LONG that is 2^63: a double cannot tell it from 2^63 - 1."""
        match self:
            case ValueType.LONG:
                return 2.0**63
            case ValueType.INT:
                return 2.0**31 - 1
            case ValueType.DOUBLE:
                return math.inf
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """One kind of limit. Its range is greater than 0, and at most ``value_type.maximum``."""

    name: str
    value_type: ValueType
    unit: str
    """What a value of 1 means, such as ``bytes/second``; always per broker."""
    shapes: frozenset[frozenset[str]]
    """The sets of entity types that the key may be set on."""
    default: float
    """The documented default of the ConfigDef. Kafka never enforces it: no entity means no limit."""

    def refusal(self, value: float) -> str | None:
        """Why Kafka's controller refuses ``value``, in its own words; None if it does not.

        NaN passes, because every comparison with it is false. The test for fractions is one-sided: a hair above a
        whole number passes and is kept unrounded, a hair below leaves a remainder of almost one and is refused.
        """
        if value <= 0:
            return f"Quota {self.name} must be greater than 0"
        match self.value_type:
            case ValueType.DOUBLE:
                return None
            case ValueType.LONG:
                if value > self.value_type.maximum:
                    return f"Proposed value for {self.name} is too large for a LONG."
            case ValueType.INT:
                if value > self.value_type.maximum:
                    return f"Proposed value for {self.name} is too large for an INT."
            case _:
                assert_never(self.value_type)
        if value % 1.0 > _LONGEST_FRACTION:
            return f"{self.name} cannot be a fractional value."
        return None


@dataclass(frozen=True, slots=True)
class AddedType:
    """An entity type beyond Kafka's own, with its place in the order of precedence.

    It is set on its own, never beside another type. Its rules, those of a name and below them that of the default,
    stand above Kafka's level ``level`` (1: above all) and what follows it; above 7, say, a group goes before a client
    id, and a user before a group.
    """

    name: str
    level: int
    meter_tag: str
    """What its usage is counted on, with the name that a client has: ``{meter_tag: name}``."""


@dataclass(frozen=True, slots=True)
class QuotaModel:
    """The entity types that exist and the keys that may be set on them. :data:`KAFKA` is Kafka's own.

    ``added`` says more of those ``entity_types`` that are not Kafka's, in their order of precedence.
    """

    entity_types: tuple[str, ...]
    keys: tuple[QuotaKey, ...]
    added: tuple[AddedType, ...] = ()
    _by_name: Mapping[str, QuotaKey] = field(init=False, repr=False, compare=False)
    _by_shape: Mapping[frozenset[str], Mapping[str, QuotaKey]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_shape: dict[frozenset[str], dict[str, QuotaKey]] = {}
        for key in self.keys:
            for shape in key.shapes:
                unknown = shape.difference(self.entity_types)
                if unknown:
                    raise IllegalArgumentError(f"{key.name} is set on {sorted(unknown)}, which no type declares")
                by_shape.setdefault(shape, {})[key.name] = key
        object.__setattr__(self, "_by_name", {key.name: key for key in self.keys})
        object.__setattr__(self, "_by_shape", {s: MappingProxyType(keys) for s, keys in by_shape.items()})

    def __reduce__(self) -> tuple[object, ...]:
        return QuotaModel, (self.entity_types, self.keys, self.added)

    def key(self, name: str) -> QuotaKey | None:
        """The key called ``name``, if there is one."""
        return self._by_name.get(name)

    def keys_for(self, types: Iterable[str]) -> Mapping[str, QuotaKey] | None:
        """The keys that may be set on an entity of exactly these types; None if no such entity is legal."""
        return self._by_shape.get(frozenset(types))

    def with_entity_type(
        self,
        entity_type: str,
        *,
        keys: Iterable[str | QuotaKey],
        level: int = LOWEST_LEVEL,
        meter_tag: str | None = None,
    ) -> Self:
        """Return this model with one more entity type, on its own (not combined with others).

        ``keys`` are what may be set on it: names of keys that exist, or new keys (whose shapes are kept and extended
        by the new type). ``level`` and ``meter_tag`` are those of :class:`AddedType`; the tag is the type itself where
        none is given. Of types with one level those added before go first.
        """
        if not entity_type or entity_type in self.entity_types:
            raise IllegalArgumentError(f"entity type {entity_type!r} exists already or is empty")
        if len(self.added) == MAX_ADDED_TYPES:
            raise IllegalArgumentError(
                f"entity type {entity_type}: there are {MAX_ADDED_TYPES} types already, the most"
            )
        if type(level) is not int or not 1 <= level <= LOWEST_LEVEL:
            raise IllegalArgumentError(
                f"entity type {entity_type}: level {level!r} is none of 1 (above all) to {LOWEST_LEVEL} (below Kafka's "
                "eight)"
            )
        own = AddedType(entity_type, level, entity_type if meter_tag is None else meter_tag)
        if not own.meter_tag or own.meter_tag in (*_OWN_TYPES, *(one.meter_tag for one in self.added)):
            raise IllegalArgumentError(f"entity type {entity_type}: meter tag {own.meter_tag!r} is taken or empty")
        shape = frozenset({entity_type})
        known = {key.name: key for key in self.keys}
        for key in keys:
            if isinstance(key, QuotaKey):
                known[key.name] = key
            found = known.get(key if isinstance(key, str) else key.name)
            if found is None:
                raise IllegalArgumentError(
                    f"entity type {entity_type}: no quota key is called {key!r}; there are {', '.join(known)}"
                )
            known[found.name] = replace(found, shapes=found.shapes | {shape})
        added = tuple(sorted((*self.added, own), key=lambda one: one.level))
        return type(self)((*self.entity_types, entity_type), tuple(known.values()), added)


_OWN_TYPES: Final = (USER, CLIENT_ID, IP)
_USER_CLIENT = frozenset({frozenset({USER}), frozenset({CLIENT_ID}), frozenset({USER, CLIENT_ID})})
_IP_ONLY = frozenset({frozenset({IP})})

KAFKA: Final = QuotaModel(
    entity_types=_OWN_TYPES,
    keys=(
        QuotaKey(PRODUCER_BYTE_RATE, ValueType.LONG, "bytes/second", _USER_CLIENT, 2.0**63),
        QuotaKey(CONSUMER_BYTE_RATE, ValueType.LONG, "bytes/second", _USER_CLIENT, 2.0**63),
        QuotaKey(REQUEST_PERCENTAGE, ValueType.DOUBLE, "percent of one thread", _USER_CLIENT, 2.0**31 - 1),
        QuotaKey(CONTROLLER_MUTATION_RATE, ValueType.DOUBLE, "partitions/second", _USER_CLIENT, 2.0**31 - 1),
        QuotaKey(CONNECTION_CREATION_RATE, ValueType.INT, "connections/second", _IP_ONLY, 2.0**31 - 1),
    ),
)
"""Kafka's three entity types and five keys."""
