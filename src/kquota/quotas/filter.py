"""Which entities are asked for: ``ClientQuotaFilter``, its components, and ``describe`` over a snapshot.

Source: ``org.apache.kafka.common.quota.ClientQuotaFilter``; validation and matching as ``ClientQuotasImage.describe``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from kquota.errors import ApiError, IllegalArgumentError, KafkaErrorCode
from kquota.quotas.entity import CLIENT_ID, IP, USER, ClientQuotaEntity, QuotaSnapshot
from kquota.quotas.model import KAFKA, QuotaModel

__all__ = ["ClientQuotaFilter", "ClientQuotaFilterComponent", "MatchType", "describe"]


class MatchType(IntEnum):
    """How a component matches; the numbers are those on the wire."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """What one entity type must look like.

    Made by the three ``of_`` methods; anything else is as found on the wire, and ``describe`` judges it.
    """

    entity_type: str
    match_type: int
    match: str | None = None

    @classmethod
    def of_entity(cls, entity_type: str, entity_name: str) -> Self:
        """The entity has the type with exactly this name."""
        if not isinstance(entity_name, str):
            raise IllegalArgumentError(f"a name is needed for {entity_type}; of_default_entity asks for the default")
        return cls(_checked(entity_type), MatchType.EXACT, entity_name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> Self:
        """The entity is the default of the type."""
        return cls(_checked(entity_type), MatchType.DEFAULT)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> Self:
        """The entity has the type at all: any name, and the default too."""
        return cls(_checked(entity_type), MatchType.SPECIFIED)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Whether this part of ``entity`` is as asked for."""
        if self.entity_type not in entity.entries:
            return False
        return self.match_type == MatchType.SPECIFIED or entity.entries[self.entity_type] == self.match


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Entities that satisfy every component; ``strict`` leaves out those with further types."""

    components: tuple[ClientQuotaFilterComponent, ...]
    strict: bool

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> Self:
        """Entities that match all components, whatever other types they have."""
        return cls(tuple(components), strict=False)

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> Self:
        """Entities that match all components and have no other type."""
        return cls(tuple(components), strict=True)

    @classmethod
    def all(cls) -> Self:
        """Every entity."""
        return cls((), strict=False)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Whether ``entity`` is asked for. The filter is taken as it is; :meth:`refusal` says whether it is legal."""
        if self.strict and len(entity.entries) != len(self.components):
            return False
        return all(component.matches(entity) for component in self.components)

    def refusal(self, model: QuotaModel = KAFKA) -> ApiError | None:
        """Why a broker refuses the filter: the first failing check of the first failing component."""
        seen: set[str] = set()
        for component in self.components:
            error = _component_refusal(component, seen, model)
            if error is not None:
                return error
            seen.add(component.entity_type)
        if IP in seen and (USER in seen or CLIENT_ID in seen):
            return _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )
        return None


def describe(
    snapshot: QuotaSnapshot, quota_filter: ClientQuotaFilter, *, model: QuotaModel = KAFKA
) -> dict[ClientQuotaEntity, Mapping[str, float]] | ApiError:
    """The entities that match, with all their values, sorted by entity; or why the filter is refused."""
    error = quota_filter.refusal(model)
    if error is not None:
        return error
    found = [entity for entity, values in snapshot.items() if values and quota_filter.matches(entity)]
    found.sort(key=ClientQuotaEntity.sort_key)
    return {entity: snapshot[entity] for entity in found}


def _component_refusal(component: ClientQuotaFilterComponent, seen: set[str], model: QuotaModel) -> ApiError | None:
    entity_type, match = component.entity_type, component.match
    if not entity_type:
        return _invalid("Invalid empty entity type.")
    if entity_type in seen:
        return _invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
    if entity_type not in model.entity_types:
        return ApiError(KafkaErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
    match component.match_type:
        case MatchType.EXACT:
            if match is None:
                return _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        case MatchType.DEFAULT:
            if match is not None:
                return _invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        case MatchType.SPECIFIED:
            if match is not None:
                return _invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
        case unknown:
            return _invalid(f"Unknown match type {unknown}")
    return None


def _checked(entity_type: str) -> str:
    if not isinstance(entity_type, str):
        raise IllegalArgumentError(f"an entity type must be text, not {entity_type!r}")
    return entity_type


def _invalid(message: str) -> ApiError:
    return ApiError(KafkaErrorCode.INVALID_REQUEST, message)
