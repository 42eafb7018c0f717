"""The metrics of the gateway itself: connections, requests, what it follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from kquota import __version__
from kquota.gateway.metrics.quota_metrics import Steps, broker_label
from kquota.gateway.relay.action_table import ROWS
from kquota.gateway.relay.client_connection import ClientConnection
from kquota.gateway.relay.stats import RelayStats
from kquota.net.exposition import Exposition
from kquota.net.listener import Connection
from kquota.stores.feed import QuotaFeed

__all__ = ["Connections", "write_connections", "write_followed", "write_stats"]

_CONNECTIONS_A_STEP: Final = 64


class Connections(Protocol):
    """Those of one listener."""

    @property
    def count(self) -> int:
        """How many there are, those that are not served yet among them."""

    @property
    def connections(self) -> list[Connection]:
        """Those that are served."""


def write_stats(page: Exposition, stats: RelayStats, *, is_shadow: bool, is_ready: bool) -> None:
    """What is counted since the start, and what the gateway is. Connections are looked at before."""
    page.gauge("kquota_gateway_info", "Always 1").add(1, {"version": __version__})
    page.gauge("kquota_gateway_shadow", "1 where throttles are computed, and nobody is throttled").add(is_shadow)
    page.gauge("kquota_gateway_ready", "What /readyz says").add(is_ready)
    connections = page.counter("kquota_gateway_connections_total", "Connections of clients that were served")
    connections.add(stats.connections)
    closed = page.counter("kquota_gateway_connections_closed_total", "Connections that the gateway closed itself")
    for reason, count in sorted(stats.closed.items()):
        closed.add(count, {"reason": reason})
    dials = page.counter("kquota_gateway_failed_dials_total", "Connections to brokers that could not be made")
    for node_id, count in sorted(stats.failed_dials.items()):
        dials.add(count, {"broker": broker_label(node_id)})
    received = page.counter("kquota_gateway_received_bytes_total", "Bytes that came from clients, and from brokers")
    received.add(stats.bytes_from_clients, {"peer": "client"})
    received.add(stats.bytes_from_brokers, {"peer": "broker"})
    requests = page.counter("kquota_gateway_requests_total", "Requests of clients")
    for row in ROWS:
        key, api = row[:2]
        if stats.requests[key]:
            requests.add(stats.requests[key], {"api": api})
    refused = page.counter("kquota_gateway_topics_refused_total", "Topics that were not created, deleted or enlarged")
    refused.add(stats.topics_refused)
    logins = page.counter("kquota_gateway_logins_total", "Logins, by what the broker said")
    for (mechanism, succeeded), count in sorted(stats.logins.items()):
        logins.add(count, {"mechanism": mechanism, "result": "succeeded" if succeeded else "failed"})


def write_connections(page: Exposition, listeners: Mapping[int | None, Connections], closing: int) -> Steps:
    """The connections that are there, by the broker whose port they came to; they add their requests to the stats.

    :param closing: connections to brokers whose client is gone, and which still have something to send.
    """
    now = page.gauge("kquota_gateway_connections", "Connections of clients, by the broker whose port they came to")
    muted = unanswered = 0
    for node_id, listener in list(listeners.items()):
        now.add(listener.count, {"broker": broker_label(node_id)})
        for number, one in enumerate(listener.connections):
            if number % _CONNECTIONS_A_STEP == 0:
                yield
            if isinstance(one, ClientConnection):
                one.count_requests()
                muted += one.is_muted
                unanswered += len(one.expected)
    page.gauge("kquota_gateway_muted_connections", "Connections whose client is throttled now").add(muted)
    page.gauge("kquota_gateway_unanswered_requests", "Requests that brokers have not answered yet").add(unanswered)
    page.gauge("kquota_gateway_closing_broker_connections", "To brokers, of clients that are gone").add(closing)


def write_followed(page: Exposition, feed: QuotaFeed, *, in_force: int, brokers: int, topology_age_s: float) -> None:
    """What is followed: the quotas and the brokers."""
    page.gauge("kquota_gateway_quotas", "Quotas in force").add(in_force)
    page.gauge("kquota_gateway_quotas_age_seconds", "Since when there may be others").add(feed.age_ms() / 1000)
    page.gauge("kquota_gateway_quotas_stale", "1 where they are older than they should be").add(feed.is_stale())
    failing = page.gauge("kquota_gateway_quotas_failing", "1 where they could not be read the last time")
    failing.add(feed.last_error is not None)
    page.counter("kquota_gateway_quota_changes_total", "Quotas that were set or removed").add(feed.changes)
    page.gauge("kquota_gateway_brokers", "Brokers that the cluster named last").add(brokers)
    age = page.gauge("kquota_gateway_topology_age_seconds", "When the brokers were last heard of")
    age.add(topology_age_s)
