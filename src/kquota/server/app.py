"""Running the quota server."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import structlog

from kquota.config import ConnectionLimits
from kquota.errors import InputError, KquotaError, ProtocolError
from kquota.net.addresses import Address, is_connectable, is_loopback, is_numeric, is_unspecified
from kquota.net.event_log import LineLimit
from kquota.net.frame_server import open_frame_server
from kquota.net.listener import BACKLOG, Listener, Peer
from kquota.server.answering import RequestDispatcher
from kquota.server.context import ServerContext
from kquota.stores.local import LocalStore

__all__ = ["OTHER_FILES", "QuotaServer", "ServerSettings", "run"]

_log = structlog.get_logger("kquota.server")

SWITCH_INTERVAL_S: Final = 0.0005
OTHER_FILES: Final = BACKLOG + 32
"""Open files that are not connections: those that are closed again as they are one too many, and all others."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where to listen, which address clients get, and what they may use."""

    listen: Address
    advertise: Address | None = None
    insecure: bool = False
    """Whether to take connections from other machines, although nobody who connects is authenticated."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    static_defaults: tuple[tuple[str, float], ...] = ()


class QuotaServer:
    """A server that is listening; an async context manager, which stops it when left."""

    def __init__(self, store: LocalStore, settings: ServerSettings) -> None:
        """Take the store, which stays the caller's to close.

        :raises InputError: clients could not connect to the address to advertise.
        """
        if settings.advertise is not None and not is_connectable(settings.advertise.host):
            raise InputError(f"`advertise` {settings.advertise}: not the address of one host, nor a host name")
        self._store = store
        self._settings = settings
        self._listener: Listener | None = None
        self._context: ServerContext | None = None
        self._answering: RequestDispatcher | None = None
        self._lines_of_host = LineLimit(5, window_s=10)
        self._lines_of_loop = LineLimit(1, window_s=60)

    async def __aenter__(self) -> Self:
        """Listen.

        :raises InputError: it would take connections from other machines without leave, or on every address of this
            one without an address to advertise.
        :raises KquotaError: the address cannot be listened on.
        """
        settings = self._settings
        limits = _within_open_files(settings.limits)
        context = self._context = ServerContext(
            store=self._store,
            cluster_id=self._store.identity,
            host=settings.listen.host,
            port=settings.listen.port,
            static_defaults=dict(settings.static_defaults),
            max_answer_bytes=limits.socket_request_max_bytes,
        )
        self._answering = RequestDispatcher(context, max_elements=limits.request_max_elements)
        # What the event loop reports itself; above all that there are no more files for connections.
        asyncio.get_running_loop().set_exception_handler(self._log_trouble)
        try:
            self._listener = await open_frame_server(
                self._answering,
                settings.listen.host,
                settings.listen.port,
                limits=limits,
                closed=self._log_end,
                allow=self._check_addresses,
            )
        except OSError as error:
            self._close()
            raise KquotaError(
                f"cannot listen on {settings.listen}: {error.strerror or error}; give another `listen` HOST:PORT"
            ) from error
        except BaseException:
            self._close()
            raise
        host, port = self._listener.address
        advertised = settings.advertise or Address(
            # A spelling such as 0x7f.1 is no host name: clients get the address that it stands for.
            host if is_numeric(settings.listen.host) else settings.listen.host,
            port,
        )
        context.host, context.port = advertised.host, advertised.port or port
        _log.info("listening", address=str(Address(host, port)), advertised=str(Address(context.host, context.port)))
        return self

    async def __aexit__(self, *exception: object) -> None:
        try:
            if self._listener is not None:
                await self._listener.close()
                _log.info("stopped")
        finally:
            self._close()

    def _close(self) -> None:
        """End what runs beside the event loop."""
        if self._answering is not None:
            self._answering.close()
        if self._context is not None:
            self._context.close()

    def _check_addresses(self, bound: list[tuple[str, int]]) -> None:
        settings = self._settings
        if settings.advertise is None and any(is_unspecified(host) for host, _ in bound):
            raise InputError(
                f"`listen` {settings.listen} is every address of this machine: say with `advertise` HOST:PORT which of "
                "them clients are to connect to"
            )
        if not settings.insecure and not all(is_loopback(host) for host, _ in bound):
            raise InputError(
                f"`listen` {settings.listen} takes connections from other machines, and everybody who connects may "
                "change all quotas: listen on 127.0.0.1, or allow it with `insecure`"
            )

    def _log_end(self, peer: Peer, error: BaseException | None) -> None:
        if error is None or isinstance(error, OSError):
            return
        left_out = self._lines_of_host.allows(peer.host, asyncio.get_running_loop().time())
        if left_out is None:
            return
        more = {"left_out": left_out} if left_out else {}
        if isinstance(error, ProtocolError):
            _log.warning("connection closed", peer=peer.address, reason=str(error), **more)
        else:
            _log.error("connection closed by a mistake of this server", peer=peer.address, exc_info=error, **more)

    def _log_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, message = context.get("exception"), context["message"]
        left_out = self._lines_of_loop.allows(message, loop.time())
        if left_out is not None:
            more = {"left_out": left_out} if left_out else {}
            if isinstance(error, OSError):
                _log.error(message, reason=str(error), **more)
            else:
                _log.error(message, exc_info=error, **more)

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._listener is not None
        return Address(*self._listener.address)


def _within_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """The limits, with no more connections than this process may have open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(files - OTHER_FILES, 1) if files != resource.RLIM_INFINITY else limits.max_connections
    if limits.max_connections <= most:
        return limits
    _log.warning("fewer connections: this process may not open more files", max_connections=most, open_files=files)
    return replace(limits, max_connections=most)


async def run(store: LocalStore, settings: ServerSettings, *, ready: Callable[[Address], None]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, as Kafka does; what was asked for is answered first, if that is soon.

    :param ready: called once clients can connect.
    :raises KquotaError: the address cannot be listened on.
    """
    # Each time that the event loop reads or writes it waits for the threads that compute, this long for each of them. A
    # burst of 150 large answers kept a small one waiting for 0.8 to 3 s with Python's 5 ms, and 44 ms with this.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with QuotaServer(store, settings) as server:
        ready(server.address)
        await stop.wait()
        _log.info("stopping")
