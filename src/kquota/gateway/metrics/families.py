"""The gateway's own metrics: names, types, labels and meaning. docs/reference/metrics.md is written from these.

Who writes them asks a page for the family by its name here: :meth:`kquota.net.exposition.Exposition.family`.
"""

from typing import Final

from kquota.net.exposition import FamilyDeclaration, counter, gauge, histogram

__all__ = ["FAMILIES"]

_QUOTA, _CLIENTS = ("quota_type", "rule"), ("broker", "quota_type")

INFO: Final = gauge("kquota_gateway_info", "Always 1", "version")
SHADOW: Final = gauge("kquota_gateway_shadow", "1 in shadow mode: throttles are computed, and nobody is throttled")
READY: Final = gauge("kquota_gateway_ready", "1 where /readyz says 200")
THROTTLED_REQUESTS: Final = counter(
    "kquota_gateway_throttled_requests_total",
    "Requests that were throttled because of the limit that is set on rule; of Connection, connections",
    *_QUOTA,
)
THROTTLE_SECONDS: Final = counter(
    "kquota_gateway_throttle_seconds_total", "The sum of the throttle times of these, in seconds", *_QUOTA
)
RULE_USAGE: Final = gauge(
    "kquota_gateway_rule_usage",
    "What all clients under the rule use at all brokers: bytes, partitions or connections per second, per cent of a "
    "thread",
    *_QUOTA,
)
CLIENTS: Final = gauge(
    "kquota_gateway_clients",
    "Clients that are counted, or sets of them that share a limit; of Connection, addresses with a limit",
    *_CLIENTS,
)
THROTTLED_CLIENTS: Final = gauge(
    "kquota_gateway_throttled_clients", "Clients whose throttle time is not over", *_CLIENTS
)
CONNECTIONS: Final = gauge(
    "kquota_gateway_connections",
    "Connections of clients now, by the broker whose port they came to; bootstrap is the port where clients begin",
    "broker",
)
CONNECTIONS_TOTAL: Final = counter("kquota_gateway_connections_total", "Connections that were served")
CLOSED: Final = counter(
    "kquota_gateway_connections_closed_total",
    "Connections that ended by an error, by its class, such as ConnectionLimitError, UnsupportedVersionError or "
    "PrincipalRefusedError; ConnectionResetError is mostly the broker's doing",
    "reason",
)
FAILED_DIALS: Final = counter(
    "kquota_gateway_failed_dials_total", "Connections to the broker that could not be made", "broker"
)
MUTED: Final = gauge(
    "kquota_gateway_muted_connections", "Connections of which nothing is read now, as their client is throttled"
)
CLOSING: Final = gauge(
    "kquota_gateway_closing_broker_connections",
    "Connections to brokers whose clients are gone, and which still have something to send: for half a minute at most",
)
UNANSWERED: Final = gauge(
    "kquota_gateway_unanswered_requests", "Requests that were passed on, and not answered by the broker yet"
)
REQUESTS: Final = counter(
    "kquota_gateway_requests_total", "Requests, by Kafka's name of the API, such as Produce", "api"
)
RECEIVED_BYTES: Final = counter(
    "kquota_gateway_received_bytes_total",
    "Bytes that came from clients (client) and go to brokers, and from brokers (broker) to clients",
    "peer",
)
TOPICS_REFUSED: Final = counter(
    "kquota_gateway_topics_refused_total",
    "Topics in CreateTopics, DeleteTopics and CreatePartitions that were refused over the quota, or would have been in "
    "shadow mode",
)
LOGINS: Final = counter(
    "kquota_gateway_logins_total", "What brokers said to logins: succeeded, failed", "mechanism", "result"
)
QUOTAS: Final = gauge("kquota_gateway_quotas", "Quotas in force")
QUOTAS_AGE: Final = gauge("kquota_gateway_quotas_age_seconds", "Since when the source may have others, in seconds")
QUOTAS_STALE: Final = gauge("kquota_gateway_quotas_stale", "1 where the source may have others for over 10 seconds")
QUOTAS_FAILING: Final = gauge("kquota_gateway_quotas_failing", "1 where the quotas could not be read the last time")
QUOTA_CHANGES: Final = counter("kquota_gateway_quota_changes_total", "Quotas that were set or removed since the start")
BROKERS: Final = gauge("kquota_gateway_brokers", "Brokers that the cluster named last")
TOPOLOGY_AGE: Final = gauge(
    "kquota_gateway_topology_age_seconds", "How long ago the cluster named its brokers, in seconds"
)
LOOP_LAG: Final = histogram(
    "kquota_gateway_event_loop_lag_seconds",
    "How late a timer of one second fires: what every request may wait for, besides its quota",
)

FAMILIES: Final = tuple(one for one in list(globals().values()) if isinstance(one, FamilyDeclaration))
"""All of them, in the order of above."""
