"""DescribeClientQuotas (KIP-546). Source: ``ClientQuotasImage.describe``, ``DescribeClientQuotasResponse``."""

from kquota.errors import ApiError, StoreError
from kquota.quotas import ClientQuotaFilter, ClientQuotaFilterComponent
from kquota.server.context import ServerContext
from kquota.server.messages import NO_MESSAGE, failure, sendable
from kquota.wire.messages.client_quotas import DescribeClientQuotasRequest, EncodedDescribeClientQuotasResponse

__all__ = ["handle", "items"]


def items(request: DescribeClientQuotasRequest, context: ServerContext) -> int:
    """About how many entities, or parts of the filter, it has to look at."""
    return max(len(request.components), context.last_index.candidates(_filter(request)))


def handle(
    request: DescribeClientQuotasRequest, context: ServerContext, version: int
) -> EncodedDescribeClientQuotasResponse:
    """The entities that match, with all their values."""
    try:
        index = context.index()
    except StoreError as error:
        return _refused(failure(error))
    found = index.describe(_filter(request), model=context.store.model)
    if isinstance(found, ApiError):
        return _refused(found)
    entries = context.encoded_entries(version).of(found.items(), of_all=len(index.snapshot))
    return EncodedDescribeClientQuotasResponse(0, 0, NO_MESSAGE, entries)


def _filter(request: DescribeClientQuotasRequest) -> ClientQuotaFilter:
    components = tuple(
        ClientQuotaFilterComponent(one.entity_type, one.match_type, one.match) for one in request.components
    )
    return ClientQuotaFilter(components, strict=request.strict)


def _refused(error: ApiError) -> EncodedDescribeClientQuotasResponse:
    return EncodedDescribeClientQuotasResponse(0, error.code, sendable(error.message), None)
