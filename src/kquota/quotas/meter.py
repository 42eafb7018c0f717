"""What usage is counted against: ``MeterKey``, the non-empty metric tags of Kafka's quota sensors."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from kquota.errors import IllegalArgumentError
from kquota.quotas.entity import DEFAULT_TEXT, canonical_types, split_canonical
from kquota.quotas.sanitizer import desanitize, sanitize

__all__ = ["MeterKey"]

_set = object.__setattr__


class MeterKey:
    """The tags of one meter, raw names, empty ones left out: all clients with the same key share its usage.

    ``{user, client-id}`` is one client of one user, ``{user}`` all clients of a user, ``{client-id}`` a client id
    across users, ``{ip}`` an address. It is not an entity: a limit set on ``{user: None}`` is metered on
    ``{user: alice}`` for each user, and an entity never equals a meter.
    """

    __slots__ = ("_hash", "tags")

    tags: Mapping[str, str]
    """Tag to name, read-only."""

    _hash: int

    def __init__(self, tags: Mapping[str, str]) -> None:
        own = {tag: name for tag, name in tags.items() if name}
        _set(self, "tags", MappingProxyType(own))
        _set(self, "_hash", hash(frozenset(own.items())))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"MeterKey is frozen; cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"MeterKey is frozen; cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MeterKey):
            return self._hash == other._hash and self.tags == other.tags
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return MeterKey, (dict(self.tags),)

    def __repr__(self) -> str:
        return f"MeterKey({dict(self.tags)!r})"

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Canonical text: ``user=alice,client-id=etl``, names sanitized, types in the order user, client-id, ip."""
        tags = self.tags
        return ",".join([f"{sanitize(tag)}={sanitize(tags[tag])}" for tag in canonical_types(tags)])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The meter whose :meth:`to_text` is ``text``. Raises :class:`~kquota.errors.IllegalArgumentError`."""
        pairs = split_canonical(text)
        for tag, name in pairs:
            if name == DEFAULT_TEXT or not name:
                raise IllegalArgumentError(f"{text!r} is not a meter: {tag} must have a name")
        return cls({tag: desanitize(name) for tag, name in pairs})
