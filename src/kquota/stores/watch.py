"""How the changes of a store are seen: by looking at it now and then, and as soon as something is known to be new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event, Lock
from typing import Self

from kquota.clock import Clock, SystemClock
from kquota.errors import KquotaError, StoreError
from kquota.quotas import QuotaSnapshot

__all__ = ["Look", "QuotaWatch", "Watches"]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all quotas of a store."""

    begun_ms: float
    """When it began, on the clock that never goes back: what was changed before that is seen."""
    seen: QuotaSnapshot | KquotaError
    """The quotas, which are the same object as before where nothing changed; or why they could not be read."""


class QuotaWatch:
    """Looks at a store, one after the other, for as long as it is open: an iterator for one thread.

    The first look is at once, each later one at most `every_ms` after the one before it. Quotas that came and went
    between two looks are not seen; the last ones always are. A look that fails is an element like others, and the next
    one comes as soon as ever. Any thread may call the other methods.

    A store that hears of changes, and need not ask for them, calls :meth:`look_now`.
    """

    def __init__(self, look: Callable[[], QuotaSnapshot], *, every_ms: float, clock: Clock | None = None) -> None:
        """Take what reads the quotas: cheap where nothing changed, and then the same object as before.

        :param look: raises KquotaError where they cannot be read.
        """
        self._look = look
        self._every_s = every_ms / 1000
        self._clock = clock or SystemClock()
        self._is_due = Event()
        self._is_due.set()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether there will be no more looks."""
        return self._is_closed

    def look_now(self) -> None:
        """Do not wait with the next look: something was just changed."""
        self._is_due.set()

    def close(self) -> None:
        """End the iteration, also for the thread that waits in it. A look that is under way does not count any more."""
        self._is_closed = True
        self._is_due.set()

    def __iter__(self) -> Iterator[Look]:
        return self

    def __next__(self) -> Look:
        """Wait for the next look, and take it."""
        if not self._is_closed:
            self._is_due.wait(self._every_s)
            # Before the look: who changes something during it may have been too late for it.
            self._is_due.clear()
        if not self._is_closed:
            look = Look(self._clock.monotonic_ms(), self._seen())
            if not self._is_closed:
                return look
        raise StopIteration

    def _seen(self) -> QuotaSnapshot | KquotaError:
        try:
            return self._look()
        except KquotaError as error:
            return error
        except Exception as error:  # noqa: BLE001 - whoever follows the store is to go on
            return StoreError(f"the quotas could not be read: {error!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Watches:
    """The watches of one store. Any thread may call."""

    def __init__(self) -> None:
        self._open: set[QuotaWatch] = set()
        self._lock = Lock()

    def add(self, watch: QuotaWatch) -> QuotaWatch:
        """The watch, which gets changes from now on, and is closed with the store."""
        with self._lock:
            self._open = {one for one in self._open if not one.is_closed} | {watch}
        return watch

    def look_now(self) -> None:
        """The store was changed."""
        for watch in self._open:
            watch.look_now()

    def close(self) -> None:
        """The store is closed."""
        for watch in self._open:
            watch.close()
