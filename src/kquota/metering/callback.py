"""How requests are grouped and limited: ``ClientQuotaCallback`` (KIP-257), its types, and the default of Kafka's.

Source: ``org.apache.kafka.server.quota.ClientQuotaCallback``, ``ClientQuotaManager.DefaultQuotaCallback``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from kquota.metering.cluster import Cluster
from kquota.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Candidate,
    ClientQuotaEntity,
    QuotaResolver,
)

__all__ = [
    "CallbackQuotaEntity",
    "ClientQuotaCallback",
    "ClientQuotaType",
    "Cluster",
    "ConfigEntity",
    "ConfigEntityType",
    "DefaultQuotaCallback",
    "HasStaticDefaults",
    "KafkaPrincipal",
    "MeterUsage",
    "Principal",
    "ReportsQuotaSource",
    "UsageAware",
    "principal_of",
    "quota_source",
]


class ClientQuotaType(Enum):
    """What is limited; the value is its name in metrics, sensors and logs."""

    PRODUCE = "Produce", PRODUCER_BYTE_RATE
    FETCH = "Fetch", CONSUMER_BYTE_RATE
    REQUEST = "Request", REQUEST_PERCENTAGE
    CONTROLLER_MUTATION = "ControllerMutation", CONTROLLER_MUTATION_RATE

    key: str
    """The quota key that sets it."""

    def __new__(cls, name: str, key: str) -> Self:
        """Of a name, which is its value, and a key."""
        member = object.__new__(cls)
        member._value_ = name
        member.key = key
        return member

    @classmethod
    def of_key(cls, key: str) -> ClientQuotaType:
        """The type that a quota key sets. Raises KeyError for ``connection_creation_rate``, which no callback sees."""
        return _TYPES[key]

    @classmethod
    def find(cls, key: str) -> ClientQuotaType | None:
        """The type that a quota key sets, if there is one."""
        return _TYPES.get(key)


_TYPES = {quota_type.key: quota_type for quota_type in ClientQuotaType}


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """Who is connected. Kafka's rules look at the name alone; a broker may make principals of a class of its own."""

    principal_type: str
    name: str


Principal: TypeAlias = str | KafkaPrincipal
"""A user's name, which is a principal of the type ``User``, or a principal."""


def principal_of(user: Principal) -> KafkaPrincipal:
    """The principal, as callbacks are given it."""
    return KafkaPrincipal("User", user) if isinstance(user, str) else user


class ConfigEntityType(Enum):
    """What a part of an entity is."""

    USER = "USER"
    CLIENT_ID = "CLIENT_ID"
    DEFAULT_USER = "DEFAULT_USER"
    DEFAULT_CLIENT_ID = "DEFAULT_CLIENT_ID"


class ConfigEntity(NamedTuple):
    """A part of an entity; a default's name is empty, as the KIP says."""

    name: str
    entity_type: ConfigEntityType


@dataclass(frozen=True, slots=True)
class CallbackQuotaEntity:
    """Where a quota is set, as callbacks see it (the KIP's ``ClientQuotaEntity``, which is not the Admin's)."""

    entity: ClientQuotaEntity

    def config_entities(self) -> Sequence[ConfigEntity]:
        """The user first, then the client id."""
        entries = self.entity.entries
        kinds = (
            (USER, ConfigEntityType.USER, ConfigEntityType.DEFAULT_USER),
            (CLIENT_ID, ConfigEntityType.CLIENT_ID, ConfigEntityType.DEFAULT_CLIENT_ID),
        )
        return [
            ConfigEntity("", of_default) if (name := entries[kind]) is None else ConfigEntity(name, named)
            for kind, named, of_default in kinds
            if kind in entries
        ]


class ClientQuotaCallback(Protocol):
    """Decides what usage is counted on, and how much of it there may be.

    Tags are asked for on each request, limits when a meter is new and when something changed. Calls come from one
    thread; one that blocks, blocks traffic.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the broker's settings, once, before all else."""

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """What the request's usage is counted on; requests with equal tags share a limit."""

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """How much there may be on these tags; None for no limit."""

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, new_value: float) -> None:
        """A quota was set."""

    def remove_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity) -> None:
        """A quota was removed."""

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Whether limits changed otherwise: true once, and all limits of the type are asked for again."""

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """The cluster changed; whether limits changed with it."""

    def close(self) -> None:
        """No call comes after this one."""


@runtime_checkable
class ReportsQuotaSource(Protocol):
    """A callback that also says where its limits are set, for metrics. Kafka's contract has no such method."""

    def quota_source(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> str | None:
        """The entity that the limit of these tags is set on, as canonical text; None where it cannot say."""


class MeterUsage(NamedTuple):
    """What is used of a meter now."""

    metric_tags: Mapping[str, str]
    rate: float
    """Units per second, on average over the windows that the limit is compared with."""
    throttled: bool
    """A client was throttled within those windows: the rate is less than it would have used without."""


@runtime_checkable
class UsageAware(Protocol):
    """Our addition to KIP-257, for callbacks with limits that follow the usage. Others need not have it."""

    def update_usage(self, quota_type: ClientQuotaType, usage: Iterable[MeterUsage]) -> bool:
        """What is used now, reported about once a second; returns whether limits changed with it."""


@runtime_checkable
class HasStaticDefaults(Protocol):
    """A callback that falls back to Kafka's rules, of which the static defaults are the last. Others have none."""

    def use_static_defaults(self, static_defaults: Mapping[str, float]) -> None:
        """The broker's ``quota.producer.default`` and ``quota.consumer.default``, by quota key; before any quota."""


class DefaultQuotaCallback:
    """Kafka's own: eight levels of users and client ids, and the static defaults that old brokers had."""

    def __init__(self) -> None:
        self._static_defaults: Mapping[str, float] = {}
        self._values: dict[ClientQuotaType, dict[ClientQuotaEntity, float]] = {one: {} for one in ClientQuotaType}
        self._resolvers: dict[ClientQuotaType, QuotaResolver] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        """Nothing is configured."""

    def use_static_defaults(self, static_defaults: Mapping[str, float]) -> None:
        """Keep them, for clients that nothing else is set for."""
        self._static_defaults = dict(static_defaults)
        self._resolvers.clear()

    def is_used(self, quota_type: ClientQuotaType) -> bool:
        """Whether anything is set for the type; where not, nothing is counted."""
        return self._resolver(quota_type).is_used(quota_type.key)

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """Always both tags, an unused one empty; names as they are, not sanitized."""
        user, client = self._resolver(quota_type).tags(quota_type.key, principal.name, client_id)
        return {USER: user, CLIENT_ID: client}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """What is set on the levels that belong to these tags."""
        rule = self.rule_of_tags(quota_type, metric_tags)
        return None if rule is None else rule.value

    def rule_of_tags(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> Candidate | None:
        """The same with its source. Callbacks made from this one say theirs by :class:`ReportsQuotaSource`."""
        user, client = metric_tags.get(USER, ""), metric_tags.get(CLIENT_ID, "")
        return self._resolver(quota_type).rule_of_tags(quota_type.key, user, client)

    def user_limit(self, quota_type: ClientQuotaType, user: str) -> float | None:
        """What is set on exactly this user, for callbacks made from this one."""
        return self._values[quota_type].get(ClientQuotaEntity({USER: user}))

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, new_value: float) -> None:
        """Keep it."""
        self._values[quota_type][quota_entity.entity] = new_value
        self._resolver(quota_type).update(quota_type.key, quota_entity.entity, new_value)

    def remove_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity) -> None:
        """Forget it."""
        self._values[quota_type].pop(quota_entity.entity, None)
        self._resolver(quota_type).update(quota_type.key, quota_entity.entity, None)

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:  # noqa: ARG002 - the contract's
        """Never: limits change by updates alone."""
        return False

    def update_cluster_metadata(self, cluster: Cluster) -> bool:  # noqa: ARG002 - the contract's
        """Changes nothing."""
        return False

    def close(self) -> None:
        """Nothing is open."""

    def _resolver(self, quota_type: ClientQuotaType) -> QuotaResolver:
        resolver = self._resolvers.get(quota_type)
        if resolver is None:
            key = quota_type.key
            snapshot = {entity: {key: value} for entity, value in self._values[quota_type].items()}
            static = {key: value for key, value in self._static_defaults.items() if key == quota_type.key}
            resolver = self._resolvers[quota_type] = QuotaResolver(snapshot, static_defaults=static)
        return resolver


def quota_source(
    callback: ClientQuotaCallback, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]
) -> str | None:
    """Where the limit of these tags is set, as far as the callback can say."""
    if type(callback) is DefaultQuotaCallback:
        rule = callback.rule_of_tags(quota_type, metric_tags)
        return None if rule is None else rule.source.to_text()
    return callback.quota_source(quota_type, metric_tags) if isinstance(callback, ReportsQuotaSource) else None
