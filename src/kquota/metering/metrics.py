"""What a broker's metrics would say: names, groups, tags, descriptions, sensors and MBeans are Kafka's own.

Sources: ``ClientQuotaManager`` and those made from it, ``ConnectionQuotas``, ``JmxReporter``. Reading is no use: a
meter that is idle stays idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kquota.metering.callback import ClientQuotaType
from kquota.metering.connections import DISABLED, ConnectionQuotas
from kquota.metering.engine import QuotaManagers
from kquota.metering.meters import UNLIMITED, BucketMeter, Meter, SpreadMeter
from kquota.quotas import CLIENT_ID, IP, USER, jmx_sanitize, sanitize

__all__ = ["CALLBACK", "SOCKET_SERVER", "Limit", "Metric", "kafka_tags", "read_limits", "read_metrics"]

SOCKET_SERVER: Final = "socket-server-metrics"
LISTENER: Final = "listener"

CALLBACK: Final = "callback"
"""The source of a limit where the callback does not say where it is set."""


class Metric(NamedTuple):
    """One metric at one time."""

    group: str
    name: str
    tags: Mapping[str, str]
    description: str
    sensor: str
    """The sensor that it belongs to."""
    value: float

    @property
    def object_name(self) -> str:
        """The MBean that it is an attribute of."""
        tags = "".join([f",{tag}={jmx_sanitize(name)}" for tag, name in self.tags.items() if tag and name])
        return f"kafka.server:type={self.group}{tags}"


class Limit(NamedTuple):
    """What usage that is counted on some tags is limited to. No broker has a metric for that."""

    group: str
    tags: Mapping[str, str]
    limit: float
    source: str
    """The entity on which it is set, in canonical text; ``static``; or :data:`CALLBACK`."""


def kafka_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """As a broker has them: of Kafka's own two, the user is sanitized; other tags are as the callback gave them."""
    if tags.keys() == {USER, CLIENT_ID}:
        return {USER: sanitize(tags[USER]), CLIENT_ID: tags[CLIENT_ID]}
    return tags


def read_metrics(managers: QuotaManagers, now_ms: int) -> Iterator[Metric]:
    """All that a broker has at that time."""
    for quota_type in ClientQuotaType:
        manager, group = managers.of(quota_type), quota_type.value
        for meter in manager.meters():
            yield from _usage(quota_type, meter, now_ms)
        for meter in manager.throttled_meters():
            tags = kafka_tags(meter.tags)
            yield Metric(
                group,
                "throttle-time",
                tags,
                "Tracking average throttle-time per user/client-id",
                f"{group}ThrottleTime-{_suffix(tags)}",
                meter.throttle_times.measure(now_ms),
            )
        yield Metric(
            group,
            "queue-size",
            {},
            "Tracks the size of the delay queue",
            f"{group}-delayQueue",
            float(len(manager.delays)),
        )
    yield Metric(
        ClientQuotaType.REQUEST.value,
        "exempt-request-time",
        {},
        "Tracking exempt-request-time utilization percentage",
        "exempt-Request",
        managers.request.exempt_request_time.measure(now_ms),
    )
    yield from _connections(managers.connections, now_ms)


def read_limits(managers: QuotaManagers) -> Iterator[Limit]:
    """The limits of all meters that have one."""
    for quota_type in ClientQuotaType:
        for meter in managers.of(quota_type).meters():
            if meter.limit != UNLIMITED:
                source = managers.source(quota_type, meter.tags) or CALLBACK
                yield Limit(quota_type.value, kafka_tags(meter.tags), meter.limit, source)
    for meter in managers.connections.meters():
        entity = managers.connections.source(meter.tags[IP])
        if meter.limit != DISABLED and entity is not None:
            yield Limit(SOCKET_SERVER, meter.tags, meter.limit, entity.to_text())


def _usage(quota_type: ClientQuotaType, meter: Meter, now_ms: int) -> Iterator[Metric]:
    group, tags = quota_type.value, kafka_tags(meter.tags)
    sensor = f"{group}-{_suffix(tags)}"
    if isinstance(meter, BucketMeter):
        if not isinstance(meter, SpreadMeter):
            tracks = "Tracking remaining tokens in the token bucket per user/client-id"
            yield Metric(group, "tokens", tags, tracks, sensor, meter.measure(now_ms))
        rate = meter.rate.measure(now_ms)
        yield Metric(group, "mutation-rate", tags, "Tracking mutation-rate per user/client-id", sensor, rate)
        return
    name = "request-time" if quota_type is ClientQuotaType.REQUEST else "byte-rate"
    yield Metric(group, name, tags, f"Tracking {name} per user/client-id", sensor, meter.measure(now_ms))


def _suffix(tags: Mapping[str, str]) -> str:
    return ":".join(tags.values())


def _connections(connections: ConnectionQuotas, now_ms: int) -> Iterator[Metric]:
    name, accepts = "connection-accept-rate", "Tracking rate of accepting new connections (per second)"
    sensor = "Connection-Accept-Rate"
    yield Metric(SOCKET_SERVER, f"broker-{name}", {}, accepts, sensor, connections.rate.measure(now_ms))
    for listener, rates in connections.listeners.items():
        tags = {LISTENER: listener}
        yield Metric(SOCKET_SERVER, name, tags, accepts, f"{sensor}-{listener}", rates.rate.measure(now_ms))
        waits = "Tracking average throttle-time, out of non-zero throttle times, per listener"
        # Of an acceptor that has to wait, which none has here.
        for prefix, value in ("", float("nan")), ("ip-", rates.ip_throttle_times.measure(now_ms)):
            throttle_sensor = f"{prefix}ConnectionRateThrottleTime-{listener}"
            yield Metric(SOCKET_SERVER, f"{prefix}connection-accept-throttle-time", tags, waits, throttle_sensor, value)
    for meter in connections.meters():
        value = meter.measure(now_ms)
        yield Metric(SOCKET_SERVER, name, meter.tags, accepts, f"{sensor}-{meter.tags[IP]}", value)
