"""A proxy that copies bytes and looks at none: as fast as one in Python's event loop can be.

Writes ``listening on HOST:PORT`` and copies until it is ended. It stops to read from one side while the other has not
taken what it was given, as a gateway has to.

Usage: ``python -m benchmarks.blind_copy UPSTREAM_HOST:PORT [--certificate PEM]`` (with a certificate and its key it
speaks TLS with clients).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import ssl
from pathlib import Path
from typing import Final, cast

import uvloop

BACKLOG: Final = 4096
HIGH_WATER: Final = 1 << 20


class Side(asyncio.Protocol):
    """One connection of the two; what comes before the other is there waits."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Side | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # which uvloop's is, without deriving from it
        self.transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        if self.peer is None or self.peer.transport is None:
            self.early.append(data)
        else:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


class Client(Side):
    """The side of a client: it makes the other one."""

    def __init__(self, upstream: tuple[str, int], tasks: set[asyncio.Task[None]]) -> None:
        super().__init__()
        self._upstream = upstream
        self._tasks = tasks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        _, upstream = await asyncio.get_running_loop().create_connection(Side, *self._upstream)
        assert upstream.transport is not None
        assert self.transport is not None
        upstream.peer, self.peer = self, upstream
        if self.early:
            upstream.transport.write(b"".join(self.early))
            self.early.clear()
        if self.transport.is_closing():
            upstream.transport.close()


async def serve(upstream: tuple[str, int], certificate: Path | None) -> None:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: Client(upstream, tasks), "127.0.0.1", 0, backlog=BACKLOG, ssl=context
    )
    print("listening on {}:{}".format(*server.sockets[0].getsockname()[:2]), flush=True)
    gc.freeze()
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blind_copy", description=__doc__.split("\n\n")[0])
    parser.add_argument("upstream")
    parser.add_argument("--certificate", type=Path, help="PEM with key and certificate, for TLS with clients")
    options = parser.parse_args()
    host, _, port = options.upstream.rpartition(":")
    uvloop.run(serve((host, int(port)), options.certificate))


if __name__ == "__main__":
    main()
