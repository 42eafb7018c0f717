"""What a gateway is assembled from."""

from __future__ import annotations

from kquota.admin.properties import load_client_properties
from kquota.gateway.assembly import RECONNECT_BACKOFF_MAX_MS, _admin_settings


def test_the_gateway_tries_again_soon_to_reach_a_broker() -> None:
    """However long it was away: with the 30 s of a client, quotas would stay old for as long after it is back."""
    settings = _admin_settings(load_client_properties(None))
    assert settings["reconnect_backoff_max_ms"] == RECONNECT_BACKOFF_MAX_MS <= 1_000
    assert settings["client_id"] == "kquota-gateway"
