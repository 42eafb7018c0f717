"""``AsyncQuotaAdmin``: describe, resolve and alter the quotas of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from kquota.admin.carried import Repeated
from kquota.admin.cluster import cluster_of
from kquota.admin.options import AlterClientQuotasOptions, DescribeClientQuotasOptions, ResolveClientQuotasOptions
from kquota.admin.results import (
    AlterClientQuotasResult,
    DescribeClientQuotasResult,
    Entry,
    ResolveClientQuotasResult,
    Value,
)
from kquota.admin.servers import bootstrap_addresses
from kquota.admin.topics import AsyncTopicAdmin
from kquota.admin.transport import KafkaTransport, Transport
from kquota.errors import (
    ApiError,
    ConnectionFailedError,
    IllegalArgumentError,
    KafkaErrorCode,
    RequestTimeoutError,
)
from kquota.metering.cluster import Cluster, Node
from kquota.quotas import (
    KAFKA,
    STATIC,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    MeterKey,
    QuotaModel,
    QuotaResolver,
    StaticSource,
)
from kquota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, METADATA, RESOLVE_QUOTAS
from kquota.wire.messages.client_quotas import (
    Alteration,
    AlterClientQuotasRequest,
    Component,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityPart,
    Op,
)
from kquota.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataTopic
from kquota.wire.messages.resolve_client_quotas import (
    NamedPart,
    ResolveClientQuotasRequest,
    ResolvedClient,
    ResolveQuotasRequest,
    Rule,
)
from kquota.wire.primitives import check_text

__all__ = ["AsyncQuotaAdmin", "LastDescription"]

DEFAULT_TIMEOUT_MS: Final = 60_000
"""``default.api.timeout.ms``."""

CHUNK_ENTITIES: Final = 1_000
CHUNK_OPS: Final = 8_000
"""A broker refuses requests of more than 10,000 changes."""

T = TypeVar("T")


class LastDescription:
    """What a filter was last answered, for who asks again and again: see :meth:`QuotaAdmin.describe_client_quotas`."""

    __slots__ = ("answer", "repeated", "result")

    def __init__(self) -> None:
        self.repeated = Repeated()
        self.answer: Any = None
        self.result: DescribeClientQuotasResult | None = None


class AsyncQuotaAdmin:
    """Quotas of Kafka since 2.6, or of a kquota server. An async context manager, closed when left.

    KIP-546's three requests. What the brokers decide is not decided here: types and keys unknown to kquota are sent.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        transport: Transport | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        client_id: str = "kquota",
        model: QuotaModel = KAFKA,
        **properties: Any,
    ) -> None:
        """Take the servers to begin with; nothing is sent yet.

        :param timeout_ms: for each call without one of its own.
        :param model: by which clients are resolved where the cluster does not do it; nothing else is judged by it.
        :raises IllegalArgumentError: a server holds a login, or no request can hold the client id.
        :param properties: kafka-python's: ``security_protocol``, ``ssl_cafile``, ``sasl_mechanism`` and so on.
        """
        check_text(client_id)
        self._transport = transport or KafkaTransport(
            bootstrap_addresses(bootstrap_servers), client_id=client_id, properties=properties
        )
        self._timeout_ms = timeout_ms
        self._model = model
        self.topics = AsyncTopicAdmin(self._transport, timeout_ms=timeout_ms)

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        options: DescribeClientQuotasOptions | None = None,
        *,
        last: LastDescription | None = None,
    ) -> DescribeClientQuotasResult:
        """The entities that match, with their values.

        :param last: what the same filter was answered before, to be given again each time: where the answer has the
            same bytes, the result is the same object, and nothing is decoded.
        :raises IllegalArgumentError: no request can hold a name of the filter.
        :raises KquotaError: the cluster could not be asked.
        """
        options = options or DescribeClientQuotasOptions()
        components = [Component(one.entity_type, one.match_type, one.match) for one in quota_filter.components]
        answer = await self._transport.send(
            DESCRIBE_CLIENT_QUOTAS,
            DescribeClientQuotasRequest(components, strict=quota_filter.strict),
            timeout_ms=self._timeout(options.timeout_ms),
            repeated=None if last is None else last.repeated,
        )
        if last is None:
            return _described(answer)
        if last.result is None or last.answer is not answer:
            last.answer, last.result = answer, _described(answer)
        return last.result

    async def resolve_client_quotas(
        self, entities: Iterable[ClientQuotaEntity], options: ResolveClientQuotasOptions | None = None
    ) -> ResolveClientQuotasResult:
        """What binds each client (user, client-id, ip and added types by name), and why.

        A kquota server is asked; any other cluster is described once, and resolved here by Kafka's own rules. So is
        a kquota server where `options` have static defaults: those of the brokers that are meant, not its own.

        :raises IllegalArgumentError: a client is given twice, a name is missing, no request can hold it, or there is no
            such static default.
        :raises KquotaError: the cluster could not be asked.
        """
        options = options or ResolveClientQuotasOptions()
        clients = _distinct(entities)
        for client in clients:
            if not client.entries or None in client.entries.values():
                what = client.to_text() or "an empty entity"
                raise IllegalArgumentError(f"{what} is no client: every part needs a name")
        deadline = self._deadline(options.timeout_ms)
        versions = await self._transport.versions(deadline.left_ms)
        if RESOLVE_QUOTAS.key in versions and not options.static_defaults:
            return await self._ask_to_resolve(clients, deadline, omit_overridden=options.omit_overridden_values)
        described = await self.describe_client_quotas(
            ClientQuotaFilter.all(), DescribeClientQuotasOptions(timeout_ms=deadline.left_ms)
        )
        resolver = QuotaResolver(described.entities(), static_defaults=options.static_defaults, model=self._model)
        return ResolveClientQuotasResult(
            {
                client: _resolved_here(client, resolver, omit_overridden=options.omit_overridden_values)
                for client in clients
            }
        )

    async def _ask_to_resolve(
        self, clients: Sequence[ClientQuotaEntity], deadline: _Deadline, *, omit_overridden: bool
    ) -> ResolveClientQuotasResult:
        config: dict[ClientQuotaEntity, Mapping[str, Value] | ApiError] = {}
        for chunk in _chunks(clients):
            entities = [
                ResolveClientQuotasRequest([NamedPart(kind, name or "") for kind, name in client.entries.items()])
                for client in chunk
            ]
            request = ResolveQuotasRequest(entities, include_overridden=not omit_overridden)
            answer = await self._transport.send(RESOLVE_QUOTAS, request, timeout_ms=deadline.left_ms)
            if answer.error_code:
                error = ApiError(answer.error_code, answer.error_message)
                config.update(dict.fromkeys(chunk, error))
            else:
                config.update(zip(chunk, map(_resolved_there, answer.results), strict=True))
        return ResolveClientQuotasResult(config)

    async def alter_client_quotas(
        self, alterations: Iterable[ClientQuotaAlteration], options: AlterClientQuotasOptions | None = None
    ) -> AlterClientQuotasResult:
        """Change quotas: each entity as a whole, and each for itself.

        Many are sent in chunks. Where the connection is lost or the time is over, those that were under way are
        unknown, and those that were not sent yet say so.

        :raises IllegalArgumentError: an entity is given twice, or no request can hold a name or key: nothing was sent.
        :raises KquotaError: the cluster could not be asked at all: nothing was sent.
        """
        options = options or AlterClientQuotasOptions()
        asked = list(alterations)
        _distinct(alteration.entity for alteration in asked)
        for op in (op for alteration in asked for op in alteration.ops):
            check_text(op.key)
        deadline = self._deadline(options.timeout_ms)
        values: dict[ClientQuotaEntity, ApiError | None] = {}
        for chunk in _chunks(asked, lambda alteration: len(alteration.ops)):
            request = AlterClientQuotasRequest([_alteration(one) for one in chunk], validate_only=options.validate_only)
            try:
                answer = await self._transport.send(
                    ALTER_CLIENT_QUOTAS, request, timeout_ms=deadline.left_ms, to_controller=True
                )
            except RequestTimeoutError as error:
                unknown = ApiError(KafkaErrorCode.REQUEST_TIMED_OUT, f"{error}; it may have been done or not")
                values.update({alteration.entity: unknown for alteration in chunk})
                break
            except ConnectionFailedError as error:
                if not values:
                    raise
                unsent = ApiError(KafkaErrorCode.NETWORK_EXCEPTION, f"not sent: {error}")
                values.update({alteration.entity: unsent for alteration in chunk})
                break
            found = {
                _entity(one.entity): ApiError(one.error_code, one.error_message) if one.error_code else None
                for one in answer.entries
            }
            missing = ApiError(KafkaErrorCode.UNKNOWN_SERVER_ERROR, "the answer says nothing about this entity")
            values.update({one.entity: found.get(one.entity, missing) for one in chunk})
        left = ApiError(KafkaErrorCode.NETWORK_EXCEPTION, "not sent: an earlier part of the request failed")
        return AlterClientQuotasResult({one.entity: values.get(one.entity, left) for one in asked})

    async def cluster_id(self, *, timeout_ms: int | None = None) -> str | None:
        """The id of the cluster, which no other one has.

        :raises KquotaError: the cluster could not be asked.
        """
        answer = await self._transport.send(METADATA, MetadataRequest([]), timeout_ms=self._timeout(timeout_ms))
        found: str | None = answer.cluster_id
        return found

    async def nodes(self, *, timeout_ms: int | None = None) -> Sequence[Node]:
        """Its brokers that are there now.

        :raises KquotaError: the cluster could not be asked, or answered an error.
        """
        return cluster_of(await self._metadata(MetadataRequest([]), timeout_ms)).nodes

    async def topics_metadata(
        self, topics: Sequence[MetadataRequestTopic], *, timeout_ms: int | None = None
    ) -> Sequence[MetadataTopic]:
        """What the brokers know of these topics, by name or id; none of them is created by this.

        :raises KquotaError: the cluster could not be asked, or answered an error.
        """
        request = MetadataRequest(list(topics), allow_auto_topic_creation=False)
        return (await self._metadata(request, timeout_ms)).topics

    async def cluster(self, *, timeout_ms: int | None = None) -> Cluster:
        """Its nodes and partitions, as quota callbacks are given them (KIP-257).

        :raises KquotaError: the cluster could not be asked, or answered an error.
        """
        return cluster_of(await self._metadata(MetadataRequest(None), timeout_ms))

    async def _metadata(self, request: MetadataRequest, timeout_ms: int | None) -> MetadataResponse:
        answer: MetadataResponse = await self._transport.send(METADATA, request, timeout_ms=self._timeout(timeout_ms))
        if answer.error_code:
            raise ApiError(answer.error_code, None).to_exception()
        return answer

    async def close(self) -> None:
        """Close all connections. Safe to call twice."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _timeout(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else timeout_ms

    def _deadline(self, timeout_ms: int | None) -> _Deadline:
        return _Deadline(self._timeout(timeout_ms))


class _Deadline:
    """What is left of the time for a call that sends several requests."""

    def __init__(self, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + timeout_ms / 1000

    @property
    def left_ms(self) -> int:
        """Milliseconds, 0 at least."""
        return max(0, round((self._end - self._loop.time()) * 1000))


def _entity(parts: Iterable[EntityPart]) -> ClientQuotaEntity:
    return ClientQuotaEntity({part.entity_type: part.entity_name for part in parts})


def _alteration(alteration: ClientQuotaAlteration) -> Alteration:
    return Alteration(
        [EntityPart(kind, name) for kind, name in alteration.entity.entries.items()],
        [Op(op.key, 0.0 if op.value is None else op.value, remove=op.value is None) for op in alteration.ops],
    )


def _described(answer: DescribeClientQuotasResponse) -> DescribeClientQuotasResult:
    if answer.error_code:
        return DescribeClientQuotasResult(ApiError(answer.error_code, answer.error_message))
    found: dict[ClientQuotaEntity, Mapping[str, float]] = {}
    for entry in answer.entries or ():
        found[_entity(entry.entity)] = {value.key: value.value for value in entry.values}
    return DescribeClientQuotasResult(
        {entity: found[entity] for entity in sorted(found, key=ClientQuotaEntity.sort_key)}
    )


def _distinct(entities: Iterable[ClientQuotaEntity]) -> list[ClientQuotaEntity]:
    """The entities, each once.

    :raises IllegalArgumentError: one is given twice, or no request can hold it.
    """
    seen: dict[ClientQuotaEntity, None] = {}
    for entity in entities:
        for kind, name in entity.entries.items():
            check_text(kind)
            check_text(name or "")
        if entity in seen:
            raise IllegalArgumentError(f"{entity.to_text()} is given twice in one request")
        seen[entity] = None
    return list(seen)


def _chunks(items: Sequence[T], weight: Any = None) -> Iterator[list[T]]:
    """At most CHUNK_ENTITIES at a time, and at most CHUNK_OPS of weight, if one alone does not weigh more."""
    chunk: list[T] = []
    total = 0
    for item in items:
        own = weight(item) if weight else 0
        if chunk and (len(chunk) == CHUNK_ENTITIES or total + own > CHUNK_OPS):
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        total += own
    if chunk:
        yield chunk


def _resolved_here(
    client: ClientQuotaEntity, resolver: QuotaResolver, *, omit_overridden: bool
) -> Mapping[str, Value] | ApiError:
    resolved = resolver.resolve_client({kind: name or "" for kind, name in client.entries.items()})
    if isinstance(resolved, ApiError):
        return resolved
    return {
        key: Value(
            Entry(one.source, one.value, one.level),
            one.meter,
            () if omit_overridden else tuple(Entry(other.source, other.value, other.level) for other in one.overridden),
        )
        for key, one in sorted(resolved.items())
        if one.value is not None and one.source is not None and one.level is not None and one.meter is not None
    }


def _resolved_there(client: ResolvedClient) -> Mapping[str, Value] | ApiError:
    if client.error_code:
        return ApiError(client.error_code, client.error_message)
    return {
        one.key: Value(
            _entry(one.rule),
            MeterKey({part.entity_type: part.entity_name for part in one.meter}),
            tuple(map(_entry, one.overridden)),
        )
        for one in client.values
    }


def _entry(rule: Rule) -> Entry:
    source: ClientQuotaEntity | StaticSource = _entity(rule.source) if rule.source else STATIC
    return Entry(source, rule.value, rule.level)
