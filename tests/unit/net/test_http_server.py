"""The HTTP that monitoring speaks: what is answered, and what is refused before it costs anything."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from kquota.net.http_server import HTTP_LIMITS, HttpAnswer, open_http_server
from kquota.net.listener import Listener

BIG = bytes(3_000_000)


async def later() -> HttpAnswer:
    await asyncio.sleep(0)
    return HttpAnswer(b"later", "text/x-later")


def handler(path: str) -> HttpAnswer | Awaitable[HttpAnswer] | None:
    match path:
        case "/now":
            return HttpAnswer(b"now")
        case "/later":
            return later()
        case "/big":
            return HttpAnswer(BIG)
        case "/broken":
            raise RuntimeError("secret")
        case _:
            return None


@contextlib.asynccontextmanager
async def serving(**limits: int) -> AsyncIterator[Listener]:
    listener = await open_http_server(handler, "127.0.0.1", 0, limits=replace(HTTP_LIMITS, **limits))
    try:
        yield listener
    finally:
        await listener.close(within_s=0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(in_time())


async def until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 (the listener tells nobody)
        await asyncio.sleep(0.001)


async def sent(listener: Listener, data: bytes) -> bytes:
    """All that comes back, until the server has closed its side."""
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(data)
    found = await reader.read()
    writer.close()
    return found


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 ")
    return int(answer.split(b" ", 2)[1])


def ask(listener: Listener, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """By the HTTP client of the standard library, in another thread."""
    connection = http.client.HTTPConnection(*listener.address, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/now", (200, b"now")),
        ("GET", "/now?a=b", (200, b"now")),
        ("GET", "/later", (200, b"later")),
        ("GET", "/big", (200, BIG)),
        ("HEAD", "/later", (200, b"")),
        ("GET", "/other", (404, b"not found\n")),
        ("HEAD", "/other", (404, b"")),
        ("POST", "/now", (405, b"method not allowed\n")),
        ("DELETE", "/other", (405, b"method not allowed\n")),
    ],
)
def test_requests_of_a_real_client(method: str, path: str, expected: tuple[int, bytes]) -> None:
    async def scenario() -> None:
        async with serving() as listener:
            code, headers, body = await asyncio.to_thread(ask, listener, method, path)
            assert (code, body) == expected
            assert headers["Connection"] == "close"
            assert headers.get("Allow") == ("GET, HEAD" if code == 405 else None)

    run(scenario())


def test_head_says_how_long_the_body_would_be() -> None:
    async def scenario() -> None:
        async with serving() as listener:
            _, headers, body = await asyncio.to_thread(ask, listener, "HEAD", "/big")
            assert (headers["Content-Length"], body) == (str(len(BIG)), b"")

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET http://elsewhere/now HTTP/1.1\r\n\r\n", 200),
        (b"GET /now HTTP/1.0\r\n\r\n", 200),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (b"GET /now\r\n\r\n", 400),
        (b"GET /now GOPHER/1.1\r\n\r\n", 400),
        (b"GET  /now HTTP/1.1\r\n\r\n", 400),
        (b"GET http://[::1/now HTTP/1.1\r\n\r\n", 400),
        (b"\xff\xfe /now HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x00\x00\x00\x10\x00\x12\x00\x00\r\n\r\n", 400),
        (b"GET /now HTTP/1.1\r\nX: " + b"a" * 9000, 431),
        (b"GET /now HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"POST /now HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000), 405),
    ],
)
def test_odd_and_hostile_requests_have_an_answer_that_arrives(request_bytes: bytes, expected: int) -> None:
    async def scenario() -> None:
        async with serving() as listener:
            assert status(await sent(listener, request_bytes)) == expected

    run(scenario())


def test_a_request_may_come_byte_by_byte_and_end_the_client_s_side() -> None:
    async def scenario() -> None:
        async with serving() as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            for byte in b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n":
                writer.write(bytes([byte]))
                await writer.drain()
            writer.write_eof()
            assert (await reader.read()).endswith(b"\r\n\r\nlater")
            writer.close()

    run(scenario())


def test_a_second_request_on_a_connection_is_not_answered() -> None:
    async def scenario() -> None:
        async with serving() as listener:
            assert (await sent(listener, b"GET /now HTTP/1.1\r\n\r\n" * 2)).count(b"HTTP/1.1") == 1

    run(scenario())


def test_who_never_ends_a_request_is_closed_without_an_answer() -> None:
    async def scenario() -> None:
        async with serving(socket_request_max_ms=40) as listener:
            assert await sent(listener, b"GET /now HTTP/1.1\r\nX: ") == b""

    run(scenario())


def test_who_does_not_take_the_answer_is_closed() -> None:
    async def scenario() -> None:
        async with serving(socket_request_max_ms=40) as listener:
            _, writer = await asyncio.open_connection(*listener.address, limit=1)
            writer.write(b"GET /big HTTP/1.1\r\n\r\n")
            await until(lambda: listener.count == 1)
            await until(lambda: listener.count == 0)
            writer.close()

    run(scenario())


def test_connections_beyond_the_limit_are_closed() -> None:
    async def scenario() -> None:
        async with serving(max_connections=1) as listener:
            _, first = await asyncio.open_connection(*listener.address)
            await until(lambda: listener.count == 1)
            reader, second = await asyncio.open_connection(*listener.address)
            assert await reader.read() == b""
            first.close()
            second.close()

    run(scenario())


def test_a_mistake_of_the_handler_is_500_and_says_nothing() -> None:
    async def scenario() -> None:
        heard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        async with serving() as listener:
            answer = await sent(listener, b"GET /broken HTTP/1.1\r\n\r\n")
            assert status(answer) == 500
            assert b"secret" not in answer
        assert [str(one["exception"]) for one in heard] == ["secret"]

    run(scenario())
