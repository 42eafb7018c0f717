"""What the gateway asks of the cluster for itself, on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kquota.admin.client import AsyncQuotaAdmin
from kquota.metering.cluster import Cluster
from kquota.wire.messages.metadata import MetadataRequestTopic, MetadataTopic

__all__ = ["ClusterUpstream"]

TIMEOUT_MS: Final = 10_000


class ClusterUpstream:
    """Asks by :class:`~kquota.admin.client.AsyncQuotaAdmin`."""

    def __init__(self, admin: AsyncQuotaAdmin) -> None:
        """Take the client, which stays the caller's to close."""
        self._admin = admin

    async def brokers(self) -> Iterable[tuple[int, str, int]]:
        """Id, host and port of each broker.

        :raises KquotaError: the cluster could not be asked.
        """
        return [(node.id, node.host, node.port) for node in await self._admin.nodes(timeout_ms=TIMEOUT_MS)]

    async def cluster(self) -> Cluster:
        """The brokers and all partitions. Raises as :meth:`brokers`."""
        return await self._admin.cluster(timeout_ms=TIMEOUT_MS)

    async def topics(self, asked: Sequence[MetadataRequestTopic]) -> Iterable[MetadataTopic]:
        """Topics by name or id, with their partitions. Raises as :meth:`brokers`."""
        return await self._admin.topics_metadata(asked, timeout_ms=TIMEOUT_MS)
