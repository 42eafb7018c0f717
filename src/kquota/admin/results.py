"""What came of a request (the results of KIP-546, and of Kafka's Admin for topics).

Where Java has futures there are values: the work is done already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kquota.errors import ApiError, failed
from kquota.quotas import ClientQuotaEntity, MeterKey, StaticSource

__all__ = [
    "AlterClientQuotasResult",
    "CreatePartitionsResult",
    "CreateTopicsResult",
    "CreatedTopic",
    "DeleteTopicsResult",
    "DescribeClientQuotasResult",
    "Entry",
    "ResolveClientQuotasResult",
    "TopicsResult",
    "Value",
]


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasResult:
    """The entities that matched, or why the filter was refused."""

    found: Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError
    """What :meth:`entities` gives, or raises."""

    def entities(self) -> Mapping[ClientQuotaEntity, Mapping[str, float]]:
        """Each entity that matched, with all its values.

        :raises ApiFailedError: the broker refused the filter.
        """
        if isinstance(self.found, ApiError):
            raise failed(self.found)
        return self.found


class Entry(NamedTuple):
    """A value, where it is set (an entity, or the broker's static default) and its level of precedence, from 1."""

    source: ClientQuotaEntity | StaticSource
    value: float
    level: int


class Value(NamedTuple):
    """What binds for one key, what usage is counted against, and the entries that it overrides, in order."""

    entry: Entry
    meter: MeterKey
    overridden_entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolveClientQuotasResult:
    """What binds each client; keys without a limit are left out."""

    _config: Mapping[ClientQuotaEntity, Mapping[str, Value] | ApiError]

    def config(self) -> Mapping[ClientQuotaEntity, Mapping[str, Value] | ApiError]:
        """By client, in the order asked for: its values by key, or why it could not be resolved."""
        return self._config

    def all(self) -> None:
        """Nothing, if all were resolved.

        :raises ApiFailedError: the first that was not.
        """
        for outcome in self._config.values():
            if isinstance(outcome, ApiError):
                raise failed(outcome)


@dataclass(frozen=True, slots=True)
class AlterClientQuotasResult:
    """How it went for each entity."""

    _values: Mapping[ClientQuotaEntity, ApiError | None]

    def values(self) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """By entity, in the order asked for: None where it was done, otherwise why not.

        An error that :attr:`~kquota.errors.ApiError.is_unknown` says that it may have been done or not.
        """
        return self._values

    def all(self) -> None:
        """Nothing, if all were done.

        :raises ApiFailedError: the first that was not.
        """
        for error in self._values.values():
            if error is not None:
                raise failed(error)


@dataclass(frozen=True, slots=True)
class TopicsResult:
    """How it went for each topic."""

    _values: Mapping[str, ApiError | None]

    def values(self) -> Mapping[str, ApiError | None]:
        """By topic, in the order asked for: None where it was done, otherwise why not.

        An error that :attr:`~kquota.errors.ApiError.is_unknown` says that it may have been done or not.
        """
        return self._values

    def all(self) -> None:
        """Nothing, if all were done.

        :raises ThrottlingQuotaExceededError: the first that was not was refused by a quota.
        :raises ApiFailedError: the first that was not.
        """
        for error in self._values.values():
            if error is not None:
                raise failed(error)


class CreatedTopic(NamedTuple):
    """A new topic; None is what brokers do not tell: old ones, or those who know that this client may not see it."""

    topic_id: UUID | None
    num_partitions: int | None
    replication_factor: int | None


@dataclass(frozen=True, slots=True)
class CreateTopicsResult(TopicsResult):
    """How it went for each topic."""

    _created: Mapping[str, CreatedTopic]

    def created(self) -> Mapping[str, CreatedTopic]:
        """The topics that were created, or that would have been, with what the brokers gave them."""
        return self._created


class DeleteTopicsResult(TopicsResult):
    """How it went for each topic."""


class CreatePartitionsResult(TopicsResult):
    """How it went for each topic."""
