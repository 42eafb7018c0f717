"""What the gateway's log says: a line for each event, and of those that clients can cause only so many in a time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import structlog

from kquota.errors import KquotaError
from kquota.gateway.relay.stats import RelayStats
from kquota.gateway.topology import Node
from kquota.net.addresses import Address
from kquota.net.event_log import LineLimit
from kquota.net.listener import Peer

__all__ = ["EventLines"]

_log = structlog.get_logger("kquota.gateway")


class EventLines:
    """Writes them."""

    def __init__(self, stats: RelayStats) -> None:
        self.stats = stats
        self._of_host = LineLimit(5, window_s=10)
        self._of_login = LineLimit(5, window_s=10)
        self._of_loop = LineLimit(1, window_s=60)

    def connection_ended(self, peer: Peer, error: BaseException | None) -> None:
        """A connection is gone; one that the gateway closed is counted, and has a line."""
        if error is None:
            return
        self.stats.closed[type(error).__name__] += 1
        if isinstance(error, OSError):
            return
        more = _more(self._of_host.allows(peer.host, asyncio.get_running_loop().time()))
        if more is None:
            return
        if isinstance(error, KquotaError):
            _log.warning("connection closed", peer=peer.address, listener=peer.listener, reason=str(error), **more)
        else:
            _log.error("connection closed by a mistake of the gateway", peer=peer.address, exc_info=error, **more)

    def login_failed(self, peer: Peer, mechanism: str) -> None:
        """A broker refused a login. Whom it was for is not said: anybody can claim any name."""
        more = _more(self._of_login.allows(peer.host, asyncio.get_running_loop().time()))
        if more is not None:
            _log.warning("login failed", peer=peer.address, listener=peer.listener, mechanism=mechanism, **more)

    def broker_added(self, node: Node) -> None:
        """A broker has a port."""
        _log.info("broker added", broker=node.id, address=_address(node), port=node.gateway_port)

    def brokers_followed(
        self, before: Iterable[Node], was_there: Collection[int], after: Iterable[Node], is_there: Collection[int]
    ) -> None:
        """The cluster was asked again: which of the brokers that were known are elsewhere, gone, or back."""
        addresses = {node.id: _address(node) for node in after}
        for node in before:
            address = addresses.get(node.id)
            if address is not None and address != _address(node):
                _log.info("broker changed", broker=node.id, address=address, before=_address(node))
            if node.id in was_there and node.id not in is_there:
                _log.warning("broker gone", broker=node.id, address=address)
            elif node.id in is_there and node.id not in was_there:
                _log.info("broker back", broker=node.id, address=address)

    def loop_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The event loop's exception handler, and for whatever else may fail again and again: a line in a minute."""
        error, message = context.get("exception"), context["message"]
        more = _more(self._of_loop.allows(message, loop.time()))
        if more is None:
            return
        if isinstance(error, (OSError, KquotaError)):
            _log.error(message, reason=str(error), **more)
        else:
            _log.error(message, exc_info=error, **more)


def _more(left_out: int | None) -> dict[str, int] | None:
    """How many lines were left out, where there are any; None where this one is left out, too."""
    return None if left_out is None else {"left_out": left_out} if left_out else {}


def _address(node: Node) -> str:
    return str(Address(node.host, node.port))
