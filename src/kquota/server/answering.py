"""From a request's frame to its answer's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from kquota.errors import KafkaErrorCode, MalformedMessageError, UnsupportedVersionError
from kquota.net.listener import Answer, Peer
from kquota.server.context import ServerContext
from kquota.server.handlers import (
    alter_client_quotas,
    api_versions,
    describe_client_quotas,
    describe_cluster,
    describe_user_scram_credentials,
    metadata,
    resolve,
)
from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    METADATA,
    RESOLVE_CLIENT_QUOTAS,
    RESOLVE_QUOTAS,
    Request,
    read_request,
    write_response,
)
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

__all__ = ["Answering"]

ANONYMOUS: Final = "User:ANONYMOUS"

_HANDLERS: Final[dict[str, Callable[[Any, ServerContext], Struct]]] = {
    API_VERSIONS.name: api_versions.handle,
    METADATA.name: metadata.handle,
    DESCRIBE_CLUSTER.name: describe_cluster.handle,
    DESCRIBE_USER_SCRAM_CREDENTIALS.name: describe_user_scram_credentials.handle,
    RESOLVE_CLIENT_QUOTAS.name: resolve.handle_kip_546,
    RESOLVE_QUOTAS.name: resolve.handle_batch,
}


class Answering:
    """Answers frames; a :data:`~kquota.net.listener.FrameHandler`."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    def __call__(self, frame: bytes, _peer: Peer) -> Answer | Awaitable[Answer]:
        """As a broker does: what it does not speak, or cannot read, ends the connection without an answer."""
        try:
            request = read_request(frame)
        except UnsupportedVersionError as error:
            return _other_version(error)
        if request.api is ALTER_CLIENT_QUOTAS:
            return self._alter(request)
        if request.api is DESCRIBE_CLIENT_QUOTAS:
            version = request.header.api_version
            return _written(request, describe_client_quotas.handle(request.body, self._context, version))
        return _written(request, _HANDLERS[request.api.name](request.body, self._context))

    async def _alter(self, request: Request) -> Answer:
        return _written(request, await alter_client_quotas.handle(request.body, self._context, ANONYMOUS))


def _written(request: Request, body: Struct) -> bytes:
    return write_response(request.api, request.header.api_version, request.header.correlation_id, body)


def _other_version(error: UnsupportedVersionError) -> bytes:
    """A client that asks in another version learns which ones there are, in the one that all know (KIP-511)."""
    if error.api_key != API_VERSIONS.key:
        raise MalformedMessageError(str(error)) from error
    known = ApiVersion(API_VERSIONS.key, API_VERSIONS.min_version, API_VERSIONS.max_version)
    body = ApiVersionsResponse(KafkaErrorCode.UNSUPPORTED_VERSION, [known])
    return write_response(API_VERSIONS, 0, error.correlation_id, body)
