"""A request and all the quotas that it meets: what is counted in which order, and which of them makes the client wait.

Sources: ``KafkaApis``, ``ControllerApis``, ``ClientRequestQuotaManager``. The longest wait counts, never the sum, and
only the manager that asked for it notes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kquota.metering.callback import ClientQuotaType, Principal
from kquota.metering.engine import QuotaManagers
from kquota.metering.managers import StrictOutcome
from kquota.metering.meters import Throttle

__all__ = ["STRICT_SINCE", "RequestQuotas", "Wait"]

STRICT_SINCE: Final[Mapping[int, int]] = {19: 6, 37: 3, 20: 5}
"""By the key of CreateTopics, CreatePartitions and DeleteTopics the first version that is strict (KIP-599): over the
quota its topics are refused. Those before it are done, and their client waits."""


class Wait(NamedTuple):
    """What a client is told, and by which quota; 0 and None where by none.

    Its channel is to be muted for so long, in the ``delays`` of that quota's manager.
    """

    throttle_ms: int
    quota_type: ClientQuotaType | None


NO_WAIT = Wait(0, None)


class RequestQuotas:
    """The quotas of one broker, request by request. Request time is in per cent of a thread's second."""

    def __init__(self, managers: QuotaManagers) -> None:
        self.managers = managers

    def produce(
        self,
        user: Principal,
        client_id: str,
        request_bytes: int,
        handler_percent: float,
        now_ms: int,
        *,
        acks: int = -1,
    ) -> Wait:
        """A produce request that was appended, just before its answer; the whole request counts, header included.

        With acks of 0 nobody hears an answer: its time is exempt, and it can be muted for its bytes all the same.
        """
        bandwidth = self.managers.produce.record(user, client_id, request_bytes, now_ms)
        if acks == 0:
            self.exempt(handler_percent, now_ms)
            request = None
        else:
            request = self.managers.request.record(user, client_id, handler_percent, now_ms)
        return self._longest(user, client_id, ClientQuotaType.PRODUCE, bandwidth, request, now_ms)

    def max_fetch_bytes(self, user: Principal, client_id: str, request_max_bytes: int) -> int:
        """The most that a fetch is answered with: what is more than a quota's whole window could never pass."""
        largest = self.managers.fetch.max_value_in_quota_window(user, client_id)
        return int(min(float(request_max_bytes), largest))

    def fetch(self, user: Principal, client_id: str, response_bytes: int, handler_percent: float, now_ms: int) -> Wait:
        """A consumer's fetch with its answer made. Where it has to wait, the answer goes out empty, and its bytes are
        taken back, whichever quota it is that makes it wait.
        """
        request = self.managers.request.record(user, client_id, handler_percent, now_ms)
        bandwidth = self.managers.fetch.record(user, client_id, response_bytes, now_ms)
        wait = self._longest(user, client_id, ClientQuotaType.FETCH, bandwidth, request, now_ms)
        if wait.throttle_ms > 0:
            self.managers.fetch.unrecord(user, client_id, response_bytes, now_ms)
        return wait

    def mutation(
        self,
        user: Principal,
        client_id: str,
        controller: Throttle | StrictOutcome | None,
        handler_percent: float,
        now_ms: int,
    ) -> Wait:
        """A request that creates or deletes partitions, with what came of counting them."""
        request = self.managers.request.record(user, client_id, handler_percent, now_ms)
        throttle = controller.throttle if isinstance(controller, StrictOutcome) else controller
        return self._longest(user, client_id, ClientQuotaType.CONTROLLER_MUTATION, throttle, request, now_ms)

    def other(self, user: Principal, client_id: str, handler_percent: float, now_ms: int) -> Wait:
        """Any other request of a client."""
        request = self.managers.request.record(user, client_id, handler_percent, now_ms)
        return self._longest(user, client_id, ClientQuotaType.REQUEST, None, request, now_ms)

    def sent(self, user: Principal, client_id: str, network_percent: float, now_ms: int) -> None:
        """An answer went out: the network's time counts for the requests after it."""
        self.managers.request.record_no_throttle(user, client_id, network_percent, now_ms)

    def exempt(self, handler_percent: float, now_ms: int) -> None:
        """A request that no quota of request time is asked about, such as a follower's fetch."""
        self.managers.request.record_exempt(handler_percent, now_ms)

    def _longest(
        self,
        user: Principal,
        client_id: str,
        quota_type: ClientQuotaType,
        own: Throttle | None,
        request: Throttle | None,
        now_ms: int,
    ) -> Wait:
        """The request's own quota has to be longer to win: ties go to request time."""
        if own is None and request is None:
            return NO_WAIT
        own_ms = 0 if own is None else own.throttle_ms
        request_ms = 0 if request is None else request.throttle_ms
        wait = Wait(own_ms, quota_type) if own_ms > request_ms else Wait(request_ms, ClientQuotaType.REQUEST)
        if wait.throttle_ms <= 0:
            return NO_WAIT
        assert wait.quota_type is not None
        self.managers.of(wait.quota_type).note_throttle(user, client_id, wait.throttle_ms, now_ms)
        return wait
