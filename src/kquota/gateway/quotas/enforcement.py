"""What the quotas of one broker make of the requests that go to it.

Each broker behind the gateway has quotas of its own, as in Kafka: the same limit holds at every one of them. What a
request is charged, and how long its client waits for it, :mod:`kquota.metering.requests` says; this module asks it at
the right moments, and remembers who waits.

A produce request is charged when its header arrives, a fetch when the header of its answer does. A throttled fetch has
been answered by then: it is passed on, and the next one waits (a broker answers with no records instead).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kquota.gateway.quotas.rules import CONNECTION, Rules, ThrottleCounts
from kquota.gateway.relay.actions import Kind
from kquota.metering.callback import ClientQuotaType, Principal
from kquota.metering.engine import QuotaManagers
from kquota.metering.meters import Throttle
from kquota.metering.requests import RequestQuotas

if TYPE_CHECKING:
    from kquota.gateway.quotas.request_time import RequestTimes
    from kquota.gateway.relay.request_head import Expected, RequestHead

__all__ = ["Client", "Enforcement"]

_TYPES = {Kind.PRODUCE: ClientQuotaType.PRODUCE, Kind.FETCH: ClientQuotaType.FETCH}


class Client(NamedTuple):
    """Whom a request is charged to."""

    user: Principal
    client_id: str


class Enforcement:
    """The quotas of one broker.

    :param request_times: how much of a broker's time requests are charged for; None where it is not estimated.
    :param is_shadow: everything is computed and counted, and nobody is made to wait.
    :param throttles: where throttles are counted.
    """

    def __init__(
        self,
        managers: QuotaManagers,
        *,
        request_times: RequestTimes | None = None,
        is_shadow: bool = False,
        throttles: ThrottleCounts | None = None,
    ) -> None:
        self.managers = managers
        self.rules = Rules(managers)
        self.throttles = ThrottleCounts() if throttles is None else throttles
        self.requests = RequestQuotas(managers)
        self.is_shadow = is_shadow
        self._request_times = request_times
        self.estimates_time = request_times is not None

    def produce(self, head: RequestHead, throttle: Throttle, now_ms: int) -> Throttle | None:
        """A produce request that is being passed on is over its quota; what its client is to wait for, if it is."""
        client = head.client
        if throttle.throttle_ms <= 0 or client is None:
            return None
        if self.is_shadow or not (self.estimates_time and head.has_answer):
            # Otherwise the answer decides which of its quotas makes the client wait. In shadow mode both would count.
            self._complete(client, ClientQuotaType.PRODUCE, throttle, None, now_ms)
        return None if self.is_shadow else throttle

    def max_fetch_bytes(self, client: Client) -> int | None:
        """The most that a fetch may ask for; None where that is as much as it likes."""
        if self.is_shadow or not self.managers.fetch.is_enabled():
            return None
        most = self.requests.max_fetch_bytes(*client, _INT32_MAX)
        return None if most >= _INT32_MAX else most

    def fetch(self, head: RequestHead, own: Throttle | None, response_bytes: int, elapsed_ms: int, now_ms: int) -> int:
        """The answer to a fetch is being passed on; how long its client is to wait, in milliseconds.

        To be called where time is estimated, or the answer is over its quota.

        :param own: what its meter gave.
        """
        client = head.client
        if client is None:
            return 0
        percent = None
        if self._request_times is not None:
            percent = self._request_times.percent(_FETCH_KEY, response_bytes, elapsed_ms)
        return self._complete(client, ClientQuotaType.FETCH, own, percent, now_ms)

    def complete(self, one: Expected, now_ms: int) -> int:
        """Charge the time of any other request, now that its answer comes; how long its client is to wait.

        Only where time is estimated. A produce request's own throttle counts with what is left of it.
        """
        _, head, sent_ms, own = one
        client, action = head.client, head.action
        assert client is not None
        assert self._request_times is not None
        elapsed_ms = now_ms - sent_ms
        percent = self._request_times.percent(action.api_key, 0, elapsed_ms)
        if own is not None:
            own = own._replace(throttle_ms=max(0, own.throttle_ms - elapsed_ms))
        return self._complete(client, _TYPES.get(action.kind, ClientQuotaType.REQUEST), own, percent, now_ms)

    def complete_mutation(self, client: Client, throttle: Throttle | None, now_ms: int) -> int:
        """For how long the client of a request that creates or deletes partitions is to wait, in milliseconds.

        :param throttle: what came of charging it, by :attr:`requests`.
        """
        return self._complete(client, ClientQuotaType.CONTROLLER_MUTATION, throttle, None, now_ms)

    def accept(self, listener: str, ip: str, now_ms: int) -> float | None:
        """Count a new connection (KIP-612); if it is one too many, for how many seconds it is kept, and not served."""
        throttle = self.managers.connections.accept(listener, ip, now_ms)
        if throttle is None:
            return None
        source = self.managers.connections.source(ip)
        if source is not None:
            self.throttles.note(CONNECTION, source.to_text(), throttle.throttle_ms)
        return None if self.is_shadow else throttle.throttle_ms / 1000

    def _complete(
        self, client: Client, quota_type: ClientQuotaType, own: Throttle | None, percent: float | None, now_ms: int
    ) -> int:
        """For how long a client's channel is to be muted, in milliseconds; its throttle is counted."""
        throttle_ms, throttled_by = self.requests.complete(*client, quota_type, own, percent, now_ms)
        if throttle_ms <= 0 or throttled_by is None:
            return 0
        manager = self.managers.of(throttled_by)
        meter = manager.meter(*client)
        if meter is not None:
            rule = self.rules.of(throttled_by, meter.tags, meter.limit)
            self.throttles.note(throttled_by.value, rule, throttle_ms)
        if self.is_shadow:
            return 0
        # Waits are only counted here: the connection itself ends its own.
        manager.delays.add(None, throttle_ms, now_ms)
        return throttle_ms


_INT32_MAX: Final = 2**31 - 1
_FETCH_KEY: Final = 1
