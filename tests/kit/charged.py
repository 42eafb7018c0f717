"""Requests charged at one broker of a gateway, without a connection."""

from __future__ import annotations

from kquota.gateway.quotas.enforcement import Client, Enforcement
from kquota.gateway.relay.request_head import RequestHead
from kquota.metering.meters import Throttle
from tests.kit.actions import api_number, known_action

__all__ = ["fetched", "produced"]


def produced(at: Enforcement, client: Client, request_bytes: int, now_ms: int) -> Throttle | None:
    """A produce request with an answer; what its client is to wait for, if it is."""
    throttle = at.requests.record_produce(client.user, client.client_id, request_bytes, now_ms)
    return None if throttle is None else at.produce(_head(0, 9, client), throttle, now_ms)


def fetched(at: Enforcement, client: Client, response_bytes: int, now_ms: int) -> int:
    """An answer to a fetch; for how many milliseconds its client is to wait."""
    own = at.managers.fetch.record(client.user, client.client_id, response_bytes, now_ms)
    return at.fetch(_head(1, 12, client), own, response_bytes, 0, now_ms)


def _head(api_key: int, version: int, client: Client) -> RequestHead:
    return RequestHead(api_number(api_key, version), b"", known_action(api_key, version), client)
