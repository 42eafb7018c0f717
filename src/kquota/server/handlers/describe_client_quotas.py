"""DescribeClientQuotas (KIP-546). Source: ``ClientQuotasImage.describe``, ``DescribeClientQuotasResponse``."""

from kquota.errors import ApiError, StoreError
from kquota.quotas import ClientQuotaFilter, ClientQuotaFilterComponent
from kquota.server.context import ServerContext
from kquota.server.messages import NO_MESSAGE, failure, sendable
from kquota.wire.messages.client_quotas import DescribeClientQuotasRequest, EncodedDescribeClientQuotasResponse

__all__ = ["handle"]


def handle(
    request: DescribeClientQuotasRequest, context: ServerContext, version: int
) -> EncodedDescribeClientQuotasResponse:
    """The entities that match, with all their values."""
    components = tuple(
        ClientQuotaFilterComponent(one.entity_type, one.match_type, one.match) for one in request.components
    )
    try:
        index = context.store.index()
    except StoreError as error:
        return _refused(failure(error))
    found = index.describe(ClientQuotaFilter(components, strict=request.strict), model=context.store.model)
    if isinstance(found, ApiError):
        return _refused(found)
    entries = context.encoded_entries(version).of(found.items(), of_all=len(index.snapshot))
    return EncodedDescribeClientQuotasResponse(0, 0, NO_MESSAGE, entries)


def _refused(error: ApiError) -> EncodedDescribeClientQuotasResponse:
    return EncodedDescribeClientQuotasResponse(0, error.code, sendable(error.message), None)
