"""The metrics of the quotas behind a gateway: a broker's own, for each broker, and throttles by rule.

What is here are generators that give nothing: whoever runs them can pause at each step, as there may be a hundred
thousand clients. The names of a broker's metrics are those of :mod:`kquota.net.prometheus`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from heapq import heappush, heappushpop
from typing import Final, TypeAlias

from kquota.gateway.metrics import families
from kquota.gateway.metrics.top_clients import ClientUsage, TopClients
from kquota.gateway.quotas.broker_quotas import CONTROLLER, BrokerQuotas
from kquota.gateway.quotas.enforcement import Enforcement
from kquota.gateway.quotas.rules import CONNECTION, MOST_RULES
from kquota.metering.callback import ClientQuotaType
from kquota.metering.connections import DISABLED
from kquota.metering.meters import UNLIMITED, BucketMeter, Meter, SpreadMeter
from kquota.metering.metrics import SOCKET_SERVER, kafka_tags
from kquota.net.exposition import Exposition
from kquota.net.prometheus import LIMIT_SOURCE, series_labels, series_name
from kquota.quotas import IP

__all__ = ["Steps", "broker_label", "write_quotas"]

Steps: TypeAlias = Iterator[None]

_CLIENTS_A_STEP: Final = 32
_LINES_A_STEP: Final = 16
_OF_BROKERS: Final = (ClientQuotaType.PRODUCE, ClientQuotaType.FETCH, ClientQuotaType.REQUEST)
_OF_THE_CONTROLLER: Final = (ClientQuotaType.CONTROLLER_MUTATION,)
_USAGE: Final = {
    ClientQuotaType.PRODUCE: "byte-rate",
    ClientQuotaType.FETCH: "byte-rate",
    ClientQuotaType.REQUEST: "request-time",
    ClientQuotaType.CONTROLLER_MUTATION: "mutation-rate",
}
_OTHER: Final = {"other": "true"}

Rates: TypeAlias = dict[tuple[str, str], float]
"""Usage by quota type and rule."""


def broker_label(node_id: int | None) -> str:
    """The label of a broker: its id; the controller's, and that of the port for clients that know no broker yet."""
    return "bootstrap" if node_id is None else "controller" if node_id == CONTROLLER else str(node_id)


def write_quotas(page: Exposition, quotas: BrokerQuotas, now_ms: Callable[[], int], most_clients: int) -> Steps:
    """All of it.

    :param now_ms: the time on the clock of the quotas, which passes in the meantime.
    :param most_clients: how many clients have series of their own, for each broker and quota type.
    """
    rates: Rates = defaultdict(float)
    for node_id, enforcement in quotas:
        broker = {"broker": broker_label(node_id)}
        for quota_type in _OF_THE_CONTROLLER if node_id == CONTROLLER else _OF_BROKERS:
            yield from _clients(page, broker, enforcement, quota_type, now_ms, most_clients, rates)
        if node_id != CONTROLLER:
            yield from _connections(page, broker, enforcement, now_ms, most_clients, rates)
    yield from _rules(page, quotas, rates)


def _clients(
    page: Exposition,
    broker: Mapping[str, str],
    enforcement: Enforcement,
    quota_type: ClientQuotaType,
    now_ms: Callable[[], int],
    most: int,
    rates: Rates,
) -> Steps:
    """The clients of one quota at one broker."""
    manager, group = enforcement.managers.of(quota_type), quota_type.value
    meters: Iterator[Meter] = manager.meters()
    top = TopClients(most, manager.windows)
    at_ms = now_ms()
    for number, meter in enumerate(meters):
        if number % _CLIENTS_A_STEP == 0:
            yield
            at_ms = now_ms()
        usage = top.add(meter, at_ms)
        if usage and meter.limit != UNLIMITED:
            rates[group, enforcement.rules.of(quota_type, meter.tags, meter.limit)] += usage
    for number, one in enumerate(top.shown()):
        if number % _LINES_A_STEP == 0:
            yield
        _client(page, broker, enforcement, quota_type, one, now_ms())
    other = top.other_usage()
    if other is not None:
        page.gauge(*_usage_series(quota_type)).add(other, {**broker, **series_labels(group, {}), **_OTHER})
    queue = page.gauge(series_name(group, "queue-size"), "Tracks the size of the delay queue")
    queue.add(len(manager.delays), broker)
    if quota_type is ClientQuotaType.REQUEST:
        exempt = page.gauge(
            series_name(group, "exempt-request-time"), "Tracking exempt-request-time utilization percentage"
        )
        exempt.add(enforcement.managers.request.exempt_request_time.measure(now_ms()), broker)
    labels = {**broker, "quota_type": group}
    page.family(families.CLIENTS).add(top.count, labels)
    throttled = page.family(families.THROTTLED_CLIENTS)
    throttled.add(top.throttled, labels)


def _usage_series(quota_type: ClientQuotaType) -> tuple[str, str]:
    name = _USAGE[quota_type]
    return series_name(quota_type.value, name), f"Tracking {name} per user/client-id"


def _client(
    page: Exposition,
    broker: Mapping[str, str],
    enforcement: Enforcement,
    quota_type: ClientQuotaType,
    one: ClientUsage,
    now_ms: int,
) -> None:
    meter, group = one.meter, quota_type.value
    labels = {**broker, **series_labels(group, kafka_tags(meter.tags))}
    page.gauge(*_usage_series(quota_type)).add(one.usage, labels)
    if isinstance(meter, BucketMeter) and not isinstance(meter, SpreadMeter):
        tokens = "Tracking remaining tokens in the token bucket per user/client-id"
        page.gauge(series_name(group, "tokens"), tokens).add(meter.measure(now_ms), labels)
    throttle_time = page.gauge(series_name(group, "throttle-time"), "Tracking average throttle-time per user/client-id")
    throttle_time.add(one.throttle_ms, labels)
    if meter.limit != UNLIMITED:
        limit = page.gauge(series_name(group, "quota-limit"), "The limit of the usage with the same labels")
        rule = enforcement.rules.of(quota_type, meter.tags, meter.limit)
        limit.add(meter.limit, {**labels, LIMIT_SOURCE: rule})


def _connections(
    page: Exposition,
    broker: Mapping[str, str],
    enforcement: Enforcement,
    now_ms: Callable[[], int],
    most: int,
    rates: Rates,
) -> Steps:
    """How many connections are made, in all and from each address that has a limit."""
    connections = enforcement.managers.connections
    accepts = "Tracking rate of accepting new connections (per second)"
    whole = page.gauge(series_name(SOCKET_SERVER, "broker-connection-accept-rate"), accepts)
    whole.add(connections.rate.measure(now_ms()), broker)
    family = page.gauge(series_name(SOCKET_SERVER, "connection-accept-rate"), accepts)
    no_tags = series_labels(SOCKET_SERVER, {})
    for listener, found in connections.listeners.items():
        family.add(found.rate.measure(now_ms()), {**broker, **no_tags, "listener": listener})
        waits = page.gauge(
            series_name(SOCKET_SERVER, "ip-connection-accept-throttle-time"),
            "Tracking average throttle-time, out of non-zero throttle times, per listener",
        )
        waits.add(found.ip_throttle_times.measure(now_ms()), {**broker, **no_tags, "listener": listener})
    top = TopClients(most, connections.windows)
    at_ms = now_ms()
    for number, meter in enumerate(connections.meters()):
        if number % _CLIENTS_A_STEP == 0:
            yield
            at_ms = now_ms()
        usage = top.add(meter, at_ms)
        source = connections.source(meter.tags[IP]) if usage else None
        if source is not None:
            rates[CONNECTION, source.to_text()] += usage
    for number, one in enumerate(top.shown()):
        if number % _LINES_A_STEP == 0:
            yield
        labels = {**broker, **no_tags, **one.meter.tags}
        family.add(one.usage, labels)
        source = connections.source(one.meter.tags[IP])
        if source is not None and one.meter.limit != DISABLED:
            limit = page.gauge(series_name(SOCKET_SERVER, "quota-limit"), "The limit of the address")
            limit.add(one.meter.limit, {**labels, LIMIT_SOURCE: source.to_text()})
    other = top.other_usage()
    if other is not None:
        family.add(other, {**broker, **no_tags, **_OTHER})
    page.family(families.CLIENTS).add(top.count, {**broker, "quota_type": CONNECTION})


def _rules(page: Exposition, quotas: BrokerQuotas, rates: Rates) -> Steps:
    """Throttles and usage by the rule that limits it."""
    requests = page.family(families.THROTTLED_REQUESTS)
    seconds = page.family(families.THROTTLE_SECONDS)
    for number, (quota_type, rule, one) in enumerate(quotas.throttles):
        if number % _LINES_A_STEP == 0:
            yield
        labels = _rule_labels(quota_type, rule)
        requests.add(one.requests, labels)
        seconds.add(one.throttle_ms / 1000, labels)
    usage = page.family(families.RULE_USAGE)
    shown: list[tuple[float, tuple[str, str]]] = []
    others: dict[str, float] = defaultdict(float)
    for number, (key, rate) in enumerate(rates.items()):
        if number % _CLIENTS_A_STEP == 0:
            yield
        if len(shown) < MOST_RULES:
            heappush(shown, (rate, key))
        else:
            least, (quota_type, _) = heappushpop(shown, (rate, key))
            others[quota_type] += least
    for number, (rate, key) in enumerate(shown):
        if number % _LINES_A_STEP == 0:
            yield
        usage.add(rate, _rule_labels(*key))
    for quota_type, rate in others.items():
        usage.add(rate, _rule_labels(quota_type, None))


def _rule_labels(quota_type: str, rule: str | None) -> dict[str, str]:
    return {"quota_type": quota_type, "rule": rule or ""} | ({} if rule is not None else _OTHER)
