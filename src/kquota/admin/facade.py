"""``QuotaAdmin`` and ``TopicAdmin``: the same as the asynchronous ones, for code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from threading import Thread
from typing import Any, Self, TypeVar

from kquota.admin.client import DEFAULT_TIMEOUT_MS, AsyncQuotaAdmin, LastDescription
from kquota.admin.options import (
    AlterClientQuotasOptions,
    CreatePartitionsOptions,
    CreateTopicsOptions,
    DeleteTopicsOptions,
    DescribeClientQuotasOptions,
    ResolveClientQuotasOptions,
)
from kquota.admin.results import (
    AlterClientQuotasResult,
    CreatePartitionsResult,
    CreateTopicsResult,
    DeleteTopicsResult,
    DescribeClientQuotasResult,
    ResolveClientQuotasResult,
)
from kquota.admin.topics import AsyncTopicAdmin, NewPartitions, NewTopic
from kquota.admin.transport import Transport
from kquota.errors import ConnectionFailedError
from kquota.metering.cluster import Cluster
from kquota.quotas import KAFKA, ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, QuotaModel

__all__ = ["QuotaAdmin", "TopicAdmin"]

T = TypeVar("T")


class QuotaAdmin:
    """Quotas of Kafka since 2.6, or of a kquota server. A context manager, closed when left. Any thread may call.

    Methods, options, results and errors are those of :class:`~kquota.admin.AsyncQuotaAdmin`, which does the work.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        transport: Transport | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        client_id: str = "kquota",
        model: QuotaModel = KAFKA,
        **properties: Any,
    ) -> None:
        """As :meth:`AsyncQuotaAdmin.__init__`."""
        self._admin = AsyncQuotaAdmin(
            bootstrap_servers,
            transport=transport,
            timeout_ms=timeout_ms,
            client_id=client_id,
            model=model,
            **properties,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="kquota-admin", daemon=True)
        self._thread.start()
        self.topics = TopicAdmin(self._admin.topics, self._wait)

    def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        options: DescribeClientQuotasOptions | None = None,
        *,
        last: LastDescription | None = None,
    ) -> DescribeClientQuotasResult:
        """As :meth:`AsyncQuotaAdmin.describe_client_quotas`."""
        return self._wait(self._admin.describe_client_quotas(quota_filter, options, last=last))

    def resolve_client_quotas(
        self, entities: Iterable[ClientQuotaEntity], options: ResolveClientQuotasOptions | None = None
    ) -> ResolveClientQuotasResult:
        """As :meth:`AsyncQuotaAdmin.resolve_client_quotas`."""
        return self._wait(self._admin.resolve_client_quotas(entities, options))

    def alter_client_quotas(
        self, alterations: Iterable[ClientQuotaAlteration], options: AlterClientQuotasOptions | None = None
    ) -> AlterClientQuotasResult:
        """As :meth:`AsyncQuotaAdmin.alter_client_quotas`."""
        return self._wait(self._admin.alter_client_quotas(alterations, options))

    def cluster_id(self) -> str | None:
        """As :meth:`AsyncQuotaAdmin.cluster_id`."""
        return self._wait(self._admin.cluster_id())

    def cluster(self) -> Cluster:
        """As :meth:`AsyncQuotaAdmin.cluster`."""
        return self._wait(self._admin.cluster())

    def close(self) -> None:
        """Close all connections. Safe to call twice."""
        if self._thread.is_alive():
            self._wait(self._admin.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise ConnectionFailedError("nothing was sent: this client was closed") from error
        return future.result()


class TopicAdmin:
    """Changes of topics, as :attr:`QuotaAdmin.topics`.

    Methods, options, results and errors are those of :class:`~kquota.admin.AsyncTopicAdmin`, which does the work.
    """

    def __init__(self, topics: AsyncTopicAdmin, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        """Take who does the work, and what waits for it."""
        self._topics = topics
        self._wait = wait

    def create_topics(
        self, new_topics: Iterable[NewTopic], options: CreateTopicsOptions | None = None
    ) -> CreateTopicsResult:
        """As :meth:`AsyncTopicAdmin.create_topics`."""
        result: CreateTopicsResult = self._wait(self._topics.create_topics(new_topics, options))
        return result

    def delete_topics(self, topics: Iterable[str], options: DeleteTopicsOptions | None = None) -> DeleteTopicsResult:
        """As :meth:`AsyncTopicAdmin.delete_topics`."""
        result: DeleteTopicsResult = self._wait(self._topics.delete_topics(topics, options))
        return result

    def create_partitions(
        self, new_partitions: Mapping[str, NewPartitions], options: CreatePartitionsOptions | None = None
    ) -> CreatePartitionsResult:
        """As :meth:`AsyncTopicAdmin.create_partitions`."""
        result: CreatePartitionsResult = self._wait(self._topics.create_partitions(new_partitions, options))
        return result
