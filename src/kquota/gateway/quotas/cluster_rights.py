"""What a client may do to the cluster, as its broker says on the client's own connection.

DescribeCluster shows it (``cluster_authorized_operations``, KIP-700), before Kafka 2.8 Metadata (KIP-430). Brokers show
nothing to a client that may not Describe the cluster; without an authorizer everybody may do everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final

from msgspec import Struct

from kquota.errors import KafkaErrorCode, ProtocolError
from kquota.wire.apis import API_VERSIONS, DESCRIBE_CLUSTER, METADATA, Api, read_response, write_request
from kquota.wire.messages.api_versions import ApiVersionsRequest
from kquota.wire.messages.describe_cluster import DescribeClusterRequest
from kquota.wire.messages.metadata import MetadataRequest

__all__ = ["AclOperation", "Ask", "ClusterRights"]

Ask = Callable[[bytes], Awaitable[bytes]]
"""Sends the broker a request, with its size, and gives its answer without it."""

KEPT_S: Final = 10.0
"""A client such as kafka-configs describes before it alters."""
CLIENT_ID: Final = "kquota-gateway"
CORRELATION_ID: Final = 0

_METADATA: Final = replace(METADATA, min_version=8, max_version=10)
"""The versions that can say what the client may do: from Kafka 2.3 on."""
_ASKED: Final[tuple[tuple[Api, Struct], ...]] = (
    (DESCRIBE_CLUSTER, DescribeClusterRequest(include_cluster_authorized_operations=True)),
    (_METADATA, MetadataRequest([], include_cluster_authorized_operations=True)),
)


class AclOperation(IntEnum):
    """What can be allowed on a cluster, as far as quotas need it. Source: ``AclOperation``."""

    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class ClusterRights:
    """Those of the client of one connection, asked for when they are needed and kept for a short time."""

    __slots__ = ("_asked", "_spoken", "_until_s")

    def __init__(self) -> None:
        self._spoken: dict[int, tuple[int, int]] | None = None
        self._asked: int | None = None
        self._until_s = 0.0

    async def allows(self, operation: AclOperation, ask: Ask, now_s: float) -> bool:
        """Whether the client may do this. Not, where the broker does not say what it may do.

        :param ask: on the client's own connection to the broker, with nothing else under way.
        :raises ProtocolError: the broker's answer is none.
        """
        if self._asked is None or now_s >= self._until_s:
            self._asked = await self._ask(ask)
            self._until_s = now_s + KEPT_S
        return bool(self._asked >> operation & 1)

    async def speaks(self, api_key: int, ask: Ask) -> tuple[int, int] | None:
        """The first and the last version of an API that the broker speaks. Raises as :meth:`allows`."""
        if self._spoken is None:
            # Of version 0, which every broker speaks. An error, if there is one, comes without versions.
            answer = await _asked(API_VERSIONS, 0, ApiVersionsRequest(), ask)
            self._spoken = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        return self._spoken.get(api_key)

    async def _ask(self, ask: Ask) -> int:
        """A bit for each operation."""
        for api, request in _ASKED:
            first, last = await self.speaks(api.key, ask) or (0, -1)
            version = min(last, api.max_version)
            if version < max(first, api.min_version):
                continue
            answer = await _asked(api, version, request, ask)
            if getattr(answer, "error_code", KafkaErrorCode.NONE) == KafkaErrorCode.NONE:
                operations: int = answer.cluster_authorized_operations
                return operations
        return 0


async def _asked(api: Api, version: int, request: Struct, ask: Ask) -> Any:
    answer = await ask(write_request(api, version, CORRELATION_ID, CLIENT_ID, request))
    correlation_id, body = read_response(api, version, answer)
    if correlation_id != CORRELATION_ID:
        raise ProtocolError(f"the broker answered request {correlation_id} where {CORRELATION_ID} ({api.name}) is next")
    return body
