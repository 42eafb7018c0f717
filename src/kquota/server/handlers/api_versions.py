"""ApiVersions: what this server speaks; 10546 among it is how clients learn of the batch resolve."""

from kquota.server.context import ServerContext
from kquota.wire.apis import APIS
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

__all__ = ["handle"]

_ANSWER = ApiVersionsResponse(
    0, [ApiVersion(api.key, api.min_version, api.max_version) for _, api in sorted(APIS.items())]
)


def handle(_request: ApiVersionsRequest, _context: ServerContext) -> ApiVersionsResponse:
    """The same for everybody."""
    return _ANSWER
