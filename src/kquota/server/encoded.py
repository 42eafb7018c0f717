"""Entities as they stand in an answer, encoded once for each version and kept until their values change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kquota.quotas import ClientQuotaEntity
from kquota.wire.apis import DESCRIBE_CLIENT_QUOTAS
from kquota.wire.messages.client_quotas import EntityPart, Entry, Value
from kquota.wire.schema import codec

__all__ = ["EncodedEntries"]

_Values = Mapping[str, float]
_SPARE: Final = 1_000


class EncodedEntries:
    """For one version. Values are told apart by identity: a snapshot shares those that did not change with the last."""

    def __init__(self, version: int) -> None:
        flexible = DESCRIBE_CLIENT_QUOTAS.is_flexible(version)
        self._write = codec(Entry, version, flexible=flexible).write
        self._kept: dict[ClientQuotaEntity, tuple[_Values, bytes]] = {}

    def of(self, entities: Iterable[tuple[ClientQuotaEntity, _Values]], *, of_all: int) -> list[bytes]:
        """Each as bytes, in order.

        :param of_all: how many entities there are; what is kept is not much more.
        """
        kept = self._kept
        found = []
        for entity, values in entities:
            known = kept.get(entity)
            if known is not None and known[0] is values:
                found.append(known[1])
            else:
                encoded = self._write(_entry(entity, values))
                kept[entity] = values, encoded
                found.append(encoded)
        if len(kept) > 2 * of_all + _SPARE:
            # Most of it is of entities that are gone.
            kept.clear()
        return found


def _entry(entity: ClientQuotaEntity, values: _Values) -> Entry:
    return Entry(
        [EntityPart(kind, name) for kind, name in entity.entries.items()],
        [Value(key, value) for key, value in values.items()],
    )
