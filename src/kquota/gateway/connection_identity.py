"""Who the client of a connection is."""

from __future__ import annotations

from dataclasses import dataclass

from kquota.metering.callback import KafkaPrincipal
from kquota.net.listener import Peer

__all__ = ["ConnectionIdentity", "Identities"]

ANONYMOUS = KafkaPrincipal("User", "ANONYMOUS")


class ConnectionIdentity:
    expects_raw_tokens = False

    def __init__(self) -> None:
        self.principal: KafkaPrincipal | None = None

    def connected(self, peer: Peer, ssl_object: object) -> None:
        self.principal = ANONYMOUS


@dataclass
class Identities:
    listener: str = "PLAINTEXT"

    def new(self) -> ConnectionIdentity:
        return ConnectionIdentity()
