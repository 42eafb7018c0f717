"""The port to quotas, whoever keeps them, in KIP-546's own shape: describe a filter, alter entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from kquota.errors import ApiError
from kquota.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    QuotaChange,
    QuotaIndex,
    QuotaModel,
    QuotaSnapshot,
)
from kquota.stores.watch import QuotaWatch

if TYPE_CHECKING:
    from kquota.stores.host_names import HostNames, Hosts

__all__ = ["Commit", "ComparesAndSets", "HasHistory", "QuotaStore", "Servable", "Watchable"]


class QuotaStore(Protocol):
    """Quotas that can be described and altered; a context manager, closed when left."""

    @property
    def identity(self) -> str | None:
        """The id that these quotas have, from wherever they are asked: a cluster's; None where it has none."""

    def describe(self, quota_filter: ClientQuotaFilter) -> Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError:
        """The entities that match, with all their values, sorted by entity; or why the filter is refused."""

    def alter(
        self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False, principal: str = ""
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """Alter each entity as a whole, and each for itself: None where it was accepted, otherwise why not.

        :param validate_only: only say what would come of it.
        :param principal: who asks, for the history.
        """

    def close(self) -> None:
        """Let go of what is open. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Commit:
    """One request that changed something. Numbers grow by one from 1."""

    number: int
    at_ms: int
    principal: str
    changes: tuple[QuotaChange, ...]


@runtime_checkable
class HasHistory(Protocol):
    """A store that keeps what was changed, when and by whom."""

    def history(self, *, since: int = 0) -> Iterator[Commit]:
        """The commits after number `since`, oldest first."""


@runtime_checkable
class ComparesAndSets(Protocol):
    """A store that can make a change depend on what is there, with nobody between looking and changing."""

    def compare_and_alter(
        self, alterations: Iterable[ClientQuotaAlteration], expected: QuotaSnapshot, *, principal: str = ""
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """As :meth:`QuotaStore.alter`, for entities whose values are those of `expected`, where absent is none.

        The others are refused with ``INVALID_UPDATE_VERSION``. Each entity may be named once.
        """


@runtime_checkable
class Watchable(Protocol):
    """A store whose changes can be followed, whoever makes them."""

    def watch(self) -> QuotaWatch:
        """Look at all quotas from now on, until the watch or the store is closed.

        :raises StoreError: what was opened never changes, since it is seen as it was then.
        """


@runtime_checkable
class Servable(Protocol):
    """A store that is here, so that Kafka's quota requests can be answered from it."""

    @property
    def model(self) -> QuotaModel:
        """Which entity types there are, and what may be set on them."""

    @property
    def host_names(self) -> HostNames | None:
        """What finds the hosts that are named as ip; None where only addresses are taken."""

    def index(self) -> QuotaIndex:
        """All quotas as they are now. Cheap, and never waits for a commit.

        :raises StoreError: they cannot be read.
        """

    def alter(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        principal: str = "",
        hosts: Hosts | None = None,
        wait_ms: int | None = None,
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """As :meth:`QuotaStore.alter`.

        :param hosts: what was found of the host names given as ip.
        :param wait_ms: for how long to wait for those who commit before; ten seconds if nothing is said.
        :raises StoreError: nothing was changed; or that is unknown, if it says so.
        """

    def maintain(self) -> None:
        """Do now and then what no request waits for, and look whether all is well.

        :raises StoreError: it is not.
        """
