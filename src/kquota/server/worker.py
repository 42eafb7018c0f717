"""Work beside the event loop, in one thread that keeps no process from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

__all__ = ["Worker"]

A = TypeVar("A")
B = TypeVar("B")


class Worker:
    """Calls functions one after the other, first come, first served.

    One thread, as each that computes takes its turn of the interpreter's lock, and the event loop waits for all of them
    each time that it reads or writes.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[Callable[[Any], Any], Any, Future[Any]] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    async def run(self, call: Callable[[A], B], argument: A) -> B:
        """What the function returns, or raises."""
        future: Future[B] = Future()
        self._queue.put((call, argument, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End after what was asked for, without waiting for it."""
        self._queue.put(None)

    def _run(self) -> None:
        while (asked := self._queue.get()) is not None:
            call, argument, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call(argument))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                future.set_exception(error)
            del asked, call, argument, future  # a request may be large, and the next one far away
