"""What random quota requests are put together from, over few names: what one has set, later ones change and find."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias, TypeVar

from kquota.quotas import CLIENT_ID, IP, KAFKA, USER, MatchType
from kquota.wire.apis import ALTER_CLIENT_QUOTAS, APIS, DESCRIBE_CLIENT_QUOTAS
from kquota.wire.messages.client_quotas import (
    Alteration,
    AlterClientQuotasRequest,
    Component,
    DescribeClientQuotasRequest,
    EntityPart,
    Op,
)

PRINCIPAL: Final = "ANONYMOUS"
OWN_CLIENT_ID: Final = "differential"
OWN_ADDRESS: Final = "127.0.0.1"

USERS: Final = (None, "alice", "bob", "<default>", "O=A client,CN=localhost", "null", "%3Cdefault%3E")
CLIENT_IDS: Final = (None, "etl", "a,b", " ", "<default>")
# None of them means the address that the requests come from: a quota on that would slow the test itself.
IPS_V4: Final = (None, "10.0.0.1", "10.0.0.2", "192.168.7.7", "255.255.255.255", "0.0.0.0", "10.1", "10.0.258", "171")
IPS_V6: Final = ("::1", "2001:db8::1", "2001:DB8:0:0:0:0:0:1", "[2001:db8::2]", "::ffff:10.0.0.9", "fe80::1%1", "::")
IPS: Final = (*IPS_V4, *IPS_V6)
NON_ASCII: Final = (
    "naïve",
    "日本語",
    "😀",
    "e\u0301",
    "\u00e9",
    "\u2028",
    "\0",
    "\x7f\x85",
    "\ufeff",
    "\ufffd",
    "ÿ" * 200,
)
UNKNOWN_TYPES: Final = ("group", "User", "client_id", "clientid", "topic", "null", "user ", "ip\0", "é", "a", "b", "c")
UNKNOWN_KEYS: Final = (
    "nonsense",
    "",
    "Producer_byte_rate",
    "SCRAM-SHA-256",
    "é",
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "x" * 99,
)

_BYTES: Final = (1.0, 2.0, 1024.0, 1e6, 2.0**31, 2.0**53, 2.0**63)
_RATES: Final = (*_BYTES, 0.5, 12.5, 99.99999, 1e-9, 5e-324, 1.7976931348623157e308, math.inf)
_CONNECTIONS: Final = (1.0, 5.0, 1000.0, 2.0**31 - 1)
LEGAL_VALUES: Final = {
    "producer_byte_rate": _BYTES,
    "consumer_byte_rate": _BYTES,
    "request_percentage": _RATES,
    "controller_mutation_rate": _RATES,
    "connection_creation_rate": _CONNECTIONS,
}

T = TypeVar("T")
Entity: TypeAlias = list[EntityPart]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """A request that has no correlation id yet. ``raw`` stands for the whole frame where it is none of the others."""

    api_key: int
    version: int
    body: bytes
    client_id: bytes | None = OWN_CLIENT_ID.encode()
    header_tags: bytes = b"\0"
    raw: bytes | None = None

    def frame(self, correlation_id: int) -> bytes:
        """The bytes to send, the size included."""
        if self.raw is not None:
            return self.raw
        length = -1 if self.client_id is None else len(self.client_id)
        frame = struct.pack(">hhih", self.api_key, self.version, correlation_id, length) + (self.client_id or b"")
        api = APIS.get(self.api_key)
        if api is not None and api.is_flexible(self.version):
            frame += self.header_tags
        return struct.pack(">i", len(frame) + len(self.body)) + frame + self.body


Maker: TypeAlias = "Callable[[Parts], list[Unsent]]"
"""Makes a request of one class; more than one where what it changed is to be taken back."""


class Makers(dict[str, Maker]):
    """Classes of requests, and what makes one."""

    def of_class(self, name: str) -> Callable[[Maker], Maker]:
        """Decorate what makes requests of a class."""

        def register(maker: Maker) -> Maker:
            assert name not in self
            self[name] = maker
            return maker

        return register


class Parts:
    """Random parts and whole requests; the same ones for the same seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one_of(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def yes(self) -> bool:
        return self.random.random() < 0.5

    def version(self) -> int:
        return self.random.randint(0, 1)

    def user(self) -> Entity:
        return [EntityPart(USER, self.one_of(USERS))]

    def client_id(self) -> Entity:
        return [EntityPart(CLIENT_ID, self.one_of(CLIENT_IDS))]

    def ip(self) -> Entity:
        return [EntityPart(IP, self.one_of(IPS))]

    def client(self) -> Entity:
        """A user, a client id, or both, in any order."""
        parts = self.one_of([self.user(), self.client_id(), self.user() + self.client_id()])
        self.random.shuffle(parts)
        return parts

    def entity(self) -> Entity:
        return self.one_of([self.client, self.client, self.client, self.ip])()

    def entities(self, count: int) -> list[Entity]:
        """Different ones, at most as many."""
        found = [self.entity() for _ in range(count)]
        return list({frozenset((part.entity_type, part.entity_name) for part in one): one for one in found}.values())

    def key(self, entity: Entity) -> str:
        """One that may be set on the entity."""
        return self.one_of(sorted(KAFKA.keys_for(part.entity_type for part in entity) or ()))

    def op(self, entity: Entity, value: float | None = None) -> Op:
        """Set the value, or any legal one, or remove."""
        key = self.key(entity)
        if value is not None:
            return Op(key, value, remove=False)
        if self.random.random() < 0.3:
            return Op(key, 0.0, remove=True)
        return Op(key, self.one_of(LEGAL_VALUES[key]), remove=False)

    def ops(self, entity: Entity, most: int = 3) -> list[Op]:
        """At least one, each with another key."""
        found = [self.op(entity) for _ in range(self.random.randint(1, most))]
        return list({op.key: op for op in found}.values())

    def alteration(self) -> Alteration:
        entity = self.entity()
        return Alteration(entity, self.ops(entity))

    def alter(self, *alterations: Alteration, validate_only: bool | None = None, version: int | None = None) -> Unsent:
        """Alter; one in five only validates, if nothing else is said."""
        version = self.version() if version is None else version
        if validate_only is None:
            validate_only = self.random.random() < 0.2
        body = AlterClientQuotasRequest(list(alterations), validate_only=validate_only)
        codec = ALTER_CLIENT_QUOTAS.request_codec(version)
        return Unsent(api_key=ALTER_CLIENT_QUOTAS.key, version=version, body=codec.write(body))

    def alter_with(self, *ops: Op, entity: Entity) -> list[Unsent]:
        """The ops on the entity, sometimes between others on other entities."""
        alterations = [Alteration(entity, list(ops))]
        if self.yes():
            alterations += [Alteration(other, self.ops(other)) for other in self.entities(3)]
            self.random.shuffle(alterations)
        return [self.alter(*alterations)]

    def component(self, entity_type: str) -> Component:
        """A legal one."""
        name = self.one_of({USER: USERS, CLIENT_ID: CLIENT_IDS, IP: IPS}[entity_type])
        match self.one_of(list(MatchType)):
            case MatchType.EXACT:
                return Component(entity_type, MatchType.EXACT, name or "alice")
            case other:
                return Component(entity_type, other, None)

    def components(self) -> list[Component]:
        """A legal filter."""
        types = self.one_of([[USER], [CLIENT_ID], [USER, CLIENT_ID], [CLIENT_ID, USER], [IP]])
        return [self.component(entity_type) for entity_type in types]

    def describe(self, *components: Component, strict: bool | None = None, version: int | None = None) -> Unsent:
        version = self.version() if version is None else version
        body = DescribeClientQuotasRequest(list(components), strict=self.yes() if strict is None else strict)
        codec = DESCRIBE_CLIENT_QUOTAS.request_codec(version)
        return Unsent(api_key=DESCRIBE_CLIENT_QUOTAS.key, version=version, body=codec.write(body))


def describe_all() -> Unsent:
    """Everything there is."""
    return Parts(Random(0)).describe(strict=False, version=1)


def own_limits() -> Unsent:
    """Limits so large that whatever the other requests set does not slow the connection they go through.

    They are the most specific there are, and no other request names them.
    """
    largest = [Op(key, 1e15, remove=False) for key in sorted(KAFKA.keys_for([USER]) or ())]
    alterations = [
        Alteration([EntityPart(USER, PRINCIPAL), EntityPart(CLIENT_ID, OWN_CLIENT_ID)], largest),
        Alteration([EntityPart(USER, PRINCIPAL)], largest),  # for requests without a client id
        Alteration([EntityPart(IP, OWN_ADDRESS)], [Op("connection_creation_rate", 2.0**31 - 1, remove=False)]),
    ]
    return Parts(Random(0)).alter(*alterations, validate_only=False)
