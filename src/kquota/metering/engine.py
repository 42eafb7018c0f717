"""All managers of a broker together, and traces replayed on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, Final, assert_never

from kquota.config import BrokerConfig
from kquota.errors import CallbackRefusedError, InputError
from kquota.metering.callback import (
    CallbackQuotaEntity,
    ClientQuotaCallback,
    ClientQuotaType,
    Cluster,
    DefaultQuotaCallback,
)
from kquota.metering.managers import MutationQuotaManager, RateQuotaManager
from kquota.metering.meters import UNLIMITED, BucketMeter, RateMeter, Throttle
from kquota.metering.statistics import Windows
from kquota.quotas import CLIENT_ID, USER, ClientQuotaEntity

__all__ = ["EXPIRY_EVERY_MS", "QuotaManagers", "replay"]

EXPIRY_EVERY_MS: Final = 30_000


class QuotaManagers:
    """One manager of each type, as a broker has them."""

    def __init__(self, config: BrokerConfig, callback: ClientQuotaCallback | None = None) -> None:
        callback = callback or DefaultQuotaCallback(config.static_defaults)
        self._callback = callback
        self._quotas: dict[ClientQuotaType, dict[ClientQuotaEntity, float]] = {one: {} for one in ClientQuotaType}
        self._cluster: Cluster | None = None
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutation_windows = Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self.produce = RateQuotaManager(ClientQuotaType.PRODUCE, windows, callback)
        self.fetch = RateQuotaManager(ClientQuotaType.FETCH, windows, callback)
        # Request time is told in parts of a second, and nobody waits for longer than a window of it.
        self.request = RateQuotaManager(ClientQuotaType.REQUEST, windows, callback, bound_ms=windows.size_ms)
        self.controller_mutation = MutationQuotaManager(mutation_windows, callback)

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
        """A quota was set, or removed where `value` is None. Raises KeyError for a key that no callback sees."""
        quota_type = ClientQuotaType.of_key(key)
        if value is None:
            self._quotas[quota_type].pop(entity, None)
        else:
            self._quotas[quota_type][entity] = value
        self.of(quota_type).update_quota(entity, value)

    def update_cluster_metadata(self, cluster: Cluster) -> None:
        """The cluster changed, and limits may have with it."""
        self._cluster = cluster
        if self._callback.update_cluster_metadata(cluster):
            for quota_type in ClientQuotaType:
                self.of(quota_type).refresh()

    def swap_callback(self, callback: ClientQuotaCallback, configs: Mapping[str, str]) -> None:
        """Ask another callback from now on (KIP-257: ``client.quota.callback.class`` is dynamic).

        It is configured, and given all quotas and the cluster, before it is asked for anything; then the one before it
        is closed.

        :raises CallbackRefusedError: it raised while it was set up; the one before it stays, as if nothing had been.
        """
        try:
            callback.configure(configs)
            for quota_type, quotas in self._quotas.items():
                for entity, value in quotas.items():
                    callback.update_quota(quota_type, CallbackQuotaEntity(entity), value)
            if self._cluster is not None:
                callback.update_cluster_metadata(self._cluster)
        except Exception as error:
            raise CallbackRefusedError(
                f"the callback could not be set up, the one before it stays: {error!r}"
            ) from error
        before, self._callback = self._callback, callback
        for quota_type in ClientQuotaType:
            self.of(quota_type).use(callback)
        before.close()

    def expire(self, now_ms: int) -> None:
        """Drop the meters that are inactive."""
        for quota_type in ClientQuotaType:
            self.of(quota_type).expire(now_ms)


def replay(operations: Iterable[Mapping[str, Any]], config: BrokerConfig) -> Iterator[dict[str, Any]]:
    """What a broker would do with a trace; one answer for each ``record``.

    Operations are ``quota`` (entity, key, value; None removes), ``record`` and ``unrecord`` (t_ms, user, client-id,
    key, value; strict for mutations) and ``time`` (t_ms). Inactive meters are dropped every 30 seconds of the trace's
    time, counted from its first.

    :raises InputError: an operation is none of these.
    """
    managers = QuotaManagers(config)
    expire_at_ms: int | None = None
    for number, operation in enumerate(operations, 1):
        kind = _checked(operation, number)
        if kind == "quota":
            managers.update_quota(operation["key"], ClientQuotaEntity(operation["entity"]), operation["value"])
            continue
        now_ms = operation["t_ms"]
        if expire_at_ms is None:
            expire_at_ms = now_ms + EXPIRY_EVERY_MS
        if now_ms >= expire_at_ms:
            # Nothing was recorded since: the last of the times that passed drops what those before it would have.
            passed = (now_ms - expire_at_ms) // EXPIRY_EVERY_MS
            managers.expire(expire_at_ms + passed * EXPIRY_EVERY_MS)
            expire_at_ms += (passed + 1) * EXPIRY_EVERY_MS
        if kind == "record":
            yield _record(managers, operation, now_ms)
        elif kind == "unrecord":
            manager = managers.of(ClientQuotaType.of_key(operation["key"]))
            manager.unrecord(operation["user"], operation["client-id"], operation["value"], now_ms)


_RECORD: Final = {"t_ms": int, "user": str, "client-id": str, "key": str, "value": (int, float)}
_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "quota": {"entity": Mapping, "key": str, "value": (int, float, NoneType)},
    "record": _RECORD,
    "unrecord": _RECORD,
    "time": {"t_ms": int},
}


def _checked(operation: Mapping[str, Any], number: int) -> str:
    """What the operation is, once it has all that it needs.

    :raises InputError: it has not.
    """
    kind = operation.get("op")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise InputError(f"operation {number}: op is {kind!r}, and must be one of {', '.join(_FIELDS)}")
    for name, types in fields.items():
        if name not in operation:
            raise InputError(f"operation {number}: a {kind} needs {', '.join(fields)}; {name} is missing")
        if not isinstance(operation[name], types) or isinstance(operation[name], bool):
            raise InputError(f"operation {number}: {name} cannot be {operation[name]!r}")
    key = operation.get("key")
    if key is not None and ClientQuotaType.find(key) is None:
        known = ", ".join(one.key for one in ClientQuotaType)
        raise InputError(f"operation {number}: key {key} is not one of users and client ids: {known}")
    if operation.get("strict") and key != ClientQuotaType.CONTROLLER_MUTATION.key:
        raise InputError(f"operation {number}: strict goes with controller_mutation_rate, not with {key}")
    return str(kind)


def _record(managers: QuotaManagers, operation: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    manager = managers.of(ClientQuotaType.of_key(operation["key"]))
    user, client_id, value = operation["user"], operation["client-id"], operation["value"]
    rejected: bool | None = None
    throttle: Throttle | None
    if isinstance(manager, RateQuotaManager):
        throttle = manager.record(user, client_id, value, now_ms)
    elif operation.get("strict"):
        rejected, throttle = manager.record_strict(user, client_id, value, now_ms)
    else:
        throttle = manager.record_permissive(user, client_id, value, now_ms)
    meter: RateMeter | BucketMeter | None = manager.meter(user, client_id)
    limited = meter is not None and meter.limit != UNLIMITED
    answer: dict[str, Any] = {
        "t_ms": now_ms,
        "meter": {} if meter is None else {tag: meter.tags[tag] for tag in (USER, CLIENT_ID) if meter.tags.get(tag)},
        "limit": meter.limit if meter is not None and limited else None,
        "value": None if meter is None else meter.measure(now_ms),
        "throttle_ms": max(0, throttle.throttle_ms) if throttle else 0,
        "unbounded_throttle_ms": max(0, throttle.unbounded_ms) if throttle else 0,
    }
    if rejected is not None:
        answer["rejected"] = rejected
    return answer
