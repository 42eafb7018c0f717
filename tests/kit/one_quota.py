"""A broker on which one quota is set, request by request: all others who count requests must agree with it."""

from __future__ import annotations

from typing import NamedTuple

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType
from kquota.metering.engine import QuotaManagers
from kquota.metering.requests import RequestQuotas
from kquota.quotas import ClientQuotaEntity

__all__ = ["ALICE", "CLIENT", "Answer", "OneQuota"]

CLIENT = ("alice", "c")
ALICE = ClientQuotaEntity({"user": "alice"})


class Answer(NamedTuple):
    """How long the client is throttled, in milliseconds, and whether its request was accepted, or answered."""

    throttle_ms: int
    accepted: bool


class OneQuota:
    """Request time is not known, but where it is what is limited."""

    def __init__(self, quota_type: ClientQuotaType, limit: float) -> None:
        managers = QuotaManagers(BrokerConfig())
        managers.update_quota(quota_type.key, ALICE, limit)
        self.quotas = RequestQuotas(managers)
        self._quota_type = quota_type

    def request(self, amount: float, now_ms: int, *, strict: bool = False) -> Answer:
        """One that uses so much: bytes, per cent of a thread's second, or partitions of one topic."""
        quotas = self.quotas
        match self._quota_type:
            case ClientQuotaType.PRODUCE:
                return Answer(quotas.produce(*CLIENT, int(amount), None, now_ms).throttle_ms, accepted=True)
            case ClientQuotaType.FETCH:
                wait_ms = quotas.fetch(*CLIENT, int(amount), None, now_ms).throttle_ms
                return Answer(wait_ms, accepted=wait_ms == 0)
            case ClientQuotaType.REQUEST:
                return Answer(
                    quotas.complete(*CLIENT, self._quota_type, None, amount, now_ms).throttle_ms, accepted=True
                )
            case ClientQuotaType.CONTROLLER_MUTATION:
                (accepted,), throttle = quotas.mutate(*CLIENT, [amount], now_ms, strict=strict)
                return Answer(quotas.complete(*CLIENT, self._quota_type, throttle, None, now_ms).throttle_ms, accepted)
