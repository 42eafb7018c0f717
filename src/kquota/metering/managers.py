"""Quota managers: from a request to how long its client is to wait.

Sources: ``ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from sys import float_info
from typing import Any, Final, Generic, TypeVar

from kquota.metering.callback import (
    CallbackQuotaEntity,
    ClientQuotaCallback,
    ClientQuotaType,
    DefaultQuotaCallback,
    MeterUsage,
    Principal,
    principal_of,
)
from kquota.metering.delays import DelayQueue
from kquota.metering.meters import (
    INACTIVE_MS,
    THROTTLE_TIME_WINDOWS,
    UNLIMITED,
    BucketMeter,
    Meter,
    RateMeter,
    Throttle,
)
from kquota.metering.statistics import SampledRate, Windows
from kquota.quotas import CLIENT_ID, USER, ClientQuotaEntity

__all__ = [
    "INACTIVE_MS",
    "MutationQuotaManager",
    "QuotaManager",
    "RateQuotaManager",
    "RequestQuotaManager",
]

REMEMBERED_CLIENTS: Final = 200_000

M = TypeVar("M", bound=Meter)


class QuotaManager(Generic[M]):
    """The meters of one type, made when they are needed, with the limits that the callback gives them.

    A `user` is a name, or a principal where it is of another type or a class of its own.
    """

    def __init__(self, quota_type: ClientQuotaType, windows: Windows, callback: ClientQuotaCallback) -> None:
        self.quota_type = quota_type
        self.windows = windows
        self.delays: DelayQueue[Any] = DelayQueue()
        """Whose channels are muted for this quota; muting them, and no longer, is the caller's."""
        self._callback = callback
        self._meters: dict[frozenset[tuple[str, str]], M] = {}
        # Only where the callback's tags cannot change between updates; with no meter where nothing is limited.
        self._by_client: dict[tuple[Principal, str], M] = {}
        self._default = _default(callback)
        self._has_others_meters = False  # made by the callback before this one, with tags of any kind
        self._is_enabled: bool | None = None  # not known
        self.changes = 0
        """How often limits or meters may have changed: who keeps a meter is to ask for it again."""
        # Dropped meters; a broker still has their throttle times.
        self._expired: dict[frozenset[tuple[str, str]], M] = {}
        self._swept_ms = 0

    @property
    def keeps_meters(self) -> bool:
        """Whether a client has the same meter until :attr:`changes` grows; other callbacks than Kafka's are asked anew
        each time.
        """
        return self._default is not None

    def is_enabled(self) -> bool:
        """Whether anything can be limited; where not, nothing is counted. Another callback always may."""
        if self._is_enabled is None:
            self._is_enabled = self._default is None or self._default.is_used(self.quota_type)
        return self._is_enabled

    def update_quota(self, entity: ClientQuotaEntity, value: float | None) -> None:
        """A quota was set, or removed where `value` is None. Limits follow at once, and what was counted stays."""
        self.update_callback(entity, value)
        self.use(self._callback, self.limits_by(self._callback, [entity]))

    def update_callback(self, entity: ClientQuotaEntity, value: float | None) -> None:
        """Only let the callback know: no limit follows before :meth:`refresh`, which is for many changes together."""
        described = CallbackQuotaEntity(entity)
        if value is None:
            self._callback.remove_quota(self.quota_type, described)
        else:
            self._callback.update_quota(self.quota_type, described, value)

    def limits_by(
        self, callback: ClientQuotaCallback, changed: Iterable[ClientQuotaEntity] | None = None
    ) -> list[tuple[Meter, float]]:
        """The limits that a callback gives to all meters.

        :param changed: where quotas changed on these entities alone: meters that they cannot bind are left out.
        """
        meters = self._meters.values() if changed is None else self._bound_by(changed)
        return [(meter, _limit(callback, self.quota_type, meter.tags)) for meter in meters]

    def _bound_by(self, entities: Iterable[ClientQuotaEntity]) -> Iterable[M]:
        """The meters that quotas on these can bind; at least those.

        By Kafka's callback an entity without a default binds the meter whose tags have the same names, and no other.
        Source: ``ClientQuotaManager.updateQuotaMetricConfigs``.
        """
        if self._default is None or self._has_others_meters:
            return self._meters.values()
        found: dict[frozenset[tuple[str, str]], M] = {}
        for entity in entities:
            user, client_id = entity.entries.get(USER, ""), entity.entries.get(CLIENT_ID, "")
            if user is None or client_id is None:
                return self._meters.values()
            place = frozenset({(USER, user), (CLIENT_ID, client_id)})
            if place in self._meters:
                found[place] = self._meters[place]
        return found.values()

    def use(self, callback: ClientQuotaCallback, limits: Iterable[tuple[Meter, float]]) -> None:
        """Ask this callback from now on, which gave these limits to meters. What was counted on them stays.

        :param limits: of all meters where it is another callback than before.
        """
        if callback is not self._callback:
            self._has_others_meters = bool(self._meters)
        self._callback = callback
        self._default, self._is_enabled = _default(callback), None
        self.changes += 1
        self._by_client.clear()
        for meter, limit in limits:
            meter.limit = limit

    def refresh(self) -> None:
        """Ask for the limits of all meters again. Where the callback raises, all are as they were."""
        self.use(self._callback, self.limits_by(self._callback))

    def meter(self, user: Principal, client_id: str) -> M | None:
        """What the client's usage is counted on, made if it is not there; None where nothing is limited."""
        known = self._by_client.get((user, client_id))
        if known is not None:
            return known
        return self.get_or_create_meter(user, client_id) if self.is_enabled() else None

    def get_or_create_meter(self, user: Principal, client_id: str) -> M:
        """The same, also where nothing is limited: a broker that takes something back does not ask whether it is."""
        callback = self._callback
        tags = callback.quota_metric_tags(self.quota_type, principal_of(user), client_id)
        place = frozenset(tags.items())
        meter = self._meters.get(place)
        if meter is None:
            meter = self._meters[place] = self._new_meter(tags, _limit(callback, self.quota_type, tags))
            left = self._expired.pop(place, None)
            if left is not None:
                meter.throttle_times = left.throttle_times
        if self._default is not None and self._default.is_used(self.quota_type):
            if len(self._by_client) >= REMEMBERED_CLIENTS:
                self._by_client.clear()  # clients may make up a client id each time, and share one meter
            self._by_client[user, client_id] = meter
        elif callback.quota_reset_required(self.quota_type):
            self.refresh()
        return meter

    def note_throttle(self, user: Principal, client_id: str, throttle_ms: int, now_ms: int) -> None:
        """A client was throttled because of this quota."""
        meter = self._by_client.get((user, client_id)) or self.get_or_create_meter(user, client_id)
        meter.throttle_times.record(throttle_ms, now_ms)

    def meters(self) -> Iterator[M]:
        """All that there are."""
        return iter(list(self._meters.values()))

    def throttled_meters(self) -> Iterator[M]:
        """All that have throttle times, and those that only have them still."""
        there = [one for one in self._meters.values() if one.throttle_times.exists(one.last_ms, self._swept_ms)]
        return iter([*there, *self._expired.values()])

    def usage(self, now_ms: int) -> Iterator[MeterUsage]:
        """What is used of each meter."""
        for meter in self._meters.values():
            throttled = now_ms < meter.throttled_until_ms + self.windows.span_ms
            yield MeterUsage(meter.tags, meter.rate.measure(now_ms), throttled)

    def expire(self, now_ms: int) -> None:
        """Drop the meters that are inactive, and throttle times that are. A broker does so every 30 seconds."""
        before_ms, self._swept_ms = self._swept_ms, now_ms
        for meter in (*self._meters.values(), *self._expired.values()):
            meter.throttle_times.expire(meter.last_ms, before_ms, now_ms)
        idle = [place for place, meter in self._meters.items() if now_ms - meter.last_ms > INACTIVE_MS]
        for place in idle:
            self._expired[place] = self._meters.pop(place)
        if idle:
            self._by_client.clear()
            self.changes += 1
        gone = [place for place, left in self._expired.items() if not left.throttle_times.exists(0, now_ms)]
        for place in gone:
            del self._expired[place]

    def limit(self, user: Principal, client_id: str) -> float | None:
        """The client's limit; None where it has none."""
        tags = self._callback.quota_metric_tags(self.quota_type, principal_of(user), client_id)
        return self._callback.quota_limit(self.quota_type, tags)

    def _new_meter(self, tags: Mapping[str, str], limit: float) -> M:
        raise NotImplementedError


def _limit(callback: ClientQuotaCallback, quota_type: ClientQuotaType, tags: Mapping[str, str]) -> float:
    limit = callback.quota_limit(quota_type, tags)
    return UNLIMITED if limit is None else limit


def _default(callback: ClientQuotaCallback) -> DefaultQuotaCallback | None:
    """Kafka's own, of which more is known; a class that is made from it may do anything."""
    return callback if type(callback) is DefaultQuotaCallback else None


class RateQuotaManager(QuotaManager[RateMeter]):
    """Bytes per second, or per cent of a thread's time.

    :param bound_ms: the longest throttle in milliseconds; None for no such bound.
    """

    def __init__(
        self,
        quota_type: ClientQuotaType,
        windows: Windows,
        callback: ClientQuotaCallback,
        *,
        bound_ms: int | None = None,
    ) -> None:
        super().__init__(quota_type, windows, callback)
        self._bound_ms = bound_ms

    def record(self, user: Principal, client_id: str, value: float, now_ms: int) -> Throttle | None:
        """Count what a request used; how long its client is to wait, if that is too much."""
        meter = self._by_client.get((user, client_id))
        if meter is None:
            meter = self.meter(user, client_id)
            if meter is None:
                return None
        return meter.record(value, now_ms)

    def record_no_throttle(self, user: Principal, client_id: str, value: float, now_ms: int) -> None:
        """Count what is known too late to make anybody wait for it."""
        meter = self.meter(user, client_id)
        if meter is not None:
            meter.record_unchecked(value, now_ms)

    def unrecord(self, user: Principal, client_id: str, value: float, now_ms: int) -> None:
        """Take back what was counted, and not used after all."""
        self.get_or_create_meter(user, client_id).record_unchecked(-value, now_ms)

    def max_value_in_quota_window(self, user: Principal, client_id: str) -> float:
        """The most that one request can use without being over the limit for ever."""
        known = self._by_client.get((user, client_id))
        if known is not None:
            limit: float | None = None if known.limit == UNLIMITED else known.limit
        else:
            limit = self.limit(user, client_id) if self.is_enabled() else None
        if limit is None:
            return float_info.max
        return self.windows.max_value(limit)

    def _new_meter(self, tags: Mapping[str, str], limit: float) -> RateMeter:
        return RateMeter(tags, limit, self.windows, self._bound_ms)


class RequestQuotaManager(RateQuotaManager):
    """Per cent of a thread's time, of which nobody waits for longer than a window."""

    def __init__(self, windows: Windows, callback: ClientQuotaCallback) -> None:
        super().__init__(ClientQuotaType.REQUEST, windows, callback, bound_ms=windows.size_ms)
        self.exempt_request_time = SampledRate(THROTTLE_TIME_WINDOWS)
        """``exempt-request-time``: of requests that this quota is not asked about."""

    def record_exempt(self, percent: float, now_ms: int) -> None:
        """Count the time of such a request, where time is counted at all."""
        if self.is_enabled():
            self.exempt_request_time.record(percent, now_ms)


class MutationQuotaManager(QuotaManager[BucketMeter]):
    """Partitions created and deleted (KIP-599).

    :param meter: what they are counted on: Kafka's token bucket, or the spread rate.
    """

    def __init__(
        self, windows: Windows, callback: ClientQuotaCallback, *, meter: type[BucketMeter] = BucketMeter
    ) -> None:
        super().__init__(ClientQuotaType.CONTROLLER_MUTATION, windows, callback)
        self._meter = meter

    def unrecord(self, user: Principal, client_id: str, partitions: float, now_ms: int) -> None:
        """Take back what was counted."""
        self.get_or_create_meter(user, client_id).record_unchecked(-partitions, now_ms)

    def _new_meter(self, tags: Mapping[str, str], limit: float) -> BucketMeter:
        return self._meter(tags, limit, self.windows)
