"""Requests about quotas, answered by the gateway itself: the quotas are in a store or a file, and not in the cluster.

Who may ask is up to the brokers, as with their own quotas (KIP-546): DescribeConfigs on the cluster to describe and to
resolve, AlterConfigs to alter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import structlog

from kquota.errors import ApiError, KafkaErrorCode
from kquota.gateway.quotas.cluster_rights import AclOperation, ClusterRights
from kquota.gateway.relay.actions import Action
from kquota.gateway.relay.api_versions import FORWARDED
from kquota.metering.callback import KafkaPrincipal
from kquota.net.frame_server import Answer
from kquota.server.answering import RequestDispatcher
from kquota.server.context import ServerContext
from kquota.stores.port import Servable
from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    RESOLVE_QUOTAS,
    is_kip_546_resolve,
    read_header,
    write_response,
)
from kquota.wire.frames import framed
from kquota.wire.messages.scram_credentials import DescribeUserScramCredentialsResponse

__all__ = ["Broker", "OwnQuotas"]

_log = structlog.get_logger("kquota.gateway")

_NOT_TO_DESCRIBE: Final = ApiError(KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
_NOT_TO_ALTER: Final = ApiError(KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
"""As brokers have it: with a message for each entity that was to be altered, and otherwise without."""
_NO_CREDENTIALS: Final = DescribeUserScramCredentialsResponse(
    0, KafkaErrorCode.UNSUPPORTED_VERSION, "The brokers behind this gateway have no SCRAM credentials to describe.", []
)


class Broker(Protocol):
    """The client's own connection to a broker, with nothing else under way."""

    def ask(self, frame: bytes) -> Awaitable[bytes]:
        """Send a request, with its size; its answer, without."""


class OwnQuotas:
    """Answers them for all connections, as the quota server does."""

    versions: Final[Mapping[int, tuple[int, int]]] = {
        api.key: FORWARDED[api.key]
        for api in (DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS, DESCRIBE_USER_SCRAM_CREDENTIALS, RESOLVE_QUOTAS)
    }
    """By API key, the first and the last version that is answered here."""

    def __init__(
        self,
        store: Servable,
        *,
        max_elements: int,
        static_defaults: Mapping[str, float] | None = None,
        in_force: Callable[[], Awaitable[bool]],
    ) -> None:
        """Take the store, which stays the caller's to close.

        :param max_elements: of all lists of one request together.
        :param static_defaults: the limits by key that bind where the store has none.
        :param in_force: waits until the gateway enforces what is in the store; false where that takes too long.
        """
        self._context = ServerContext(store, static_defaults=static_defaults or {})
        self._answering = RequestDispatcher(self._context, max_elements=max_elements)
        self._in_force = in_force
        self._rights: WeakKeyDictionary[Broker, ClusterRights] = WeakKeyDictionary()

    async def answer(
        self, frame: bytes, action: Action, principal: KafkaPrincipal, broker: Broker, now_s: float
    ) -> list[bytes]:
        """Answer a request, or pass it on: DescribeUserScramCredentials, whose key is that of KIP-546's resolve.

        :param frame: without its size.
        :param now_s: on the event loop's clock.
        :returns: a frame with its size, in parts.
        :raises ProtocolError: the connection is to be closed without an answer.
        :raises ConnectionResetError: the broker closed it.
        """
        rights = self._rights.get(broker)
        if rights is None:
            rights = self._rights[broker] = ClusterRights()
        if action.api_key == DESCRIBE_USER_SCRAM_CREDENTIALS.key and not is_kip_546_resolve(frame):
            return [await _credentials(frame, rights, broker)]
        alters = action.api_key == ALTER_CLIENT_QUOTAS.key
        operation = AclOperation.ALTER_CONFIGS if alters else AclOperation.DESCRIBE_CONFIGS
        if not await rights.allows(operation, broker.ask, now_s):
            return _parts(await self._answering.refuse(frame, _NOT_TO_ALTER if alters else _NOT_TO_DESCRIBE))
        answer = await self._answering.answer(frame, principal=f"{principal.principal_type}:{principal.name}")
        if alters and not await self._in_force():
            _log.warning("quotas were altered here, and are not in force yet")
        return _parts(answer)

    def close(self) -> None:
        """End what runs beside the requests."""
        self._answering.close()
        self._context.close()


def _parts(answer: Answer) -> list[bytes]:
    return [answer] if isinstance(answer, bytes) else answer or []


async def _credentials(frame: bytes, rights: ClusterRights, broker: Broker) -> bytes:
    """A broker that does not have this API would close the connection, and ApiVersions shows it for the resolve."""
    if await rights.speaks(DESCRIBE_USER_SCRAM_CREDENTIALS.key, broker.ask) is None:
        header, _ = read_header(frame)
        return write_response(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, header.correlation_id, _NO_CREDENTIALS)
    return framed(await broker.ask(framed(frame)))
