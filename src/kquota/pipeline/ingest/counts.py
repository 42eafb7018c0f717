"""Counts of what was read: each worker has its own, and the driver adds them up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

__all__ = ["LineCounts", "total"]

_Counts = TypeVar("_Counts", bound=Struct)


class LineCounts(Struct):
    """Lines of a log: `lines` = `good` + `rejected` + `blank`, and `good` includes `forwarded` and `followers`."""

    lines: int = 0
    good: int = 0
    rejected: int = 0
    blank: int = 0
    forwarded: int = 0
    """Copies of requests that the controller was sent by another broker."""
    followers: int = 0
    """Fetches of other brokers."""
    unknown_amounts: int = 0
    """Requests of which the line does not say what they were charged."""
    versions: dict[str, int] = {}
    """Requests by ``API_KEY:VERSION``."""


def total(kind: type[_Counts], counts: Iterable[_Counts]) -> _Counts:
    """Add up counts of one kind, field by field: numbers, dictionaries of numbers by key; lists are joined."""
    found = kind()
    for one in counts:
        for name in kind.__struct_fields__:
            value, before = getattr(one, name), getattr(found, name)
            if isinstance(value, dict):
                before |= {key: before.get(key, 0) + count for key, count in value.items()}
            else:
                setattr(found, name, before + value)
    return found
