"""The brokers behind the gateway, and the port that each of them has here.

The port of a broker follows from its id alone, so that clients find it again after the gateway was restarted, whichever
brokers were there first: the first of the range, plus the id modulo the number of ports in the range. Two ids with the
same place, far apart or in a small range, are a mistake of the configuration: the second one cannot be reached, and the
log says so. Where the operating system is to choose ports, they hold until the gateway ends.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kquota.errors import InputError, KquotaError
from kquota.net.addresses import bind

__all__ = ["DEFAULT_PORTS", "MOST_BROKERS", "Node", "NodePorts", "Topology"]

DEFAULT_PORTS: Final = 100
"""How many ports after the bootstrap port are for brokers, where nothing else is said."""
MOST_BROKERS: Final = 1_000
"""Whoever answers for the cluster cannot make the gateway open more ports."""
_LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Which port a broker has; `first` of 0 is any free one."""

    first: int
    count: int = DEFAULT_PORTS

    @classmethod
    def parse(cls, text: str) -> NodePorts:
        """Read ``FIRST-LAST``.

        :raises InputError: it is no range of ports.
        """
        first, dash, last = text.partition("-")
        if dash and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= _LAST_PORT:
            return cls(int(first), int(last) - int(first) + 1)
        raise InputError(f"`node_ports` {text}: write it as FIRST-LAST, such as 9193-9292")

    def of(self, node_id: int) -> int:
        """The port of a broker; 0 for any free one."""
        return self.first + node_id % self.count if self.first else 0


class Node(NamedTuple):
    """A broker: where it is, and where clients find it here."""

    id: int
    host: str
    port: int
    gateway_port: int


class Topology:
    """Which brokers there are.

    :param host: the host that the ports are bound on.
    :param advertised_host: the host that clients are given.
    :param opened: called with a broker and its sockets, which listen already, for each new one.
    :param trouble: called with a sentence about a broker that cannot be given a port.
    """

    def __init__(
        self,
        ports: NodePorts,
        host: str,
        advertised_host: str,
        *,
        backlog: int,
        opened: Callable[[Node, list[socket.socket]], None],
        trouble: Callable[[str], None],
    ) -> None:
        self._ports = ports
        self._host = host
        self.advertised_host = advertised_host
        self._backlog = backlog
        self._opened = opened
        self._trouble = trouble
        self._nodes: dict[int, Node] = {}
        self._refused: dict[int, str] = {}
        self._dialled = 0
        self.current: frozenset[int] = frozenset()
        """The brokers that the cluster named last. The others keep their ports: they may come back."""

    @property
    def nodes(self) -> list[Node]:
        """All that were ever there, by their id."""
        return [self._nodes[one] for one in sorted(self._nodes)]

    @property
    def refused(self) -> list[tuple[int, str]]:
        """The brokers that have no port, and why."""
        return sorted(self._refused.items())

    def learn(self, brokers: Iterable[tuple[int, str, int]]) -> None:
        """Take what the cluster says of itself: id, host and port of each broker. New ones get a port at once."""
        found = list(brokers)
        for node_id, host, port in found:
            known = self._nodes.get(node_id)
            if known is None:
                self._add(node_id, host, port)
            elif (known.host, known.port) != (host, port):
                self._nodes[node_id] = known._replace(host=host, port=port)
        if found:
            self.current = frozenset(node_id for node_id, _, _ in found) & self._nodes.keys()

    def address_of(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        """Where clients find a broker; one that is new gets its port before any client learns of it.

        None for one that can have no port: clients then do not hear of it.
        """
        node = self._nodes.get(node_id)
        if node is None:
            node = self._add(node_id, host, port)
            if node is None:
                return None
        return self.advertised_host, node.gateway_port

    def forget(self, node_id: int) -> None:
        """Drop a broker whose port cannot be served; the next time that it is learned it is new again."""
        self._nodes.pop(node_id, None)
        self.current -= {node_id}

    def node(self, node_id: int) -> Node:
        """The broker of a port."""
        return self._nodes[node_id]

    def in_turn(self) -> list[Node]:
        """The current brokers for a client of the bootstrap port, each time another one first.

        :raises KquotaError: there is none.
        """
        ids = sorted(self.current)
        if not ids:
            raise KquotaError("no broker is known")
        self._dialled += 1
        first = self._dialled % len(ids)
        return [self._nodes[one] for one in ids[first:] + ids[:first]]

    def _add(self, node_id: int, host: str, port: int) -> Node | None:
        reason = self._open(node_id, host, port)
        is_new = reason is not None and self._refused.get(node_id) != reason
        if reason is not None and is_new and len(self._refused) < MOST_BROKERS:
            self._refused[node_id] = reason
            self._trouble(reason)
        return self._nodes.get(node_id)

    def _open(self, node_id: int, host: str, port: int) -> str | None:
        """Give a broker a port; or why that cannot be."""
        if node_id < 0 or not host or not 0 < port <= 65535:
            return f"broker {node_id} at {host!r}:{port} is no address"
        if len(self._nodes) >= MOST_BROKERS:
            return f"broker {node_id} gets no port: there are {MOST_BROKERS} already"
        own = self._ports.of(node_id)
        if own > _LAST_PORT:
            return f"broker {node_id} gets no port: {own} is none; give other `node_ports`, or a lower port to `listen`"
        taken = next((one for one in self._nodes.values() if own and one.gateway_port == own), None)
        if taken is not None:
            return f"brokers {taken.id} and {node_id} both have port {own}: give more `node_ports`"
        sockets: list[socket.socket] = []
        try:
            sockets = bind(self._host, own)
            for one in sockets:
                one.listen(self._backlog)
        except OSError as error:
            for one in sockets:
                one.close()
            return f"broker {node_id} gets no port: cannot listen on {self._host}:{own}: {error.strerror or error}"
        node = self._nodes[node_id] = Node(node_id, host, port, sockets[0].getsockname()[1])
        self._refused.pop(node_id, None)
        self._opened(node, sockets)
        return None
