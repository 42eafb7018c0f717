"""Traces replayed: what a broker would do with traffic that was written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from sys import float_info
from types import NoneType
from typing import Any, Final, TypeAlias

from kquota.config import CALLBACK_SETTING, BrokerConfig, is_read_from_broker
from kquota.errors import CallbackRefusedError, InputError
from kquota.metering.callback import (
    ClientQuotaCallback,
    ClientQuotaType,
    Cluster,
    DefaultQuotaCallback,
    KafkaPrincipal,
)
from kquota.metering.cluster_json import cluster_from_json
from kquota.metering.connections import DISABLED
from kquota.metering.engine import EXPIRY_EVERY_MS, USAGE_EVERY_MS, QuotaManagers
from kquota.metering.loading import load_callback
from kquota.metering.managers import RateQuotaManager
from kquota.metering.meters import UNLIMITED, BucketMeter, Throttle
from kquota.metering.metrics import read_metrics
from kquota.metering.requests import charge
from kquota.quotas import CONNECTION_CREATION_RATE, IP, KAFKA, ClientQuotaEntity, canonical_ip, is_literal_ip

__all__ = ["Replay", "replay"]

Operation: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = dict[str, Any]

LISTENER: Final = "PLAINTEXT"
"""Of a connection that names none: a broker's own, unless the operation says another one."""


def replay(operations: Iterable[Operation], config: BrokerConfig) -> Iterator[Answer]:
    """The answers of a broker with these settings; see :meth:`Replay.answers`."""
    return Replay(config).answers(operations)


class Replay:
    """A broker that meets a trace. Its time is the trace's."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: Mapping[str, str] | None = None,
        *,
        guard: Callable[[ClientQuotaCallback], ClientQuotaCallback] = lambda callback: callback,
        report: Callable[[str], None] = lambda _: None,
        mutation_meter: type[BucketMeter] = BucketMeter,
    ) -> None:
        """Begin without quotas.

        :param settings: all of the broker's, for its callback; ``client.quota.callback.class`` among them names it.
        :param guard: put before every callback but Kafka's own.
        :param report: called with words about a callback that could not be set up later on, so that the one before it
            stays, and about one that could not be closed.
        :param mutation_meter: what partitions created and deleted are counted on.
        :raises InputError: there is no such callback, or it cannot be set up.
        """
        self.managers = QuotaManagers(config, mutation_meter=mutation_meter)
        self.now_ms = 0
        """The last time in the trace."""
        self._expire_at_ms: int | None = None
        self._usage_at_ms = 0
        self._settings = settings or {}
        self._guard = guard
        self._report = report
        if CALLBACK_SETTING in self._settings:
            try:
                self._swap(self._settings[CALLBACK_SETTING], self._settings)
            except CallbackRefusedError as error:
                raise InputError(f"{CALLBACK_SETTING}={self._settings[CALLBACK_SETTING]}: {error}") from error
        self._kinds: Mapping[str, Callable[[Operation], Answer | None]] = {
            "quota": self._quota,
            "callback": self._callback,
            "cluster": self._cluster,
            "record": self._record,
            "unrecord": self._unrecord,
            "record_no_throttle": self._record_no_throttle,
            "exempt": self._exempt,
            "metrics": self._metrics,
            "time": lambda _: None,
        }

    def answers(self, operations: Iterable[Operation]) -> Iterator[Answer]:
        """What it does with each; one answer for each ``record`` and ``metrics``.

        Operations are ``quota`` (entity, key, value; None removes), ``callback`` (class, None for Kafka's own; configs,
        over the broker's settings), ``cluster`` (partitions and more: :mod:`kquota.metering.cluster_json`), ``record``
        and ``unrecord`` (t_ms, user, client-id, key, value; principal-type, if it is not User; strict for mutations),
        ``record`` of a connection (t_ms, ip, key; listener), ``record_no_throttle`` (as ``unrecord``), ``exempt``
        (t_ms, value: request time), ``metrics`` and ``time`` (t_ms). Throttled clients are muted. Inactive
        meters are dropped every 30 seconds of the trace's time, counted from its first.

        :raises InputError: an operation is none of these.
        """
        for number, operation in enumerate(operations, 1):
            kind = _checked(operation, number)
            if "t_ms" in _FIELDS[kind]:
                self._advance(operation["t_ms"])
            answer = self._kinds[kind](operation)
            if answer is not None:
                yield answer

    def _advance(self, now_ms: int) -> None:
        self.now_ms = now_ms
        if self._expire_at_ms is None:
            self._expire_at_ms = now_ms + EXPIRY_EVERY_MS
        if now_ms >= self._expire_at_ms:
            # Nothing was recorded since: the last of the times that passed drops what those before it would have.
            passed = (now_ms - self._expire_at_ms) // EXPIRY_EVERY_MS
            self.managers.expire(self._expire_at_ms + passed * EXPIRY_EVERY_MS)
            self._expire_at_ms += (passed + 1) * EXPIRY_EVERY_MS
        if now_ms >= self._usage_at_ms:
            self.managers.update_usage(now_ms)
            self._usage_at_ms = now_ms + USAGE_EVERY_MS
        for quota_type in ClientQuotaType:
            self.managers.of(quota_type).delays.release(now_ms)

    def _callback(self, operation: Operation) -> None:
        try:
            self._swap(operation["class"], {**self._settings, **operation.get("configs", {})})
        except CallbackRefusedError as error:
            self._report(f"callback {operation['class']}: {error}")

    def _swap(self, name: str | None, settings: Mapping[str, str]) -> None:
        callback = DefaultQuotaCallback() if name is None else load_callback(name)
        # What is known of Kafka's own is known of it alone, without a guard.
        guarded = callback if type(callback) is DefaultQuotaCallback else self._guard(callback)
        closing = self.managers.swap_callback(guarded, settings)
        if closing is not None:
            self._report(f"the callback before could not be closed: {closing!r}")

    def _cluster(self, operation: Operation) -> None:
        self.managers.update_cluster_metadata(_cluster_of(operation))

    def _quota(self, operation: Operation) -> None:
        self.managers.update_quota(operation["key"], ClientQuotaEntity(operation["entity"]), operation["value"])

    def _record(self, operation: Operation) -> Answer:
        if operation["key"] == CONNECTION_CREATION_RATE:
            return self._connection(operation["ip"], operation.get("listener", LISTENER))
        quota_type = ClientQuotaType.of_key(operation["key"])
        manager = self.managers.of(quota_type)
        user, client_id, strict = _user(operation), operation["client-id"], bool(operation.get("strict"))
        meter = manager.meter(user, client_id)
        # A trace says by itself what is taken back: `unrecord`.
        throttle, accepted = charge(meter, quota_type, operation["value"], self.now_ms, strict=strict, is_answered=True)
        if throttle is not None and throttle.throttle_ms > 0:
            manager.note_throttle(user, client_id, throttle.throttle_ms, self.now_ms)
            manager.delays.add((user, client_id), throttle.throttle_ms, self.now_ms)
        tags = {} if meter is None else {tag: tagged for tag, tagged in meter.tags.items() if tagged}
        limit = None if meter is None or meter.limit == UNLIMITED else meter.limit
        value = None if meter is None else meter.measure(self.now_ms)
        return self._answer(tags, limit, value, throttle, not accepted if strict else None)

    def _connection(self, ip: str, listener: str) -> Answer:
        connections = self.managers.connections
        throttle = connections.accept(listener, ip, self.now_ms)
        meter = connections.meter(ip)
        tags = {} if meter is None else {IP: canonical_ip(ip) or ip}
        limit = None if meter is None or meter.limit == DISABLED else meter.limit
        value = None if meter is None else meter.measure(self.now_ms)
        return self._answer(tags, limit, value, throttle, throttle is not None)

    def _answer(
        self,
        meter: Mapping[str, str],
        limit: float | None,
        value: float | None,
        throttle: Throttle | None,
        rejected: bool | None,  # noqa: FBT001 - as it is in the answer
    ) -> Answer:
        answer = {
            "t_ms": self.now_ms,
            "meter": meter,
            "limit": limit,
            "value": value,
            "throttle_ms": max(0, throttle.throttle_ms) if throttle else 0,
            "unbounded_throttle_ms": max(0, throttle.unbounded_ms) if throttle else 0,
        }
        return answer if rejected is None else {**answer, "rejected": rejected}

    def _unrecord(self, operation: Operation) -> None:
        manager = self.managers.of(ClientQuotaType.of_key(operation["key"]))
        manager.unrecord(_user(operation), operation["client-id"], operation["value"], self.now_ms)

    def _record_no_throttle(self, operation: Operation) -> None:
        manager = self.managers.of(ClientQuotaType.of_key(operation["key"]))
        assert isinstance(manager, RateQuotaManager)
        manager.record_no_throttle(_user(operation), operation["client-id"], operation["value"], self.now_ms)

    def _exempt(self, operation: Operation) -> None:
        self.managers.request.record_exempt(operation["value"], self.now_ms)

    def _metrics(self, _: Operation) -> Answer:
        found = read_metrics(self.managers, self.now_ms)
        metrics = [{**one._asdict(), "tags": dict(one.tags), "object_name": one.object_name} for one in found]
        return {"t_ms": self.now_ms, "metrics": metrics}


def _cluster_of(operation: Operation) -> Cluster:
    return cluster_from_json({name: value for name, value in operation.items() if name != "op"})


def _user(operation: Operation) -> KafkaPrincipal:
    return KafkaPrincipal(operation.get("principal-type", "User"), operation["user"])


_NUMBER: Final = (int, float)
_RECORD: Final = {"t_ms": int, "user": str, "client-id": str, "key": str, "value": _NUMBER}
_CONNECTION: Final = {"t_ms": int, "ip": str, "key": str}
_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "quota": {"entity": Mapping, "key": str, "value": (int, float, NoneType)},
    "callback": {"class": (str, NoneType)},
    "cluster": {"partitions": list},
    "record": _RECORD,
    "unrecord": _RECORD,
    "record_no_throttle": _RECORD,
    "exempt": {"t_ms": int, "value": _NUMBER},
    "metrics": {"t_ms": int},
    "time": {"t_ms": int},
}


def _checked(operation: Operation, number: int) -> str:
    """What the operation is, once it has all that it needs.

    :raises InputError: it has not.
    """
    kind = operation.get("op")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise InputError(f"operation {number}: op is {kind!r}, and must be one of {', '.join(_FIELDS)}")
    is_connection = kind == "record" and operation.get("key") == CONNECTION_CREATION_RATE
    if is_connection:
        fields = _CONNECTION
    for name, types in fields.items():
        if name not in operation:
            raise InputError(f"operation {number}: a {kind} needs {', '.join(fields)}; {name} is missing")
        found = operation[name]
        most = 2**63 - 1 if name == "t_ms" else float_info.max  # what Java's numbers hold
        if not isinstance(found, types) or isinstance(found, bool) or (isinstance(found, int) and abs(found) > most):
            raise InputError(f"operation {number}: {name} cannot be {found!r}")
    wrong = _connection_fault(operation) if is_connection else _fault(str(kind), operation)
    if wrong is not None:
        raise InputError(f"operation {number}: {wrong}")
    return str(kind)


def _fault(kind: str, operation: Operation) -> str | None:
    """What is wrong with a key, or goes wrongly with it."""
    configs = operation.get("configs", {})
    if kind == "callback" and not (
        isinstance(configs, Mapping) and all(isinstance(value, str) for value in configs.values())
    ):
        return f"configs cannot be {configs!r}: an object of texts is expected"
    of_broker = next(filter(is_read_from_broker, configs), None)
    if kind == "callback" and of_broker is not None:
        return f"configs cannot have {of_broker}: it is the broker's, and the same all through the trace"
    if kind == "cluster":
        try:
            _cluster_of(operation)
        except InputError as error:
            return str(error)
    principal_type = operation.get("principal-type", "User")
    if not isinstance(principal_type, str) or not principal_type:
        return f"principal-type cannot be {principal_type!r}: a text such as User is expected"
    key = operation.get("key")
    if key is None:
        return None
    if kind == "quota" and key == CONNECTION_CREATION_RATE:
        return None if operation["entity"].keys() == {IP} else f"key {key} is set on an ip alone"
    if ClientQuotaType.find(key) is None:
        known = ", ".join(one.key for one in ClientQuotaType)
        return f"key {key} is not one of users and client ids: {known}"
    if kind == "quota" and key not in (KAFKA.keys_for(operation["entity"]) or {}):
        return f"key {key} is set on users, client ids and pairs of them, not on {dict(operation['entity'])}"
    is_mutation = key == ClientQuotaType.CONTROLLER_MUTATION.key
    if operation.get("strict") and not is_mutation:
        return f"strict goes with controller_mutation_rate, not with {key}"
    if kind == "record_no_throttle" and is_mutation:
        return f"{key} is never recorded without a look at the limit"
    return None


def _connection_fault(operation: Operation) -> str | None:
    if operation.get("value", 1) != 1:
        return f"value cannot be {operation['value']!r}: connections are counted one by one"
    if not is_literal_ip(operation["ip"]):
        return f"ip cannot be {operation['ip']!r}: an address is expected"
    listener = operation.get("listener", LISTENER)
    return None if isinstance(listener, str) and listener else f"listener cannot be {listener!r}"
