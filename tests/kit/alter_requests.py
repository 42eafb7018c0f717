"""Random requests to alter quotas: well-formed, for what is legal and what is not."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kquota.quotas import CLIENT_ID, IP, MAX_CHANGES_PER_REQUEST, USER, MatchType
from kquota.wire.messages.client_quotas import Alteration, Component, EntityPart, Op
from tests.kit.request_parts import (
    IPS_V4,
    IPS_V6,
    LEGAL_VALUES,
    NON_ASCII,
    UNKNOWN_KEYS,
    UNKNOWN_TYPES,
    Entity,
    Maker,
    Makers,
    Parts,
    Unsent,
)

__all__ = ["LONG_NAME_MAKERS", "MAKERS"]

NANS: Final = tuple(
    struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    for bits in (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF)
)
TOO_LARGE: Final = (1e19, math.nextafter(2.0**63, math.inf), 1e308, 2.0**31, 2147483647.5)
# A broker takes what is at most a millionth above a whole number.
FRACTIONS: Final = (0.5, 2.245, 1e-7, 1.000001, 1.0000011, 1.0000009, 100.0000001, 99.9999999, 2.0**51 + 0.5)
NEGATIVE: Final = (-1.0, -0.5, -1e-300, -5e-324, -1e19, -(2.0**63))
HOST_NAMES: Final = ("localhost", "LOCALHOST", "example.invalid")
BAD_IPS: Final = (
    "1.2.3.4.5",
    "256.1.1.1",
    "1.2.3.256",
    "1..2",
    ".1",
    "1.2.3.",
    "4294967296",
    "99999999999",
    "10.0.0.1 ",
    " 10.0.0.1",
    "10.0.0.1/24",
    "10.0.0.1:80",
    "10.0.0.1\0",
    "localhost\0",
    "１０.0.0.1",  # full width: Python's idna would take it for 10.0.0.1
    "localhost\u3002",  # the same with an ideographic full stop
    "é.invalid",
    "2001:db8::g",
    "::1::2",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8:9",
    "12345::",
    "[::1",
    "::1]",
    "[10.0.0.1]",
    "[]",
    "fe80::1%nosuch",
    "fe80::1%2147483648",
    "fe80::1%" + "9" * 5_000,
    "::ffff:10.0.0.1%1",
    "1.2.3.0000000000000004",
    "0x7f.0.0.1",
    "localhost\u200b",
    "::ffff:1.2.3",
    ":",
    "-",
    "%",
    "a b",
    "<default>",
    "a" * 300,
)
# The message of an error holds the name, and must not grow beyond 32,767 bytes: then a real broker never answers.
LONG: Final = ("v" * 20_000, "é" * 10_000, "日" * 6_000)
LONGEST: Final = ("u" * 32_767, "é" * 16_383 + "e", "😀" * 8_191)

MAKERS: Final = Makers()
_of_class = MAKERS.of_class
LONG_NAME_MAKERS: Final = Makers()
"""Names that grow beyond 32,767 bytes when they are read. A real broker that has one describes nothing any more."""


@_of_class("set, change and remove")
def _plain(parts: Parts) -> list[Unsent]:
    entities = parts.entities(parts.random.randint(1, 6))
    return [parts.alter(*(Alteration(one, parts.ops(one, most=4)) for one in entities))]


@_of_class("validate only")
def _validate_only(parts: Parts) -> list[Unsent]:
    entities = parts.entities(4)
    return [parts.alter(*(Alteration(one, parts.ops(one)) for one in entities), validate_only=True)]


def _setting_one_of(values: Sequence[float]) -> Maker:
    def make(parts: Parts) -> list[Unsent]:
        entity = parts.entity()
        return parts.alter_with(parts.op(entity, parts.one_of(values)), entity=entity)

    return make


for _kind, _values in {
    "NaN": NANS,
    "plus and minus zero": (0.0, -0.0),
    "infinity": (math.inf, -math.inf),
    "1e19 and others that are too large for a LONG or an INT": TOO_LARGE,
    "fractional": FRACTIONS,
    "negative": NEGATIVE,
}.items():
    _of_class(_kind)(_setting_one_of(_values))


@_of_class("any double")
def _any_double(parts: Parts) -> list[Unsent]:
    entity = parts.entity()
    value: float = struct.unpack(">d", parts.random.randbytes(8))[0]
    return parts.alter_with(parts.op(entity, value), entity=entity)


@_of_class("duplicate entity")
def _duplicate_entity(parts: Parts) -> list[Unsent]:
    entity = parts.entity()
    alterations = [
        Alteration(parts.random.sample(entity, len(entity)), parts.ops(entity))
        for _ in range(parts.random.randint(2, 4))
    ]
    if parts.yes():
        spoilt = parts.random.randrange(len(alterations))
        alterations[spoilt] = Alteration(entity, [Op("nonsense", 1.0, remove=False)])
    if parts.yes():
        alterations.insert(parts.random.randint(0, len(alterations)), parts.alteration())
    return [parts.alter(*alterations)]


@_of_class("duplicate key")
def _duplicate_key(parts: Parts) -> list[Unsent]:
    entity = parts.one_of([parts.entity(), parts.entity(), [], [EntityPart("group", "g")], [EntityPart(USER, "")]])
    key = parts.one_of([*LEGAL_VALUES, "nonsense"])
    ops = [Op(key, parts.one_of([1.0, 2.0, -1.0]), remove=parts.yes()) for _ in range(parts.random.randint(2, 4))]
    return parts.alter_with(*ops, entity=entity)


@_of_class("duplicate entity type")
def _duplicate_entity_type(parts: Parts) -> list[Unsent]:
    """The last one counts; how many there were shows in the order of a hash map, and so in messages."""
    entity = parts.client() + parts.client() * parts.random.randint(2, 5) + parts.client()
    if parts.yes():
        entity.append(EntityPart(parts.one_of(UNKNOWN_TYPES), "x"))
    ops = parts.ops(entity[:1])
    return parts.alter_with(*ops, *ops[: parts.random.randint(0, 1)], entity=entity)


@_of_class("unknown entity type")
def _unknown_entity_type(parts: Parts) -> list[Unsent]:
    names = parts.random.sample(UNKNOWN_TYPES, parts.random.randint(1, 4))
    entity = [EntityPart(name, parts.one_of([None, "", "x"])) for name in names]
    if parts.yes():
        entity += parts.entity()
    parts.random.shuffle(entity)
    return parts.alter_with(Op("producer_byte_rate", 1.0, remove=parts.yes()), entity=entity)


@_of_class("empty entity")
def _empty_entity(parts: Parts) -> list[Unsent]:
    return parts.alter_with(*parts.ops(parts.client()), entity=[])


@_of_class("empty name")
def _empty_name(parts: Parts) -> list[Unsent]:
    types = parts.one_of([[USER], [CLIENT_ID], [IP], [USER, CLIENT_ID], [CLIENT_ID, USER], [USER, IP]])
    entity = [EntityPart(entity_type, parts.one_of(["", "", "alice"])) for entity_type in types]
    return parts.alter_with(parts.op(parts.client()), entity=entity)


@_of_class("ip: v4")
def _ip_v4(parts: Parts) -> list[Unsent]:
    entity: Entity = [EntityPart(IP, parts.one_of(IPS_V4))]
    return parts.alter_with(parts.op(entity), entity=entity)


@_of_class("ip: v6")
def _ip_v6(parts: Parts) -> list[Unsent]:
    entity: Entity = [EntityPart(IP, parts.one_of(IPS_V6))]
    return parts.alter_with(parts.op(entity), entity=entity)


@_of_class("ip: host names")
def _host_name(parts: Parts) -> list[Unsent]:
    """Never set: one of them is where the requests come from."""
    entity: Entity = [EntityPart(IP, parts.one_of(HOST_NAMES))]
    return [parts.alter(Alteration(entity, [parts.op(entity)]), validate_only=True)]


@_of_class("ip: bad")
def _bad_ip(parts: Parts) -> list[Unsent]:
    entity: Entity = [EntityPart(IP, parts.one_of(BAD_IPS))]
    return [parts.alter(Alteration(entity, [parts.op(entity)]), validate_only=True)]


@_of_class("ip with user or client id")
def _ip_with_others(parts: Parts) -> list[Unsent]:
    entity = parts.ip() + parts.client()
    parts.random.shuffle(entity)
    return parts.alter_with(parts.op(parts.entity()), entity=entity)


@_of_class("unknown key")
def _unknown_key(parts: Parts) -> list[Unsent]:
    entity = parts.entity()
    of_others = "producer_byte_rate" if entity[0].entity_type == IP else "connection_creation_rate"
    key = parts.one_of([*UNKNOWN_KEYS, of_others])
    return parts.alter_with(Op(key, parts.one_of([1.0, -1.0, math.nan]), remove=False), entity=entity)


@_of_class("several bad ops")
def _several_bad_ops(parts: Parts) -> list[Unsent]:
    """Of several the first in the order of a hash map is named."""
    entity = parts.entity()
    keys = [*parts.random.sample(UNKNOWN_KEYS, parts.random.randint(0, len(UNKNOWN_KEYS))), *LEGAL_VALUES]
    parts.random.shuffle(keys)
    values = [0.0, -1.0, 0.5, 1e19, math.inf, 1.0]
    ops = [Op(key, parts.one_of(values), remove=False) for key in keys[: parts.random.randint(2, len(keys))]]
    return parts.alter_with(*ops, entity=entity)


@_of_class("removal of what is not set")
def _removal(parts: Parts) -> list[Unsent]:
    """Whatever the key, and whatever value stands beside it."""
    entity = parts.entity()
    keys = parts.random.sample([*LEGAL_VALUES, *UNKNOWN_KEYS], parts.random.randint(1, 3))
    return parts.alter_with(
        *(Op(key, parts.one_of([0.0, -1.0, math.nan, 0.5]), remove=True) for key in keys), entity=entity
    )


@_of_class("no ops, no entities")
def _no_ops(parts: Parts) -> list[Unsent]:
    entities = [*parts.entities(3), [EntityPart("group", "x")], []]
    return [parts.alter(*(Alteration(one, []) for one in parts.random.sample(entities, parts.random.randint(0, 3))))]


@_of_class("10,001 records and about as many")
def _very_many(parts: Parts) -> list[Unsent]:
    """More than 10,000 changes are refused, whatever asks for them; ops that change nothing do not count."""
    keys = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]

    def many(changes: int, *more: Alteration, remove: bool = False, validate_only: bool | None = None) -> Unsent:
        each = 1 if changes % len(keys) else len(keys)
        ops = [Op(key, 7.0, remove=remove) for key in keys[:each]]
        entities = ([EntityPart(USER, f"many-{number}")] for number in range(changes // each))
        return parts.alter(*(Alteration(entity, ops) for entity in entities), *more, validate_only=validate_only)

    most = MAX_CHANGES_PER_REQUEST
    match parts.random.randrange(6):
        case 0:
            return [many(most + 1)]
        case 1:
            return [many(most + 4)]
        case 2:
            return [many(most + 1, Alteration([EntityPart("group", "x")], []), parts.alteration())]
        case 3:
            return [many(most, validate_only=True)]
        case 4:
            return [many(most + 1, remove=True)]  # none of them is set
        case _:
            return [many(most, validate_only=False), many(most, remove=True, validate_only=False)]


@_of_class("non-ASCII names")
def _non_ascii(parts: Parts) -> list[Unsent]:
    entity: Entity = [EntityPart(parts.one_of([USER, CLIENT_ID]), parts.one_of(NON_ASCII))]
    component = Component(entity[0].entity_type, MatchType.EXACT, entity[0].entity_name)
    return [parts.describe(component)] if parts.yes() else parts.alter_with(*parts.ops(entity), entity=entity)


@_of_class("very long names")
def _long(parts: Parts) -> list[Unsent]:
    long, kind = parts.one_of(LONG), parts.one_of([USER, CLIENT_ID])
    entity: Entity = [EntityPart(kind, parts.one_of(LONGEST))]
    set_one = Op("producer_byte_rate", 1.0, remove=False)
    match parts.random.randrange(7):
        case 0:
            return [parts.alter(Alteration([EntityPart(long, "x")], [set_one]))]
        case 1:
            return [parts.alter(Alteration([EntityPart(kind, long)], [set_one, set_one]))]
        case 2:
            return [parts.alter(Alteration([EntityPart(kind, long)], [Op(long, 1.0, remove=False)]))]
        case 3:
            return [parts.alter(Alteration([EntityPart(IP, long)], []), validate_only=True)]
        case 4:
            return [parts.describe(Component(kind, MatchType.EXACT, entity[0].entity_name))]
        case 5:
            return [parts.describe(*[Component(long, MatchType.SPECIFIED, None)] * parts.random.randint(1, 2))]
        case _:
            return [parts.alter(Alteration(entity, [parts.op(entity)]))]


@_of_class("a user named <default>")
def _named_default(parts: Parts) -> list[Unsent]:
    """An ordinary name, which is not the default."""
    component = parts.one_of([Component(USER, MatchType.EXACT, "<default>"), Component(USER, MatchType.DEFAULT, None)])
    entity: Entity = [EntityPart(USER, parts.one_of(["<default>", None]))]
    return [parts.describe(component)] if parts.yes() else parts.alter_with(*parts.ops(entity), entity=entity)


@LONG_NAME_MAKERS.of_class("names that are not UTF-8, around the limit")
def _long_not_utf_8(parts: Parts) -> list[Unsent]:
    """A byte becomes three: the limit lies between 10,922 and 10,923 of them."""
    size = parts.one_of([10_921, 10_922, 10_923, 20_000, 32_767])
    kind = parts.one_of([USER, CLIENT_ID, IP])
    entity: Entity = [EntityPart(kind, "?" * size)]
    ops = [Op(parts.key(entity), 1.0, remove=parts.yes())]
    alterations = [Alteration(entity, ops), parts.alteration()]
    parts.random.shuffle(alterations)
    made = parts.alter(*alterations)
    return [replace(made, body=made.body.replace(b"?" * size, parts.one_of([b"\xff", b"\x80", b"\xc3"]) * size))]


@LONG_NAME_MAKERS.of_class("names around the limit")
def _around_the_limit(parts: Parts) -> list[Unsent]:
    """As long as they can be sent."""
    kind, name = parts.one_of([USER, CLIENT_ID]), parts.one_of(LONGEST)
    entity: Entity = [EntityPart(kind, name)]
    component = Component(kind, MatchType.EXACT, name)
    return [parts.describe(component)] if parts.yes() else parts.alter_with(parts.op(entity), entity=entity)
