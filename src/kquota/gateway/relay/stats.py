"""What the relay counts of itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kquota.gateway.relay.actions import ACTIONS

__all__ = ["RelayStats"]

_KEYS: Final = max(action.api_key for action in ACTIONS.values()) + 1


@dataclass(slots=True)
class RelayStats:
    """Since the gateway was started."""

    connections: int = 0
    failed_dials: Counter[int] = field(default_factory=Counter)
    """By the id of the broker that could not be reached."""
    bytes_from_clients: int = 0
    bytes_from_brokers: int = 0
    requests: list[int] = field(default_factory=lambda: [0] * _KEYS)
    """Those that are passed on or answered, by API key: nothing is cheaper to add to than a place in a list."""
    closed: Counter[str] = field(default_factory=Counter)
    """Connections that the gateway closed itself, by the class of the reason."""
    topics_refused: int = 0
    """Or those that would have been, where nobody is throttled (``--shadow``)."""
    logins: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """What brokers answered to logins: by the mechanism, and whether they agreed."""
