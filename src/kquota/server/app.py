"""Running the quota server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import structlog

from kquota.errors import InputError, KquotaError, ProtocolError
from kquota.net.listener import Limits, Listener, Peer
from kquota.server.answering import Answering
from kquota.server.context import ServerContext
from kquota.stores.local import LocalStore

__all__ = ["Address", "QuotaServer", "ServerSettings", "run"]

_log = structlog.get_logger("kquota.server")
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 (refused without an address to advertise)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; a port of 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> Self:
        """Read ``host:port`` or ``[ipv6]:port``.

        :raises InputError: it is neither.
        """
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise InputError(f"{option} {text}: write an IPv6 address in brackets, such as [::1]:9092")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise InputError(f"{option} {text}: write it as host:port, such as 127.0.0.1:9092")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where to listen, what to tell clients, and what they may use."""

    listen: Address
    advertise: Address | None = None
    limits: Limits = field(default_factory=Limits)
    static_defaults: tuple[tuple[str, float], ...] = ()


class QuotaServer:
    """A server that is listening; an async context manager, which stops it when left."""

    def __init__(self, store: LocalStore, settings: ServerSettings) -> None:
        """Take the store, which stays the caller's to close.

        :raises InputError: it is to listen on every address, and not said where clients can reach it.
        """
        if settings.advertise is None and settings.listen.host in _EVERY_ADDRESS:
            raise InputError(
                f"--listen {settings.listen} is every address of this machine: say with --advertise HOST:PORT which of "
                "them clients are to connect to"
            )
        self._store = store
        self._settings = settings
        self._listener: Listener | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        context = ServerContext(
            store=self._store,
            cluster_id=self._store.identity,
            host=settings.listen.host,
            port=settings.listen.port,
            static_defaults=dict(settings.static_defaults),
        )
        try:
            self._listener = await Listener.open(
                Answering(context), settings.listen.host, settings.listen.port, limits=settings.limits, closed=_log_end
            )
        except OSError as error:
            raise KquotaError(
                f"cannot listen on {settings.listen}: {error.strerror or error}; give another --listen HOST:PORT"
            ) from error
        host, port = self._listener.address
        advertised = settings.advertise or Address(settings.listen.host, port)
        context.host, context.port = advertised.host, advertised.port or port
        _log.info("listening", address=str(Address(host, port)), advertised=f"{context.host}:{context.port}")
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._listener is not None:
            await self._listener.close()
            _log.info("stopped")

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._listener is not None
        return Address(*self._listener.address)


def _log_end(peer: Peer, error: BaseException | None) -> None:
    if isinstance(error, ProtocolError):
        _log.warning("connection closed", peer=peer.address, reason=str(error))
    elif error is not None and not isinstance(error, OSError):
        _log.error("connection closed by a mistake of this server", peer=peer.address, exc_info=error)


async def run(store: LocalStore, settings: ServerSettings, *, ready: Callable[[Address], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    :param ready: called once clients can connect.
    :raises KquotaError: the address cannot be listened on.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with QuotaServer(store, settings) as server:
        ready(server.address)
        await stop.wait()
        _log.info("stopping")
