"""A callback tried on recorded traffic: whether it keeps its contract, and what it would have done.

Arrivals are as they were recorded, whatever the callback makes anybody wait for (an open loop), and what a request used
is what was charged for it then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from sys import maxsize
from typing import Final, NamedTuple

from kquota.config import BrokerConfig
from kquota.errors import CallbackRefusedError, InputError
from kquota.metering.callback import ClientQuotaCallback, ClientQuotaType, Cluster
from kquota.metering.callback_probe import CallbackProbe, CallTimes, Finding, Observations
from kquota.metering.engine import PeriodicTasks, QuotaManagers, client_quotas
from kquota.metering.guard import CallbackGuard, Tags
from kquota.metering.meters import BucketMeter, Meter
from kquota.metering.requests import charge
from kquota.quotas import QuotaSnapshot

__all__ = ["OTHER_METERS", "ConformanceCheck", "MeterOutcome", "ThrottleTotals", "TrafficRecord"]

KEPT_METERS: Final = 100_000
OTHER_METERS: Final[Mapping[str, str]] = {"": "other meters"}
"""The tags that all meters are summed under that are too many to keep."""


class TrafficRecord(NamedTuple):
    """What one request used of one quota, or all requests of a client in a second, and how it was throttled then."""

    now_ms: int
    quota_type: ClientQuotaType
    user: str
    client_id: str
    amount: float
    requests: int = 1
    throttled_requests: int = 0
    throttle_ms: int = 0
    throttle_max_ms: int = 0
    strict: bool = False
    """Of mutations: whether the broker rejects it, instead of letting the client wait after it."""


@dataclass(slots=True)
class ThrottleTotals:
    """How many requests were throttled, and for how long."""

    count: int = 0
    total_ms: int = 0
    longest_ms: int = 0

    def add(self, total_ms: int, *, count: int = 1, longest_ms: int | None = None) -> None:
        """One more, or several together; 0 ms are none."""
        if total_ms > 0:
            self.count += count
            self.total_ms += total_ms
            self.longest_ms = max(self.longest_ms, total_ms if longest_ms is None else longest_ms)


@dataclass(slots=True)
class MeterOutcome:
    """What came of the traffic on one meter of the callback's."""

    broker_id: int
    quota_type: ClientQuotaType
    tags: Mapping[str, str]
    requests: int = 0
    amount: float = 0.0
    lowest_limit: float = inf
    highest_limit: float = 0.0
    callback: ThrottleTotals = field(default_factory=ThrottleTotals)
    kafka: ThrottleTotals = field(default_factory=ThrottleTotals)
    """What Kafka's own rules make of the same requests."""
    logged: ThrottleTotals = field(default_factory=ThrottleTotals)

    @property
    def is_limited(self) -> bool:
        """Whether it ever had a limit."""
        return self.lowest_limit < inf


class ConformanceCheck:
    """Give it the traffic of one broker after the other; then it knows what to say."""

    def __init__(
        self,
        make: Callable[[], ClientQuotaCallback],
        configs: Mapping[str, str],
        quotas: QuotaSnapshot,
        broker_config: BrokerConfig,
        *,
        cluster: Cluster = Cluster(),  # noqa: B008 - it is frozen
        monotonic_ms: Callable[[], float],
        budget_ms: float = 1.0,
    ) -> None:
        """Take a callback to be made for each broker, as brokers make their own, and what it is given first."""
        self.records = 0
        self.first_ms: int | None = None
        self.last_ms = 0
        self._seen = Observations(budget_ms)
        self._make = make
        self._configs = configs
        self._quotas = quotas
        self._broker_config = broker_config
        self._cluster = cluster
        self._monotonic_ms = monotonic_ms
        self._meters: dict[tuple[int, ClientQuotaType, frozenset[tuple[str, str]]], MeterOutcome] = {}

    @property
    def budget_ms(self) -> float:
        """How long a call may take."""
        return self._seen.budget_ms

    @property
    def times(self) -> Mapping[str, CallTimes]:
        """By method."""
        return self._seen.times

    def findings(self) -> list[Finding]:
        """What the callback does not keep to, the worst first; empty where it keeps its contract."""
        return self._seen.findings()

    def meters(self) -> list[MeterOutcome]:
        """Those with the longest waits first: the callback's, then those that Kafka's rules or the log have instead."""

        def rank(one: MeterOutcome) -> tuple[float, ...]:
            waits = (one.callback.total_ms, one.kafka.total_ms, one.logged.total_ms)
            return (*(-ms for ms in waits), not one.is_limited, -one.amount)

        return sorted(self._meters.values(), key=rank)

    def broker(self, broker_id: int, traffic: Iterable[TrafficRecord]) -> None:
        """Replay what one broker saw, in the order of its times, on a callback of its own.

        :raises InputError: the callback refuses its settings.
        """
        probe = CallbackProbe(self._make(), self._seen, monotonic_ms=self._monotonic_ms)
        guard = CallbackGuard(probe, monotonic_ms=lambda: 0.0, breaker_after=maxsize)
        ours, kafkas = QuotaManagers(self._broker_config), QuotaManagers(self._broker_config)
        try:
            ours.swap_callback(guard, {"broker.id": str(broker_id), "node.id": str(broker_id), **self._configs})
        except CallbackRefusedError as error:
            if isinstance(error.__cause__, InputError):
                raise error.__cause__ from None
            return  # it was noted, and a broker would go on without it
        ours.update_cluster_metadata(self._cluster)
        for managers in (ours, kafkas):
            managers.update_quotas(client_quotas(self._quotas))
        tasks = PeriodicTasks(ours, kafkas)
        for record in traffic:
            tasks.run_until(record.now_ms)
            meter, throttle_ms = _charge(ours, record)
            assert meter is not None  # where the callback is not Kafka's own, everything is counted
            # Asked anew for each record, though a broker would not: a limit that wavers shows.
            limit = guard.quota_limit(record.quota_type, meter.tags)
            _, kafkas_throttle_ms = _charge(kafkas, record)
            self._note(broker_id, record, meter.tags, limit, throttle_ms, kafkas_throttle_ms)
        probe.ask_again()
        guard.close()

    def _note(
        self,
        broker_id: int,
        record: TrafficRecord,
        tags: Tags,
        limit: float | None,
        throttle_ms: int,
        kafkas_throttle_ms: int,
    ) -> None:
        self.records += 1
        self.first_ms = record.now_ms if self.first_ms is None else min(self.first_ms, record.now_ms)
        self.last_ms = max(self.last_ms, record.now_ms)
        meter = self._meter(broker_id, record.quota_type, tags)
        meter.requests += record.requests
        meter.amount += record.amount
        if limit is not None:
            meter.lowest_limit = min(meter.lowest_limit, limit)
            meter.highest_limit = max(meter.highest_limit, limit)
        meter.callback.add(throttle_ms)
        meter.kafka.add(kafkas_throttle_ms)
        meter.logged.add(record.throttle_ms, count=record.throttled_requests, longest_ms=record.throttle_max_ms)

    def _meter(self, broker_id: int, quota_type: ClientQuotaType, tags: Tags) -> MeterOutcome:
        place = broker_id, quota_type, frozenset(tags.items())
        meter = self._meters.get(place)
        if meter is None:
            if len(self._meters) >= KEPT_METERS and tags is not OTHER_METERS:
                return self._meter(broker_id, quota_type, OTHER_METERS)
            meter = self._meters[place] = MeterOutcome(broker_id, quota_type, dict(tags))
        return meter


def _charge(managers: QuotaManagers, record: TrafficRecord) -> tuple[Meter | None, int]:
    """The meter that is charged, and for how many milliseconds the client is throttled."""
    meter = managers.of(record.quota_type).meter(record.user, record.client_id)
    charged = charge(meter, record.quota_type, record.amount, record.now_ms, strict=record.strict)
    if isinstance(meter, BucketMeter) and not charged.accepted:
        # What was accepted then is counted, though it be refused now: its client would have come back with it.
        meter.record_unchecked(record.amount, record.now_ms)
    return meter, 0 if charged.throttle is None else max(0, charged.throttle.throttle_ms)
