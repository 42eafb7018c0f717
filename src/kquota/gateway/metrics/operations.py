"""What monitoring asks of a gateway: ``/metrics``, ``/healthz`` and ``/readyz``.

The metrics are read and written on the event loop, which knows them, in short slices with pauses: another thread would
hold up the loop for longer, as both want the same lock of the interpreter. Who asks while they are written waits for
the same text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, TypeVar

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from kquota.clock import Clock, SystemClock
from kquota.errors import KquotaError
from kquota.gateway.app import Gateway
from kquota.gateway.metrics.loop_lag import LoopLag
from kquota.gateway.metrics.quota_metrics import Steps, write_quotas
from kquota.gateway.metrics.readiness import Check, check_brokers, check_listening, check_quotas, is_ready, to_lines
from kquota.gateway.metrics.relay_metrics import write_connections, write_followed, write_stats
from kquota.net.addresses import Address
from kquota.net.exposition import CONTENT_TYPE, Exposition
from kquota.net.http_server import HttpAnswer, open_http_server
from kquota.stores.feed import QuotaFeed

__all__ = ["Operations", "serve_operations"]

_log = structlog.get_logger("kquota.gateway")

SLICE_MS: Final = 0.5
PAUSE_S: Final = 0.001
CLOSE_S: Final = 1.0
T = TypeVar("T")

_JSON_LINES: Final = "application/jsonl; charset=utf-8"


class Operations:
    """Answers the three, for one gateway, whether it listens or not."""

    def __init__(self, gateway: Gateway, feed: QuotaFeed, *, clock: Clock | None = None) -> None:
        self._gateway = gateway
        self._feed = feed
        self._clock = clock or SystemClock()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._writing: asyncio.Task[bytes] | None = None
        self.lag = LoopLag(self._clock)

    def answer(self, path: str) -> HttpAnswer | Awaitable[HttpAnswer] | None:
        """As :data:`~kquota.net.http_server.HttpHandler`."""
        match path:
            case "/metrics":
                return self._answer_metrics()
            case "/healthz":
                return HttpAnswer(b"ok\n")
            case "/readyz":
                checks = self.checks()
                status = HTTPStatus.OK if is_ready(checks) else HTTPStatus.SERVICE_UNAVAILABLE
                return HttpAnswer(to_lines(checks).encode(), _JSON_LINES, status)
            case _:
                return None

    def checks(self) -> list[Check]:
        """What ``/readyz`` looks at."""
        gateway = self._gateway
        return [
            check_listening(is_listening=gateway.is_listening, is_draining=gateway.is_draining),
            check_brokers(gateway.topology_age_s, gateway.settings.metadata_max_age_ms),
            check_quotas(self._feed),
        ]

    async def metrics(self) -> bytes:
        """The text for Prometheus."""
        page = Exposition()
        async for _ in self._in_slices(self._steps(page)):
            pass
        parts = [part async for part in self._in_slices(page.parts())]
        # Its files are counted one by one, which the system does without the interpreter's lock.
        return b"".join([*parts, await asyncio.to_thread(generate_latest, self._process)])

    def _steps(self, page: Exposition) -> Steps:
        gateway, feed = self._gateway, self._feed
        age_s = gateway.topology_age_s
        write_followed(
            page,
            feed,
            in_force=len(gateway.quotas.values),
            brokers=len(gateway.current_brokers),
            topology_age_s=float("inf") if age_s is None else age_s,
        )
        self.lag.write(page)
        yield from write_connections(page, gateway.listeners, gateway.closing_brokers)
        write_stats(page, gateway.stats, is_shadow=gateway.quotas.is_shadow, is_ready=is_ready(self.checks()))
        loop = asyncio.get_running_loop()
        yield from write_quotas(
            page, gateway.quotas, lambda: int(loop.time() * 1000), gateway.settings.metrics_top_clients
        )

    async def _in_slices(self, steps: Iterator[T]) -> AsyncIterator[T]:
        """The same, with pauses in which the loop does something else."""
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for step in steps:
            yield step
            if self._clock.monotonic_ms() >= until_ms:
                await asyncio.sleep(PAUSE_S)
                until_ms = self._clock.monotonic_ms() + SLICE_MS

    async def _answer_metrics(self) -> HttpAnswer:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self.metrics())
            self._writing.add_done_callback(self._written)
        # Another one may wait for it, too: who goes away does not end it.
        return HttpAnswer(await asyncio.shield(self._writing), CONTENT_TYPE)

    def _written(self, task: asyncio.Task[bytes]) -> None:
        self._writing = None
        if not task.cancelled():
            task.exception()  # whoever still waits for it hears of it


@asynccontextmanager
async def serve_operations(gateway: Gateway, feed: QuotaFeed, listen: Address) -> AsyncIterator[Address]:
    """Answer on an address, which is given: with the port that port 0 became.

    :raises KquotaError: the address cannot be listened on.
    """
    operations = Operations(gateway, feed)
    try:
        listener = await open_http_server(operations.answer, listen.host, listen.port)
    except OSError as error:
        raise KquotaError(
            f"cannot serve metrics on {listen}: {error.strerror or error}; give another `metrics` HOST:PORT"
        ) from error
    address = Address(*listener.address)
    _log.info(f"metrics on {address}")
    watching = asyncio.get_running_loop().create_task(operations.lag.watch())
    try:
        yield address
    finally:
        watching.cancel()
        await listener.close(within_s=CLOSE_S)
