"""Frames that no client should send, by seed: mutated requests, noise, other protocols, broken sizes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

import msgspec

from kquota.errors import ProtocolError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity
from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    METADATA,
    RESOLVE_CLIENT_QUOTAS,
    RESOLVE_QUOTAS,
    Api,
    read_request,
    write_request,
)
from kquota.wire.messages.api_versions import ApiVersionsRequest
from kquota.wire.messages.client_quotas import (
    Alteration,
    AlterClientQuotasRequest,
    Component,
    DescribeClientQuotasRequest,
    EntityPart,
    Op,
)
from kquota.wire.messages.describe_cluster import DescribeClusterRequest
from kquota.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kquota.wire.messages.resolve_client_quotas import NamedPart, ResolveClientQuotasRequest, ResolveQuotasRequest
from kquota.wire.messages.scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kquota.wire.primitives import uvarint

__all__ = [
    "Outcome",
    "costly_requests",
    "decoded",
    "hostile_frames",
    "mutants",
    "poisonous_request",
    "requests",
    "rules_for_costly_requests",
    "send_and_end",
]

_SIZE: Final = 4
_EXTREMES: Final = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\0",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff" * 10,
)
_GARBAGE: Final = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\0",
    b"\x00\x63\xff\xff" + b"\0" * 40,
)


def requests() -> list[bytes]:
    """One valid request of each API and version, sizes included; none changes anything."""
    parts = [EntityPart("user", "mallory"), EntityPart("client-id", None)]
    ops = [Op("producer_byte_rate", 1e6, remove=False), Op("consumer_byte_rate", 0.0, remove=True)]
    named = [NamedPart("user", "mallory"), NamedPart("client-id", "tool")]
    components = [Component("user", 0, "mallory"), Component("client-id", 1, None)]
    bodies: list[tuple[Api, msgspec.Struct]] = [
        (API_VERSIONS, ApiVersionsRequest("hostile", "1.0")),
        (METADATA, MetadataRequest([MetadataRequestTopic(name="topic")])),
        (DESCRIBE_CLUSTER, DescribeClusterRequest()),
        (DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components, strict=False)),
        (ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest([Alteration(parts, ops)] * 3, validate_only=True)),
        (DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest([UserName("mallory")])),
        (RESOLVE_CLIENT_QUOTAS, ResolveClientQuotasRequest(named)),
        (RESOLVE_QUOTAS, ResolveQuotasRequest([ResolveClientQuotasRequest(named)] * 2, include_overridden=True)),
    ]
    return [
        write_request(api, version, 7, "client", body)
        for api, body in bodies
        for version in range(api.min_version, api.max_version + 1)
    ]


def mutants(seed: int, count: int) -> Iterator[bytes]:
    """Requests without their sizes, each changed in one to eight places."""
    random = Random(seed)
    originals = [request[_SIZE:] for request in requests()]
    for _ in range(count):
        yield _mutated(random.choice(originals), random, originals)


def _mutated(original: bytes, random: Random, originals: list[bytes]) -> bytes:
    frame = bytearray(original)
    for _ in range(random.randrange(1, 9)):
        at = random.randrange(len(frame) + 1)
        match random.randrange(8):
            case 0 | 1 | 2 if at < len(frame):
                frame[at] = random.randrange(256)
            case 3 if at < len(frame):
                frame[at] ^= 1 << random.randrange(8)
            case 4:
                del frame[at : at + random.randrange(1, 6)]
            case 5:
                extreme = random.choice(_EXTREMES)
                frame[at : at + len(extreme)] = extreme
            case 6:
                frame[at:at] = random.randbytes(random.randrange(1, 6))
            case _:
                other = random.choice(originals)
                frame[at:] = other[random.randrange(len(other)) :]
    return bytes(frame)


def decoded(frame: bytes) -> bool:
    """Whether the frame is a request; otherwise the decoder says why in the one way it may.

    Any other exception is a mistake of the decoder's, and comes out.
    """
    try:
        read_request(frame)
    except ProtocolError:
        return False
    return True


def hostile_frames(seed: int, count: int) -> Iterator[bytes]:
    """Bytes for a socket: mutants with a right size, with a wrong one, cut short, and what is no Kafka at all."""
    random = Random(seed)
    for frame in mutants(seed + 1, count):
        match random.randrange(10):
            case 0:
                yield random.choice(_GARBAGE)
            case 1:
                yield random.randbytes(random.randrange(1, 200))
            case 2:
                size = max(0, len(frame) + random.randrange(-20, 20))
                yield size.to_bytes(_SIZE, "big") + frame
            case 3:
                whole = len(frame).to_bytes(_SIZE, "big") + frame
                yield whole[: random.randrange(len(whole))]
            case _:
                yield len(frame).to_bytes(_SIZE, "big") + frame


def poisonous_request(random: Random) -> bytes:
    """An alteration, size included, that brings a name of thousands of bytes, most often of invalid UTF-8."""
    size = random.choice([10_922, 10_923, 16_384, 32_766, 32_767, 32_768, random.randrange(10_000, 40_000)])
    long = random.choice([b"\xff", b"\x80", b"\xed\xa0", b"x", "é".encode(), "😀".encode()]) * size
    names = [b"user", b"n%d" % random.randrange(10**6), b"producer_byte_rate"]
    at = random.randrange(3)
    names[at] = (names[at] if at == 1 else b"") + long[: size - len(names[1])]
    kind, name, key = (uvarint(len(one) + 1) + one for one in names)
    value = b"\x40" + bytes(7) + b"\0"
    return _flexible(49, 1, _list([b"\x02" + kind + name + b"\0\x02" + key + value + b"\0\0"]) + b"\0\0")


def costly_requests(max_bytes: int, max_elements: int) -> dict[str, bytes]:
    """Requests within the limits, sizes included, by what they hold: each makes the most of one limit.

    What costs a server much more than the bytes that were sent are empty elements, and names that grow when they are
    read.
    """
    # An invalid byte is read as U+FFFD, which has three: the longest name that can be answered has 10,922 of them.
    long_names = [b"\xab\x55" + b"%06d" % number + b"\xff" * 10_916 for number in range(max_bytes // 11_000)]
    users = [b"\x02\x05user" + name + b"\0" for name in long_names]
    op = b"\x02\x02k" + b"\0" * 8 + b"\0\0"
    client = b"\x03\x05user\x02a\0\x0aclient-id\x02b\0\0"
    return {
        "alter, empty entities": _flexible(49, 1, _list([b"\x01\x01\0"] * max_elements) + b"\0\0"),
        "alter, long names": _flexible(49, 1, _list([user + b"\x01\0" for user in users]) + b"\x01\0"),
        "alter, long names refused": _flexible(49, 1, _list([user + op + b"\0" for user in users]) + b"\x01\0"),
        "describe, empty components": _flexible(48, 1, _list([b"\x01\0\0\0"] * max_elements) + b"\0\0"),
        "describe, long names": _flexible(48, 1, _list([b"\x05user\0" + one + b"\0" for one in long_names]) + b"\0\0"),
        "metadata, empty names": _flexible(3, 9, _list([b"\x01\0"] * max_elements) + b"\0\0\0\0"),
        "metadata, long names": _flexible(3, 9, _list([name + b"\0" for name in long_names]) + b"\0\0\0\0"),
        "credentials, empty names": _flexible(50, 0, _list([b"\x01\0"] * max_elements) + b"\0"),
        "credentials, long names": _flexible(50, 0, _list([name + b"\0" for name in long_names]) + b"\0"),
        "resolve, empty entities": _flexible(10546, 0, _list([b"\x01\0"] * max_elements) + b"\0\0"),
        "resolve, long names": _flexible(10546, 0, _list([user + b"\0" for user in users]) + b"\x01\0"),
        "resolve, a thousand clients": _flexible(10546, 0, _list([client] * 1_000) + b"\x01\0"),
    }


def _flexible(key: int, version: int, body: bytes) -> bytes:
    payload = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\1x\0" + body
    return len(payload).to_bytes(_SIZE, "big") + payload


def _list(elements: list[bytes]) -> bytes:
    return uvarint(len(elements) + 1) + b"".join(elements)


def rules_for_costly_requests() -> list[ClientQuotaAlteration]:
    """Rules that make an answer to the resolves among them as large as it gets: all levels, with long names."""
    names = ("a", "000000" + "\ufffd" * 10_916, None)
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    ops = [ClientQuotaAlteration.Op(key, 1000.0) for key in keys]
    entities: list[dict[str, str | None]] = []
    for name in names:
        entities += [{"user": name}, {"client-id": "b" if name == "a" else name}]
        entities += [{"user": name, "client-id": other} for other in ("b", *names[1:])]
    return [ClientQuotaAlteration(ClientQuotaEntity(entity), ops) for entity in entities]


class Outcome(NamedTuple):
    """How a connection ended: answers that came, and whether the end came from the server in time."""

    answers: int
    ended: bool


def send_and_end(address: tuple[str, int], frames: list[bytes], *, patience_s: float) -> Outcome:
    """Send all on a connection of their own, say that no more comes, and read until the server closes it."""
    received = bytearray()
    with socket.create_connection(address, timeout=patience_s) as peer:
        try:
            # The server may have closed it already because of the first of them.
            with suppress(ConnectionError):
                peer.sendall(b"".join(frames))
                peer.shutdown(socket.SHUT_WR)
            while part := peer.recv(65536):
                received += part
        except TimeoutError:
            return Outcome(_count(received), ended=False)
        except ConnectionError:
            pass  # closed while bytes of ours were unread: TCP says that with a reset
    return Outcome(_count(received), ended=True)


def _count(received: bytearray) -> int:
    """The whole answers in it.

    :raises AssertionError: what stands there is no answer.
    """
    at = count = 0
    while at + _SIZE <= len(received):
        size = int.from_bytes(received[at : at + _SIZE], "big", signed=True)
        assert 4 <= size < 1 << 26, size
        at += _SIZE + size
        count += at <= len(received)
    return count
