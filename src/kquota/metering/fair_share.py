"""Fair shares of a capacity: what some tenants leave is given to those that want more, by weight.

A tenant is a group (see :mod:`kquota.metering.groups`), or a user in none. How much all of them may use on a broker is
a quota on the user ``capacity:``; how much a tenant weighs is one on the user ``weight:NAME``, for a group on
``weight:group:NAME``. Where no capacity is set for a type of quota, it is as with groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import accumulate
from math import inf, isfinite
from sys import float_info
from typing import Final, NamedTuple, TypeVar

from kquota.metering.callback import CallbackQuotaEntity, ClientQuotaType, KafkaPrincipal, MeterUsage
from kquota.metering.groups import GROUP_TAG, GroupQuotaCallback
from kquota.quotas import CLIENT_ID, USER, ClientQuotaEntity

__all__ = ["CAPACITY_USER", "HEADROOM", "WEIGHT_PREFIX", "FairShareCallback", "fair_shares"]

CAPACITY_USER: Final = "capacity:"
WEIGHT_PREFIX: Final = "weight:"
HEADROOM: Final = 1.1
"""What a tenant uses is an average, and wavers: it is given a little more, or it would be throttled for nothing."""

T = TypeVar("T", bound=Hashable)


def fair_shares(capacity: float, weights: Mapping[T, float], demands: Mapping[T, float]) -> dict[T, float]:
    """Divide `capacity` by weighted max-min fairness.

    Nobody gets more than they demand while anybody else gets less; those who get less get the same for each unit of
    weight. What is left when all demands are met is divided by weight, so that there is room to grow.

    :param weights: above zero.
    :param demands: zero or more, of the same tenants; infinite for one that takes whatever it gets.
    """
    # Whoever is satisfied with the least for its weight comes first, and leaves to the others what it does not need.
    order = sorted(weights, key=lambda tenant: demands[tenant] / weights[tenant])
    weights_to_come = list(accumulate(weights[tenant] for tenant in reversed(order)))
    left = capacity
    for number, tenant in enumerate(order):
        whole = weights_to_come[-1 - number]
        if demands[tenant] > left * (weights[tenant] / whole):
            lacking = {one: left * (weights[one] / whole) for one in order[number:]}
            return {one: demands[one] for one in order[:number]} | lacking
        left = max(0.0, left - demands[tenant])
    return {one: demands[one] + left * (weights[one] / weights_to_come[-1]) for one in order}


Tenant = str
"""The name that its weight is set on."""


class _Division(NamedTuple):
    """What the tenants that are active get of a capacity."""

    shares: Mapping[Tenant, float]
    weight: float


class FairShareCallback(GroupQuotaCallback):
    """Tenants share a capacity; one that wants more than its part gets what the others leave.

    The callback gets the usage of tenants every second. A tenant that was throttled wants all it can get; any other
    wants what it uses, and a little more. No limit is ever lower than what the tenant's weight gives it among those
    that are active: a tenant that was idle, or used little, is not throttled for that. A quota on the tenant itself is
    the most that it gets.
    """

    def __init__(self) -> None:
        super().__init__()
        self._demands: dict[ClientQuotaType, dict[Tenant, float]] = {one: {} for one in ClientQuotaType}
        self._divisions: dict[ClientQuotaType, _Division] = {}

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """The tenant, where there is a capacity; otherwise the group's or Kafka's own tags."""
        if self._capacity(quota_type) is None:
            return super().quota_metric_tags(quota_type, principal, client_id)
        group = self._group_of(principal.name, client_id)
        return {USER: principal.name, CLIENT_ID: ""} if group is None else {GROUP_TAG: group}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The tenant's share, or what is set on the tenant if that is less."""
        most = super().quota_limit(quota_type, metric_tags)
        capacity, tenant = self._capacity(quota_type), _tenant(metric_tags)
        if capacity is None or tenant is None:
            return most
        division = self._division(quota_type, capacity)
        weight, share = self._weight(quota_type, tenant), division.shares.get(tenant)
        entitled = capacity * (weight / (division.weight + (weight if share is None else 0.0)))
        share = max(share or 0.0, entitled, float_info.min)
        return share if most is None else min(share, most)

    def quota_source(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> str | None:
        """The capacity that is shared, or what is set on the tenant where that is less."""
        most = super().quota_limit(quota_type, metric_tags)
        share = self.quota_limit(quota_type, metric_tags)
        if share is None or share == most:
            return super().quota_source(quota_type, metric_tags)
        return ClientQuotaEntity({USER: CAPACITY_USER}).to_text()

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, new_value: float) -> None:
        """Keep it: it may be the capacity, a weight, or the most that a tenant gets."""
        super().update_quota(quota_type, quota_entity, new_value)
        self._divisions.pop(quota_type, None)

    def remove_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity) -> None:
        """Forget it."""
        super().remove_quota(quota_type, quota_entity)
        self._divisions.pop(quota_type, None)

    def update_usage(self, quota_type: ClientQuotaType, usage: Iterable[MeterUsage]) -> bool:
        """Who is active, and how much each of them wants."""
        demands: dict[Tenant, float] = {}
        if self._capacity(quota_type) is not None:
            for metric_tags, rate, throttled in usage:
                tenant = _tenant(metric_tags)
                if tenant is not None and (rate > 0 or throttled):
                    most = super().quota_limit(quota_type, metric_tags)
                    demands[tenant] = min(inf if throttled else rate * HEADROOM, inf if most is None else most)
        if demands == self._demands[quota_type]:
            return False
        self._demands[quota_type] = demands
        self._divisions.pop(quota_type, None)
        return True

    def _division(self, quota_type: ClientQuotaType, capacity: float) -> _Division:
        division = self._divisions.get(quota_type)
        if division is None:
            demands = self._demands[quota_type]
            weights = {tenant: self._weight(quota_type, tenant) for tenant in demands}
            division = _Division(fair_shares(capacity, weights, demands), sum(weights.values()))
            self._divisions[quota_type] = division
        return division

    def _capacity(self, quota_type: ClientQuotaType) -> float | None:
        return _usable(self.user_limit(quota_type, CAPACITY_USER))

    def _weight(self, quota_type: ClientQuotaType, tenant: Tenant) -> float:
        own = _usable(self.user_limit(quota_type, WEIGHT_PREFIX + tenant))
        if own is None:
            own = _usable(self.user_limit(quota_type, WEIGHT_PREFIX))
        return 1.0 if own is None else own


def _tenant(metric_tags: Mapping[str, str]) -> Tenant | None:
    """None for tags that were given while there was no capacity."""
    group = metric_tags.get(GROUP_TAG)
    if group is not None:
        return f"{GROUP_TAG}:{group}"
    return metric_tags.get(USER, "") if not metric_tags.get(CLIENT_ID) else None


def _usable(value: float | None) -> float | None:
    """A quota may be any number that Kafka takes, NaN included."""
    return value if value is not None and isfinite(value) and value > 0 else None
