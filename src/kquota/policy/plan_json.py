"""Plans written as JSON and read again, strictly: what was changed or cut short on the way is not taken for a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NoReturn

from kquota.errors import IllegalArgumentError, InputError
from kquota.files.plain_json import dump_json
from kquota.policy.plan import Plan, PlannedChange, PlanTarget
from kquota.quotas import ClientQuotaEntity, is_same_value
from kquota.quotas.entity import canonical_types, check_text

__all__ = ["is_plan", "read_plan", "write_plan"]

FORMAT: Final = 2

_FIELDS: Final = ("format", "target", "base", "changes", "unchanged", "checksum")
_BEGINNING: Final = re.compile(r'\s*\{\s*"(?:format|target|base|changes|unchanged|checksum)"\s*:')
_AGAIN: Final = "make a new one with kquota plan"


def write_plan(plan: Plan) -> str:
    """The plan as JSON, one line for each change."""
    fields = _fields(plan)
    lines = [f"{dump_json(name)}: {_lines(value)}" for name, value in fields.items()]
    return "{" + ",\n ".join(lines) + "}\n"


def is_plan(text: bytes) -> bool:
    """Whether this is meant to be a plan, whole or cut short, and not a quota file."""
    decoded = text.decode("utf-8", errors="replace").removeprefix("\ufeff")
    if not decoded.lstrip().startswith("{"):
        return False
    try:
        found = json.loads(decoded)
    except (ValueError, RecursionError):
        return _BEGINNING.match(decoded) is not None
    return isinstance(found, dict) and "quotas" not in found and not found.keys().isdisjoint(_FIELDS)


def read_plan(text: str | bytes, *, name: str) -> Plan:
    """The plan in a file called `name`.

    :raises InputError: it is no plan, one of another format, or not as it was written.
    """
    try:
        return _plan(_decoded(text))
    except _DamagedError as error:
        raise InputError(f"{name}: {error}") from None
    except RecursionError:
        raise InputError(f"{name}: this is no plan: it is nested too deeply") from None


class _DamagedError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """The values of an entity that a plan touches and does not change."""

    entity: ClientQuotaEntity
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class _PlanFile:
    """The fields that a plan is read from. What they are in JSON follows from the types, with two hooks."""

    target: PlanTarget
    changes: tuple[PlannedChange, ...]
    unchanged: tuple[_Unchanged, ...]


def _fields(plan: Plan) -> dict[str, Any]:
    """The plan as plain values."""
    import msgspec  # noqa: PLC0415 - only who reads or writes plans loads it

    unchanged = sorted(plan.unchanged.items(), key=lambda pair: pair[0].sort_key())
    fields = {
        "format": FORMAT,
        "target": msgspec.to_builtins(plan.target),
        "base": plan.base,
        "changes": msgspec.to_builtins(list(plan.changes), enc_hook=_names),
        "unchanged": [
            {"entity": _names(entity), "values": dict(sorted(values.items()))} for entity, values in unchanged
        ],
    }
    return {**fields, "checksum": _checksum(fields)}


def _names(entity: object) -> dict[str, str | None]:
    assert isinstance(entity, ClientQuotaEntity)
    return {entity_type: entity.entries[entity_type] for entity_type in canonical_types(entity.entries)}


def _entity(kind: type, node: object) -> ClientQuotaEntity:
    assert kind is ClientQuotaEntity
    if not isinstance(node, dict):
        raise TypeError("an object of names is expected")
    return ClientQuotaEntity(node)


def _lines(value: object) -> str:
    if not isinstance(value, list) or not value:
        return dump_json(value)
    return "[\n  " + ",\n  ".join([dump_json(item) for item in value]) + "\n ]"


def _checksum(fields: Mapping[str, object]) -> str:
    """Of everything that the fields say, and not of how it is written."""
    return f"sha256:{sha256(dump_json(_sorted(fields)).encode('utf-8', 'surrogatepass')).hexdigest()}"


def _sorted(value: object) -> object:
    match value:
        case Mapping():
            return {key: _sorted(value[key]) for key in sorted(value)}
        case list() | tuple():
            return [_sorted(item) for item in value]
        case _:
            return value


def _decoded(text: str | bytes) -> dict[str, Any]:
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        found = json.loads(decoded.removeprefix("\ufeff"), object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _DamagedError(
            f"this is no plan, or it was cut short: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ValueError as error:  # bytes that are no text, digits without end
        raise _DamagedError(f"this is no plan: {error}") from None
    if not isinstance(found, dict):
        raise _DamagedError("this is no plan: an object with format and changes is expected")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _damaged("an object has a field twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise _DamagedError(f"this is no plan: JSON has no {name}")


def _plan(found: dict[str, Any]) -> Plan:
    if "format" not in found:
        raise _DamagedError(f"this is no plan: it has no format; {_AGAIN}")
    number = found["format"]
    if type(number) is not int or number != FORMAT:
        raise _DamagedError(
            f"the plan has format {number!r}, and this kquota reads format {FORMAT}: use the kquota that wrote it, "
            f"or {_AGAIN}"
        )
    import msgspec  # noqa: PLC0415 - only who reads or writes plans loads it

    try:
        # Not strict, since numbers that JSON has not are written as text; so is what comes out compared with the file.
        file = msgspec.convert(found, _PlanFile, strict=False, dec_hook=_entity)
        plan = Plan(file.target, file.changes, {one.entity: one.values for one in file.unchanged})
        _check_changes(plan)
    except (msgspec.ValidationError, IllegalArgumentError) as error:
        raise _damaged(str(error)) from None
    if dump_json(_sorted(found)) != dump_json(_sorted(_fields(plan))):
        raise _DamagedError(
            "this is not the plan that was made: it was changed by hand, or damaged on the way. Change the quota file "
            f"instead, and {_AGAIN}"
        )
    return plan


def _check_changes(plan: Plan) -> None:
    changed = {(change.entity, change.key) for change in plan.changes}
    if len(changed) < len(plan.changes):
        raise _damaged("changes: a value is changed twice")
    for change in plan.changes:
        if not change.key:
            raise _damaged("changes: a key is expected")
        check_text(change.key, "the key of a change")
        if is_same_value(change.before, change.after):
            raise _damaged("changes: a value does not change")
    touched = set(plan.entities)
    for entity, values in plan.unchanged.items():
        if entity not in touched or any((entity, key) in changed for key in values):
            raise _damaged("unchanged: other values of the entities that are changed are expected")


def _damaged(reason: str) -> _DamagedError:
    return _DamagedError(f"the plan is damaged: {reason}; {_AGAIN}")
