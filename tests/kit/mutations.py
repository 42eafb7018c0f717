"""Partitions charged to the quota of topic changes, as the gateway does."""

from __future__ import annotations

from kquota.metering.callback import ClientQuotaType, Principal
from kquota.metering.managers import MutationQuotaManager
from kquota.metering.requests import Charged, charge

__all__ = ["charge_mutation"]


def charge_mutation(
    manager: MutationQuotaManager, user: Principal, client_id: str, partitions: float, now_ms: int, *, strict: bool
) -> Charged:
    """Charge a request that creates or deletes partitions; `strict` where it is refused over the quota (KIP-599)."""
    meter = manager.meter(user, client_id)
    return charge(meter, ClientQuotaType.CONTROLLER_MUTATION, partitions, now_ms, strict=strict)
