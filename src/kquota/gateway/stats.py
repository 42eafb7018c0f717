"""What the relay counts of itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kquota.gateway.actions import ACTIONS

__all__ = ["RelayStats"]


@dataclass(slots=True)
class RelayStats:
    """Since the gateway was started."""

    connections: int = 0
    failed_dials: Counter[int] = field(default_factory=Counter)
    """By the id of the broker that could not be reached."""
    bytes_from_clients: int = 0
    bytes_to_clients: int = 0
    bytes_from_brokers: int = 0
    requests: dict[int, int] = field(default_factory=lambda: dict.fromkeys(ACTIONS, 0))
    """Those that are passed on or answered, by ``api_key << 16 | version``, as :data:`ACTIONS` has them. A plain dict
    with all its keys: adding to it is the cheapest that there is."""
    closed: Counter[str] = field(default_factory=Counter)
    """Connections that the gateway closed itself, by the class of the reason."""
    topics_refused: int = 0
    """Or those that would have been, where nobody is throttled (``--shadow``)."""
    logins: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """What brokers answered to logins: by the mechanism, and whether they agreed."""
