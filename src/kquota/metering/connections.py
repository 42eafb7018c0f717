"""How many connections an address may make per second (KIP-612), and how many are accepted.

Source: ``kafka.network.ConnectionQuotas``. No callback is asked about addresses. The limits of a whole broker and of a
listener (``max.connection.creation.rate``) make its acceptor wait and are no quotas: of those only the rates are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Final, NamedTuple

from kquota.errors import IllegalArgumentError
from kquota.metering.meters import INACTIVE_MS, RateMeter, Throttle, ThrottleTimes
from kquota.metering.statistics import SampledRate, Windows
from kquota.quotas import IP, ClientQuotaEntity, canonical_ip, host_address

__all__ = ["DISABLED", "ConnectionQuotas", "ListenerRates"]

DISABLED: Final = 2**31 - 1
"""Integer.MAX_VALUE: an address with this limit is not even counted."""


class _Rule(NamedTuple):
    limit: int
    source: ClientQuotaEntity


class ListenerRates:
    """What is known of a listener: its rate, and how long its rejected connections were throttled."""

    __slots__ = ("ip_throttle_times", "rate")

    def __init__(self, windows: Windows) -> None:
        self.rate = SampledRate(windows)
        self.ip_throttle_times = ThrottleTimes()


class ConnectionQuotas:
    """The connections of one broker."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.rate = SampledRate(windows)
        """Of all listeners."""
        self.listeners: dict[str, ListenerRates] = {}
        self._own: dict[str, _Rule] = {}
        self._default: _Rule | None = None
        self._meters: dict[str, RateMeter] = {}

    def update_quota(self, entity: ClientQuotaEntity, value: float | None) -> None:
        """A quota was set, or removed where `value` is None; what is behind its point is cut off.

        :raises IllegalArgumentError: the entity is no address and not the default of addresses.
        """
        self.update_quotas([(entity, value)])

    def update_quotas(self, changes: Sequence[tuple[ClientQuotaEntity, float | None]]) -> None:
        """The same for many together, in this order.

        :raises IllegalArgumentError: an entity is no address and not the default of addresses; nothing is changed.
        """
        for entity, _ in changes:
            if entity.entries.keys() != {IP}:
                wrong = entity.to_text() or "an empty entity"
                raise IllegalArgumentError(f"{wrong}: connections are limited for an ip")
        for entity, value in changes:
            rule = None if value is None else _Rule(_to_int(value), entity)
            name = entity.entries[IP]
            if name is None:
                self._default = rule
            elif rule is None:
                self._own.pop(_without_scope(_address(name)), None)
            else:
                self._own[_without_scope(_address(name))] = rule
        if changes:
            for address, meter in self._meters.items():
                meter.limit = self._limit(address)

    def limit(self, ip: str) -> int:
        """The address's own, or the default, or :data:`DISABLED`."""
        return self._limit(_address(ip))

    def source(self, ip: str) -> ClientQuotaEntity | None:
        """Where its limit is set."""
        rule = self._rule(_address(ip))
        return None if rule is None else rule.source

    def add_listener(self, name: str) -> ListenerRates:
        """The listener of this name, made if it is not there."""
        found = self.listeners.get(name)
        if found is None:
            found = self.listeners[name] = ListenerRates(self.windows)
        return found

    def accept(self, listener: str, ip: str, now_ms: int) -> Throttle | None:
        """Count a new connection. Where it is one too many it counts nowhere, and is to be closed after the wait.

        It is kept open so long, and not served; the listener goes on accepting others.
        """
        rates = self.add_listener(listener)
        # Added, and not recorded: a broker compares both with a limit, if only the highest, and so looks at them.
        self.rate.add(1.0, now_ms)
        rates.rate.add(1.0, now_ms)
        meter = self._counted(_address(ip))
        throttle = None if meter is None else meter.record(1.0, now_ms)
        if meter is None or throttle is None or throttle.throttle_ms <= 0:
            return None
        meter.record_unchecked(-1.0, now_ms)
        self.rate.record(-1.0, now_ms)
        rates.ip_throttle_times.record(throttle.throttle_ms, now_ms)
        rates.rate.record(-1.0, now_ms)
        return throttle

    def meter(self, ip: str) -> RateMeter | None:
        """What the address's connections are counted on, if any were."""
        return self._meters.get(_address(ip))

    def meters(self) -> Iterator[RateMeter]:
        """All that there are; their tag has the address as a broker writes it."""
        return iter(list(self._meters.values()))

    def expire(self, now_ms: int) -> None:
        """Drop the addresses that are inactive."""
        for address in [one for one, meter in self._meters.items() if now_ms - meter.last_ms > INACTIVE_MS]:
            del self._meters[address]

    def _limit(self, address: str) -> int:
        rule = self._rule(address)
        return DISABLED if rule is None else rule.limit

    def _rule(self, address: str) -> _Rule | None:
        return self._own.get(_without_scope(address), self._default)

    def _counted(self, address: str) -> RateMeter | None:
        """Its meter; None where it is not to be counted."""
        limit = self._limit(address)
        if limit == DISABLED:
            return None
        meter = self._meters.get(address)
        if meter is None:
            tags = {IP: host_address(address)}
            meter = self._meters[address] = RateMeter(tags, limit, self.windows, self.windows.size_ms)
        return meter


def _address(ip: str) -> str:
    """One text for all ways to write the same address."""
    return canonical_ip(ip) or ip


def _without_scope(address: str) -> str:
    """Of two addresses that differ in their scope alone the JVM says that they are equal, and they have one limit."""
    return address.partition("%")[0]


def _to_int(value: float) -> int:
    """As Java casts."""
    return 0 if isnan(value) else int(max(-DISABLED - 1, min(DISABLED, value)))
