"""Alterations of a store, one after the other in a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

import structlog

from kquota.clock import Clock, SystemClock
from kquota.errors import ApiError, StoreError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity
from kquota.stores.host_names import hosts, hosts_of
from kquota.stores.port import Servable

__all__ = ["Alterations", "Results", "Writer"]

WAIT_MS: Final = 10_000
"""How long a request waits for other programs that write the store, those before it included."""

_MAINTAIN_EVERY_S: Final = 1.0
_log = structlog.get_logger("kquota.server")

Results = Mapping[ClientQuotaEntity, ApiError | None]


class Alterations(NamedTuple):
    """What a client asks for, and the answers about its host names, those of them apart that are on their way."""

    alterations: Sequence[ClientQuotaAlteration]
    host_names: Mapping[str, Future[bool | None]]
    awaited: Sequence[Future[bool | None]]


class _Asked(NamedTuple):
    alterations: Sequence[ClientQuotaAlteration]
    validate_only: bool
    principal: str
    host_names: Mapping[str, Future[bool | None]]
    until_ms: float
    results: Future[Results]


class Writer:
    """Alters a store for its clients in the order in which they asked: a large request does not lose to small ones.

    Where nobody asks it looks after the store, and logs what is wrong with it. Its thread keeps no process from ending.
    """

    def __init__(self, store: Servable, *, clock: Clock | None = None) -> None:
        """Take the store, which stays the caller's to close."""
        self._store = store
        self._clock = clock or SystemClock()
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._trouble = ""
        Thread(target=self._run, name="store-writer", daemon=True).start()

    def begin(self, alterations: Sequence[ClientQuotaAlteration]) -> Alterations:
        """Ask for the host names of a request; in whichever thread, and not on the event loop where there are many."""
        host_names = self._store.host_names
        answers = {} if host_names is None else host_names.ask(hosts_of(alterations))
        return Alterations(alterations, answers, [answer for answer in answers.values() if not answer.done()])

    async def alter(self, asked: Alterations, *, validate_only: bool, principal: str) -> Results:
        """As :meth:`Servable.alter`. Host names are waited for first, while others are served.

        :raises StoreError: as there.
        """
        host_names = self._store.host_names
        if asked.awaited and host_names is not None:
            waiting = [asyncio.wrap_future(answer) for answer in asked.awaited]
            await asyncio.wait(waiting, timeout=host_names.deadline_ms / 1000)
        results: Future[Results] = Future()
        until_ms = self._clock.monotonic_ms() + WAIT_MS
        self._queue.put(_Asked(asked.alterations, validate_only, principal, asked.host_names, until_ms, results))
        return await asyncio.wrap_future(results)

    def close(self) -> None:
        """End after what was asked for, without waiting for it."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            try:
                asked = self._queue.get(timeout=_MAINTAIN_EVERY_S)
            except Empty:
                self._maintain()
                continue
            if asked is None:
                return
            if asked.results.set_running_or_notify_cancel():
                self._answer(asked)

    def _answer(self, asked: _Asked) -> None:
        wait_ms = max(0, int(asked.until_ms - self._clock.monotonic_ms()))
        try:
            results = self._store.alter(
                asked.alterations,
                validate_only=asked.validate_only,
                principal=asked.principal,
                hosts=hosts(asked.host_names),
                wait_ms=wait_ms,
            )
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
            asked.results.set_exception(error)
        else:
            asked.results.set_result(results)

    def _maintain(self) -> None:
        """Log what is wrong when it begins and when it ends, and not each second."""
        try:
            self._store.maintain()
            trouble = ""
        except StoreError as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - this thread is needed for the next request
            trouble = repr(error)
        if trouble and trouble != self._trouble:
            _log.error("the store failed", reason=trouble)
        elif self._trouble and not trouble:
            _log.info("the store can be used again")
        self._trouble = trouble
