"""A change asked for: ``ClientQuotaAlteration``, values to set and keys to remove on one entity."""

from collections.abc import Iterable
from dataclasses import dataclass

from kquota.errors import IllegalArgumentError
from kquota.quotas.entity import ClientQuotaEntity, check_text

__all__ = ["ClientQuotaAlteration"]


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """What to change on one entity: :class:`Op` is a single change (KIP-546)."""

    @dataclass(frozen=True, slots=True)
    class Op:
        """Set ``key`` to ``value``, or remove it where ``value`` is None. Neither key nor range is checked here."""

        key: str
        value: float | None

        def __post_init__(self) -> None:
            check_text(self.key, "a quota key")
            if self.value is None or type(self.value) is float:
                return
            if isinstance(self.value, (bool, str, bytes)):
                raise IllegalArgumentError(f"the value of {self.key} must be a number or None, not {self.value!r}")
            try:
                object.__setattr__(self, "value", float(self.value))
            except (TypeError, ValueError, OverflowError) as error:
                raise IllegalArgumentError(f"the value of {self.key} cannot be sent as a double: {error}") from None

    entity: ClientQuotaEntity
    ops: tuple[Op, ...]

    def __init__(self, entity: ClientQuotaEntity, ops: Iterable[Op]) -> None:
        if not isinstance(entity, ClientQuotaEntity):
            raise IllegalArgumentError(f"an alteration needs a ClientQuotaEntity, not {entity!r}")
        object.__setattr__(self, "entity", entity)
        object.__setattr__(self, "ops", tuple(ops))
