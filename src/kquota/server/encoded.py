"""Entities as they stand in an answer, encoded once for each version and kept until their values change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from kquota.quotas import ClientQuotaEntity
from kquota.wire.apis import DESCRIBE_CLIENT_QUOTAS
from kquota.wire.messages.client_quotas import EntityPart, Entry, Value
from kquota.wire.schema import codec

__all__ = ["EncodedEntries"]

_Values = Mapping[str, float]
_SPARE: Final = 1_000
_SHOWN_CHARACTERS: Final = 200

_log = structlog.get_logger("kquota.server")


class EncodedEntries:
    """For one version. Values are told apart by identity: a snapshot shares those that did not change with the last."""

    def __init__(self, version: int) -> None:
        flexible = DESCRIBE_CLIENT_QUOTAS.is_flexible(version)
        self._write = codec(Entry, version, flexible=flexible).write
        self._kept: dict[ClientQuotaEntity, tuple[_Values, bytes | None]] = {}

    def of(self, entities: Iterable[tuple[ClientQuotaEntity, _Values]], *, of_all: int) -> list[bytes]:
        """Each as bytes, in order; without those that cannot be sent, which the log names once.

        :param of_all: how many entities there are; what is kept is not much more.
        """
        kept = self._kept
        found = []
        for entity, values in entities:
            known = kept.get(entity)
            if known is None or known[0] is not values:
                known = kept[entity] = values, self._encoded(entity, values)
            if known[1] is not None:
                found.append(known[1])
        if len(kept) > 2 * of_all + _SPARE:
            # Most of it is of entities that are gone.
            kept.clear()
        return found

    def _encoded(self, entity: ClientQuotaEntity, values: _Values) -> bytes | None:
        """None for what a store should not hold, and may all the same: a name or a key that is too long."""
        try:
            return self._write(_entry(entity, values))
        except ValueError as error:
            _log.error(
                "an entity cannot be sent and is left out of answers; remove it with kquota alter or apply --store",
                entity=entity.to_text()[:_SHOWN_CHARACTERS],
                reason=str(error),
            )
            return None


def _entry(entity: ClientQuotaEntity, values: _Values) -> Entry:
    return Entry(
        [EntityPart(kind, name) for kind, name in entity.entries.items()],
        [Value(key, value) for key, value in values.items()],
    )
