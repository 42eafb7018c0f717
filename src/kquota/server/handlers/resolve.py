"""Resolve: what binds a client and why, as KIP-546 has it (50 v0), and in a batch with all that is known (10546 v0)."""

from collections.abc import Iterable

from kquota.errors import ApiError, KafkaErrorCode, StoreError
from kquota.quotas import STATIC, Candidate, ClientQuotaEntity, QuotaResolver, ResolvedQuota, StaticSource
from kquota.server.context import ServerContext
from kquota.server.messages import failure, sendable
from kquota.wire.messages.client_quotas import EntityPart
from kquota.wire.messages.resolve_client_quotas import (
    NamedPart,
    QuotaEntry,
    QuotaValue,
    ResolveClientQuotasRequest,
    ResolveClientQuotasResponse,
    ResolvedClient,
    ResolvedValue,
    ResolveQuotasRequest,
    ResolveQuotasResponse,
    Rule,
    ValueEntry,
)

__all__ = ["DEFAULT_NAME", "handle_batch", "handle_kip_546"]

DEFAULT_NAME = "<default>"
"""How KIP-546's answer, whose names cannot be null, says the default; 10546 has null for it."""


def handle_kip_546(request: ResolveClientQuotasRequest, context: ServerContext) -> ResolveClientQuotasResponse:
    """One entity, one entry."""
    resolver = _resolver(context)
    resolved = resolver if isinstance(resolver, ApiError) else _resolve(request.entity, resolver)
    if isinstance(resolved, ApiError):
        return ResolveClientQuotasResponse(
            0, [QuotaEntry(resolved.code, sendable(resolved.message), request.entity, [])]
        )
    values = [
        QuotaValue(one.key, [ValueEntry(_named_source(one.source), one.value)])
        for one in resolved
        if one.value is not None and one.source is not None
    ]
    return ResolveClientQuotasResponse(0, [QuotaEntry(0, None, request.entity, values)])


def handle_batch(request: ResolveQuotasRequest, context: ServerContext) -> ResolveQuotasResponse:
    """One result for each client, in order."""
    resolver = _resolver(context)
    if isinstance(resolver, ApiError):
        return ResolveQuotasResponse(0, resolver.code, sendable(resolver.message), [])
    results = [_client(one.entity, resolver, request.include_overridden) for one in request.entities]
    return ResolveQuotasResponse(0, 0, None, results)


def _resolver(context: ServerContext) -> QuotaResolver | ApiError:
    try:
        return context.resolver()
    except StoreError as error:
        return failure(error)


def _client(entity: list[NamedPart], resolver: QuotaResolver, include_overridden: bool) -> ResolvedClient:  # noqa: FBT001 (as on the wire)
    resolved = _resolve(entity, resolver)
    if isinstance(resolved, ApiError):
        return ResolvedClient(resolved.code, sendable(resolved.message), entity, [])
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
        names[part.entity_type] = part.entity_name
    if not names:
        return _invalid("Invalid empty client quota entity")
    resolved = resolver.resolve_client(names)
    return resolved if isinstance(resolved, ApiError) else [resolved[key] for key in sorted(resolved)]


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
