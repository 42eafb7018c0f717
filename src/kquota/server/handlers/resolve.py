"""Resolve: what binds a client and why, as KIP-546 has it (50 v0), and in a batch with all that is known (10546 v0)."""

from collections.abc import Iterable
from typing import Final

from kquota.errors import ApiError, KafkaErrorCode, StoreError
from kquota.quotas import (
    MAX_NAME_BYTES,
    STATIC,
    Candidate,
    ClientQuotaEntity,
    QuotaResolver,
    ResolvedQuota,
    StaticSource,
)
from kquota.server.context import ServerContext
from kquota.server.messages import failure, sendable, sendable_name
from kquota.wire.apis import RESOLVE_QUOTAS
from kquota.wire.messages.client_quotas import EntityPart
from kquota.wire.messages.resolve_client_quotas import (
    EncodedResolveQuotasResponse,
    NamedPart,
    QuotaEntry,
    QuotaValue,
    ResolveClientQuotasRequest,
    ResolveClientQuotasResponse,
    ResolvedClient,
    ResolvedValue,
    ResolveQuotasRequest,
    Rule,
    ValueEntry,
)
from kquota.wire.schema import codec

__all__ = [
    "DEFAULT_NAME",
    "MAX_CLIENTS",
    "handle_batch",
    "handle_kip_546",
    "items_of_batch",
    "items_of_one",
    "refused_batch",
    "refused_kip_546",
]

MAX_CLIENTS: Final = 1_000
"""As many as our client asks for at once."""

_write_client = codec(ResolvedClient, RESOLVE_QUOTAS.max_version, flexible=True).write

_TOO_LARGE: Final = _write_client(
    ResolvedClient(KafkaErrorCode.POLICY_VIOLATION, "the answer is too large: ask for fewer clients at once", [], [])
)
"""Without the client's name: its place says which one it is."""

DEFAULT_NAME = "<default>"
"""How KIP-546's answer, whose names cannot be null, says the default; 10546 has null for it."""


def items_of_one(_request: ResolveClientQuotasRequest, context: ServerContext) -> int:
    """How many entities it has to look at: all where quotas changed, otherwise those of one client."""
    try:
        return 1 + context.entities_to_read()
    except StoreError:
        return 0  # answered with what is wrong with the store


def items_of_batch(request: ResolveQuotasRequest, context: ServerContext) -> int:
    """As :func:`items_of_one`; a client costs some ten times an entity."""
    try:
        return 10 * len(request.entities) + context.entities_to_read()
    except StoreError:
        return 0


def handle_kip_546(request: ResolveClientQuotasRequest, context: ServerContext) -> ResolveClientQuotasResponse:
    """One entity, one entry."""
    resolver = _resolver(context)
    resolved = resolver if isinstance(resolver, ApiError) else _resolve(request.entity, resolver)
    if isinstance(resolved, ApiError):
        return refused_kip_546(request, resolved)
    values = [
        QuotaValue(one.key, [ValueEntry(_named_source(one.source), one.value)])
        for one in resolved
        if one.value is not None and one.source is not None
    ]
    return ResolveClientQuotasResponse(0, [QuotaEntry(0, None, request.entity, values)])


def handle_batch(request: ResolveQuotasRequest, context: ServerContext) -> EncodedResolveQuotasResponse:
    """One result for each client, in order.

    An answer is many times its request: each client with all rules for all keys. Clients beyond what an answer may hold
    are refused, so that the memory for one request is bounded.
    """
    resolver = _resolver(context)
    if isinstance(resolver, ApiError):
        return refused_batch(request, resolver)
    if len(request.entities) > MAX_CLIENTS:
        reason = f"{len(request.entities)} clients in a request, {MAX_CLIENTS} are the most"
        return refused_batch(request, ApiError(KafkaErrorCode.POLICY_VIOLATION, reason))
    results: list[bytes] = []
    left = context.max_answer_bytes
    for one in request.entities:
        result = _write_client(_client(one.entity, resolver, request.include_overridden))
        if len(result) > left:
            result = _TOO_LARGE
        left -= len(result)
        results.append(result)
    return EncodedResolveQuotasResponse(0, 0, None, results)


def refused_kip_546(request: ResolveClientQuotasRequest, error: ApiError) -> ResolveClientQuotasResponse:
    """The entity that was asked for, and why there is no more to say of it."""
    return ResolveClientQuotasResponse(0, [QuotaEntry(error.code, sendable(error.message), _echo(request.entity), [])])


def refused_batch(_request: ResolveQuotasRequest, error: ApiError) -> EncodedResolveQuotasResponse:
    """No clients, and why."""
    return EncodedResolveQuotasResponse(0, error.code, sendable(error.message), [])


def _resolver(context: ServerContext) -> QuotaResolver | ApiError:
    try:
        return context.resolver()
    except StoreError as error:
        return failure(error)


def _client(entity: list[NamedPart], resolver: QuotaResolver, include_overridden: bool) -> ResolvedClient:  # noqa: FBT001 (as on the wire)
    resolved = _resolve(entity, resolver)
    if isinstance(resolved, ApiError):
        return ResolvedClient(resolved.code, sendable(resolved.message), _echo(entity), [])
    values = [
        ResolvedValue(
            key=one.key,
            rule=Rule(one.value, one.level, _source(one.source)),
            meter=[NamedPart(tag, name) for tag, name in one.meter.tags.items()],
            overridden=[_rule(candidate) for candidate in one.overridden] if include_overridden else [],
        )
        for one in resolved
        if one.value is not None and one.level is not None and one.source is not None and one.meter is not None
    ]
    return ResolvedClient(0, None, entity, values)


def _resolve(entity: list[NamedPart], resolver: QuotaResolver) -> list[ResolvedQuota] | ApiError:
    """By key, sorted."""
    names: dict[str, str] = {}
    for part in entity:
        if part.entity_type in names:
            return _invalid(f"Duplicate entity type: {part.entity_type}")
        if sendable_name(part.entity_name) != part.entity_name:
            return _invalid(f"The name of the {part.entity_type} has more than {MAX_NAME_BYTES} bytes")
        names[part.entity_type] = part.entity_name
    if not names:
        return _invalid("Invalid empty client quota entity")
    resolved = resolver.resolve_client(names)
    return resolved if isinstance(resolved, ApiError) else [resolved[key] for key in sorted(resolved)]


def _echo(entity: list[NamedPart]) -> list[NamedPart]:
    """What was asked for, as it can be sent back."""
    return [NamedPart(sendable_name(part.entity_type), sendable_name(part.entity_name)) for part in entity]


def _rule(candidate: Candidate) -> Rule:
    return Rule(candidate.value, candidate.level, _source(candidate.source))


def _source(source: ClientQuotaEntity | StaticSource) -> list[EntityPart]:
    return [EntityPart(kind, name) for kind, name in _entries(source)]


def _named_source(source: ClientQuotaEntity | StaticSource) -> list[NamedPart]:
    return [NamedPart(kind, DEFAULT_NAME if name is None else name) for kind, name in _entries(source)]


def _entries(source: ClientQuotaEntity | StaticSource) -> Iterable[tuple[str, str | None]]:
    return () if source is STATIC or isinstance(source, StaticSource) else source.entries.items()


def _invalid(message: str) -> ApiError:
    return ApiError(KafkaErrorCode.INVALID_REQUEST, message)
