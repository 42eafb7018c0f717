"""A listener for Kafka clients: it takes connections, counts and limits them, and closes them in the end.

What a connection does is a protocol of the caller's (:class:`Connection`). A connection counts from the moment that it
is accepted, so that one whose TLS handshake does not end, or that is not served yet, counts as well: asyncio's own
servers would not know of it.

::

    accept -> admit -> limits -> TLS handshake -> Connection -> connection lost
                |         |          |
             delayed   closed     failed, or out of time
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, cast

from kquota.config import ConnectionLimits
from kquota.errors import ConnectionLimitError
from kquota.net.addresses import Address, bind, host_and_port
from kquota.net.tls import explained_handshake

__all__ = ["BACKLOG", "Admit", "Closed", "Connection", "ConnectionCount", "Listener", "Peer"]

BACKLOG: Final = 50
"""``socket.listen.backlog.size``."""
ABORT_S: Final = 0.5
ACCEPTED_AT_ONCE: Final = 128
"""Connections that are taken in one turn of the event loop."""
PAUSE_S: Final = 1.0
"""How long no connection is taken after one could not be, for want of open files or memory (as in asyncio)."""
_LATER: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_OF_THE_CLIENT: Final = frozenset({errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH})
"""What ``accept`` reports of the one connection that it would have taken (Linux, accept(2))."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is connected, and to which of our addresses; both as ``host:port``, IPv6 in brackets."""

    address: str
    listener: str

    @property
    def host(self) -> str:
        """Of `address`, without brackets."""
        return self.address.rpartition(":")[0].strip("[]")


@dataclass(slots=True)
class ConnectionCount:
    """How many connections several listeners have, which share one ``max.connections``."""

    now: int = 0


class Connection(Protocol):
    """What a listener asks of the protocol of a connection, which is an :class:`asyncio.BaseProtocol` as well.

    In ``connection_made`` it calls :meth:`Listener.add`, and in ``connection_lost`` :meth:`Listener.remove`.
    """

    peer: Peer
    """Set by the listener before the connection is made."""

    @property
    def last_active(self) -> float:
        """When it was last of use, by :attr:`Listener.now`: it is closed if that is too long ago."""

    incomplete_since: float | None
    """Since when the rest of a request is waited for; None while nothing is."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can be read and written; with TLS the handshake is over."""

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""

    def end(self) -> None:
        """Close when all that was asked for is answered."""

    def abort(self, reason: Exception | None = None) -> None:
        """Close now."""


Closed = Callable[[Peer, BaseException | None], None]
Admit = Callable[[str], float | None]


class Listener:
    """Listens on the addresses of one host. Made by :meth:`open`."""

    def __init__(
        self,
        connect: Callable[[Listener], Connection],
        limits: ConnectionLimits,
        closed: Closed,
        admit: Admit | None,
        tls: ssl.SSLContext | None,
        shared_count: ConnectionCount,
    ) -> None:
        self.limits = limits
        self.closed = closed
        self.tls = tls
        """What a handshake is done with; another one holds for the connections that come after it is set."""
        self.is_closing = False
        self._connect = connect
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._sockets: list[socket.socket] = []
        self._addresses: list[tuple[str, int]] = []
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._unmade: dict[Connection, asyncio.Task[Any]] = {}
        self._connections: set[Connection] = set()
        self._delayed: dict[socket.socket, tuple[Peer, asyncio.TimerHandle]] = {}
        self._by_host: Counter[str] = Counter()
        self._texts: dict[tuple[str, int], str] = {}  # own addresses, each as one text for all connections
        self._count = 0
        self._shared_count = shared_count
        self._sweep: asyncio.TimerHandle | None = None
        self._is_empty: asyncio.Event | None = None

    @classmethod
    async def open(  # noqa: PLR0913 (all but the first have a default)
        cls,
        connect: Callable[[Listener], Connection],
        host: str = "",
        port: int = 0,
        *,
        limits: ConnectionLimits | None = None,
        closed: Closed | None = None,
        allow: Callable[[list[tuple[str, int]]], None] | None = None,
        admit: Admit | None = None,
        tls: ssl.SSLContext | None = None,
        sockets: Sequence[socket.socket] | None = None,
        backlog: int = BACKLOG,
        shared_count: ConnectionCount | None = None,
    ) -> Listener:
        """Listen on a host; port 0 is any free one.

        :param connect: makes the protocol of one connection.
        :param closed: is called for every connection that ended, with the reason if that was not the client's.
        :param allow: is called with the addresses that are bound, before anybody can connect, and may raise.
        :param admit: is called with the address of each client that connects. It gives the seconds for which the
            connection is to be kept without being served, and then closed (KIP-612: too many connections from this
            address), or None: it is served.
        :param sockets: are listened on instead of `host` and `port`. They listen already, and are the listener's to
            close, also where this raises.
        :param backlog: how many connections may wait to be accepted.
        :param shared_count: is what ``max.connections`` is compared with, where other listeners share that limit.
        :raises OSError: an address cannot be listened on.
        """
        listener = cls(
            connect,
            limits or ConnectionLimits(),
            closed or (lambda _peer, _error: None),
            admit,
            tls,
            shared_count or ConnectionCount(),
        )
        listener._sockets = list(sockets) if sockets is not None else bind(host, port)
        try:
            listener._addresses = [host_and_port(one.getsockname()) for one in listener._sockets]
            if allow is not None:
                allow(listener._addresses)
            for one in listener._sockets:
                if sockets is None:
                    one.listen(backlog)
                one.setblocking(False)
        except BaseException:
            for one in listener._sockets:
                one.close()
            raise
        for one in listener._sockets:
            listener._accept_from(one)
        listener._sweep_later()
        return listener

    @property
    def address(self) -> tuple[str, int]:
        """The first address that it listens on; all have the same port, unless sockets were given."""
        return self._addresses[0]

    @property
    def count(self) -> int:
        """The connections that are there: served, in their handshake, or delayed."""
        return self._count

    @property
    def connections(self) -> list[Connection]:
        """Those that are served."""
        return list(self._connections)

    async def close(self, *, within_s: float = 4.0) -> int:
        """Take no more connections, answer what was asked for, and close the rest after `within_s` seconds; how many
        these were.
        """
        self.is_closing = True
        if self._sweep is not None:
            self._sweep.cancel()
        for pause in self._pauses.values():
            pause.cancel()
        for one in self._sockets:
            self._loop.remove_reader(one.fileno())
            one.close()
        self._sockets = []
        for delayed in list(self._delayed):
            self._end_delay(delayed)
        for task in list(self._unmade.values()):
            task.cancel()
        for connection in list(self._connections):
            connection.end()
        await self._wait_until_empty(within_s)
        left = self.connections
        for connection in left:
            connection.abort()
        await self._wait_until_empty(ABORT_S)
        return len(left)

    def add(self, connection: Connection) -> None:
        """A connection was made; it was counted when it was accepted."""
        if self._unmade.pop(connection, None) is None:
            connection.abort()  # its handshake was given up
            return
        self._connections.add(connection)
        if self.is_closing:
            connection.abort()

    def remove(self, connection: Connection, error: BaseException | None) -> None:
        """A connection that was made is gone; `error` is why, if that was not the client's wish."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._leave(connection.peer, error)

    def _accept_from(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except _LATER:
                return
            except OSError as error:
                if error.errno not in _OF_THE_CLIENT:
                    self._pause(listening, error)
                return
            self._pauses.pop(listening, None)
            try:
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                host, port = host_and_port(address)
                # As brokers do: the other end may be gone, and never have said so.
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                own = host_and_port(accepted.getsockname())
                peer = Peer(str(Address(host, port)), self._texts.setdefault(own, str(Address(*own))))
            except OSError:  # it is gone already
                accepted.close()
                continue
            self._take(accepted, peer)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Take no connection for a while: what waits would wake this process again and again."""
        if listening not in self._pauses:  # otherwise it is still the same trouble, which was reported
            context = {"message": "socket.accept() out of system resource", "exception": error, "socket": listening}
            self._loop.call_exception_handler(context)
        self._loop.remove_reader(listening.fileno())
        self._pauses[listening] = self._loop.call_later(PAUSE_S, self._accept_from, listening)

    def _take(self, accepted: socket.socket, peer: Peer) -> None:
        """Count a connection in; serve it, delay it, or close it at once as it is one too many."""
        delay_s = None if self._admit is None else self._admit(peer.host)
        refused = self._refused(peer.host)
        if refused is not None:
            accepted.close()
            self.closed(peer, refused)
            return
        connection = self._connect(self) if delay_s is None else None
        self._by_host[peer.host] += 1
        self._count += 1
        self._shared_count.now += 1
        if connection is None:
            self._delayed[accepted] = peer, self._loop.call_later(delay_s or 0, self._end_delay, accepted)
            return
        connection.peer = peer
        made = self._loop.connect_accepted_socket(
            lambda: cast("asyncio.BaseProtocol", connection),
            accepted,
            ssl=self.tls,
            ssl_handshake_timeout=self.limits.socket_request_max_ms / 1000 if self.tls is not None else None,
        )
        task = self._unmade[connection] = self._loop.create_task(made)
        task.add_done_callback(partial(self._was_made, connection, accepted))

    def _refused(self, host: str) -> ConnectionLimitError | None:
        limits = self.limits
        if self._by_host[host] >= limits.max_connections_per_ip:
            return ConnectionLimitError("max.connections.per.ip", limits.max_connections_per_ip)
        if self._shared_count.now >= limits.max_connections:
            return ConnectionLimitError("max.connections", limits.max_connections)
        return None

    def _was_made(self, connection: Connection, accepted: socket.socket, task: asyncio.Task[Any]) -> None:
        """The connection is made, or never will be."""
        error = None if task.cancelled() else task.exception()
        if self._unmade.pop(connection, None) is None:
            return
        # The event loop may have taken it over, and closes it then as at the client's wish; nobody else would.
        with contextlib.suppress(OSError):
            accepted.shutdown(socket.SHUT_RDWR)
        if isinstance(error, ConnectionAbortedError):  # by the event loop, as the time is over
            error = ConnectionLimitError("socket.request.max.ms", self.limits.socket_request_max_ms)
        elif isinstance(error, ssl.SSLError):
            error = explained_handshake(error)
        self._leave(connection.peer, error)

    def _end_delay(self, accepted: socket.socket) -> None:
        peer, timer = self._delayed.pop(accepted)
        timer.cancel()
        accepted.close()
        self._leave(peer, None)

    def _leave(self, peer: Peer, error: BaseException | None) -> None:
        """Count a connection out."""
        self._count -= 1
        self._shared_count.now -= 1
        self._by_host[peer.host] -= 1
        if not self._by_host[peer.host]:
            del self._by_host[peer.host]
        if self._is_empty is not None and not self._count:
            self._is_empty.set()
        self.closed(peer, error)

    async def _wait_until_empty(self, within_s: float) -> None:
        if not self._count:
            return
        self._is_empty = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), within_s)

    def _sweep_later(self) -> None:
        wait_s = min(self.limits.connections_max_idle_ms, self.limits.socket_request_max_ms) / 4000
        self._sweep = self._loop.call_later(wait_s, self._sweep_now, self.now() + wait_s)

    def _sweep_now(self, due: float) -> None:
        """Close connections that are idle, whose client does not take its answers, or whose request does not end.

        What came while this process did something else is not read yet: that time does not count.
        """
        now = due
        idle_ms, request_ms = self.limits.connections_max_idle_ms, self.limits.socket_request_max_ms
        for connection in list(self._connections):
            since = connection.incomplete_since
            if since is not None and (now - since) * 1000 > request_ms:
                connection.abort(ConnectionLimitError("socket.request.max.ms", request_ms))
            elif (now - connection.last_active) * 1000 > idle_ms:
                connection.abort()
        self._sweep_later()
