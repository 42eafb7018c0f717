"""A broker that answers as it was written, for clients that meet what no honest broker sends."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Mapping
from threading import Thread

from msgspec import Struct

from kquota.wire.apis import API_VERSIONS, APIS, METADATA, write_response
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kquota.wire.messages.metadata import MetadataBroker, MetadataResponse

__all__ = ["scripted_broker"]


@contextlib.contextmanager
def scripted_broker(answers: Mapping[int, Struct], *, advertised: tuple[str, int] | None = None) -> Iterator[str]:
    """Its address, ``host:port``. To each API key it sends the same answer.

    :param advertised: the address that its metadata give, instead of its own.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    metadata = MetadataResponse(0, [MetadataBroker(1, *(advertised or (host, port)))], "scripted", 1, [])
    all_answers = {METADATA.key: metadata, **answers}
    spoken = [ApiVersion(key, APIS[key].min_version, APIS[key].max_version) for key in (API_VERSIONS.key, *all_answers)]
    all_answers[API_VERSIONS.key] = ApiVersionsResponse(0, spoken)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                Thread(target=_answer, args=(client, all_answers), daemon=True).start()

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"{host}:{port}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _answer(client: socket.socket, answers: Mapping[int, Struct]) -> None:
    with contextlib.suppress(OSError), client, client.makefile("rb") as sent:
        while size := sent.read(4):
            frame = sent.read(int.from_bytes(size, "big"))
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            client.sendall(write_response(APIS[key], version, correlation_id, answers[key]))
