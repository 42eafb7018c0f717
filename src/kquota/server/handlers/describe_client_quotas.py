"""DescribeClientQuotas (KIP-546). Source: ``ClientQuotasImage.describe``, ``DescribeClientQuotasResponse``."""

from kquota.errors import ApiError, StoreError
from kquota.quotas import ClientQuotaFilter, ClientQuotaFilterComponent
from kquota.server.context import ServerContext
from kquota.server.messages import failure, sendable
from kquota.wire.messages.client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityPart,
    Entry,
    Value,
)

__all__ = ["handle"]


def handle(request: DescribeClientQuotasRequest, context: ServerContext) -> DescribeClientQuotasResponse:
    """The entities that match, with all their values."""
    components = tuple(
        ClientQuotaFilterComponent(one.entity_type, one.match_type, one.match) for one in request.components
    )
    try:
        found = context.store.describe(ClientQuotaFilter(components, strict=request.strict))
    except StoreError as error:
        found = failure(error)
    if isinstance(found, ApiError):
        return DescribeClientQuotasResponse(0, found.code, sendable(found.message), None)
    entries = [
        Entry(
            [EntityPart(kind, name) for kind, name in entity.entries.items()],
            [Value(key, value) for key, value in values.items()],
        )
        for entity, values in found.items()
    ]
    return DescribeClientQuotasResponse(0, 0, None, entries)
