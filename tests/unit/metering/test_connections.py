"""Connections of addresses: who may make how many, and what counts."""

from __future__ import annotations

import math

import pytest

from kquota.config import BrokerConfig
from kquota.errors import IllegalArgumentError
from kquota.metering.connections import DISABLED, ConnectionQuotas
from kquota.metering.engine import QuotaManagers
from kquota.metering.statistics import Windows
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
EXTERNAL, ADMIN = "EXTERNAL", "ADMIN"
IP, OTHER = "10.0.0.7", "10.0.0.8"
DEFAULT = ClientQuotaEntity({"ip": None})


def entity(ip: str) -> ClientQuotaEntity:
    return ClientQuotaEntity({"ip": ip})


def quotas(**limits: float) -> ConnectionQuotas:
    """As ConnectionQuotasTest has them: two samples of a second."""
    found = ConnectionQuotas(Windows(samples=2, size_ms=1000))
    for name, limit in limits.items():
        found.update_quota(DEFAULT if name == "default" else entity(IP), limit)
    return found


def accepted(found: ConnectionQuotas, count: int, ip: str = IP, listener: str = EXTERNAL, every_ms: int = 0) -> int:
    """Of so many connections, how many were."""
    return sum(found.accept(listener, ip, NOW + number * every_ms) is None for number in range(count))


def rates(found: ConnectionQuotas, ip: str = IP, listener: str = EXTERNAL, now_ms: int = NOW) -> list[float]:
    """Of the address, the listener and the broker."""
    meter = found.meter(ip)
    assert meter is not None
    return [meter.measure(now_ms), found.listeners[listener].rate.measure(now_ms), found.rate.measure(now_ms)]


def test_below_the_limit_nobody_is_rejected() -> None:
    """testIpConnectionRateWhenActualRateBelowLimit: 25 a second of 30, and 50 of an address without a limit."""
    found = quotas(own=30)
    assert accepted(found, 200, every_ms=40) == 200
    assert accepted(found, 200, OTHER, ADMIN, every_ms=20) == 200
    assert math.isnan(found.listeners[EXTERNAL].ip_throttle_times.measure(NOW))


def test_above_the_limit_some_are() -> None:
    """testIpConnectionRateWhenActualRateAboveLimit: 40 a second of 20, and 20 pass; the default is for others."""
    found = quotas(own=20)
    assert accepted(found, 80, every_ms=25) < 80
    end_ms = NOW + 80 * 25
    assert rates(found, now_ms=end_ms)[0] == pytest.approx(20, abs=1)
    assert found.listeners[EXTERNAL].ip_throttle_times.measure(end_ms) > 0
    found.update_quota(DEFAULT, 20)
    assert accepted(found, 80, OTHER, ADMIN, every_ms=25) < 80
    assert found.listeners[ADMIN].ip_throttle_times.measure(end_ms) > 0


def test_a_burst_of_exactly_the_limit_passes() -> None:
    """testEnforcedIpConnectionRateQuotaUpdate, number by number."""
    found = quotas(own=20)
    assert accepted(found, 40) == 20
    found.update_quota(entity(IP), 30)
    assert accepted(found, 40) == 10
    found.update_quota(entity(IP), None)
    assert accepted(found, 40) == 40
    assert accepted(found, 40, OTHER, ADMIN) == 40
    found.update_quota(DEFAULT, 20)
    assert accepted(found, 40, OTHER, ADMIN) == 20


def test_with_a_broker_s_windows_a_burst_is_ten_times_the_limit() -> None:
    found = QuotaManagers(BrokerConfig())
    found.update_quota("connection_creation_rate", entity(IP), 5)
    assert accepted(found.connections, 100) == 50


def test_own_limits_and_the_default_change_apart() -> None:
    """testIpConnectionRateMetricUpdate: also of addresses that were seen already."""
    found = quotas(default=50)
    accepted(found, 1)
    accepted(found, 1, OTHER)

    def limits() -> list[float]:
        mine, other = found.meter(IP), found.meter(OTHER)
        assert mine is not None
        assert other is not None
        assert (mine.limit, other.limit) == (found.limit(IP), found.limit(OTHER))
        return [mine.limit, other.limit]

    assert limits() == [50, 50]
    found.update_quota(entity(IP), 30)
    assert limits() == [30, 50]
    found.update_quota(DEFAULT, 20)
    assert limits() == [30, 20]
    found.update_quota(DEFAULT, None)
    assert limits() == [30, DISABLED]
    found.update_quota(entity(IP), None)
    assert limits() == [DISABLED, DISABLED]


def test_a_rejected_connection_counts_nowhere() -> None:
    """testRejectedIpConnectionUnrecordedFromConnectionRateQuotas; only its wait is noted, of a window at most."""
    found = quotas(own=0)
    throttle = found.accept(EXTERNAL, IP, NOW)
    assert throttle is not None
    assert throttle.throttle_ms == 1000
    assert rates(found) == [0, 0, 0]
    assert found.listeners[EXTERNAL].ip_throttle_times.measure(NOW) == 1000


def test_without_a_limit_an_address_is_not_even_counted() -> None:
    found = quotas()
    assert accepted(found, 3) == 3
    assert found.meter(IP) is None
    assert (found.rate.measure(NOW), found.listeners[EXTERNAL].rate.measure(NOW)) == (3, 3)
    found.update_quota(entity(IP), DISABLED)
    assert accepted(found, 100) == 100
    assert found.meter(IP) is None


@pytest.mark.parametrize(
    ("value", "limit"),
    [(2.9, 2), (0.9, 0), (1e12, DISABLED), (math.inf, DISABLED), (math.nan, 0), (-1.5, -1), (-math.inf, -(2**31))],
)
def test_a_limit_is_a_whole_number(value: float, limit: int) -> None:
    """ClientQuotaMetadataManager casts the double."""
    assert quotas(own=value).limit(IP) == limit


@pytest.mark.parametrize(
    ("set_on", "comes_from"),
    [("::1", "0:0:0:0:0:0:0:1"), ("10.0.0.7", "10.7"), ("::ffff:10.0.0.7", "10.0.0.7"), ("fe80::1", "fe80::1%2")],
)
def test_an_address_is_the_same_however_it_is_written(set_on: str, comes_from: str) -> None:
    found = quotas()
    found.update_quota(entity(set_on), 3)
    assert accepted(found, 10, comes_from) == 3
    assert found.source(comes_from) == entity(set_on)
    found.update_quota(entity(comes_from), None)
    assert found.limit(set_on) == DISABLED


@pytest.mark.parametrize(("idle_ms", "is_there"), [(HOUR_MS, True), (HOUR_MS + 1, False)])
def test_an_address_is_forgotten_after_an_hour(idle_ms: int, is_there: bool) -> None:
    """The listener and the broker are not."""
    managers = QuotaManagers(BrokerConfig())
    managers.update_quota("connection_creation_rate", DEFAULT, 3)
    accepted(managers.connections, 1)
    managers.expire(NOW + idle_ms)
    assert (managers.connections.meter(IP) is not None) is is_there
    assert list(managers.connections.listeners) == [EXTERNAL]


@pytest.mark.parametrize("parts", [{}, {"user": "alice"}, {"ip": "1.2.3.4", "user": "alice"}])
def test_only_addresses_have_such_a_limit(parts: dict[str, str | None]) -> None:
    with pytest.raises(IllegalArgumentError, match="connections are limited for an ip"):
        quotas().update_quota(ClientQuotaEntity(parts), 1)
