"""Addresses that a server listens on: as they are given, as they are bound, and as clients are to connect to them."""

from __future__ import annotations

import errno
import re
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self

from kquota.errors import InputError

__all__ = ["Address", "bind", "host_and_port", "is_connectable", "is_loopback", "is_numeric", "is_unspecified"]

_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_TRIES: Final = 10
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")


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


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address that the host has, all on one port; they do not listen yet.

    ``::`` also takes IPv4. Port 0 is any port that is free on all of them.

    :raises OSError: an address cannot be bound; one that this machine does not have is left out where there are others.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:
        raise OSError(errno.EINVAL, "not a host name") from None
    addresses = dict.fromkeys((family, found[0]) for family, _, _, _, found in infos)
    for attempt in range(_TRIES):
        try:
            return _bind(list(addresses), port)
        except OSError as error:
            # The port that was free on the first address is taken on another one: try with the next free port.
            if port or error.errno != errno.EADDRINUSE or attempt == _TRIES - 1:
                raise
    raise AssertionError


def _bind(addresses: list[tuple[int, str | int]], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    with ExitStack() as opened:
        for family, address in addresses:
            try:
                # Named as TCP: asyncio switches Nagle's algorithm off where a socket says so of itself.
                one = opened.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not ip_address(address).is_unspecified)
                one.bind((address, port))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
                continue
            port = one.getsockname()[1]
            sockets.append(one)
        if missing is not None and not sockets:
            raise missing
        opened.pop_all()
    return sockets


def host_and_port(name: object) -> tuple[str, int]:
    """Of a socket's name or its peer's; an IPv4 address that came through an IPv6 socket as such."""
    if not isinstance(name, tuple) or len(name) < 2:
        return str(name), 0
    host, port = name[:2]
    mapped = IPv6Address(host).ipv4_mapped if str(host).startswith("::ffff:") else None
    return (str(mapped) if mapped else host), port


def is_loopback(host: str) -> bool:
    """Whether a bound address takes connections from this machine alone."""
    return _parsed(host).is_loopback


def is_unspecified(host: str) -> bool:
    """Whether a bound address stands for every address of this machine."""
    return _parsed(host).is_unspecified


def is_numeric(host: str) -> bool:
    """Whether the C library takes the text for an address in numbers, as it does ``0x7f.1``, and not for a name."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def is_connectable(host: str) -> bool:
    """Whether clients can be given this as a broker's host: a host name, or an address of one machine."""
    if is_numeric(host):
        try:
            address = ip_address(host)
        except ValueError:
            return False  # not everybody takes the same odd spellings
        return not (address.is_unspecified or address.is_multicast)
    return len(host) <= 253 and _HOST_NAME.fullmatch(host) is not None


def _parsed(host: str) -> IPv4Address | IPv6Address:
    return ip_address(host.partition("%")[0])
