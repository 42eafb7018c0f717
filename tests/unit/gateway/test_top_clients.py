"""Which clients have series of their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kquota.gateway.metrics.top_clients import TopClients
from kquota.metering.meters import RateMeter
from kquota.metering.statistics import Windows

NOW = 1_700_000_000_000
WINDOWS = Windows()


def meter_of(name: int, used: float, throttle_ms: int = 0) -> RateMeter:
    meter = RateMeter({"user": str(name)}, 1e18, WINDOWS, None)
    meter.record(used, NOW)
    if throttle_ms:
        meter.throttled_until_ms = NOW + throttle_ms
        meter.throttle_times.record(throttle_ms, NOW)
    return meter


@given(
    most=st.integers(1, 8),
    clients=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1) | st.integers(0, 900)), max_size=40),
)
def test_the_most_throttled_have_half_and_the_largest_the_rest(most: int, clients: list[tuple[int, int]]) -> None:
    top = TopClients(most, WINDOWS)
    rates = {}
    for name, (used, throttle_ms) in enumerate(clients):
        rates[str(name)] = top.add(meter_of(name, used * 1000, throttle_ms), NOW)
    shown = {one.meter.tags["user"]: one for one in top.shown()}
    assert len(shown) == min(most, len(clients))
    assert top.count == len(clients)
    assert top.throttled == sum(throttle_ms > 0 for _, throttle_ms in clients)
    hidden = [(rates[str(name)], ms) for name, (_, ms) in enumerate(clients) if str(name) not in shown]
    longest = sorted((ms for _, ms in clients if ms), reverse=True)[: (most + 1) // 2]
    shown_ms = sorted((clients[int(name)][1] for name in shown), reverse=True)
    assert shown_ms[: len(longest)] == longest
    # Whoever is not shown uses no more than each of those that are there for their use.
    if hidden and len(longest) < most:
        by_use = sorted((one.usage for one in shown.values()), reverse=True)[: most - len(longest)]
        assert max(rate for rate, _ in hidden) <= min(by_use)
    other = top.other_usage()
    if hidden:
        assert other is not None
        assert abs(other - sum(rate for rate, _ in hidden)) < 1e-6
    else:
        assert other is None


def test_an_idle_client_uses_nothing_and_is_not_looked_at() -> None:
    top = TopClients(3, WINDOWS)
    meter = meter_of(1, 1000)
    before = meter.rate.state()
    assert top.add(meter, NOW + WINDOWS.span_ms) == 0
    assert meter.rate.state() == before
    assert [one.usage for one in top.shown()] == [0]
