"""Stores that decide here: they share how a change comes about, and differ in where it is kept."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from secrets import token_bytes
from typing import Final, Protocol

from kquota.clock import Clock, SystemClock
from kquota.errors import ApiError, KafkaErrorCode, StoreError
from kquota.quotas import (
    IP,
    KAFKA,
    MAX_CHANGES_PER_REQUEST,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    Decision,
    QuotaChange,
    QuotaIndex,
    QuotaModel,
    QuotaSnapshot,
    decide,
    is_literal_ip,
    is_same_value,
)
from kquota.stores.host_names import HostNames, Hosts, hosts_of
from kquota.stores.port import Commit, QuotaStore
from kquota.stores.watch import QuotaWatch, Watches

__all__ = ["LocalStore", "StoreBackend", "are_same_values", "new_identity"]

_WAIT_MS: Final = 10_000
_LOOK_EVERY_MS: Final = 250
"""Other processes change a file without a word."""
_CHANGED_MEANWHILE: Final = ApiError(
    KafkaErrorCode.INVALID_UPDATE_VERSION, "somebody else changed this entity meanwhile"
)


def new_identity() -> str:
    """A random name for new quotas."""
    return urlsafe_b64encode(token_bytes(16)).decode().rstrip("=")


class StoreBackend(Protocol):
    """Keeps quotas and their history; safe to use from several threads."""

    @property
    def identity(self) -> str:
        """A random name that these quotas have for as long as they are kept: 22 characters, as Kafka's cluster ids."""

    @property
    def is_live(self) -> bool:
        """Whether :meth:`read` sees what others change later."""

    def read(self) -> QuotaIndex:
        """The quotas as they are now, the same object while nothing changed; never waits for a commit."""

    def commit(self, made: Callable[[QuotaIndex, int], Commit | None], *, wait_ms: int) -> None:
        """Keep what is made of the quotas and the number of the next commit; nobody else can commit meanwhile.

        :param wait_ms: for how long to wait for those who commit before.
        """

    def history(self, *, since: int) -> Iterator[Commit]:
        """The commits after number `since`, oldest first."""

    def maintain(self) -> None:
        """Do now and then what no request waits for, and look whether all is well."""

    def close(self) -> None:
        """Let go of what is open."""


class LocalStore(QuotaStore):
    """Snapshot, pure :func:`~kquota.quotas.decide`, commit; decided once more where somebody else was faster."""

    def __init__(
        self,
        keeper: StoreBackend,
        *,
        clock: Clock | None = None,
        model: QuotaModel = KAFKA,
        host_names: HostNames | None = None,
        max_changes: int | None = MAX_CHANGES_PER_REQUEST,
    ) -> None:
        """Take where the quotas are kept, and what a broker would know besides: see :func:`~kquota.quotas.decide`.

        :param host_names: what finds the hosts that are named as ip; without it only addresses are taken.
        """
        self.host_names = host_names
        self._keeper = keeper
        self._clock = clock or SystemClock()
        self.model = model
        """Which entity types there are, and what may be set on them."""
        self._max_changes = max_changes
        self._watches = Watches()

    @property
    def identity(self) -> str:
        """A random name that the store has for as long as it lives."""
        return self._keeper.identity

    def describe(self, quota_filter: ClientQuotaFilter) -> Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError:
        """As :meth:`QuotaStore.describe`."""
        return self._keeper.read().describe(quota_filter, model=self.model)

    def index(self) -> QuotaIndex:
        """As :meth:`Servable.index`."""
        return self._keeper.read()

    def alter(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        principal: str = "",
        hosts: Hosts | None = None,
        wait_ms: int | None = None,
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """As :meth:`Servable.alter`."""
        asked = list(alterations)
        hosts = self._hosts(asked) if hosts is None else hosts
        if validate_only:
            return self._decide(self._keeper.read(), asked, hosts).results
        return self._alter(asked, None, hosts, principal=principal, wait_ms=wait_ms)

    def compare_and_alter(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        expected: QuotaSnapshot,
        *,
        principal: str = "",
        hosts: Hosts | None = None,
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """As :meth:`ComparesAndSets.compare_and_alter`.

        :raises StoreError: as :meth:`alter`.
        """
        asked = list(alterations)
        hosts = self._hosts(asked) if hosts is None else hosts
        results = self._alter(asked, expected, hosts, principal=principal)
        return {one.entity: results.get(one.entity, _CHANGED_MEANWHILE) for one in asked}

    def _alter(
        self,
        asked: list[ClientQuotaAlteration],
        expected: QuotaSnapshot | None,
        hosts: Hosts,
        *,
        principal: str,
        wait_ms: int | None = None,
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """Decide, and commit; without entities that are not as expected, if something is."""

        def decided(index: QuotaIndex) -> Decision:
            unchanged = asked if expected is None else _unchanged(asked, expected, index.snapshot)
            decision = self._decide(index, unchanged, hosts)
            is_distinct = len(decision.results) == len(unchanged)
            return decision if is_distinct else replace(decision, changes=_net(decision.changes))

        index = self._keeper.read()
        decision = decided(index)
        if not decision.changes:
            return decision.results

        def commit(current: QuotaIndex, number: int) -> Commit | None:
            nonlocal decision
            if current is not index:
                decision = decided(current)
            changes = decision.changes
            return Commit(number, self._clock.now_ms(), principal, changes) if changes else None

        self._keeper.commit(commit, wait_ms=_WAIT_MS if wait_ms is None else wait_ms)
        self._watches.look_now()
        return decision.results

    def _decide(self, index: QuotaIndex, asked: list[ClientQuotaAlteration], hosts: Hosts) -> Decision:
        decision = decide(
            index.snapshot,
            asked,
            model=self.model,
            is_resolvable_ip=lambda name: is_literal_ip(name) or bool(hosts.get(name)),
            max_changes=self._max_changes,
        )
        if None not in hosts.values():
            return decision
        results = {entity: _with_reason(entity, error, hosts) for entity, error in decision.results.items()}
        return replace(decision, results=results)

    def _hosts(self, asked: list[ClientQuotaAlteration]) -> Hosts:
        """Looked up before anything is decided: a name server may take its time, and nobody is to wait for that."""
        return {} if self.host_names is None else self.host_names.look_up(hosts_of(asked))

    def watch(self) -> QuotaWatch:
        """As :meth:`Watchable.watch`: what this store changes is seen at once, what others do a quarter second later.

        :raises StoreError: it is seen as it was when it was opened.
        """
        if not self._keeper.is_live:
            raise StoreError("this store is seen as it was when it was opened to be read: it cannot be followed")
        watch = QuotaWatch(lambda: self._keeper.read().snapshot, every_ms=_LOOK_EVERY_MS, clock=self._clock)
        return self._watches.add(watch)

    def history(self, *, since: int = 0) -> Iterator[Commit]:
        """As :meth:`HasHistory.history`."""
        return self._keeper.history(since=since)

    def maintain(self) -> None:
        """As :meth:`Servable.maintain`."""
        self._keeper.maintain()

    def close(self) -> None:
        """Let go of what is open. Safe to call twice."""
        self._watches.close()
        self._keeper.close()


def _with_reason(entity: ClientQuotaEntity, error: ApiError | None, hosts: Hosts) -> ApiError | None:
    """What is refused for a host name that could not be looked up says so."""
    ip = entity.entries.get(IP)
    if error is None or ip is None or hosts.get(ip, False) is not None:
        return error
    return replace(error, message=f"{error.message} It could not be looked up in time; try again with fewer names.")


def _unchanged(
    alterations: Iterable[ClientQuotaAlteration], expected: QuotaSnapshot, current: QuotaSnapshot
) -> list[ClientQuotaAlteration]:
    """Those of entities whose values are as expected."""
    return [one for one in alterations if are_same_values(expected.get(one.entity, {}), current.get(one.entity, {}))]


def are_same_values(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether the same keys have the same values."""
    return one.keys() == other.keys() and all(is_same_value(value, other[key]) for key, value in one.items())


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
