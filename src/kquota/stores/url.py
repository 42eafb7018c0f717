"""Stores by URL."""

from __future__ import annotations

import socket
from pathlib import Path

from kquota.errors import InputError
from kquota.printable import without_login
from kquota.quotas import MAX_CHANGES_PER_REQUEST, is_literal_ip
from kquota.stores.local import Keeper, LocalStore
from kquota.stores.memory import MemoryKeeper

__all__ = ["open_store"]

_EXAMPLES = "sqlite:///quotas.db (relative), sqlite:////var/lib/kquota/quotas.db (absolute) or memory:"


def open_store(url: str, *, must_exist: bool = False, max_changes: int | None = MAX_CHANGES_PER_REQUEST) -> LocalStore:
    """Open a store.

    :param must_exist: do not make one where there is none.
    :param max_changes: how many changes one request may make; None for any number.
    :raises InputError: the URL names no store, or one that is not there and must be.
    :raises StoreError: the store cannot be opened.
    """
    return LocalStore(_keeper(url, must_exist=must_exist), is_resolvable_ip=is_resolvable_ip, max_changes=max_changes)


def _keeper(url: str, *, must_exist: bool) -> Keeper:
    if url == "memory:":
        return MemoryKeeper()
    scheme, colon, rest = url.partition("://")
    if colon and scheme == "sqlite" and rest.startswith("/") and rest != "/":
        from kquota.stores.sqlite import SqliteKeeper  # noqa: PLC0415 - only who wants SQLite loads it

        path = Path(rest[1:])
        if must_exist and not path.exists():
            raise InputError(f"--store {url}: there is no file {path}")
        return SqliteKeeper(path)
    raise InputError(f"--store {without_login(url)}: not the URL of a store; write {_EXAMPLES}")


def is_resolvable_ip(name: str) -> bool:
    """Whether a broker would take this as an ip: an address, or a host name that is found.

    Source: ``InetAddress.getByName``. Where a scope names an interface (``fe80::1%eth0``) the C library is asked,
    which may see it otherwise than a JVM does.
    """
    if is_literal_ip(name):
        return True
    if not name.isascii() or "\0" in name or _is_number(name):
        return False
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def _is_number(name: str) -> bool:
    """Whether the C library takes it for an address: it does for more than a JVM, such as hexadecimal parts."""
    if ":" in name:
        return name.rpartition("%")[2].isdigit()
    try:
        socket.inet_aton(name)
    except OSError:
        return False
    return True
