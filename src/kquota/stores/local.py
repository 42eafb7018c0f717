"""Stores that decide here: they share how a change comes about, and differ in where it is kept."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import token_bytes
from typing import Final, Protocol, Self

from kquota.clock import Clock, SystemClock
from kquota.errors import ApiError, KafkaErrorCode, StoreError
from kquota.quotas import (
    KAFKA,
    MAX_CHANGES_PER_REQUEST,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    QuotaChange,
    QuotaIndex,
    QuotaModel,
    QuotaSnapshot,
    decide,
    is_literal_ip,
    is_same_value,
)
from kquota.stores.port import Commit

__all__ = ["Keeper", "LocalStore", "new_identity"]

_ATTEMPTS: Final = 100
_MOVED: Final = ApiError(KafkaErrorCode.INVALID_UPDATE_VERSION, "somebody else changed this entity meanwhile")


def new_identity() -> str:
    """A random name for new quotas."""
    return urlsafe_b64encode(token_bytes(16)).decode().rstrip("=")


class Keeper(Protocol):
    """Keeps quotas and their history; safe to use from several threads."""

    @property
    def identity(self) -> str:
        """A random name that these quotas have for as long as they are kept: 22 characters, as Kafka's cluster ids."""

    def read(self) -> tuple[QuotaIndex, int]:
        """The quotas as they are now, and the number of the last commit."""

    def commit(self, commit: Commit) -> bool:
        """Keep a commit if its number is the next one; False where somebody else was faster."""

    def history(self, *, since: int) -> Iterator[Commit]:
        """The commits after number `since`, oldest first."""

    def close(self) -> None:
        """Let go of what is open."""


class LocalStore:
    """Snapshot, pure :func:`~kquota.quotas.decide`, commit if nothing moved, otherwise again on a fresh snapshot."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        clock: Clock | None = None,
        model: QuotaModel = KAFKA,
        is_resolvable_ip: Callable[[str], bool] = is_literal_ip,
        max_changes: int | None = MAX_CHANGES_PER_REQUEST,
    ) -> None:
        """Take where the quotas are kept, and what a broker would know besides: see :func:`~kquota.quotas.decide`."""
        self._keeper = keeper
        self._clock = clock or SystemClock()
        self.model = model
        """Which entity types there are, and what may be set on them."""
        self._is_resolvable_ip = is_resolvable_ip
        self._max_changes = max_changes

    @property
    def identity(self) -> str:
        """A random name that the store has for as long as it lives."""
        return self._keeper.identity

    def describe(self, quota_filter: ClientQuotaFilter) -> Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError:
        """As :meth:`QuotaStore.describe`."""
        index, _ = self._keeper.read()
        return index.describe(quota_filter, model=self.model)

    def index(self) -> QuotaIndex:
        """All quotas as they are now."""
        index, _ = self._keeper.read()
        return index

    def alter(
        self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False, principal: str = ""
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """As :meth:`QuotaStore.alter`.

        :raises StoreError: others changed something every time that this was about to be kept.
        """
        return self._alter(list(alterations), None, validate_only=validate_only, principal=principal)

    def compare_and_alter(
        self, alterations: Iterable[ClientQuotaAlteration], expected: QuotaSnapshot, *, principal: str = ""
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """As :meth:`ComparesAndSets.compare_and_alter`.

        :raises StoreError: as :meth:`alter`.
        """
        asked = list(alterations)
        results = self._alter(asked, expected, validate_only=False, principal=principal)
        return {one.entity: results.get(one.entity, _MOVED) for one in asked}

    def _alter(
        self,
        asked: list[ClientQuotaAlteration],
        expected: QuotaSnapshot | None,
        *,
        validate_only: bool,
        principal: str,
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """Decide on a snapshot, and commit; without entities that are not as expected, if something is."""
        for _ in range(_ATTEMPTS):
            index, number = self._keeper.read()
            alterations = asked if expected is None else _unmoved(asked, expected, index.snapshot)
            decision = decide(
                index.snapshot,
                alterations,
                model=self.model,
                is_resolvable_ip=self._is_resolvable_ip,
                max_changes=self._max_changes,
            )
            is_distinct = len(decision.results) == len(alterations)
            changes = decision.changes if is_distinct else _net(decision.changes)
            if validate_only or not changes:
                return decision.results
            if self._keeper.commit(Commit(number + 1, self._clock.now_ms(), principal, changes)):
                return decision.results
        raise StoreError(f"nothing was changed: others changed the store {_ATTEMPTS} times meanwhile; try again")

    def history(self, *, since: int = 0) -> Iterator[Commit]:
        """As :meth:`HasHistory.history`."""
        return self._keeper.history(since=since)

    def close(self) -> None:
        """Let go of what is open. Safe to call twice."""
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _unmoved(
    alterations: Iterable[ClientQuotaAlteration], expected: QuotaSnapshot, current: QuotaSnapshot
) -> list[ClientQuotaAlteration]:
    """Those of entities whose values are as expected."""

    def is_unmoved(entity: ClientQuotaEntity) -> bool:
        was, now = expected.get(entity, {}), current.get(entity, {})
        return was.keys() == now.keys() and all(is_same_value(value, now[key]) for key, value in was.items())

    return [one for one in alterations if is_unmoved(one.entity)]


def _net(changes: Iterable[QuotaChange]) -> tuple[QuotaChange, ...]:
    """At most one change for each entity and key: what was and what will be.

    A request that names an entity twice is refused for it, and changes it all the same (as Kafka's does): once.
    """
    first: dict[tuple[ClientQuotaEntity, str], QuotaChange] = {}
    for change in changes:
        place = change.entity, change.key
        before = first[place].before if place in first else change.before
        first[place] = QuotaChange(change.entity, change.key, before, change.after)
    return tuple(first.values())
