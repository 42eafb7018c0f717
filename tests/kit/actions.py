"""Actions of the gateway by API and version, looked up as the head of a request is."""

from __future__ import annotations

from kquota.gateway.relay.actions import ACTIONS, Action

__all__ = ["api_number", "known_action"]


def api_number(api_key: int, version: int) -> int:
    """The first four bytes of a request, after its size, as the gateway reads them."""
    return (api_key & 0xFFFF) << 16 | version & 0xFFFF


def known_action(api_key: int, version: int) -> Action:
    """The action of an API that is forwarded."""
    return ACTIONS[api_number(api_key, version)]
