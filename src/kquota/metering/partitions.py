"""A tenant's limit for the whole cluster, split by the partitions that each broker leads (KIP-257's own example).

A tenant is what comes before the first separator of a user's name, and its topics begin so, too. Its limit is a quota
on the user ``TENANT`` + separator; the user that is the separator alone is for tenants without one of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kquota.errors import InputError
from kquota.metering.callback import ClientQuotaType, Cluster, DefaultQuotaCallback, KafkaPrincipal
from kquota.quotas import USER, ClientQuotaEntity

__all__ = ["SEPARATOR_SETTING", "TENANT_TAG", "PartitionQuotaCallback"]

SEPARATOR_SETTING: Final = "kquota.tenant.separator"
BROKER_SETTINGS: Final = ("node.id", "broker.id")
TENANT_TAG: Final = "tenant"
_NOT_SPLIT: Final = (ClientQuotaType.REQUEST, ClientQuotaType.CONTROLLER_MUTATION)
"""A second of a thread is each broker's own, and of a cluster the controller alone counts mutations."""


class PartitionQuotaCallback(DefaultQuotaCallback):
    """On a broker that leads a quarter of a tenant's partitions, the tenant has a quarter of its limit.

    On a broker that leads none of them it has the share of one, and all of it while it has no partitions. Request time
    and mutations are not split. Who belongs to no tenant is limited as ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._separator = "_"
        self._broker_id = 0
        self._shares: dict[str, float] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        """Read the separator, and which broker this is.

        :raises InputError: the broker's id is missing or no number.
        """
        self._separator = configs.get(SEPARATOR_SETTING, "_")
        if not self._separator:
            raise InputError(f"{SEPARATOR_SETTING} is empty: it separates the tenant from the rest of a name")
        text = next((configs[name] for name in BROKER_SETTINGS if name in configs), "")
        digits = text.removeprefix("-")  # -1 is a node whose id is not known, as the controller of a recording
        if not digits.isascii() or not digits.isdigit():
            raise InputError(f"{' or '.join(BROKER_SETTINGS)}: the number of this broker is needed, not {text!r}")
        self._broker_id = int(text)

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """The tenant, where the user has one that is limited; otherwise Kafka's own tags."""
        tenant = self._tenant_of(principal.name)
        if tenant is not None and self._whole_limit(quota_type, tenant) is not None:
            return {TENANT_TAG: tenant}
        return super().quota_metric_tags(quota_type, principal, client_id)

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The share of this broker in the tenant's limit, or as ever."""
        tenant = metric_tags.get(TENANT_TAG)
        if tenant is None:
            return super().quota_limit(quota_type, metric_tags)
        limit = self._whole_limit(quota_type, tenant)
        if limit is None or quota_type in _NOT_SPLIT:
            return limit
        return limit * self._shares.get(tenant, 1.0)

    def quota_source(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> str | None:
        """The user that the tenant's whole limit is set on, or as ever."""
        tenant = metric_tags.get(TENANT_TAG)
        if tenant is None:
            rule = self.rule_of_tags(quota_type, metric_tags)
            return None if rule is None else rule.source.to_text()
        own = tenant + self._separator
        user = self._separator if self.user_limit(quota_type, own) is None else own
        return ClientQuotaEntity({USER: user}).to_text()

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Count who leads what; whether any share is another now."""
        every: Counter[str] = Counter()
        here: Counter[str] = Counter()
        for one in cluster.partitions:
            tenant = self._tenant_of(one.topic)
            if tenant is not None:
                every[tenant] += 1
                here[tenant] += one.leader is not None and one.leader.id == self._broker_id
        shares = {tenant: max(here[tenant], 1) / count for tenant, count in every.items()}
        is_changed = shares != self._shares
        self._shares = shares
        return is_changed

    def _whole_limit(self, quota_type: ClientQuotaType, tenant: str) -> float | None:
        own = self.user_limit(quota_type, tenant + self._separator)
        return self.user_limit(quota_type, self._separator) if own is None else own

    def _tenant_of(self, name: str) -> str | None:
        tenant, separator, _ = name.partition(self._separator)
        return tenant if tenant and separator else None
