"""A callback of one's own: all client ids with the same prefix share one limit.

    kquota callback test examples.callbacks.by_prefix:ByClientIdPrefix \\
        --dataset kquota-demo --quotas examples/callbacks/quotas.yaml

The limit of all that are called ``etl-...`` is a quota on the user ``prefix:etl``. Who has no such limit has Kafka's
rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback, KafkaPrincipal

SEPARATOR = "prefix.separator"


class ByClientIdPrefix(DefaultQuotaCallback):
    """What stands before the first separator, which is a setting of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.separator = "-"

    def configure(self, configs: Mapping[str, str]) -> None:
        self.separator = configs.get(SEPARATOR, "-")

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        prefix = client_id.partition(self.separator)[0]
        if self.user_limit(quota_type, f"prefix:{prefix}") is not None:
            return {"prefix": prefix}
        return super().quota_metric_tags(quota_type, principal, client_id)

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        prefix = metric_tags.get("prefix")
        if prefix is None:
            return super().quota_limit(quota_type, metric_tags)
        return self.user_limit(quota_type, f"prefix:{prefix}")
