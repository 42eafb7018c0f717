"""The quotas of all brokers behind the gateway: each has its own, and all are given the same changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kquota.config import BrokerConfig
from kquota.gateway.quotas.enforcement import Enforcement
from kquota.gateway.quotas.request_time import RequestTimes
from kquota.gateway.quotas.rules import ThrottleCounts
from kquota.metering.callback import ClientQuotaType, Cluster
from kquota.metering.engine import EXPIRY_EVERY_MS, Change, QuotaManagers
from kquota.quotas import ClientQuotaEntity

__all__ = ["CONTROLLER", "BrokerQuotas"]

CONTROLLER: Final = -1
"""Stands for the controller among the ids of brokers."""
AT_ONCE: Final = 5_000
"""Changes that one broker is given together: some 50 ms."""


class BrokerQuotas:
    """Made without quotas and without brokers; both come with time.

    :param set_callback: gives the managers of a broker, by its id, another callback than Kafka's own.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        set_callback: Callable[[int, QuotaManagers], None] | None = None,
        request_times: RequestTimes | None = None,
        is_shadow: bool = False,
    ) -> None:
        self._config = config
        self._set_callback = set_callback
        self._request_times = request_times
        self.is_shadow = is_shadow
        self.throttles = ThrottleCounts()
        """Of all brokers."""
        self._values: dict[tuple[str, ClientQuotaEntity], float] = {}
        self._cluster: Cluster | None = None
        self._of: dict[int, Enforcement] = {}
        self._queued: deque[tuple[Enforcement, list[Change]]] = deque()
        self._next_expiry_ms = 0

    def __iter__(self) -> Iterator[tuple[int, Enforcement]]:
        """Each broker's id with its quotas."""
        return iter(sorted(self._of.items()))

    @property
    def values(self) -> Mapping[tuple[str, ClientQuotaEntity], float]:
        """The quotas in force, by key and entity."""
        return self._values

    @property
    def controller(self) -> Enforcement:
        """Where changes of topics are charged: the controller has one quota of them for the whole cluster."""
        return self.of(CONTROLLER)

    def of(self, node_id: int) -> Enforcement:
        """The quotas of a broker, made when it is first asked for.

        :raises CallbackRefusedError: its callback cannot be set up.
        """
        found = self._of.get(node_id)
        if found is None:
            managers = QuotaManagers(self._config)
            if self._set_callback is not None:
                self._set_callback(node_id, managers)
            managers.update_quotas([(key, entity, value) for (key, entity), value in self._values.items()])
            if self._cluster is not None:
                managers.update_cluster_metadata(self._cluster)
            found = Enforcement(
                managers,
                request_times=self._request_times,
                is_shadow=self.is_shadow,
                throttles=self.throttles,
            )
            self._of[node_id] = found
        return found

    def apply(self, changes: Iterable[Change]) -> None:
        """Put changes in force at every broker, after those that are queued."""
        self.queue(changes)
        while self.is_behind:
            self.apply_next()

    def queue(self, changes: Iterable[Change]) -> None:
        """Take changes that :meth:`apply_next` puts in force bit by bit, for who has others to serve in between.

        Brokers that come from now on have them at once.
        """
        changes = list(changes)
        for key, entity, value in changes:
            if value is None:
                self._values.pop((key, entity), None)
            else:
                self._values[key, entity] = value
        for start in range(0, len(changes), AT_ONCE):
            some = changes[start : start + AT_ONCE]
            self._queued.extend((one, some) for one in self._of.values())

    @property
    def is_behind(self) -> bool:
        """Whether changes are queued that are not in force at every broker."""
        return bool(self._queued)

    def apply_next(self) -> None:
        """Put the changes that were queued first in force at one broker; nothing is done where none are queued.

        Those that fail together are queued again in halves, so that in the end only what fails alone is left out: its
        error is raised.
        """
        if not self._queued:
            return
        one, changes = self._queued.popleft()
        try:
            one.managers.update_quotas(changes)
        except Exception as error:
            if len(changes) > 1:
                half = len(changes) // 2
                self._queued.extendleft([(one, changes[half:]), (one, changes[:half])])
                return
            key, entity, _ = changes[0]
            error.add_note(f"{key} of {entity.to_text()} is not in force at one broker")
            raise
        finally:
            one.rules.clear()

    def update_cluster_metadata(self, cluster: Cluster) -> None:
        """The cluster is now like this (KIP-257)."""
        if cluster != self._cluster:
            self._cluster = cluster
            for one in self._of.values():
                one.managers.update_cluster_metadata(cluster)
                one.rules.clear()

    def pass_time(self, now_ms: int) -> None:
        """What a broker does from time to time. To be called every second."""
        is_expiry_due = now_ms >= self._next_expiry_ms
        if is_expiry_due:
            self._next_expiry_ms = now_ms + EXPIRY_EVERY_MS
        for one in self._of.values():
            one.managers.update_usage(now_ms)
            for quota_type in _TYPES:
                one.managers.of(quota_type).delays.release(now_ms)
            if is_expiry_due:
                one.managers.expire(now_ms)


_TYPES: Final = tuple(ClientQuotaType)
