"""Stores by URL."""

from __future__ import annotations

import socket
from pathlib import Path

from kquota.errors import InputError
from kquota.quotas import is_literal_ip
from kquota.stores.local import Keeper, LocalStore
from kquota.stores.memory import MemoryKeeper

__all__ = ["open_store"]

_EXAMPLES = "sqlite:///quotas.db (relative), sqlite:////var/lib/kquota/quotas.db (absolute) or memory:"


def open_store(url: str) -> LocalStore:
    """Open a store.

    :raises InputError: the URL names no store.
    :raises StoreError: the store cannot be opened.
    """
    return LocalStore(_keeper(url), is_resolvable_ip=is_resolvable_ip)


def _keeper(url: str) -> Keeper:
    if url == "memory:":
        return MemoryKeeper()
    scheme, colon, rest = url.partition("://")
    if colon and scheme == "sqlite" and rest.startswith("/") and rest != "/":
        from kquota.stores.sqlite import SqliteKeeper  # noqa: PLC0415 - only who wants SQLite loads it

        return SqliteKeeper(Path(rest[1:]))
    raise InputError(f"--store {url}: not the URL of a store; write {_EXAMPLES}")


def is_resolvable_ip(name: str) -> bool:
    """Whether a broker would take this as an ip: an address, or a host name that is found.

    Source: ``InetAddress.getByName``.
    """
    if is_literal_ip(name):
        return True
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False
