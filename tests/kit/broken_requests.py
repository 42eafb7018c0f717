"""Requests whose bytes are not as a client would write them: some are malformed, some only unusual, and pass."""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from kquota.quotas import CLIENT_ID, USER, MatchType
from kquota.wire.apis import ALTER_CLIENT_QUOTAS, API_VERSIONS, DESCRIBE_CLIENT_QUOTAS, DESCRIBE_USER_SCRAM_CREDENTIALS
from kquota.wire.frames import MAX_FRAME_BYTES
from kquota.wire.messages.client_quotas import Alteration, Component, EntityPart, Op
from kquota.wire.primitives import COMPACT_NULL, NULL_ARRAY, NULL_STRING, compact_text, text, uvarint
from kquota.wire.schema import codec
from tests.kit.request_parts import CLIENT_IDS, USERS, Makers, Parts, Unsent

__all__ = ["MAKERS"]

PLACE: Final = "(place)"
"""Stands in a well-formed body where other bytes are to be."""

NOT_UTF_8: Final = (
    b"\xff",
    b"\x80",
    b"a\x80b",
    b"\xc3",  # ends within a character
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xe2\x82a",
    b"\xf0\x9fa",
    b"\xc0\x80",  # longer than need be
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xed\xa0\x80",  # half a surrogate pair
    b"\xed\xbf\xbf",
    b"\xed\xa0\x80a",
    b"\xed\xa0\x80\xed\xb0\x80",  # a pair, as CESU-8 has it
    b"\xed\xa0",
    b"\xed\xa0a",
    b"\xed",
    b"\xed\xa0\xa0\xa0",
    b"\xf4\x90\x80\x80",  # beyond the last character
    b"\xf8\x88\x80\x80\x80",
    b"\xfe\xff",
)
LEADING_AND_FOLLOWING: Final = b"a\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5\xff"
OTHER_KEYS: Final = (-1, -32768, 93, 999, 32767)
# Neither a length nor null: too long, or beyond what an int holds. The last but one is null where that is allowed.
ODD_LENGTHS: Final = (
    b"\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x80\x80\x80\x80\x08",
    b"\x80\x80\x80\x80\x07",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x88\x80\x80\x80\x10",  # bits beyond the 32nd: eight
)

MAKERS: Final = Makers()
_of_class = MAKERS.of_class


def _text(version: int, value: str) -> bytes:
    return compact_text(value) if version else text(value)


def _bytes_of(version: int, part: Struct) -> bytes:
    return codec(type(part), version, flexible=version > 0).write(part)


def _with(request: Unsent, old: bytes, new: bytes) -> Unsent:
    """The request with other bytes in one place."""
    assert request.body.count(old) == 1
    return Unsent(api_key=request.api_key, version=request.version, body=request.body.replace(old, new))


def _with_place(parts: Parts, *, nullable: bool | None = None, version: int | None = None) -> Unsent:
    """A request whose body holds `PLACE` as one text; `nullable` says whether as one that may be null."""
    nullable = parts.yes() if nullable is None else nullable
    key = PLACE if not nullable and parts.yes() else "producer_byte_rate"
    kind, name = (USER, PLACE) if nullable else (USER if key == PLACE else PLACE, "alice")
    if key == PLACE or parts.yes():
        alteration = Alteration([EntityPart(kind, name)], [Op(key, 1.0, remove=False)])
        return parts.alter(alteration, version=version)
    return parts.describe(Component(kind, MatchType.EXACT, name), version=version)


@_of_class("null entity type")
def _null_entity_type(parts: Parts) -> list[Unsent]:
    if parts.yes():
        request = parts.alter(Alteration([EntityPart(PLACE, "alice")], parts.ops(parts.client())))
    else:
        request = parts.describe(Component(PLACE, MatchType.EXACT, "alice"))
    null = COMPACT_NULL if request.version else NULL_STRING
    return [_with(request, _text(request.version, PLACE), null)]


@_of_class("null where none may be")
def _null(parts: Parts) -> list[Unsent]:
    """Arrays and the key of an op; in the place of a nullable text it is the default, or no name at all."""
    version = parts.version()
    null_array = COMPACT_NULL if version else NULL_ARRAY
    none = b"\1" if version else b"\0\0\0\0"
    op = Op(PLACE, 1.0, remove=False)
    match parts.random.randrange(6):
        case 0:
            request = parts.alter(version=version)
            return [Unsent(api_key=request.api_key, version=version, body=null_array + request.body[len(none) :])]
        case 1:
            request = parts.describe(version=version)
            return [Unsent(api_key=request.api_key, version=version, body=null_array + request.body[len(none) :])]
        case 2:
            found = _bytes_of(version, Alteration([], [op]))
            return [_with(parts.alter(Alteration([], [op]), version=version), found, null_array + found[len(none) :])]
        case 3:
            alteration = Alteration([EntityPart(USER, PLACE)], [])
            part = _bytes_of(version, alteration.entity[0])
            return [_with(parts.alter(alteration, version=version), part + none, part + null_array)]
        case 4:
            request = parts.alter(Alteration(parts.client(), [op]), version=version)
        case _:
            request = _with_place(parts, nullable=True, version=version)
    return [_with(request, _text(version, PLACE), COMPACT_NULL if version else NULL_STRING)]


@_of_class("invalid UTF-8")
def _not_utf_8(parts: Parts) -> list[Unsent]:
    random = bytes(parts.random.choices(LEADING_AND_FOLLOWING, k=parts.random.randint(1, 12)))
    bad = parts.one_of([random, parts.one_of(NOT_UTF_8)])
    request = _with_place(parts)
    length = uvarint(len(bad) + 1) if request.version else struct.pack(">h", len(bad))
    return [_with(request, _text(request.version, PLACE), length + bad)]


@_of_class("booleans other than 0 and 1")
def _odd_booleans(parts: Parts) -> list[Unsent]:
    odd = bytes([parts.random.randint(2, 255)])
    end = b"\0" if (version := parts.version()) else b""
    if parts.yes():
        op = parts.op(entity := parts.client())
        plain = _bytes_of(version, op)
        changed = plain.removesuffix(end)[:-1] + odd + end
        return [_with(parts.alter(Alteration(entity, [op]), version=version), plain, changed)]
    request = parts.one_of([parts.alter(parts.alteration(), version=version), parts.describe(version=version)])
    body = request.body.removesuffix(end)[:-1] + odd + end
    return [Unsent(api_key=request.api_key, version=version, body=body)]


def _tags(parts: Parts) -> bytes:
    """A section of tagged fields that nobody knows: any numbers in any order, also the same one twice."""
    numbers = [parts.one_of([0, 1, 5, 127, 128, 2**31 - 1, 2**32 - 1]) for _ in range(parts.random.randint(1, 4))]
    contents = [parts.random.randbytes(parts.one_of([0, 1, 8, 200])) for _ in numbers]
    fields = (uvarint(number) + uvarint(len(one)) + one for number, one in zip(numbers, contents, strict=True))
    return uvarint(len(numbers)) + b"".join(fields)


@_of_class("tagged fields")
def _tagged_fields(parts: Parts) -> list[Unsent]:
    entity, tags = parts.client(), _tags(parts)
    op, component = parts.op(entity), parts.component(USER)
    alteration = Alteration(entity, [op])
    alter, describe = parts.alter(alteration, version=1), parts.describe(component, version=1)
    match parts.random.randrange(4):
        case 0:
            request = parts.one_of([alter, describe])
            return [
                Unsent(
                    api_key=request.api_key,
                    version=1,
                    body=request.body,
                    header_tags=parts.one_of([tags, _bad_tags(parts)]),
                )
            ]
        case 1:
            request = parts.one_of([alter, describe])
            end = parts.one_of([tags, _bad_tags(parts)])
            return [Unsent(api_key=request.api_key, version=1, body=request.body[:-1] + end)]
        case 2:
            plain = _bytes_of(1, parts.one_of([op, alteration, entity[0]]))
            return [_with(alter, plain, plain[:-1] + tags)]
        case _:
            plain = _bytes_of(1, component)
            return [_with(describe, plain, plain[:-1] + tags)]


def _bad_tags(parts: Parts) -> bytes:
    """A size beyond the end or negative, a number that is too long, fewer fields than announced, a negative count."""
    return parts.one_of(
        [b"\1\0\x7f", b"\1\0\xff\xff\xff\xff\x0f", b"\1\xff\xff\xff\xff\xff\1\0", b"\3\0\0", b"\xff\xff\xff\xff\x0f"]
    )


@_of_class("trailing bytes")
def _trailing_bytes(parts: Parts) -> list[Unsent]:
    request = parts.one_of([parts.alter(parts.alteration()), parts.describe(*parts.components())])
    more = parts.random.randbytes(parts.random.randint(1, 40))
    return [Unsent(api_key=request.api_key, version=request.version, body=request.body + more)]


@_of_class("malformed: cut off")
def _cut_off(parts: Parts) -> list[Unsent]:
    request = parts.one_of([parts.alter(parts.alteration()), parts.describe(*parts.components())])
    end = parts.random.randrange(len(request.body))
    return [Unsent(api_key=request.api_key, version=request.version, body=request.body[:end])]


@_of_class("malformed: lengths")
def _lengths(parts: Parts) -> list[Unsent]:
    """Of texts and arrays: beyond the end, negative, or no number that an int holds."""
    version = parts.version()
    if parts.yes():
        request = _with_place(parts, version=version)
        if version:
            length = parts.one_of([*ODD_LENGTHS, uvarint(len(request.body)), uvarint(32_769)])
        else:
            length = struct.pack(">h", parts.one_of([-2, -32_768, 32_767, len(request.body)]))
        return [_with(request, _text(version, PLACE), length + PLACE.encode())]
    request = parts.one_of([parts.alter(parts.alteration(), version=version), parts.describe(version=version)])
    if version and parts.yes():
        return [Unsent(api_key=DESCRIBE_USER_SCRAM_CREDENTIALS.key, version=0, body=parts.one_of(ODD_LENGTHS) + b"\0")]
    if version:
        count = parts.one_of([*ODD_LENGTHS, uvarint(len(request.body) + 1), b"\x7f"])
    else:
        count = struct.pack(">i", parts.one_of([-2, -(2**31), 2**31 - 1, len(request.body), 2]))
    return [Unsent(api_key=request.api_key, version=version, body=count + request.body[1 if version else 4 :])]


@_of_class("malformed: a text of more than 32,767 bytes")
def _too_long_text(parts: Parts) -> list[Unsent]:
    """Only compact lengths can say that; a plain one would be negative, and the rest of the text something else."""
    request = _with_place(parts)
    content = b"x" * parts.one_of([32_768, 40_000, 65_535, 65_536])
    length = uvarint(len(content) + 1) if request.version else struct.pack(">H", len(content) & 0xFFFF)
    return [_with(request, _text(request.version, PLACE), length + content)]


@_of_class("malformed: bytes changed")
def _bytes_changed(parts: Parts) -> list[Unsent]:
    """Many of them are legal requests for something else."""
    kind = parts.one_of([USER, CLIENT_ID])
    entity = [EntityPart(kind, parts.one_of([*USERS, *CLIENT_IDS]))]
    request = parts.one_of([parts.alter(Alteration(entity, parts.ops(entity))), parts.describe(*parts.components())])
    body = bytearray(request.body)
    for _ in range(parts.random.randint(1, 3)):
        body[parts.random.randrange(len(body))] = parts.random.randrange(256)
    return [Unsent(api_key=request.api_key, version=request.version, body=bytes(body))]


@_of_class("malformed: any bytes")
def _any_bytes(parts: Parts) -> list[Unsent]:
    api = parts.one_of([ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS])
    body = parts.random.randbytes(parts.random.randint(0, 60))
    return [Unsent(api_key=api.key, version=parts.version(), body=body)]


@_of_class("client ids: none, empty, not ASCII, not UTF-8")
def _client_ids(parts: Parts) -> list[Unsent]:
    request = parts.one_of([parts.alter(parts.alteration()), parts.describe(*parts.components())])
    client_id = parts.one_of([None, b"", "naïve".encode(), b"\xff\xfe", b"\xed\xa0\x80"])
    return [Unsent(api_key=request.api_key, version=request.version, body=request.body, client_id=client_id)]


@_of_class("unknown versions")
def _unknown_versions(parts: Parts) -> list[Unsent]:
    """Only ApiVersions answers: with what it would have spoken (KIP-511)."""
    version = parts.one_of([2, 3, 127, 32767, -1, -32768])
    match parts.random.randrange(3):
        case 0:
            key = DESCRIBE_USER_SCRAM_CREDENTIALS.key
            return [Unsent(api_key=key, version=parts.one_of([1, version]), body=b"\1\0")]
        case 1:
            later = parts.one_of([API_VERSIONS.max_version + 1, 127, 32767, -1, -32768])
            return [Unsent(api_key=API_VERSIONS.key, version=later, body=b"\2a\2b\0")]
        case _:
            request = parts.one_of([parts.alter(parts.alteration()), parts.describe()])
            return [Unsent(api_key=request.api_key, version=version, body=request.body)]


@_of_class("unknown APIs")
def _unknown_apis(parts: Parts) -> list[Unsent]:
    return [Unsent(api_key=parts.one_of(OTHER_KEYS), version=parts.one_of([0, 1, -1]), body=parts.describe().body)]


@_of_class("impossible frames")
def _impossible_frames(parts: Parts) -> list[Unsent]:
    """A size that is negative or beyond `socket.request.max.bytes`, and frames that end within their header."""
    size = parts.one_of([-1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1])
    whole = struct.pack(">hhih", DESCRIBE_CLIENT_QUOTAS.key, 0, 1, 3) + b"abc"
    end = parts.random.randrange(len(whole))
    short = struct.pack(">i", end) + whole[:end]
    return [Unsent(api_key=-1, version=-1, body=b"", raw=parts.one_of([struct.pack(">i", size), short]))]
