"""What came of a request (the results of KIP-546, and of Kafka's Admin for topics).

Where Java has futures there are values: the work is done already.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from kquota.errors import ApiError
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
    "Value",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasResult:
    """The entities that matched, or why the filter was refused."""

    found: Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError
    """What :meth:`entities` gives, or raises."""

    def entities(self) -> Mapping[ClientQuotaEntity, Mapping[str, float]]:
        """Each entity that matched, with all its values.

        :raises NotSupportedError: the broker does not know an entity type of the filter.
        :raises NotAuthorizedError: the client may not describe.
        :raises ApiFailedError: the broker refused the filter for another reason.
        """
        if isinstance(self.found, ApiError):
            raise self.found.to_exception()
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

    _values: Mapping[ClientQuotaEntity, Mapping[str, Value] | ApiError]

    def config(self) -> Mapping[ClientQuotaEntity, Mapping[str, Value]]:
        """By client, in the order asked for: its values by key.

        As Java's futures do, asking for a client that could not be resolved raises why: :class:`ApiFailedError` or
        another that :func:`~kquota.errors.failed` gives, with the name of the client. The others can be asked for.
        """
        return _Config(self._values)

    def values(self) -> Mapping[ClientQuotaEntity, Mapping[str, Value] | ApiError]:
        """By client, in the order asked for: its values by key, or why it could not be resolved. Nothing is raised."""
        return self._values

    def all(self) -> None:
        """Nothing, if all were resolved.

        :raises ApiFailedError: the first that was not, with its name.
        """
        for _ in self.config().values():
            pass


class _Config(UserDict[ClientQuotaEntity, Any]):
    """The values of each client; of one that could not be resolved the error is raised when it is asked for."""

    def __getitem__(self, client: ClientQuotaEntity) -> Mapping[str, Value]:
        found: Mapping[str, Value] | ApiError = self.data[client]
        if isinstance(found, ApiError):
            message = f"{client.to_text()}: {found.message or 'it could not be resolved'}"
            raise replace(found, message=message).to_exception()
        return found


@dataclass(frozen=True, slots=True)
class _Changes(Generic[T]):
    """How it went for each of what was to be changed."""

    _values: Mapping[T, ApiError | None]

    def values(self) -> Mapping[T, ApiError | None]:
        """By entity or topic, in the order asked for: None where it was done, otherwise why not.

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
                raise error.to_exception()


class AlterClientQuotasResult(_Changes[ClientQuotaEntity]):
    """How it went for each entity."""


class CreatedTopic(NamedTuple):
    """A new topic. None is what an answer does not have: an old broker's, or one for a client that may not see it."""

    topic_id: UUID | None
    num_partitions: int | None
    replication_factor: int | None


@dataclass(frozen=True, slots=True)
class CreateTopicsResult(_Changes[str]):
    """How it went for each topic."""

    _created: Mapping[str, CreatedTopic]

    def created(self) -> Mapping[str, CreatedTopic]:
        """The topics that were created, or that would have been, with what the brokers gave them."""
        return self._created


class DeleteTopicsResult(_Changes[str]):
    """How it went for each topic."""


class CreatePartitionsResult(_Changes[str]):
    """How it went for each topic."""
