"""All managers of a broker together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Final, TypeAlias, assert_never

from kquota.config import BrokerConfig
from kquota.errors import CallbackRefusedError, KquotaError
from kquota.metering.callback import (
    CallbackQuotaEntity,
    ClientQuotaCallback,
    ClientQuotaType,
    Cluster,
    DefaultQuotaCallback,
    HasStaticDefaults,
    UsageAware,
    quota_source,
)
from kquota.metering.connections import ConnectionQuotas
from kquota.metering.guard import CallbackGuard
from kquota.metering.managers import MutationQuotaManager, RateQuotaManager, RequestQuotaManager
from kquota.metering.meters import BucketMeter
from kquota.metering.statistics import Windows
from kquota.quotas import CONNECTION_CREATION_RATE, ClientQuotaEntity, QuotaSnapshot

__all__ = ["EXPIRY_EVERY_MS", "USAGE_EVERY_MS", "Change", "PeriodicTasks", "QuotaManagers", "client_quotas"]

EXPIRY_EVERY_MS: Final = 30_000
USAGE_EVERY_MS: Final = 1_000

Change: TypeAlias = tuple[str, ClientQuotaEntity, float | None]
"""A quota's key, the entity that it is set on, and its value; None removes it."""


def client_quotas(quotas: QuotaSnapshot) -> Iterator[Change]:
    """All that is set for users and client ids, as changes that set it."""
    for entity, values in quotas.items():
        for key, value in values.items():
            if ClientQuotaType.find(key) is not None:
                yield key, entity, value


class QuotaManagers:
    """One manager of each type, as a broker has them, and its connections.

    :param mutation_meter: what partitions created and deleted are counted on.
    """

    def __init__(
        self,
        config: BrokerConfig,
        callback: ClientQuotaCallback | None = None,
        *,
        mutation_meter: type[BucketMeter] = BucketMeter,
    ) -> None:
        callback = callback or DefaultQuotaCallback()
        self._callback = callback
        self._static_defaults = config.static_defaults
        self._give_static_defaults(callback)
        self._quotas: dict[ClientQuotaType, dict[ClientQuotaEntity, float]] = {one: {} for one in ClientQuotaType}
        self._cluster: Cluster | None = None
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutation_windows = Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self.produce = RateQuotaManager(ClientQuotaType.PRODUCE, windows, callback)
        self.fetch = RateQuotaManager(ClientQuotaType.FETCH, windows, callback)
        self.request = RequestQuotaManager(windows, callback)
        self.controller_mutation = MutationQuotaManager(mutation_windows, callback, meter=mutation_meter)
        self.connections = ConnectionQuotas(windows)

    def of(self, quota_type: ClientQuotaType) -> RateQuotaManager | MutationQuotaManager:
        """The manager of a type."""
        match quota_type:
            case ClientQuotaType.PRODUCE:
                return self.produce
            case ClientQuotaType.FETCH:
                return self.fetch
            case ClientQuotaType.REQUEST:
                return self.request
            case ClientQuotaType.CONTROLLER_MUTATION:
                return self.controller_mutation
            case _:
                assert_never(quota_type)

    def update_quota(self, key: str, entity: ClientQuotaEntity, value: float | None) -> None:
        """A quota was set, or removed where `value` is None. Raises KeyError for a key that Kafka does not have."""
        self.update_quotas([(key, entity, value)])

    def update_quotas(self, changes: Iterable[Change]) -> None:
        """Quotas were set, or removed where the value is None, in this order. Limits follow once, after all of them.

        Where the callback raises, all limits of clients are as they were.

        :raises KeyError: a key is none of Kafka's; nothing is changed.
        :raises IllegalArgumentError: a limit of connections is set on something else than an ip; nothing is changed.
        """
        of_clients: list[tuple[ClientQuotaType, ClientQuotaEntity, float | None]] = []
        changed: dict[ClientQuotaType, list[ClientQuotaEntity]] = {}
        of_connections: list[tuple[ClientQuotaEntity, float | None]] = []
        for key, entity, value in changes:
            if key == CONNECTION_CREATION_RATE:
                of_connections.append((entity, value))
            else:
                of_clients.append((ClientQuotaType.of_key(key), entity, value))
        self.connections.update_quotas(of_connections)
        for quota_type, entity, value in of_clients:
            if value is None:
                self._quotas[quota_type].pop(entity, None)
            else:
                self._quotas[quota_type][entity] = value
        for quota_type, entity, value in of_clients:
            self.of(quota_type).update_callback(entity, value)
            changed.setdefault(quota_type, []).append(entity)
        limits = {one: self.of(one).limits_by(self._callback, entities) for one, entities in changed.items()}
        for quota_type, found in limits.items():
            self.of(quota_type).use(self._callback, found)

    def source(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> str | None:
        """Where the limit of these tags is set, in canonical text; None where the callback does not say."""
        return quota_source(self._callback, quota_type, metric_tags)

    def update_cluster_metadata(self, cluster: Cluster) -> None:
        """The cluster changed, and limits may have with it."""
        self._cluster = cluster
        if self._callback.update_cluster_metadata(cluster):
            for quota_type in ClientQuotaType:
                self.of(quota_type).refresh()

    def update_usage(self, now_ms: int) -> None:
        """Tell a callback that asks for it what is used, and take over the limits that change with that.

        To be called every :data:`USAGE_EVERY_MS`; for a callback that does not ask for it nothing is done.
        """
        callback = self._callback
        if isinstance(callback, UsageAware):
            for quota_type in ClientQuotaType:
                manager = self.of(quota_type)
                if callback.update_usage(quota_type, manager.usage(now_ms)):
                    manager.refresh()

    def swap_callback(self, callback: ClientQuotaCallback, configs: Mapping[str, str]) -> Exception | None:
        """Ask another callback from now on (KIP-257: ``client.quota.callback.class`` is dynamic); all or nothing.

        It is configured, given the static defaults, all quotas and the cluster, and asked for the limits of all meters
        that there are. Only then is it used, and the one before it closed. A guard lets faults through until then.

        :returns: what the one before raised when it was closed, if it did; the new one is used all the same.
        :raises CallbackRefusedError: the new one raised, and was closed; the one before it stays, with all limits.
        """
        try:
            with callback.letting_faults_through() if isinstance(callback, CallbackGuard) else nullcontext():
                self._set_up(callback, configs)
                limits = {quota_type: self.of(quota_type).limits_by(callback) for quota_type in ClientQuotaType}
        except Exception as error:
            reason = f"the callback could not be set up, the one before it stays: {_reason(error)}"
            closing = _closed(callback)
            if closing is not None:
                reason += f"; nor could it be closed: {_reason(closing)}"
            raise CallbackRefusedError(reason) from error
        before, self._callback = self._callback, callback
        for quota_type in ClientQuotaType:
            self.of(quota_type).use(callback, limits[quota_type])
        return _closed(before)

    def expire(self, now_ms: int) -> None:
        """Drop the meters that are inactive."""
        for quota_type in ClientQuotaType:
            self.of(quota_type).expire(now_ms)
        self.connections.expire(now_ms)

    def _set_up(self, callback: ClientQuotaCallback, configs: Mapping[str, str]) -> None:
        callback.configure(configs)
        self._give_static_defaults(callback)
        for quota_type, quotas in self._quotas.items():
            for entity, value in quotas.items():
                callback.update_quota(quota_type, CallbackQuotaEntity(entity), value)
        if self._cluster is not None:
            callback.update_cluster_metadata(self._cluster)

    def _give_static_defaults(self, callback: ClientQuotaCallback) -> None:
        if isinstance(callback, HasStaticDefaults):
            callback.use_static_defaults(self._static_defaults)


def _closed(callback: ClientQuotaCallback) -> Exception | None:
    """Close it; what it raised, if it did."""
    try:
        callback.close()
    except Exception as error:  # noqa: BLE001 - whatever a callback raises
        return error
    return None


def _reason(error: Exception) -> object:
    return error if isinstance(error, KquotaError) else repr(error)


class PeriodicTasks:
    """What a broker does from time to time, by the times of the traffic that is replayed."""

    def __init__(self, *managers: QuotaManagers) -> None:
        self._managers = managers
        self._usage_at_ms: int | None = None
        self._expire_at_ms = 0

    def run_until(self, now_ms: int) -> None:
        """Do what was due by now; what was due more than once, with nothing recorded in between, is done once."""
        if self._usage_at_ms is None:
            self._usage_at_ms, self._expire_at_ms = now_ms + USAGE_EVERY_MS, now_ms + EXPIRY_EVERY_MS
        if now_ms >= self._usage_at_ms:
            passed = (now_ms - self._usage_at_ms) // USAGE_EVERY_MS
            for one in self._managers:
                one.update_usage(self._usage_at_ms + passed * USAGE_EVERY_MS)
            self._usage_at_ms += (passed + 1) * USAGE_EVERY_MS
        if now_ms >= self._expire_at_ms:
            passed = (now_ms - self._expire_at_ms) // EXPIRY_EVERY_MS
            for one in self._managers:
                one.expire(self._expire_at_ms + passed * EXPIRY_EVERY_MS)
            self._expire_at_ms += (passed + 1) * EXPIRY_EVERY_MS
