"""Quotas in memory: gone when the process ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final

from kquota.quotas import QuotaIndex, QuotaSnapshot
from kquota.stores.local import new_identity
from kquota.stores.port import Commit

__all__ = ["MemoryKeeper"]


class MemoryKeeper:
    """A :class:`~kquota.stores.local.StoreBackend` without a file."""

    is_live: Final = True

    def __init__(self, snapshot: QuotaSnapshot | None = None) -> None:
        self.identity = new_identity()
        self._index = QuotaIndex(snapshot or {})
        self._commits: list[Commit] = []
        self._lock = Lock()

    def read(self) -> QuotaIndex:
        """The quotas as they are now."""
        return self._index

    def commit(self, made: Callable[[QuotaIndex, int], Commit | None], *, wait_ms: int = 0) -> None:  # noqa: ARG002
        """Keep what is made of the quotas; others wait for no more than that."""
        with self._lock:
            commit = made(self._index, len(self._commits) + 1)
            if commit is not None:
                self._commits.append(commit)
                self._index = self._index.with_changes(commit.changes)

    def history(self, *, since: int) -> Iterator[Commit]:
        """The commits after number `since`."""
        with self._lock:
            return iter(self._commits[since:])

    def maintain(self) -> None:
        """Nothing is to be done."""

    def close(self) -> None:
        """Nothing is open."""
