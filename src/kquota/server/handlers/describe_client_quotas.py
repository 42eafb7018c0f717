"""DescribeClientQuotas (KIP-546). Source: ``ClientQuotasImage.describe``, ``DescribeClientQuotasResponse``."""

from typing import Final

from kquota.errors import ApiError, StoreError
from kquota.quotas import ClientQuotaFilter, ClientQuotaFilterComponent
from kquota.server.context import ServerContext
from kquota.server.messages import NO_MESSAGE, failure, sendable
from kquota.wire.messages.client_quotas import DescribeClientQuotasRequest, EncodedDescribeClientQuotasResponse

__all__ = ["handle", "items", "refused"]

MANY_COMPONENTS: Final = 10
"""More than any entity has."""


def items(request: DescribeClientQuotasRequest, context: ServerContext) -> int:
    """How many entities, or parts of the filter, it has to look at."""
    if len(request.components) > MANY_COMPONENTS:
        return 100 * len(request.components)
    try:
        return context.store.index().candidates(_filter(request))
    except StoreError:
        return 0  # answered with what is wrong with the store


def handle(
    request: DescribeClientQuotasRequest, context: ServerContext, version: int
) -> EncodedDescribeClientQuotasResponse:
    """The entities that match, with all their values."""
    try:
        index = context.store.index()
    except StoreError as error:
        return refused(request, failure(error))
    found = index.describe(_filter(request), model=context.store.model)
    if isinstance(found, ApiError):
        return refused(request, found)
    entries = context.encoded_entries(version).of(found.items(), of_all=len(index.snapshot))
    return EncodedDescribeClientQuotasResponse(0, 0, NO_MESSAGE, entries)


def _filter(request: DescribeClientQuotasRequest) -> ClientQuotaFilter:
    components = tuple(
        ClientQuotaFilterComponent(one.entity_type, one.match_type, one.match) for one in request.components
    )
    return ClientQuotaFilter(components, strict=request.strict)


def refused(_request: DescribeClientQuotasRequest, error: ApiError) -> EncodedDescribeClientQuotasResponse:
    """No entities, and why. Source: ``DescribeClientQuotasRequest.getErrorResponse``."""
    return EncodedDescribeClientQuotasResponse(0, error.code, sendable(error.message), None)
