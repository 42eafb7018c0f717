"""Requests of all kinds and their answers, and a broker that gives them, for a connection of the gateway.

:func:`exchanged` sends them through it, cut anywhere and in any turn, with either end not reading now and then.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any, Final, NamedTuple

from kquota.gateway.relay.actions import ACTIONS, Action, Kind
from tests.kit.actions import known_action
from tests.kit.kio_entities import element_class, entity_class, is_known, least, request_frame, response_frame
from tests.kit.relayed import Relayed, answer, request

__all__ = ["Exchange", "any_exchanges", "exchange", "exchanged"]

BROKERS: Final = ((1, "b1.example", 9092), (2, "b2.example", 9092), (3, "", 65535))


class Exchange(NamedTuple):
    """A request, and what the broker answers, None where it does not; both as frames."""

    request: bytes
    answer: bytes | None
    passed_on: Callable[[Relayed], bytes | None]
    """What the client is to get."""


def any_exchanges(
    random: Random, count: int, kinds: Iterable[Kind] = tuple(Kind), *, largest: int = 5_000
) -> list[Exchange]:
    """One for each correlation id from 1 on."""
    actions = [one for one in ACTIONS.values() if one.kind in kinds and one.kind not in _LOGIN and one.api_key != 10546]
    # Half of all are what half of all are.
    common = [one for one in actions if one.kind in (Kind.PRODUCE, Kind.FETCH)] or actions
    chosen = [random.choice(random.choice((actions, common))) for _ in range(count)]
    return [exchange(one, number + 1, random, largest=largest) for number, one in enumerate(chosen)]


_LOGIN: Final = (Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE)


def exchange(action: Action, correlation_id: int, random: Random, *, largest: int = 5_000) -> Exchange:
    """One of a kind, with bodies of not many more bytes."""
    client_id = random.choice(("c", "another", "", None))
    size = min(random.choice((0, 1, 3, 5, 40, 300, 5_000)), largest)
    body = random.randbytes(size)
    match action.kind:
        case Kind.PRODUCE:
            return _produce(action, correlation_id, random, body, client_id)
        case Kind.FETCH:
            at = struct.pack(">iii", -1, 500, 1) if action.version < 15 else struct.pack(">ii", 500, 1)
            most = struct.pack(">i", 50_000_000) if action.version >= 3 else b""
            asked = request(1, action.version, correlation_id, _tags(action) + at + most + body, client_id)
            return _unchanged(asked, answer(correlation_id, _answer_tags(action) + bytes(4) + random.randbytes(size)))
        case Kind.BROKERS | Kind.COORDINATOR | Kind.API_VERSIONS:
            return _of_kio(action, correlation_id, random.randrange(4))
        case _:
            asked = request(action.api_key, action.version, correlation_id, _tags(action) + body, client_id)
            return _unchanged(
                asked, answer(correlation_id, random.randbytes(min(random.choice((0, 1, 2, 30, 2_000)), largest)))
            )


def _unchanged(asked: bytes, answered: bytes | None) -> Exchange:
    return Exchange(asked, answered, lambda _: answered)


def _tags(action: Action) -> bytes:
    return b"\0" if action.is_flexible else b""


def _answer_tags(action: Action) -> bytes:
    return b"\0" if action.has_tagged_header else b""


def _produce(action: Action, correlation_id: int, random: Random, records: bytes, client_id: str | None) -> Exchange:
    name = random.choice((b"", b"t", b"t" * 100))
    if action.version < 3:
        transactional_id = b""
    elif action.is_flexible:
        transactional_id = bytes([len(name) + 1]) + name if name else b"\0"
    else:
        transactional_id = struct.pack(">h", len(name)) + name if name else b"\xff\xff"
    acks = random.choice((-1, -1, 1, 0))
    body = _tags(action) + transactional_id + struct.pack(">hi", acks, 30_000) + records
    asked = request(0, action.version, correlation_id, body, client_id)
    if acks == 0:
        return _unchanged(asked, None)
    if action.version >= 10 and random.random() < 0.5:
        return _of_kio(action, correlation_id, random.randrange(3))._replace(request=asked)
    throttle = struct.pack(">i", 0) if action.version >= 1 else b""
    no_topics = b"\1" if action.is_flexible else bytes(4)
    return _unchanged(asked, answer(correlation_id, _answer_tags(action) + no_topics + throttle + _tags(action)))


def _of_kio(action: Action, correlation_id: int, brokers: int) -> Exchange:
    if not is_known(action.api_key, action.version):
        return _unchanged(
            request(action.api_key, action.version, correlation_id, _tags(action)),
            answer(correlation_id, _smallest_answer(action)),
        )
    asked, answered = _frames(action, brokers)
    number = correlation_id.to_bytes(4, "big")

    def passed_on(relayed: Relayed) -> bytes:
        places = tuple(relayed.topology.address_of(*one) or ("", 0) for one in BROKERS[:brokers])
        _, written = _frames(action, brokers, places)
        return written[:4] + number + written[8:]

    return Exchange(asked[:8] + number + asked[12:], answered[:4] + number + answered[8:], passed_on)


def _smallest_answer(action: Action) -> bytes:
    """Of the versions that Kafka 4.0 removed."""
    match action.kind:
        case Kind.BROKERS:
            return bytes(40)  # nothing but zeros: no brokers
        case Kind.API_VERSIONS:
            return bytes(10)
        case _:
            return bytes(4) + bytes(2) + struct.pack(">ihi", -1, 0, -1)


@cache
def _frames(action: Action, brokers: int, places: tuple[tuple[str, int], ...] = ()) -> tuple[bytes, bytes]:
    """A request and its answer that names the first of the brokers, or those at other places."""
    kind = entity_class(action.api_key, action.version, "response")
    nodes = [
        (node_id, *(places[at] if places else (host, port)))
        for at, (node_id, host, port) in enumerate(BROKERS[:brokers])
    ]
    given: dict[str, Any] = {}
    match action.kind:
        case Kind.API_VERSIONS:
            of_kio = element_class(kind, "api_keys")
            found = [known_action(3, 1), known_action(12, 0), known_action(18, 0)]
            given["api_keys"] = tuple(
                least(of_kio, api_key=one.api_key, min_version=one.version, max_version=one.version + 1)
                for one in found
            )
        case Kind.PRODUCE:
            given["node_endpoints"] = _nodes(element_class(kind, "node_endpoints"), nodes)
        case Kind.COORDINATOR if action.version >= 4:
            given["coordinators"] = _nodes(element_class(kind, "coordinators"), nodes)
        case Kind.COORDINATOR:
            node_id, host, port = nodes[0] if nodes else (-1, "", -1)
            given |= {"node_id": node_id, "host": host, "port": port}
        case _:
            given["brokers"] = _nodes(element_class(kind, "brokers"), nodes)
    asked = request_frame(least(entity_class(action.api_key, action.version, "request")), client_id=b"c")
    return asked, response_frame(least(kind, **given))


def _nodes(kind: Any, nodes: list[tuple[int, str, int]]) -> tuple[Any, ...]:
    id_field = next(one.name for one in dataclasses.fields(kind) if one.name in ("node_id", "broker_id"))
    return tuple(least(kind, **{id_field: node_id, "host": host, "port": port}) for node_id, host, port in nodes)


class Exchanged(NamedTuple):
    """What came through."""

    at_broker: bytes
    at_client: bytes


async def exchanged(
    relayed: Relayed, exchanges: list[Exchange], random: Random, largest_piece: int, *, waits: bool = False
) -> Exchanged:
    """Send all requests and answers through a connection, as it lets itself be read.

    The broker answers a request some time after all of it came, and requests in their order.

    :param waits: time passes now and then.
    :raises AssertionError: a request came to the broker while its client was to wait.
    """
    asking = b"".join(one.request for one in exchanges)
    waiting = list(exchanges)
    at_broker, at_client, unread, answering = bytearray(), bytearray(), bytearray(), bytearray()
    ends = list(accumulate(len(one.request) for one in exchanges))
    idle, was_muted = 0, False
    broker_full = client_full = False
    while idle < 300 and (asking or waiting or answering):
        idle += 1
        at_client += relayed.to_client.take()
        got = relayed.to_broker.take()
        is_muted = relayed.client.now_ms < relayed.client._muted_until_ms
        if got and was_muted and is_muted:  # it can only be the rest of a request
            assert len(at_broker) + len(got) <= next(end for end in ends if end >= len(at_broker))
        was_muted = is_muted
        at_broker += got
        unread += got
        size = random.randrange(1, largest_piece + 1)
        match random.randrange(6):
            case 0 | 1 if asking and not relayed.to_client.is_paused:
                relayed.client.data_received(asking[:size])
                asking = asking[size:]
            case 2 if waiting and len(unread) >= len(waiting[0].request):
                one = waiting.pop(0)
                del unread[: len(one.request)]
                answering += one.answer or b""
            case 3 | 4 if answering and not relayed.to_broker.is_paused:
                assert relayed.broker is not None
                relayed.broker.data_received(bytes(answering[:size]))
                del answering[:size]
            case _:
                if random.randrange(4) == 0 and relayed.broker is not None:
                    if random.randrange(2):
                        broker_full = not broker_full
                        (relayed.broker.pause_writing if broker_full else relayed.broker.resume_writing)()
                    else:
                        client_full = not client_full
                        (relayed.client.pause_writing if client_full else relayed.client.resume_writing)()
                await relayed.settle(random.randrange(3))
                if waits and random.randrange(3) == 0:
                    await asyncio.sleep(random.choice((0.001, 0.1, 3.0, 1_000.0)))
                continue
        idle = 0
    await relayed.settle()
    return Exchanged(bytes(at_broker), bytes(at_client + relayed.to_client.take()))
