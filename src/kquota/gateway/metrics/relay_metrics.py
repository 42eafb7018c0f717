"""The metrics of the gateway itself: connections, requests, what it follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from kquota import __version__
from kquota.gateway.metrics import families
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
    page.family(families.INFO).add(1, {"version": __version__})
    page.family(families.SHADOW).add(is_shadow)
    page.family(families.READY).add(is_ready)
    connections = page.family(families.CONNECTIONS_TOTAL)
    connections.add(stats.connections)
    closed = page.family(families.CLOSED)
    for reason, count in sorted(stats.closed.items()):
        closed.add(count, {"reason": reason})
    dials = page.family(families.FAILED_DIALS)
    for node_id, count in sorted(stats.failed_dials.items()):
        dials.add(count, {"broker": broker_label(node_id)})
    received = page.family(families.RECEIVED_BYTES)
    received.add(stats.bytes_from_clients, {"peer": "client"})
    received.add(stats.bytes_from_brokers, {"peer": "broker"})
    requests = page.family(families.REQUESTS)
    for row in ROWS:
        key, api = row[:2]
        if stats.requests[key]:
            requests.add(stats.requests[key], {"api": api})
    refused = page.family(families.TOPICS_REFUSED)
    refused.add(stats.topics_refused)
    logins = page.family(families.LOGINS)
    for (mechanism, succeeded), count in sorted(stats.logins.items()):
        logins.add(count, {"mechanism": mechanism, "result": "succeeded" if succeeded else "failed"})


def write_connections(page: Exposition, listeners: Mapping[int | None, Connections], closing: int) -> Steps:
    """The connections that are there, by the broker whose port they came to; they add their requests to the stats.

    :param closing: connections to brokers whose client is gone, and which still have something to send.
    """
    now = page.family(families.CONNECTIONS)
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
    page.family(families.MUTED).add(muted)
    page.family(families.UNANSWERED).add(unanswered)
    page.family(families.CLOSING).add(closing)


def write_followed(page: Exposition, feed: QuotaFeed, *, in_force: int, brokers: int, topology_age_s: float) -> None:
    """What is followed: the quotas and the brokers."""
    page.family(families.QUOTAS).add(in_force)
    page.family(families.QUOTAS_AGE).add(feed.age_ms() / 1000)
    page.family(families.QUOTAS_STALE).add(feed.is_stale())
    failing = page.family(families.QUOTAS_FAILING)
    failing.add(feed.last_error is not None)
    page.family(families.QUOTA_CHANGES).add(feed.changes)
    page.family(families.BROKERS).add(brokers)
    age = page.family(families.TOPOLOGY_AGE)
    age.add(topology_age_s)
