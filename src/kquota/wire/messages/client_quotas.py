"""DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0 and 1 (KIP-546)."""

from msgspec import Struct

from kquota.wire.schema import Boolean, Encoded, Float64, Int8, Int16, Int32, String

__all__ = [
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "Alteration",
    "AlterationResult",
    "Component",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "EncodedDescribeClientQuotasResponse",
    "EntityPart",
    "Entry",
    "Op",
    "Value",
]


class Component(Struct, frozen=True, gc=False):
    """`match_type` is 0 for the exact name, 1 for the default, 2 for any."""

    entity_type: String
    match_type: Int8
    match: String | None


class DescribeClientQuotasRequest(Struct, frozen=True, gc=False):
    """Which entities."""

    components: list[Component]
    strict: Boolean


class EntityPart(Struct, frozen=True, gc=False):
    """One type of an entity; a null name is the default."""

    entity_type: String
    entity_name: String | None


class Value(Struct, frozen=True, gc=False):
    """A key with its value."""

    key: String
    value: Float64


class Entry(Struct, frozen=True, gc=False):
    """An entity with its values."""

    entity: list[EntityPart]
    values: list[Value]


class DescribeClientQuotasResponse(Struct, frozen=True, gc=False):
    """Null entries go with an error."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: list[Entry] | None


class EncodedDescribeClientQuotasResponse(Struct, frozen=True, gc=False):
    """:class:`DescribeClientQuotasResponse` with each :class:`Entry` as bytes."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: list[Encoded] | None


class Op(Struct, frozen=True, gc=False):
    """Set a key, or remove it: then the value is ignored."""

    key: String
    value: Float64
    remove: Boolean


class Alteration(Struct, frozen=True, gc=False):
    """What to change on one entity."""

    entity: list[EntityPart]
    ops: list[Op]


class AlterClientQuotasRequest(Struct, frozen=True, gc=False):
    """What to change."""

    entries: list[Alteration]
    validate_only: Boolean


class AlterationResult(Struct, frozen=True, gc=False):
    """How it went for one entity."""

    error_code: Int16
    error_message: String | None
    entity: list[EntityPart]


class AlterClientQuotasResponse(Struct, frozen=True, gc=False):
    """One result per entity."""

    throttle_time_ms: Int32
    entries: list[AlterationResult]
