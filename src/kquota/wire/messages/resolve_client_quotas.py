"""ResolveClientQuotas: 50 v0 as KIP-546 defines it, and 10546 v0, which also has meters and what is overridden."""

from msgspec import Struct

from kquota.wire.messages.client_quotas import EntityPart
from kquota.wire.schema import Boolean, Encoded, Float64, Int8, Int16, Int32, String

__all__ = [
    "EncodedResolveQuotasResponse",
    "NamedPart",
    "QuotaEntry",
    "QuotaValue",
    "ResolveClientQuotasRequest",
    "ResolveClientQuotasResponse",
    "ResolveQuotasRequest",
    "ResolveQuotasResponse",
    "ResolvedClient",
    "ResolvedValue",
    "Rule",
    "ValueEntry",
]


class NamedPart(Struct, frozen=True, gc=False):
    """One type of what is resolved, always with its name. In a source, KIP-546 has no way to say "default" but this."""

    entity_type: String
    entity_name: String


class ResolveClientQuotasRequest(Struct, frozen=True, gc=False):
    """One entity."""

    entity: list[NamedPart]


class ValueEntry(Struct, frozen=True, gc=False):
    """A value, and the entity that it is set on."""

    quota_entity: list[NamedPart]
    value: Float64


class QuotaValue(Struct, frozen=True, gc=False):
    """What binds for one key; the first entry is it."""

    type: String
    entry: list[ValueEntry]


class QuotaEntry(Struct, frozen=True, gc=False):
    """The answer for one entity."""

    error_code: Int16
    error_message: String | None
    quota_entity: list[NamedPart]
    quota_values: list[QuotaValue]


class ResolveClientQuotasResponse(Struct, frozen=True, gc=False):
    """KIP-546's: one entry for each entity."""

    throttle_time_ms: Int32
    entry: list[QuotaEntry]


class ResolveQuotasRequest(Struct, frozen=True, gc=False):
    """Any number of clients at once. Without `include_overridden` only the rules that bind are answered."""

    entities: list[ResolveClientQuotasRequest]
    include_overridden: Boolean


class Rule(Struct, frozen=True, gc=False):
    """A value, the level of precedence that it is set on, and where: no parts are the broker's static default."""

    value: Float64
    level: Int8
    source: list[EntityPart]


class ResolvedValue(Struct, frozen=True, gc=False):
    """What binds a client for one key, by which rule, what it is counted against, and what that rule overrides."""

    key: String
    rule: Rule
    meter: list[NamedPart]
    overridden: list[Rule]


class ResolvedClient(Struct, frozen=True, gc=False):
    """The answer for one client, in the order of the request. Keys without a limit are left out."""

    error_code: Int16
    error_message: String | None
    entity: list[NamedPart]
    values: list[ResolvedValue]


class ResolveQuotasResponse(Struct, frozen=True, gc=False):
    """One result per client, or one error for all."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[ResolvedClient]


class EncodedResolveQuotasResponse(Struct, frozen=True, gc=False):
    """:class:`ResolveQuotasResponse` with each :class:`ResolvedClient` as bytes."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[Encoded]
