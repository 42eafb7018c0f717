"""A quota server in a thread of its own, for tests of clients that block."""

import asyncio
import contextlib
from collections.abc import Iterator
from threading import Thread
from typing import Any

from kquota.net.addresses import Address
from kquota.server.app import QuotaServer, ServerSettings
from kquota.stores.local import LocalStore


@contextlib.contextmanager
def running_server(store: LocalStore, *, port: int = 0, **settings: Any) -> Iterator[Address]:
    """The address of a server of `store`, which is stopped at the end."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="quota-server", daemon=True)
    thread.start()
    server = QuotaServer(store, ServerSettings(Address("127.0.0.1", port), **settings))
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(30)
    try:
        yield server.address
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
