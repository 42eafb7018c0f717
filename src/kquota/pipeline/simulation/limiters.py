"""What limits simulated requests: the limit of one meter, or a quota callback with meters of its own.

Both charge with :func:`kquota.metering.requests.charge`, on meters of :mod:`kquota.metering`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Final, NamedTuple, Protocol

import numpy as np

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType, Cluster
from kquota.metering.engine import PeriodicTasks, QuotaManagers, client_quotas
from kquota.metering.loading import load_callback
from kquota.metering.meters import UNLIMITED, BucketMeter, Meter, RateMeter
from kquota.metering.requests import charge
from kquota.metering.statistics import Windows
from kquota.pipeline.simulation.arrivals import ENVELOPE_BYTES
from kquota.quotas import QuotaSnapshot

__all__ = ["CallbackLimiter", "CallbackSetup", "ChargeResult", "Connection", "Limiter", "MeterLimiter"]


class Connection(NamedTuple):
    """The requests of one connection that count on one key, in the order of their times."""

    at_ms: Sequence[float]
    """Since the epoch; empty where no request has an amount."""
    amounts: Sequence[float]
    is_strict: bool = True
    """Whether mutations over the quota are refused (KIP-599); those of older clients are done, and throttle them."""
    largest: float | None = None
    """What waits is joined into requests up to this amount; None: the largest of `amounts`."""
    client: tuple[str, str] = ("", "")
    """User and client id, which only a callback needs."""


class ChargeResult(NamedTuple):
    """What comes of charging a request."""

    throttle_ms: int
    accepted: bool
    """False: a mutation was refused, or a fetch was answered empty. Its client sends it again."""
    utilisation: float
    """What the limit was compared with, divided by the limit."""


class Limiter(Protocol):
    """Charges requests that count on one key. It keeps state: each simulation needs a new one."""

    envelope: float | None
    """The bytes of a request beside its records, which requests that are joined need once; None: they are not joined"""

    def largest_request(self, connection: Connection) -> float:
        """The most that goes into one request of a connection, whatever its client asks for."""

    def charge(self, connection: Connection, amount: float, now_ms: int) -> ChargeResult:
        """Charge a request. `now_ms` (since the epoch) does not decrease from call to call."""

    def meter_of(self, connection: Connection) -> tuple[str, float | None]:
        """Name and limit of the meter that the connection was charged to last, or would be.

        :returns: the name is '' where nothing is counted, the limit None where there is none.
        """

    def is_out_of_reach(self, connections: Sequence[Connection]) -> bool:
        """Whether all of them are charged to one meter, and never come near its limit: there is nothing to simulate."""


class MeterLimiter:
    """The limit of one meter, to which all connections are charged.

    :param limit: None or an infinite one is none.
    :param windows: those of the key.
    :param meter: its name.
    """

    def __init__(self, key: str, limit: float | None, windows: Windows, *, meter: str = "") -> None:
        self.envelope = ENVELOPE_BYTES.get(key)
        self._quota_type = ClientQuotaType.of_key(key)
        self._name = meter
        self._limit = None if limit is None or isinf(limit) else limit
        self._windows = windows
        self._largest = inf
        self._meter = None if self._limit is None else _new_meter(self._quota_type, self._limit, windows)
        if self._limit is not None and self._quota_type is ClientQuotaType.FETCH:
            self._largest = windows.max_value(self._limit) or inf

    def largest_request(self, connection: Connection) -> float:
        """A fetch is answered with no more than a whole window admits; other requests are as large as they come."""
        del connection
        return self._largest

    def charge(self, connection: Connection, amount: float, now_ms: int) -> ChargeResult:
        """Charge the meter that all connections share."""
        return _charge(self._meter, self._quota_type, connection, amount, now_ms)

    def meter_of(self, connection: Connection) -> tuple[str, float | None]:
        """The same for all connections."""
        del connection
        return self._name, self._limit

    def is_out_of_reach(self, connections: Sequence[Connection]) -> bool:
        """Whether no sum over all windows and one more, to which any sample belongs, is near the limit."""
        if self._limit is None:
            return True
        windows = self._windows
        at_ms = np.concatenate([one.at_ms for one in connections])
        order = np.argsort(at_ms, kind="stable")
        at_ms = at_ms[order]
        so_far = np.concatenate([[0.0], np.cumsum(np.concatenate([one.amounts for one in connections])[order])])
        first = np.searchsorted(at_ms, at_ms - (windows.span_ms + windows.size_ms), side="left")
        most = float((so_far[1:] - so_far[first]).max(initial=0.0))
        return most <= self._limit * (windows.samples - 1) * windows.size_ms / 1000 * _NEAR


_NEAR: Final = 0.95


class CallbackLimiter:
    """A broker's quota managers with a callback, which may give a client another meter for each request.

    :param managers: those of one broker; the simulation changes them.
    """

    def __init__(self, key: str, managers: QuotaManagers) -> None:
        self.envelope = ENVELOPE_BYTES.get(key)
        self._quota_type = ClientQuotaType.of_key(key)
        self._fetch = managers.fetch
        self._manager = managers.of(self._quota_type)
        self._tasks = PeriodicTasks(managers)
        self._charged: dict[tuple[str, str], Meter | None] = {}  # by client, the last one

    def largest_request(self, connection: Connection) -> float:
        """As a broker bounds the answer to a fetch, by the limit that the client has now."""
        if self._quota_type is not ClientQuotaType.FETCH:
            return inf
        return self._fetch.max_value_in_quota_window(*connection.client) or inf

    def charge(self, connection: Connection, amount: float, now_ms: int) -> ChargeResult:
        """Charge the meter that the callback gives the client now, after the broker's periodic tasks that were due."""
        self._tasks.run_until(now_ms)
        meter = self._charged[connection.client] = self._manager.meter(*connection.client)
        return _charge(meter, self._quota_type, connection, amount, now_ms)

    def meter_of(self, connection: Connection) -> tuple[str, float | None]:
        """The last one that its client was charged to; the callback is asked where there is none."""
        meter = self._charged.get(connection.client) or self._manager.meter(*connection.client)
        if meter is None:
            return "", None
        return meter.key.to_text(), None if meter.limit == UNLIMITED else meter.limit

    def is_out_of_reach(self, connections: Sequence[Connection]) -> bool:
        """Never known: a callback may do anything."""
        del connections
        return False


def _new_meter(quota_type: ClientQuotaType, limit: float, windows: Windows) -> Meter:
    if quota_type is ClientQuotaType.CONTROLLER_MUTATION:
        return BucketMeter({}, limit, windows)
    return RateMeter({}, limit, windows, windows.size_ms if quota_type is ClientQuotaType.REQUEST else None)


def _charge(
    meter: Meter | None, quota_type: ClientQuotaType, connection: Connection, amount: float, now_ms: int
) -> ChargeResult:
    if meter is None:
        return _NOT_LIMITED
    throttle, accepted = charge(meter, quota_type, amount, now_ms, strict=connection.is_strict)
    throttle_ms = 0 if throttle is None else throttle.throttle_ms
    if not accepted:
        throttle_ms = max(throttle_ms, 1)  # a client that is refused for 0 ms comes again after one
    return ChargeResult(throttle_ms, accepted, _utilisation(meter))


_NOT_LIMITED: Final = ChargeResult(0, accepted=True, utilisation=0.0)


def _utilisation(meter: Meter) -> float:
    """The rate that the limit was compared with, divided by it; of mutations the tokens used, by those of the bucket"""
    limit = meter.limit
    if isinstance(meter, RateMeter):
        used = meter.compared
    else:
        limit *= meter.bucket.windows.span_ms / 1000
        used = limit - meter.bucket.tokens
    return used / limit if limit else inf * used if used else 0.0


@dataclass(frozen=True, slots=True)
class CallbackSetup:
    """A quota callback and what it is configured with: workers make one for each broker, as brokers make their own."""

    name: str
    """``package.module:Class``, or that of an installed one."""
    search_path: str
    """A directory in which its module may be, too."""
    configs: Mapping[str, str]
    quotas: QuotaSnapshot
    broker_config: BrokerConfig
    cluster: Cluster = Cluster()  # noqa: RUF009 - it is frozen

    def managers(self, broker_id: int) -> QuotaManagers:
        """The managers of a broker, with a callback of their own.

        :raises InputError: there is no such callback.
        :raises CallbackRefusedError: it cannot be set up.
        """
        if self.search_path not in sys.path:
            sys.path.append(self.search_path)
        managers = QuotaManagers(self.broker_config)
        managers.swap_callback(
            load_callback(self.name), {"broker.id": str(broker_id), "node.id": str(broker_id), **self.configs}
        )
        managers.update_cluster_metadata(self.cluster)
        managers.update_quotas(client_quotas(self.quotas))
        return managers
