"""What every client of the quota APIs is asked to do: each filter shape, and alterations of every kind.

A question is plain JSON, so that programs in other languages read it. Values are texts: JSON has no NaN.
Limits that could bind the clients of these tests themselves are far above what those do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["QUESTIONS", "Question", "alter", "alteration", "changes", "describe", "reads"]

Question = Mapping[str, Any]
Entity = Mapping[str, str | None]

EXACT, DEFAULT, ANY = range(3)
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION, CONNECTION = "request_percentage", "controller_mutation_rate", "connection_creation_rate"

# A name server is not asked for a host whose label is longer than 63 characters.
UNRESOLVABLE: Final = f"{'x' * 64}.invalid"


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Question:
    """Each component is a type, how it matches, and the name that it matches exactly."""
    named = [{"type": one, "match_type": match_type, "match": match} for one, match_type, match in components]
    return {"describe": {"components": named, "strict": strict}}


def alter(*alterations: Question, validate_only: bool = False) -> Question:
    return {"alter": {"alterations": list(alterations), "validate_only": validate_only}}


def alteration(entity: Entity, *ops: tuple[str, str | None]) -> Question:
    """A value of None removes the key."""
    parts = [{"type": entity_type, "name": name} for entity_type, name in entity.items()]
    return {"entity": parts, "ops": [{"key": key, "value": value} for key, value in ops]}


def changes(question: Question) -> bool:
    return "alter" in question


def reads(question: Question) -> bool:
    return "describe" in question


def _levels() -> Iterable[Question]:
    """Values on every level: user and client id by name, by default, together, and addresses."""
    names: dict[str, tuple[Entity, ...]] = {
        "user": ({}, {"user": "carol"}, {"user": None}),
        "client-id": ({}, {"client-id": "etl"}, {"client-id": None}),
    }
    pairs = [{**user, **client} for user, client in itertools.product(names["user"], names["client-id"])]
    for number, entity in enumerate(pairs[1:]):
        rate = 10**9 + number
        yield alteration(entity, (PRODUCE, f"{rate}"), (CONSUME, f"{rate}"), (REQUEST, "1e6"), (MUTATION, "123456.789"))
    yield alteration({"ip": "10.0.0.1"}, (CONNECTION, "12"))
    yield alteration({"ip": None}, (CONNECTION, "2147483647"))


def _filters() -> Iterable[Question]:
    """Every way to ask for user, client id and ip at once, legal or not; then what no entity type is."""

    def shapes(entity_type: str, name: str) -> list[tuple[tuple[str, int, str | None], ...]]:
        named = [(entity_type, EXACT, name), (entity_type, DEFAULT, None), (entity_type, ANY, None)]
        return [(), *((one,) for one in named)]

    for user, client, ip in itertools.product(shapes("user", "carol"), shapes("client-id", "etl"), shapes("ip", "::1")):
        for strict in (False, True):
            yield describe(*user, *client, *ip, strict=strict)
    yield describe(("ip", EXACT, "10.0.0.1"), strict=True)
    for unknown in ("group", "", "USER", "clïent"):
        yield describe((unknown, ANY, None))
    yield describe(("user", EXACT, "carol"), ("group", DEFAULT, None))
    yield describe(("user", EXACT, "carol"), ("user", ANY, None))
    for nobody in ("", "nobody", "<default>", "Carol"):
        yield describe(("user", EXACT, nobody))


REFUSED: Final = [
    alteration({}, (PRODUCE, "1")),
    alteration({"group": "g"}, (PRODUCE, "1")),
    alteration({"": "x"}, (PRODUCE, "1")),
    alteration({"user": "r", "group": "g"}, (PRODUCE, "1")),
    alteration({"user": ""}, (PRODUCE, "1")),
    alteration({"user": "r", "client-id": ""}, (PRODUCE, "1")),
    alteration({"ip": ""}, (CONNECTION, "1")),
    alteration({"user": "r", "ip": "10.0.0.1"}, (PRODUCE, "1")),
    alteration({"ip": None, "client-id": None}, (CONNECTION, "1")),
    alteration({"ip": "10.0.0.1", "client-id": "c", "user": "u"}),
    alteration({"ip": UNRESOLVABLE}, (CONNECTION, "1")),
    alteration({"user": "r1"}, ("nonsense", "1")),
    alteration({"user": "r2"}, ("", "1")),
    alteration({"user": "r3"}, (CONNECTION, "1")),
    alteration({"user": "r4"}, ("SCRAM-SHA-256", "1")),
    alteration({"ip": "10.0.0.2"}, (PRODUCE, "1")),
    alteration({"user": "r5"}, (PRODUCE, "0")),
    alteration({"user": "r6"}, (REQUEST, "-0.0")),
    alteration({"user": "r7"}, (MUTATION, "-12.5")),
    alteration({"user": "r8"}, (PRODUCE, "-Infinity")),
    alteration({"user": "r9"}, (PRODUCE, "Infinity")),
    alteration({"user": "r10"}, (CONSUME, "9223372036854777856")),
    alteration({"user": "r11"}, (CONSUME, "1.5")),
    alteration({"user": "r12"}, (CONSUME, "1.9999999")),
    alteration({"ip": "10.0.0.3"}, (CONNECTION, "2147483648")),
    alteration({"ip": "10.0.0.4"}, (CONNECTION, "0.5")),
    alteration({"user": "r13"}, (PRODUCE, "1"), (CONSUME, "-1"), (REQUEST, "1")),
    alteration({"user": "r14", "client-id": "c"}, (PRODUCE, "1"), (PRODUCE, "2")),
    alteration({"user": "r15"}, (PRODUCE, "1"), (PRODUCE, None)),
]

ACCEPTED: Final = [
    alteration({"user": "<default>"}, (PRODUCE, "1")),
    alteration({"user": "CN=Bücher, OU=a/b+c*d%e&f", "client-id": 'say "hi"\\ \U0001f600'}, (CONSUME, "1")),
    alteration({"client-id": " "}, (REQUEST, "NaN")),
    alteration({"client-id": "largest"}, (REQUEST, "Infinity"), (MUTATION, "1e308")),
    alteration({"client-id": "smallest"}, (REQUEST, "5e-324"), (MUTATION, "0.001")),
    alteration({"user": "integers"}, (PRODUCE, "9223372036854775808"), (CONSUME, "1.0000005")),
    alteration({"user": "not-a-number"}, (PRODUCE, "NaN")),
    alteration({"ip": "::1"}, (CONNECTION, "10000")),
    alteration({"ip": "localhost"}, (CONNECTION, "10000")),
    alteration({"user": "nothing"}),
    alteration({"user": "nothing-there"}, (PRODUCE, None), ("nonsense", None)),
    alteration({"user": "carol"}, (PRODUCE, "1000000000")),
    alteration({"user": "carol", "client-id": "etl"}, (PRODUCE, None), (CONSUME, "7")),
    alteration({"ip": "10.0.0.1"}, (CONNECTION, None)),
]

# What is named twice is refused, and its first alteration done all the same.
TWICE: Final = [
    alteration({"user": "twice"}, (PRODUCE, "1")),
    alteration({"client-id": "c", "user": "twice"}, (CONSUME, "1")),
    alteration({"user": "twice", "client-id": "c"}, (PRODUCE, "2")),
    alteration({"user": "twice"}, (PRODUCE, "2"), (CONSUME, "2")),
]

QUESTIONS: Final[list[Question]] = [
    describe(),
    alter(),
    alter(*_levels(), validate_only=True),
    describe(),
    alter(*_levels()),
    *_filters(),
    *(alter(one) for one in REFUSED),
    alter(*ACCEPTED, *REFUSED, validate_only=True),
    describe(),
    *(alter(one) for one in ACCEPTED),
    describe(),
    alter(alteration({"user": "new"}, (PRODUCE, "1")), *REFUSED),
    alter(*TWICE),
    describe(),
    # More than a controller writes for one request (KRaft: 10,000 records).
    alter(*(alteration({"user": f"u{number}"}, (PRODUCE, "1")) for number in range(10_001)), validate_only=True),
]
"""In this order: later ones build on what earlier ones changed."""
