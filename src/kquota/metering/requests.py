"""What a request is charged, when it is refused, and what is taken back: the one rule, for whoever counts requests.

:func:`charge` is the rule of one quota, on any meter. :class:`RequestQuotas` is a broker's: a request meets several
quotas, the longest wait counts, never the sum, and only the manager that asked for it notes it.

=================  =============================================================  ====================================
request            charged                                                        over the limit
=================  =============================================================  ====================================
produce            its bytes, header included                                     done; the client waits
produce, acks=0    the same; its time is exempt                                   done; its channel is muted anyway
fetch              the bytes of its answer                                        answered empty, the bytes taken back
mutation, strict   for each topic its partitions, while no tokens are missing     the topic is refused, not charged
mutation before    for each topic its partitions                                  done; the client waits
any other          only its time, as those above                                  done; the client waits
=================  =============================================================  ====================================

Sources: ``KafkaApis``, ``ControllerApis``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``, KIP-599.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kquota.metering.callback import ClientQuotaType, Principal
from kquota.metering.engine import QuotaManagers
from kquota.metering.meters import BucketMeter, Meter, Throttle

__all__ = [
    "NOT_THROTTLED",
    "STRICT_SINCE",
    "Charged",
    "Mutations",
    "RequestQuotas",
    "RequestThrottle",
    "charge",
    "is_strict",
]

STRICT_SINCE: Final[Mapping[int, int]] = {19: 6, 37: 3, 20: 5}
"""By the key of CreateTopics, CreatePartitions and DeleteTopics the first version that is strict (KIP-599): over the
quota its topics are refused. Those before it are done, and their client waits."""


def is_strict(api_key: int, api_version: int) -> bool:
    """Whether the topics of such a request are refused over the quota; False for what creates and deletes none."""
    since = STRICT_SINCE.get(api_key)
    return since is not None and api_version >= since


class Charged(NamedTuple):
    """What comes of charging a request, or a topic of it, to one meter."""

    throttle: Throttle | None
    accepted: bool = True
    """False: nothing was charged in the end. The topic is refused, or the answer to the fetch goes out empty."""


_WITHIN: Final = Charged(None)


def charge(
    meter: Meter | None,
    quota_type: ClientQuotaType,
    amount: float,
    now_ms: int,
    *,
    strict: bool = False,
    is_answered: bool = False,
) -> Charged:
    """Charge `amount` (bytes, per cent of a thread's second, partitions) to a meter of this quota alone.

    :param meter: None where nothing is limited: then nothing is counted.
    :param strict: of mutations, see :func:`is_strict`.
    :param is_answered: of fetches: the answer goes out as it is, and its bytes stay counted.
    """
    if meter is None:
        return _WITHIN
    if isinstance(meter, BucketMeter):
        throttle = meter.record_strict(amount, now_ms) if strict else meter.record(amount, now_ms)
        return _WITHIN if throttle is None else Charged(throttle, not strict)
    throttle = meter.record(amount, now_ms)
    if throttle is None:
        return _WITHIN
    if quota_type is ClientQuotaType.FETCH and _is_empty(throttle, is_answered=is_answered):
        meter.record_unchecked(-amount, now_ms)
        return Charged(throttle, False)
    return Charged(throttle)


class Mutations(NamedTuple):
    """What comes of a request that creates or deletes partitions."""

    accepted: tuple[bool, ...]
    """For each topic, in the request's order."""
    throttle: Throttle | None
    """Of the last topic that was over the quota. A broker deducts from its time what passed until it answers."""


class RequestThrottle(NamedTuple):
    """For how long a client is throttled, and by which quota; 0 and None where by none.

    Its channel is to be muted for so long, in the ``delays`` of that quota's manager.
    """

    throttle_ms: int
    quota_type: ClientQuotaType | None


NOT_THROTTLED: Final = RequestThrottle(0, None)


class RequestQuotas:
    """The quotas of one broker, request by request: also for users' programs (``docs/metering.md``).

    Request time is in per cent of a thread's second. It is None where it is not known: then nothing is recorded on it.
    What no request waits for is for :attr:`managers` to record.
    """

    def __init__(self, managers: QuotaManagers) -> None:
        self.managers = managers

    def record_produce(self, user: Principal, client_id: str, request_bytes: int, now_ms: int) -> Throttle | None:
        """Count the bytes of a produce request, header included; :meth:`complete` is for its answer."""
        return self.managers.produce.record(user, client_id, request_bytes, now_ms)

    def complete(
        self,
        user: Principal,
        client_id: str,
        quota_type: ClientQuotaType,
        own: Throttle | None,
        handler_percent: float | None,
        now_ms: int,
    ) -> RequestThrottle:
        """Count the time of any request just before its answer; the longer wait counts, and is noted.

        :param quota_type: that of its own quota; REQUEST where there is none but that of time.
        :param own: what its own quota made of it, where it was charged before.
        """
        return self._longest(
            user, client_id, quota_type, own, self._record_time(user, client_id, handler_percent, now_ms), now_ms
        )

    def produce(
        self,
        user: Principal,
        client_id: str,
        request_bytes: int,
        handler_percent: float | None,
        now_ms: int,
        *,
        acks: int = -1,
    ) -> RequestThrottle:
        """A produce request that was appended, just before its answer.

        With acks of 0 nobody hears an answer: its time is exempt, and it can be muted for its bytes all the same.
        """
        own = self.record_produce(user, client_id, request_bytes, now_ms)
        if acks == 0 and handler_percent is not None:
            self.managers.request.record_exempt(handler_percent, now_ms)
            handler_percent = None
        return self.complete(user, client_id, ClientQuotaType.PRODUCE, own, handler_percent, now_ms)

    def max_fetch_bytes(self, user: Principal, client_id: str, request_max_bytes: int) -> int:
        """The most that a fetch is answered with: what is more than a quota's whole window could never pass."""
        largest = self.managers.fetch.max_value_in_quota_window(user, client_id)
        return int(min(float(request_max_bytes), largest))

    def fetch(
        self,
        user: Principal,
        client_id: str,
        response_bytes: int,
        handler_percent: float | None,
        now_ms: int,
        *,
        is_answered: bool = False,
    ) -> RequestThrottle:
        """A consumer's fetch with its answer made. Where it has to wait, the answer goes out empty, and its bytes are
        taken back, whichever quota it is that makes it wait.

        :param is_answered: the answer goes out as it is, and its bytes stay counted: it was made by somebody else.
        """
        request = self._record_time(user, client_id, handler_percent, now_ms)
        own = self.managers.fetch.record(user, client_id, response_bytes, now_ms)
        if own is None and request is None:
            return NOT_THROTTLED
        wait = self._longest(user, client_id, ClientQuotaType.FETCH, own, request, now_ms)
        if _is_empty(wait, is_answered=is_answered):
            self.managers.fetch.unrecord(user, client_id, response_bytes, now_ms)
        return wait

    def mutate(
        self, user: Principal, client_id: str, costs: Sequence[float], now_ms: int, *, strict: bool
    ) -> Mutations:
        """Count the partitions that are to be created or deleted, before they are (KIP-599), topic by topic.

        Strict: a topic is accepted while no tokens are missing, and then charged however large it is; a refused one
        costs nothing. Only where a topic was refused is the request throttled. Not strict: all are accepted and
        charged, and the request is throttled where tokens are missing then.

        :param costs: partitions of each topic, in the request's order; one of 0 is refused like any other.
        :param strict: see :func:`is_strict`.
        """
        meter = self.managers.controller_mutation.meter(user, client_id)
        topics = [charge(meter, ClientQuotaType.CONTROLLER_MUTATION, cost, now_ms, strict=strict) for cost in costs]
        throttles = [topic.throttle for topic in topics if topic.throttle is not None]
        return Mutations(tuple(topic.accepted for topic in topics), throttles[-1] if throttles else None)

    def refund(self, user: Principal, client_id: str, partitions: float, now_ms: int) -> None:
        """Give back what accepted topics cost that were not created or deleted after all; what is more than the bucket
        holds is lost. A broker does not: it checks a topic before it charges it.
        """
        meter = self.managers.controller_mutation.meter(user, client_id)
        if meter is not None and partitions > 0:
            meter.record_unchecked(-partitions, now_ms)

    def _record_time(
        self, user: Principal, client_id: str, handler_percent: float | None, now_ms: int
    ) -> Throttle | None:
        if handler_percent is None:
            return None
        return self.managers.request.record(user, client_id, handler_percent, now_ms)

    def _longest(
        self,
        user: Principal,
        client_id: str,
        quota_type: ClientQuotaType,
        own: Throttle | None,
        request: Throttle | None,
        now_ms: int,
    ) -> RequestThrottle:
        """The request's own quota has to be longer to win: ties go to request time."""
        if own is None and request is None:
            return NOT_THROTTLED
        own_ms = 0 if own is None else own.throttle_ms
        request_ms = 0 if request is None else request.throttle_ms
        longest_ms, by = (own_ms, quota_type) if own_ms > request_ms else (request_ms, ClientQuotaType.REQUEST)
        if longest_ms <= 0:
            return NOT_THROTTLED
        self.managers.of(by).note_throttle(user, client_id, longest_ms, now_ms)
        return RequestThrottle(longest_ms, by)


def _is_empty(throttled: Throttle | RequestThrottle | None, *, is_answered: bool) -> bool:
    """Whether the answer to a fetch goes out empty, and its bytes are to be taken back."""
    return throttled is not None and throttled.throttle_ms > 0 and not is_answered
