"""From a request's frame to its answer's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from kquota.errors import ApiError, KafkaErrorCode, MalformedMessageError, UnsupportedVersionError
from kquota.net.frame_server import UNSENT_BYTES, Answer
from kquota.net.listener import Peer
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
from kquota.server.worker import Worker
from kquota.server.writer import Alterations, Results
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
    response_parts,
    write_response,
)
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kquota.wire.messages.client_quotas import AlterClientQuotasRequest

__all__ = ["RequestDispatcher"]

ANONYMOUS: Final = "User:ANONYMOUS"

SMALL_FRAME_BYTES: Final = 4 * 1024
FEW_ITEMS: Final = 500
"""Requests up to both are answered on the event loop, in a millisecond or so (docs/adr/0016)."""

_HANDLERS: Final[Mapping[str, Callable[[Any, ServerContext], Struct]]] = {
    API_VERSIONS.name: api_versions.handle,
    METADATA.name: metadata.handle,
    DESCRIBE_CLUSTER.name: describe_cluster.handle,
    DESCRIBE_USER_SCRAM_CREDENTIALS.name: describe_user_scram_credentials.handle,
    RESOLVE_CLIENT_QUOTAS.name: resolve.handle_kip_546,
    RESOLVE_QUOTAS.name: resolve.handle_batch,
}

_REFUSED: Final[Mapping[str, Callable[[Any, ApiError], Struct]]] = {
    DESCRIBE_CLIENT_QUOTAS.name: describe_client_quotas.refused,
    ALTER_CLIENT_QUOTAS.name: alter_client_quotas.refused,
    RESOLVE_CLIENT_QUOTAS.name: resolve.refused_kip_546,
    RESOLVE_QUOTAS.name: resolve.refused_batch,
}

_ITEMS: Final[Mapping[str, Callable[[Any, ServerContext], int]]] = {
    METADATA.name: lambda body, _: len(body.topics or ()),
    DESCRIBE_USER_SCRAM_CREDENTIALS.name: lambda body, _: len(body.users or ()),
    DESCRIBE_CLIENT_QUOTAS.name: describe_client_quotas.items,
    RESOLVE_CLIENT_QUOTAS.name: resolve.items_of_one,
    RESOLVE_QUOTAS.name: resolve.items_of_batch,
}
"""About how many entities a request makes the server look at, or answer with; one where nothing else is said."""


class RequestDispatcher:
    """Answers frames; a :data:`~kquota.net.frame_server.FrameHandler` for clients that nobody authenticated.

    What is small is answered at once, on the event loop. What is large is read and answered, and what is costly
    answered, in a thread beside it, so that a client with a small request never waits for it. To resolve has a thread
    of its own: after each change of the quotas the first one has to look at all of them.
    """

    def __init__(self, context: ServerContext, *, max_elements: int) -> None:
        self._context = context
        self._max_elements = max_elements
        self._requests = Worker("requests")
        self._resolves = Worker("resolves")

    def __call__(self, frame: bytes, _peer: Peer) -> Answer | Awaitable[Answer]:
        """As a broker does: what it does not speak, or cannot read, ends the connection without an answer."""
        return self._begin(frame, ANONYMOUS)

    async def answer(self, frame: bytes, *, principal: str) -> Answer:
        """Answer a client that is authenticated, and authorized for what it asks.

        :param frame: without its size.
        :param principal: such as ``User:alice``, for the history.
        :raises ProtocolError: the connection is to be closed without an answer.
        """
        begun = self._begin(frame, principal)
        return await begun if isinstance(begun, Awaitable) else begun

    async def refuse(self, frame: bytes, error: ApiError) -> Answer:
        """Answer a request about quotas with this error, as Kafka does: each of its parts where they have errors.

        :raises ProtocolError: as :meth:`answer`.
        """

        def refused(frame: bytes) -> bytes | list[bytes]:
            request = self._read(frame)
            return (
                request
                if isinstance(request, bytes)
                else _written(request, _REFUSED[request.api.name](request.body, error))
            )

        return refused(frame) if len(frame) <= SMALL_FRAME_BYTES else await self._requests.run(refused, frame)

    def _begin(self, frame: bytes, principal: str) -> Answer | Awaitable[Answer]:
        if len(frame) > SMALL_FRAME_BYTES:
            return self._large(frame, principal)
        request = self._read(frame)
        if isinstance(request, bytes):
            return request
        if request.api is ALTER_CLIENT_QUOTAS:
            return self._alter(request, principal, is_large=False)
        items = _ITEMS.get(request.api.name)
        if items is not None and items(request.body, self._context) > FEW_ITEMS:
            return self._worker_for(request).run(self._answer, request)
        return self._answer(request)

    def close(self) -> None:
        """Take on nothing more; what was begun ends by itself."""
        self._requests.close()
        self._resolves.close()

    async def _large(self, frame: bytes, principal: str) -> Answer:
        request = await self._requests.run(self._read, frame)
        if isinstance(request, bytes):
            return request
        del frame
        if request.api is ALTER_CLIENT_QUOTAS:
            return await self._alter(request, principal, is_large=True)
        return await self._worker_for(request).run(self._answer, request)

    def _worker_for(self, request: Request) -> Worker:
        return self._resolves if request.api in (RESOLVE_CLIENT_QUOTAS, RESOLVE_QUOTAS) else self._requests

    def _read(self, frame: bytes) -> Request | bytes:
        """The request, or the answer where it is of another version."""
        try:
            return read_request(frame, max_elements=self._max_elements)
        except UnsupportedVersionError as error:
            return _other_version(error)

    def _answer(self, request: Request) -> bytes | list[bytes]:
        if request.api is DESCRIBE_CLIENT_QUOTAS:
            version = request.header.api_version
            return _written(request, describe_client_quotas.handle(request.body, self._context, version))
        return _written(request, _HANDLERS[request.api.name](request.body, self._context))

    async def _alter(self, request: Request, principal: str, *, is_large: bool) -> Answer:
        def begun(body: AlterClientQuotasRequest) -> Alterations:
            return self._context.writer.begin(alter_client_quotas.alterations(body))

        def written(found: Results) -> Answer:
            return _written(request, alter_client_quotas.answer(found))

        body = request.body
        asked = await self._requests.run(begun, body) if is_large else begun(body)
        results = await alter_client_quotas.results(
            asked, self._context, validate_only=body.validate_only, principal=principal
        )
        return await self._requests.run(written, results) if is_large else written(results)


def _written(request: Request, body: Struct) -> bytes | list[bytes]:
    parts = response_parts(request.api, request.header.api_version, request.header.correlation_id, body)
    return b"".join(parts) if sum(map(len, parts)) <= UNSENT_BYTES else parts


def _other_version(error: UnsupportedVersionError) -> bytes:
    """A client that asks in another version learns which ones there are, in the one that all know (KIP-511)."""
    if error.api_key != API_VERSIONS.key:
        raise MalformedMessageError(str(error)) from error
    known = ApiVersion(API_VERSIONS.key, API_VERSIONS.min_version, API_VERSIONS.max_version)
    body = ApiVersionsResponse(KafkaErrorCode.UNSUPPORTED_VERSION, [known])
    return write_response(API_VERSIONS, 0, error.correlation_id, body)
