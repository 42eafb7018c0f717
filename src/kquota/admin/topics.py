"""``AsyncTopicAdmin``: create and delete topics and add partitions, at the pace that a quota allows (KIP-599)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self, TypeVar
from uuid import UUID

from msgspec import Struct

from kquota.admin.mutation import FindController, Mutation, Wait
from kquota.admin.options import CreatePartitionsOptions, CreateTopicsOptions, DeleteTopicsOptions, TopicsOptions
from kquota.admin.results import CreatedTopic, CreatePartitionsResult, CreateTopicsResult, DeleteTopicsResult
from kquota.admin.transport import Transport
from kquota.clock import Clock, SystemClock
from kquota.errors import (
    ApiError,
    ConnectionFailedError,
    IllegalArgumentError,
    KafkaErrorCode,
    KquotaError,
    MalformedMessageError,
    RequestTimeoutError,
)
from kquota.metering.requests import STRICT_SINCE
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, Api
from kquota.wire.messages.topics import (
    UNKNOWN,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

__all__ = ["AsyncTopicAdmin", "NewPartitions", "NewTopic"]

_INT32_MAX: Final = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. Without numbers the brokers' defaults count.

    `replicas_assignments` names the brokers of each partition, instead of both numbers.
    """

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replicas_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict, kw_only=True)
    configs: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if self.replicas_assignments and (self.num_partitions, self.replication_factor) != (None, None):
            raise IllegalArgumentError(f"topic {self.name}: give numbers or assignments, not both")
        if not _fits(self.num_partitions or 0, 32) or not _fits(self.replication_factor or 0, 16):
            raise IllegalArgumentError(f"topic {self.name}: no request can hold these numbers")


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic is to have in all. `new_assignments` names the brokers of each that is added."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        if not _fits(self.total_count, 32):
            raise IllegalArgumentError(f"{self.total_count} partitions: no request can hold this number")

    @classmethod
    def increase_to(cls, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None) -> Self:
        """Kafka's own way to say it."""
        return cls(total_count, new_assignments)


class _Result(Protocol):
    """What the results for one topic have in common."""

    @property
    def name(self) -> str | None: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


class AsyncTopicAdmin:
    """Changes of topics, as :attr:`AsyncQuotaAdmin.topics <kquota.admin.AsyncQuotaAdmin.topics>`.

    Each topic has its own result. Where a quota refuses some (``controller_mutation_rate``), these alone are asked for
    again after the time that the broker told, until the time of the call is over. Whatever a broker tells this client
    to wait, nothing more is sent to it before.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_ms: int,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Take the way to the cluster, and the time for each call without one of its own."""
        self._transport = transport
        self._timeout_ms = timeout_ms
        self._clock = clock or SystemClock()
        self._sleep = sleep

    async def create_topics(
        self, new_topics: Iterable[NewTopic], options: CreateTopicsOptions | None = None
    ) -> CreateTopicsResult:
        """Create topics.

        :raises IllegalArgumentError: a topic appears twice.
        :raises KquotaError: the cluster could not be asked at all: nothing was sent.
        """
        options = options or CreateTopicsOptions()
        asked = _distinct((topic.name, topic) for topic in new_topics)
        answered: dict[str, CreatableTopicResult] = {}

        def request(names: Sequence[str], timeout_ms: int) -> Struct:
            return CreateTopicsRequest([_creatable(asked[name]) for name in names], timeout_ms, options.validate_only)

        def results(answer: Any) -> Iterable[_Result]:
            found: list[CreatableTopicResult] = answer.topics
            answered.update({one.name: one for one in found})
            return found

        values = await self._change(CREATE_TOPICS, asked, request, results, options)
        created = {name: _created(answered[name]) for name, error in values.items() if error is None}
        return CreateTopicsResult(values, created)

    async def delete_topics(
        self, topics: Iterable[str], options: DeleteTopicsOptions | None = None
    ) -> DeleteTopicsResult:
        """Delete topics.

        :raises IllegalArgumentError: a topic appears twice.
        :raises KquotaError: the cluster could not be asked at all: nothing was sent.
        """
        asked = _distinct((name, name) for name in topics)

        def request(names: Sequence[str], timeout_ms: int) -> Struct:
            return DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), timeout_ms)

        options = options or DeleteTopicsOptions()
        return DeleteTopicsResult(
            await self._change(DELETE_TOPICS, asked, request, lambda answer: answer.responses, options)
        )

    async def create_partitions(
        self, new_partitions: Mapping[str, NewPartitions], options: CreatePartitionsOptions | None = None
    ) -> CreatePartitionsResult:
        """Add partitions, up to the numbers given by topic.

        :raises KquotaError: the cluster could not be asked at all: nothing was sent.
        """
        options = options or CreatePartitionsOptions()

        def request(names: Sequence[str], timeout_ms: int) -> Struct:
            topics = [_more_partitions(name, new_partitions[name]) for name in names]
            return CreatePartitionsRequest(topics, timeout_ms, options.validate_only)

        return CreatePartitionsResult(
            await self._change(CREATE_PARTITIONS, new_partitions, request, lambda answer: answer.results, options)
        )

    async def _change(
        self,
        api: Api,
        topics: Iterable[str],
        request: Callable[[Sequence[str], int], Struct],
        results: Callable[[Any], Iterable[_Result]],
        options: TopicsOptions,
    ) -> Mapping[str, ApiError | None]:
        """Send what is to be sent until every topic has its result."""
        now_ms = self._clock.monotonic_ms
        mutation = Mutation(
            topics,
            now_ms=now_ms(),
            timeout_ms=self._timeout_ms if options.timeout_ms is None else options.timeout_ms,
            retry_on_quota_violation=options.retry_on_quota_violation,
        )
        while (step := mutation.step(now_ms())) is not None:
            if isinstance(step, Wait):
                await self._sleep(step.wait_ms / 1000)
                continue
            if isinstance(step, FindController):
                await self._transport.find_controller(step.timeout_ms)
                continue
            try:
                answer = await self._transport.send(
                    api,
                    request(step.topics, min(int(step.timeout_ms), _INT32_MAX)),
                    timeout_ms=step.timeout_ms,
                    to_controller=True,
                    max_version=STRICT_SINCE[api.key] - 1 if options.permissive else None,
                )
            except (RequestTimeoutError, MalformedMessageError) as error:
                mutation.gave_up(ApiError(KafkaErrorCode.REQUEST_TIMED_OUT, f"{error}; it may have been done or not"))
            except KquotaError as error:
                if not mutation.was_answered:
                    raise
                if isinstance(error, ConnectionFailedError):
                    mutation.not_sent(now_ms())
                else:
                    mutation.gave_up(ApiError(KafkaErrorCode.NETWORK_EXCEPTION, f"not sent again: {error}"))
            else:
                errors = {one.name: _error(one) for one in results(answer) if one.name is not None}
                mutation.answered(now_ms(), answer.throttle_time_ms, errors)
        return mutation.results


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits - 1) <= number < 1 << bits - 1


def _distinct(named: Iterable[tuple[str, T]]) -> dict[str, T]:
    """By name.

    :raises IllegalArgumentError: a name appears twice.
    """
    found: dict[str, T] = {}
    for name, one in named:
        if name in found:
            raise IllegalArgumentError(f"topic {name} appears twice in one request")
        found[name] = one
    return found


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition, list(brokers))
        for partition, brokers in topic.replicas_assignments.items()
    ]
    return CreatableTopic(
        topic.name,
        UNKNOWN if topic.num_partitions is None else topic.num_partitions,
        UNKNOWN if topic.replication_factor is None else topic.replication_factor,
        assignments,
        [CreatableTopicConfig(key, value) for key, value in topic.configs.items()],
    )


def _more_partitions(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if new.new_assignments is not None:
        assignments = [CreatePartitionsAssignment(list(brokers)) for brokers in new.new_assignments]
    return CreatePartitionsTopic(name, new.total_count, assignments)


def _created(result: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        UUID(bytes=result.topic_id) if any(result.topic_id) else None,
        None if result.num_partitions == UNKNOWN else result.num_partitions,
        None if result.replication_factor == UNKNOWN else result.replication_factor,
    )


def _error(result: _Result) -> ApiError | None:
    return ApiError(result.error_code, result.error_message) if result.error_code else None
