"""Plans written as JSON and read again, strictly: what was changed or cut short on the way is not taken for a plan."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any, Final

from kquota.errors import IllegalArgumentError, InputError
from kquota.files.plain_json import dump_json
from kquota.policy.findings import Finding, Severity
from kquota.policy.impact import Impact
from kquota.policy.plan import Plan, PlannedChange, PlanTarget
from kquota.quotas import ClientQuotaEntity, QuotaChange, QuotaSnapshot, is_same_value
from kquota.quotas.entity import canonical_types

__all__ = ["is_plan", "read_plan", "write_plan"]

FORMAT: Final = 2

_FIELDS: Final = ("format", "target", "base", "changes", "unchanged", "checksum")
_CHANGE: Final = ("entity", "key", "before", "after", "impact", "warnings")
_FINDING: Final = ("rule", "severity", "entity", "key", "message")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BEGINNING: Final = re.compile(r'\s*\{\s*"(?:format|target|base|changes|unchanged|checksum)"\s*:')
_AGAIN: Final = "make a new one with kquota plan"


def write_plan(plan: Plan) -> str:
    """The plan as JSON, one line for each change."""
    fields = _fields(plan)
    fields["checksum"] = _checksum(fields)
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


def _fields(plan: Plan) -> dict[str, object]:
    """The plan as plain values, without its checksum."""
    return {
        "format": FORMAT,
        "target": {"id": plan.target.id, "name": plan.target.name},
        "base": plan.base,
        "changes": [
            {
                "entity": _names(change.entity),
                "key": change.key,
                "before": change.before,
                "after": change.after,
                "impact": None if change.impact is None else asdict(change.impact),
                "warnings": [_finding(warning) for warning in change.warnings],
            }
            for change in plan.changes
        ],
        "unchanged": [
            {"entity": _names(entity), "values": dict(sorted(values.items()))}
            for entity, values in sorted(plan.unchanged.items(), key=lambda pair: pair[0].sort_key())
        ],
    }


def _finding(warning: Finding) -> dict[str, object]:
    entity = None if warning.entity is None else _names(warning.entity)
    return {
        "rule": warning.rule,
        "severity": warning.severity.value,
        "entity": entity,
        "key": warning.key,
        "message": warning.message,
    }


def _names(entity: ClientQuotaEntity) -> dict[str, str | None]:
    return {entity_type: entity.entries[entity_type] for entity_type in canonical_types(entity.entries)}


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
        raise _DamagedError(f"the plan is damaged: an object has a field twice; {_AGAIN}")
    return found


def _refuse_constant(name: str) -> None:
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
    _only(found, _FIELDS, "the plan")
    target = _object(found["target"], ("id", "name"), "target")
    if not isinstance(target["id"], str | None) or not isinstance(target["name"], str):
        raise _damaged("target", "an id, or null, and a name are expected")
    changes = sorted(
        (_change(one, f"changes[{place}]") for place, one in enumerate(_list(found["changes"], "changes"))),
        key=lambda change: (change.entity.sort_key(), change.key),
    )
    if len({(change.entity, change.key) for change in changes}) < len(changes):
        raise _damaged("changes", "a value is changed twice")
    plan = Plan(PlanTarget(target["id"], target["name"]), tuple(changes), _unchanged(found["unchanged"], changes))
    written = _fields(plan)
    if found["base"] != written["base"] or found["checksum"] != _checksum(written):
        raise _DamagedError(
            "this is not the plan that was made: it was changed by hand, or damaged on the way. Change the quota file "
            f"instead, and {_AGAIN}"
        )
    return plan


def _change(node: Any, where: str) -> PlannedChange:
    fields = _object(node, _CHANGE, where)
    entity = _entity(fields["entity"], f"{where}.entity")
    key = _text(fields["key"], f"{where}.key")
    before, after = _number(fields["before"], f"{where}.before"), _number(fields["after"], f"{where}.after")
    if is_same_value(before, after):
        raise _damaged(where, "it changes nothing")
    impact = _impact(fields["impact"], f"{where}.impact")
    warnings = _list(fields["warnings"], f"{where}.warnings")
    found = tuple(_warning(warning, f"{where}.warnings[{place}]") for place, warning in enumerate(warnings))
    return PlannedChange(entity, key, before, after, impact, found)


def _impact(node: Any, where: str) -> Impact | None:
    if node is None:
        return None
    found = _object(node, tuple(field.name for field in fields(Impact)), where)
    import msgspec  # noqa: PLC0415 - few plans have impacts

    try:
        return msgspec.convert(found, Impact, strict=False)  # as floats are written, NaN is text
    except msgspec.ValidationError as error:
        raise _damaged(where, str(error)) from None


def _warning(node: Any, where: str) -> Finding:
    fields = _object(node, _FINDING, where)
    entity = None if fields["entity"] is None else _entity(fields["entity"], f"{where}.entity")
    key = None if fields["key"] is None else _text(fields["key"], f"{where}.key")
    if fields["severity"] not in list(Severity):
        raise _damaged(f"{where}.severity", "error, warning or info is expected")
    rule, message = _text(fields["rule"], f"{where}.rule"), _text(fields["message"], f"{where}.message")
    return Finding(rule, Severity(fields["severity"]), entity, key, message)


def _unchanged(node: Any, changes: Iterable[QuotaChange]) -> QuotaSnapshot:
    found: dict[ClientQuotaEntity, dict[str, float]] = {}
    changed = {(change.entity, change.key) for change in changes}
    touched = {change.entity for change in changes}
    for place, one in enumerate(_list(node, "unchanged")):
        where = f"unchanged[{place}]"
        fields = _object(one, ("entity", "values"), where)
        entity = _entity(fields["entity"], f"{where}.entity")
        if not isinstance(fields["values"], dict):
            raise _damaged(f"{where}.values", "an object is expected")
        values: dict[str, float] = {}
        for key, value in fields["values"].items():
            number = _number(value, f"{where}.values.{key}")
            if number is None or (entity, _text(key, where)) in changed:
                raise _damaged(f"{where}.values.{key}", "a value that is not changed is expected")
            values[key] = number
        if entity in found or entity not in touched:
            raise _damaged(where, "an entity that is changed is expected, and once")
        found[entity] = values
    return found


def _entity(node: Any, where: str) -> ClientQuotaEntity:
    if not isinstance(node, dict) or not all(isinstance(name, str | None) for name in node.values()):
        raise _damaged(where, "an object of names is expected")
    try:
        return ClientQuotaEntity(node)
    except IllegalArgumentError as error:
        raise _damaged(where, str(error)) from None


def _number(node: Any, where: str) -> float | None:
    if node is None:
        return None
    if isinstance(node, str) and node in _SPECIAL:
        return _SPECIAL[node]
    if isinstance(node, int | float) and not isinstance(node, bool):
        try:
            number = float(node)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise _damaged(where, 'a number, "NaN", "Infinity" or null is expected')


def _text(node: Any, where: str) -> str:
    try:
        if isinstance(node, str) and node.encode():
            return node
    except UnicodeEncodeError:
        pass
    raise _damaged(where, "text is expected")


def _list(node: Any, where: str) -> list[Any]:
    if not isinstance(node, list):
        raise _damaged(where, "a list is expected")
    return node


def _object(node: Any, names: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise _damaged(where, "an object is expected")
    _only(node, names, where)
    return node


def _only(node: dict[str, Any], names: tuple[str, ...], where: str) -> None:
    different = sorted(node.keys() ^ set(names))
    if different:
        what = "is missing" if different[0] in names else "is not known"
        raise _damaged(where, f"{different[0]} {what}")


def _damaged(where: str, reason: str) -> _DamagedError:
    return _DamagedError(f"the plan is damaged: {where}: {reason}; {_AGAIN}")
