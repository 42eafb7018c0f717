"""Stores by URL."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, Protocol, assert_never

from kquota.errors import InputError
from kquota.printable import without_login
from kquota.quotas import KAFKA, MAX_CHANGES_PER_REQUEST, QuotaModel
from kquota.stores.host_names import HostNames
from kquota.stores.local import LocalStore, StoreBackend
from kquota.stores.memory import MemoryKeeper
from kquota.stores.port import QuotaStore, Watchable

__all__ = ["CLUSTER", "Access", "WatchableStore", "open_store", "open_watchable", "sqlite_path"]

CLUSTER: Final = "cluster"
"""How the quotas of the cluster itself are named, where a store or a file could be."""

_EXAMPLES = "sqlite:///quotas.db (relative), sqlite:////var/lib/kquota/quotas.db (absolute) or memory:"
_LOCAL_DEADLINE_MS = 30_000


class Access(Enum):
    """What a store is opened for."""

    READ = "read"
    """It must be there, and nothing is written; it is seen as it is when it is opened."""
    WRITE = "write"
    """It must be there."""
    CREATE = "create"
    """It is made where there is none."""
    DRY_RUN = "dry run"
    """As to create it, but nothing is written: it is empty where there is none."""


def open_store(
    url: str,
    *,
    access: Access = Access.CREATE,
    max_changes: int | None = MAX_CHANGES_PER_REQUEST,
    model: QuotaModel = KAFKA,
    look_up_hosts: bool = True,
    warn: Callable[[str], None] = lambda _text: None,
    option: str = "--store",
) -> LocalStore:
    """Open a store.

    :param max_changes: how many changes one request may make; None for any number, also of host names.
    :param model: which entity types and keys there are; whoever serves the store resolves by it, too.
    :param look_up_hosts: take as ip what a name server finds, as brokers do; otherwise only addresses.
    :param warn: called with what the operator should know, and does not hinder anything.
    :param option: where the URL was given, for errors.
    :raises InputError: the URL names no store, or one that is not there and must be.
    :raises StoreError: the store cannot be opened.
    """
    keeper = _keeper(url, access, warn, option)
    names = HostNames() if max_changes is not None else HostNames(deadline_ms=_LOCAL_DEADLINE_MS, most_names=None)
    return LocalStore(keeper, model=model, host_names=names if look_up_hosts else None, max_changes=max_changes)


class WatchableStore(QuotaStore, Watchable, Protocol):
    """A store that can be followed."""


def open_watchable(
    place: str,
    *,
    cluster: Callable[[], WatchableStore],
    access: Access = Access.WRITE,
    model: QuotaModel = KAFKA,
    look_up_hosts: bool = True,
    warn: Callable[[str], None] = lambda _text: None,
    option: str = "--store",
) -> WatchableStore:
    """Open what a text names: :data:`CLUSTER`, the URL of a store, or a quota file.

    :param cluster: opens the store of the cluster.
    :param access: WRITE or CREATE, for the URL of a store; what is opened to be read only cannot be followed.
    :param option: where the text was given, for errors.
    :raises InputError: there is no such store or file, or the file is no quota file.
    :raises StoreError: the store cannot be opened.
    """
    if place == CLUSTER:
        return cluster()
    if place == "memory:" or ("://" in place and not place.lower().startswith("file:")):
        return open_store(place, access=access, model=model, look_up_hosts=look_up_hosts, warn=warn, option=option)
    # Only who reads a quota file loads the readers of all formats.
    from kquota.files.local_paths import local_path  # noqa: PLC0415
    from kquota.stores.file import FileStore  # noqa: PLC0415

    path = Path(local_path(place))
    if not path.exists():
        raise InputError(
            f"{option} {place}: there is no such file; write {CLUSTER}, the URL of a store such as {_EXAMPLES}, or the "
            "path of a quota file"
        )
    return FileStore(path, model=model, warn=warn)


def sqlite_path(url: str, *, must_exist: bool = False, option: str = "--store") -> Path:
    """The file of a store that has one.

    :raises InputError: the URL names none, or one that is not there and must be.
    """
    scheme, colon, rest = url.partition("://")
    if not (colon and scheme == "sqlite" and rest.startswith("/") and rest != "/"):
        raise InputError(f"{option} {without_login(url)}: not the URL of a store; write {_EXAMPLES}")
    path = Path(rest[1:])
    if must_exist and not path.exists():
        raise InputError(f"{option} {url}: there is no file {path}")
    return path


def _keeper(url: str, access: Access, warn: Callable[[str], None], option: str) -> StoreBackend:
    if url == "memory:":
        return MemoryKeeper()
    path = sqlite_path(url, must_exist=access in (Access.READ, Access.WRITE), option=option)
    # Only who wants SQLite loads it.
    from kquota.stores.sqlite import SqliteKeeper  # noqa: PLC0415
    from kquota.stores.sqlite_reader import SqliteReader  # noqa: PLC0415

    match access:
        case Access.READ:
            return SqliteReader(path)
        case Access.DRY_RUN:
            return SqliteReader(path) if path.exists() else MemoryKeeper()
        case Access.WRITE | Access.CREATE:
            return SqliteKeeper(path, may_create=access is Access.CREATE, warn=warn)
        case _:
            assert_never(access)
