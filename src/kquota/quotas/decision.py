"""``decide``: what Kafka's controller would make of a list of alterations, as a value.

Source: ``ClientQuotaControlManager.alterClientQuotas`` (KRaft), checked against a running 4.3.0. Nothing is changed
here; ``Decision.apply`` gives the snapshot that follows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from types import MappingProxyType
from typing import Final

from kquota.errors import ApiError, KafkaErrorCode
from kquota.quotas.address import is_literal_ip
from kquota.quotas.alteration import ClientQuotaAlteration
from kquota.quotas.entity import CLIENT_ID, IP, USER, ClientQuotaEntity, QuotaSnapshot
from kquota.quotas.java_map import hash_map_order
from kquota.quotas.model import KAFKA, QuotaKey, QuotaModel

__all__ = [
    "MAX_CHANGES_PER_REQUEST",
    "MAX_NAME_BYTES",
    "Decision",
    "QuotaChange",
    "apply_changes",
    "decide",
    "is_same_value",
]

MAX_CHANGES_PER_REQUEST: Final = 10_000
"""``QuorumController.MAX_RECORDS_PER_USER_OP``."""

MAX_NAME_BYTES: Final = 32_767
"""The longest name, in UTF-8: a longer one cannot be sent, the length of a text in Kafka's protocol being an int16."""

_NO_VALUES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """One value that changes; None stands for "not set". ``before`` and ``after`` always differ."""

    entity: ClientQuotaEntity
    key: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What would change, and the result of each entity: None if accepted (also if nothing changes), else why not.

    ``results`` is in the order in which the entities were first named. An entity that was named twice has a failed
    result, but what its first alteration asked for is among the ``changes`` all the same: that is what Kafka does.
    """

    changes: tuple[QuotaChange, ...]
    results: Mapping[ClientQuotaEntity, ApiError | None]

    @property
    def accepted(self) -> bool:
        """Whether every entity was accepted."""
        return all(error is None for error in self.results.values())

    def apply(self, snapshot: QuotaSnapshot) -> dict[ClientQuotaEntity, Mapping[str, float]]:
        """The snapshot after the changes; the given one stays as it is."""
        return apply_changes(snapshot, self.changes)


def decide(
    snapshot: QuotaSnapshot,
    alterations: Iterable[ClientQuotaAlteration],
    *,
    model: QuotaModel = KAFKA,
    is_resolvable_ip: Callable[[str], bool] = is_literal_ip,
    max_changes: int | None = MAX_CHANGES_PER_REQUEST,
) -> Decision:
    """Evaluate ``alterations`` in order: atomic per entity, partial success across entities.

    ``is_resolvable_ip`` answers what the broker asks its resolver; looking a host name up is I/O, so the default
    takes only literal addresses. ``max_changes`` (None: any number) is the size from which Kafka refuses the whole
    request.

    A name that no answer could hold is refused after all that Kafka refuses, and only where a value is set: what has
    such a name can be removed. A request can bring one, because a byte that is not UTF-8 is read as three.
    """
    changes: list[QuotaChange] = []
    results: dict[ClientQuotaEntity, ApiError | None] = {}
    for alteration in alterations:
        entity = alteration.entity
        ops = {op.key: op.value for op in alteration.ops}
        # A key named twice marks the entity as failed, and then the duplicate check below replaces the message.
        if entity in results or len(ops) < len(alteration.ops):
            results[entity] = _invalid(f"Ignoring duplicate entity {entity}")
            continue
        checked = _keys_or_error(entity, model, is_resolvable_ip)
        if isinstance(checked, ApiError):
            results[entity] = checked
            continue
        outcome = _evaluate(entity, ops, snapshot.get(entity, _NO_VALUES), checked)
        if isinstance(outcome, ApiError):
            results[entity] = outcome
        else:
            results[entity] = None
            changes += outcome
    if max_changes is not None and len(changes) > max_changes:
        refused = ApiError(KafkaErrorCode.POLICY_VIOLATION, "Request parameters do not satisfy the configured policy.")
        return Decision((), MappingProxyType(dict.fromkeys(results, refused)))
    return Decision(tuple(changes), MappingProxyType(results))


def is_same_value(before: float | None, after: float | None) -> bool:
    """Whether setting `after` would change nothing; NaN, which Kafka keeps, is the same as NaN."""
    if before is None or after is None:
        return before is after
    return before == after or (isnan(before) and isnan(after))


def apply_changes(
    snapshot: QuotaSnapshot, changes: Iterable[QuotaChange]
) -> dict[ClientQuotaEntity, Mapping[str, float]]:
    """A new snapshot with ``changes`` made. An entity that loses its last key goes, as in Kafka's image."""
    result = dict(snapshot)
    touched: dict[ClientQuotaEntity, dict[str, float]] = {}
    entity: ClientQuotaEntity | None = None
    values: dict[str, float] = {}
    for change in changes:
        if change.entity is not entity:  # those of one entity mostly stand together
            entity = change.entity
            known = touched.get(entity)
            if known is None:
                known = touched[entity] = dict(snapshot.get(entity, _NO_VALUES))
            values = known
        if change.after is None:
            values.pop(change.key, None)
        else:
            values[change.key] = change.after
    for entity, values in touched.items():
        if values:
            result[entity] = values
        else:
            result.pop(entity, None)
    return result


def _keys_or_error(
    entity: ClientQuotaEntity, model: QuotaModel, is_resolvable_ip: Callable[[str], bool]
) -> Mapping[str, QuotaKey] | ApiError:
    """The keys that may be set on ``entity``, or why it is not an entity."""
    entries = entity.entries
    if not entries:
        return _invalid("Invalid empty client quota entity")
    for entity_type in entity.java_order():
        if entity_type not in model.entity_types:
            return _invalid(f"Unhandled client quota entity type: {entity_type}")
        if entries[entity_type] == "":
            return _invalid(f"Empty {entity_type} not supported")
    keys = model.keys_for(entries)
    if keys is None:
        if IP in entries and (USER in entries or CLIENT_ID in entries):
            # "shouldnot" is how Kafka spells it.
            return _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
        return _invalid(f"Invalid quota entity combination: {', '.join(entity.java_order())}")
    ip = entries.get(IP)
    if ip is not None and not is_resolvable_ip(ip):
        return _invalid(f"{ip} is not a valid IP or resolvable host.")
    return keys


def _too_long(entity: ClientQuotaEntity) -> ApiError | None:
    """The refusal of an entity with a name that cannot be sent."""
    for entity_type, name in entity.entries.items():
        # A character has four bytes at most.
        if name is not None and len(name) * 4 > MAX_NAME_BYTES and (size := len(name.encode())) > MAX_NAME_BYTES:
            return _invalid(f"The name of the {entity_type} has {size} bytes, {MAX_NAME_BYTES} are the most")
    return None


def _evaluate(
    entity: ClientQuotaEntity,
    ops: Mapping[str, float | None],
    current: Mapping[str, float],
    keys: Mapping[str, QuotaKey],
) -> list[QuotaChange] | ApiError:
    """The changes that ``ops`` make to ``current``, or the first refusal in Kafka's order."""
    changes: list[QuotaChange] = []
    for name in hash_map_order(ops):
        after = ops[name]
        before = current.get(name)
        if after is None:
            # Removing is never validated: an unknown key, or one that is not set, is a success without a change.
            if before is not None:
                changes.append(QuotaChange(entity, name, before, None))
            continue
        key = keys.get(name)
        if key is None:
            return _invalid(f"Invalid configuration key {name}")
        refusal = key.refusal(after)
        if refusal is not None:
            return _invalid(refusal)
        if not is_same_value(before, after):
            changes.append(QuotaChange(entity, name, before, after))
    sets_values = any(after is not None for after in ops.values())
    return (_too_long(entity) if sets_values else None) or changes


def _invalid(message: str) -> ApiError:
    return ApiError(KafkaErrorCode.INVALID_REQUEST, message)
