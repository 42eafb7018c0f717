"""Quotas in memory: gone when the process ends."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

from kquota.quotas import QuotaIndex, QuotaSnapshot
from kquota.stores.local import new_identity
from kquota.stores.port import Commit

__all__ = ["MemoryKeeper"]


class MemoryKeeper:
    """A :class:`~kquota.stores.local.Keeper` without a file."""

    def __init__(self, snapshot: QuotaSnapshot | None = None) -> None:
        self.identity = new_identity()
        self._index = QuotaIndex(snapshot or {})
        self._commits: list[Commit] = []
        self._lock = Lock()

    def read(self) -> tuple[QuotaIndex, int]:
        """The quotas, and the number of the last commit."""
        with self._lock:
            return self._index, len(self._commits)

    def commit(self, commit: Commit) -> bool:
        """Keep a commit if its number is the next one."""
        with self._lock:
            if commit.number != len(self._commits) + 1:
                return False
            self._commits.append(commit)
            self._index = self._index.with_changes(commit.changes)
            return True

    def history(self, *, since: int) -> Iterator[Commit]:
        """The commits after number `since`."""
        with self._lock:
            return iter(self._commits[since:])

    def close(self) -> None:
        """Nothing is open."""
