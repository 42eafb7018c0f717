"""A small HTTP server for what monitoring asks: ``GET`` and ``HEAD`` of a few paths, one request on each connection.

Whoever can connect may ask, so what a client can make this process do is bounded: the connections, the bytes of a
request, and the time for a request and for taking its answer. Bodies of requests are refused with the method that would
have one.

::

    bytes -> head of at most 8 KiB -> handler -> answer, "Connection: close" -> the rest that comes is dropped
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from kquota.config import ConnectionLimits
from kquota.net.listener import Listener, Peer

__all__ = ["HTTP_LIMITS", "HttpAnswer", "HttpHandler", "open_http_server"]

HTTP_LIMITS: Final = ConnectionLimits(
    socket_request_max_bytes=8 * 1024,
    socket_request_max_ms=10_000,
    max_connections=32,
    max_connections_per_ip=32,
    connections_max_idle_ms=30_000,
)
_TEXT: Final = "text/plain; charset=utf-8"


class HttpAnswer(NamedTuple):
    """What is answered to a request."""

    body: bytes
    content_type: str = _TEXT
    status: HTTPStatus = HTTPStatus.OK


HttpHandler = Callable[[str], HttpAnswer | Awaitable[HttpAnswer] | None]
"""Answers a path (without the query), at once or later; None where there is nothing of this path.

Where it raises, the answer is 500 without a reason, and the event loop's exception handler hears of it.
"""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, header: str = "") -> None:
        self.status = status
        self.header = header


class _Connection(asyncio.Protocol):
    def __init__(self, listener: Listener, handler: HttpHandler) -> None:
        self._listener = listener
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._is_asked = self._is_answered = self._has_ended = False
        self._answering: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self.peer = Peer("", "")
        self.last_active = 0.0
        self.incomplete_since: float | None = None
        """Since when the request, and then the taking of its answer, is waited for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.last_active = self.incomplete_since = self._listener.now()
        self._listener.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answering is not None:
            self._answering.cancel()
        self._listener.remove(self, self._failure or exc)

    def data_received(self, data: bytes) -> None:
        if self._is_asked:
            return
        self._received += data
        end = _end_of_head(self._received)
        most = self._listener.limits.socket_request_max_bytes
        if end < 0 and len(self._received) <= most:
            return
        self._is_asked = True
        if end < 0 or end > most:
            self._send(_refusal(_Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))
            return
        head = bytes(self._received[:end])
        self._received.clear()
        self.incomplete_since = None  # the handler's time is not the client's
        self._answering = asyncio.get_running_loop().create_task(self._answer(head))

    def eof_received(self) -> bool:
        # A client may close its side after its request.
        self._has_ended = True
        return self._is_asked and not self._is_answered

    def end(self) -> None:
        """Close, after an answer that is being made."""
        if self._transport is not None and self._answering is None:
            self._transport.close()

    def abort(self, reason: Exception | None = None) -> None:
        """Close now."""
        self._failure = self._failure or reason
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, head: bytes) -> None:
        try:
            method, path = _read_head(head)
            answer = self._handler(path)
            if answer is not None and not isinstance(answer, HttpAnswer):
                answer = await answer
        except _Refused as refused:
            self._send(_refusal(refused))
        except Exception as error:  # noqa: BLE001 (a mistake of ours costs this answer)
            context = {"message": "a request over HTTP could not be answered", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            self._send(_refusal(_Refused(HTTPStatus.INTERNAL_SERVER_ERROR)))
        else:
            if answer is None:
                answer = HttpAnswer(b"not found\n", status=HTTPStatus.NOT_FOUND)
            self._send(_written(answer), with_body=method != "HEAD")
        finally:
            self._answering = None

    def _send(self, parts: tuple[bytes, bytes], *, with_body: bool = True) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._is_answered = True
        self.last_active = self.incomplete_since = self._listener.now()
        self._transport.write(parts[0])
        if with_body:
            self._transport.write(parts[1])
        if self._has_ended:
            self._transport.close()
            return
        # Closed once the client has closed its side, or its time is over: at once, with something of it unread, the
        # system would drop what is on its way to it.
        self._transport.write_eof()


async def open_http_server(
    handler: HttpHandler, host: str, port: int, *, limits: ConnectionLimits = HTTP_LIMITS
) -> Listener:
    """Listen on a host; port 0 is any free one.

    :param limits: ``socket_request_max_bytes`` is of a request's head, ``socket_request_max_ms`` of its arrival, and of
        its answer's.
    :raises OSError: an address cannot be listened on.
    """
    return await Listener.open(lambda listener: _Connection(listener, handler), host, port, limits=limits)


def _end_of_head(received: bytearray) -> int:
    """Where the head of a request ends; -1 while it does not."""
    return received.find(b"\r\n\r\n")


def _read_head(head: bytes) -> tuple[str, str]:
    """The method and the path of a request."""
    try:
        method, target, version = head.partition(b"\r\n")[0].decode("ascii").split(" ")
        path = urlsplit(target).path
    except ValueError:
        raise _Refused(HTTPStatus.BAD_REQUEST) from None
    if not version.startswith("HTTP/"):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    if not version.startswith("HTTP/1."):
        raise _Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    if method not in ("GET", "HEAD"):
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD\r\n")
    return method, path


def _refusal(refused: _Refused) -> tuple[bytes, bytes]:
    return _written(HttpAnswer(f"{refused.status.phrase.lower()}\n".encode(), status=refused.status), refused.header)


def _written(answer: HttpAnswer, header: str = "") -> tuple[bytes, bytes]:
    """The head of an answer, and its body."""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{header}\r\n"
    )
    return head.encode("ascii"), answer.body
