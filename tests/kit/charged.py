"""Requests charged at one broker of a gateway, without a connection."""

from __future__ import annotations

from kquota.gateway.enforcement import Client, Enforcement
from kquota.metering.meters import Throttle

__all__ = ["fetched", "produced"]


def produced(at: Enforcement, client: Client, request_bytes: int, now_ms: int) -> Throttle | None:
    """A produce request with an answer; what its client is to wait for, if it is."""
    return at.produce("channel", client, request_bytes, now_ms, has_answer=True)


def fetched(at: Enforcement, client: Client, response_bytes: int, now_ms: int) -> int:
    """An answer to a fetch; for how many milliseconds its client is to wait."""
    return at.fetch("channel", client, response_bytes, now_ms, now_ms)
