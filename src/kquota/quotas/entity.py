"""Where a limit is set: ``ClientQuotaEntity``, Kafka's map of entity type to name, and its canonical text."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, TypeAlias

from kquota.errors import IllegalArgumentError
from kquota.quotas.java_map import hash_map_order
from kquota.quotas.sanitizer import desanitize, sanitize

__all__ = ["CLIENT_ID", "IP", "USER", "ClientQuotaEntity", "QuotaSnapshot"]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

DEFAULT_TEXT: Final = "<default>"
"""How a default entity is written in canonical text. No name can collide with it: ``<`` is always encoded."""

_RANK = {USER: 0, CLIENT_ID: 1, IP: 2}


class ClientQuotaEntity:
    """An entity: type to name, where a name of ``None`` means the default entity of that type.

    Frozen and hashable; equality is map equality, so the order of the types does not matter. Any type and any name can
    be held (also an empty one): whether Kafka accepts them is for ``decide``. Raises
    :class:`~kquota.errors.IllegalArgumentError` for what no request could carry: types or names that are not text.

    ``str()`` is how Kafka prints it inside its messages (``ClientQuotaEntity(entries={user=user-1})``).
    """

    __slots__ = ("_hash", "_listed", "entries")

    USER: ClassVar[str] = USER
    CLIENT_ID: ClassVar[str] = CLIENT_ID
    IP: ClassVar[str] = IP

    entries: Mapping[str, str | None]
    """Type to name, read-only."""

    _hash: int
    _listed: int

    def __init__(self, entries: Mapping[str, str | None]) -> None:
        own = dict(entries)
        for entity_type, name in own.items():
            check_text(entity_type, "an entity type")
            if name is not None:
                check_text(name, f"the name of {entity_type}")
        object.__setattr__(self, "entries", MappingProxyType(own))
        object.__setattr__(self, "_hash", hash(frozenset(own.items())))
        object.__setattr__(self, "_listed", len(own))

    @classmethod
    def of_parts(cls, parts: Sequence[tuple[str, str | None]]) -> Self:
        """The entity that a request lists. Of a type that stands several times the last name counts.

        How many parts there were shows in :meth:`java_order`, and in nothing else. What was read from a request is text
        that can be sent, and is not checked again.
        """
        own = dict(parts)
        entity = object.__new__(cls)
        object.__setattr__(entity, "entries", MappingProxyType(own))
        object.__setattr__(entity, "_hash", hash(frozenset(own.items())))
        object.__setattr__(entity, "_listed", len(parts))
        return entity

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ClientQuotaEntity is frozen; cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"ClientQuotaEntity is frozen; cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ClientQuotaEntity):
            return self._hash == other._hash and self.entries == other.entries
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return ClientQuotaEntity, (dict(self.entries),)

    def __repr__(self) -> str:
        return f"ClientQuotaEntity({dict(self.entries)!r})"

    def __str__(self) -> str:
        parts = [f"{t}={'null' if (n := self.entries[t]) is None else n}" for t in self.java_order()]
        return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"

    def java_order(self) -> list[str]:
        """The types in the order in which Kafka's controller walks them.

        It is the order of the ``HashMap`` that ``AlterClientQuotasRequest.entries`` fills.
        """
        return hash_map_order(self.entries, made_for=self._listed)

    def to_text(self) -> str:
        """Canonical text: ``user=alice,client-id=etl``; the default as ``user=<default>``; names sanitized."""
        entries = self.entries
        return ",".join(
            [
                f"{sanitize(t)}={DEFAULT_TEXT if (name := entries[t]) is None else sanitize(name)}"
                for t in canonical_types(entries)
            ]
        )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The entity whose :meth:`to_text` is ``text``. Raises :class:`~kquota.errors.IllegalArgumentError`."""
        return cls({t: None if n == DEFAULT_TEXT else desanitize(n) for t, n in split_canonical(text)})

    def sort_key(self) -> tuple[tuple[int, str, bool, str], ...]:
        """Orders entities: by type (user, client-id, ip, others), names by code point, the default last."""
        entries = self.entries
        return tuple([(_RANK.get(t, 3), t, entries[t] is None, entries[t] or "") for t in canonical_types(entries)])


QuotaSnapshot: TypeAlias = Mapping[ClientQuotaEntity, Mapping[str, float]]
"""All quotas at one moment: entity to key to value. An entity without values is not in it."""


def canonical_types(types: Iterable[str]) -> list[str]:
    """``types`` in the order user, client-id, ip, then the others by name."""
    return sorted(types, key=lambda t: (_RANK.get(t, 3), t))


def split_canonical(text: str) -> list[tuple[str, str]]:
    """The pairs of a canonical text: types decoded, names still encoded."""
    if not text:
        return []
    pairs: list[tuple[str, str]] = []
    seen: set[str] = set()
    for part in text.split(","):
        encoded_type, equals, name = part.partition("=")
        entity_type = desanitize(encoded_type)
        if not equals:
            raise IllegalArgumentError(f"{text!r} is not type=name[,type=name]: {part!r} has no '='")
        if entity_type in seen:
            raise IllegalArgumentError(f"{text!r} names {entity_type} twice")
        seen.add(entity_type)
        pairs.append((entity_type, name))
    return pairs


def check_text(value: object, what: str) -> None:
    """Refuse what no request could carry.

    :raises IllegalArgumentError: `value` is no text, or holds half a surrogate pair.
    """
    if not isinstance(value, str):
        raise IllegalArgumentError(f"{what} must be text, not {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise IllegalArgumentError(f"{what} holds half a surrogate pair and cannot be sent: {value!r}") from None
