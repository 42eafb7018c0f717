"""What the relay counts of itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["RelayStats"]


@dataclass(slots=True)
class RelayStats:
    """Since the gateway was started."""

    connections: int = 0
    failed_dials: int = 0
    bytes_from_clients: int = 0
    bytes_from_brokers: int = 0
    closed: Counter[str] = field(default_factory=Counter)
    """Connections that the gateway closed itself, by the class of the reason."""
    topics_refused: int = 0
