"""Jikkou's ``KafkaClientQuota``: the type says which part of the entity is a name and which is a default.

It knows no quotas of addresses, no ``controller_mutation_rate``, and no default user with a client id. A resource that
is marked to be deleted or ignored is left out.
"""

from collections.abc import Mapping
from typing import Final

from kquota.files.checker import Checker, Field
from kquota.files.foreign.resources import Resource, camel_case, inner, path, text_at, values_of
from kquota.files.nodes import Scalar
from kquota.files.quota_file import QuotaFileEntry
from kquota.quotas import CLIENT_ID, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, USER

__all__ = ["GROUP", "KIND", "read"]

GROUP: Final = "kafka.jikkou.io"
KIND: Final = "KafkaClientQuota"
_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
_TOP_LEVEL: Final = ("apiVersion", "kind", "metadata", "spec")
_MARKS: Final = ("jikkou.io/delete", "jikkou.io/ignore")
_FIELDS: Final = {USER: "user", CLIENT_ID: "clientId"}
_IS_NAMED: Final[Mapping[str, Mapping[str, bool]]] = {
    "USER": {USER: True},
    "USERS_DEFAULT": {USER: False},
    "USER_CLIENT": {USER: True, CLIENT_ID: True},
    "USER_ALL_CLIENTS": {USER: True, CLIENT_ID: False},
    "CLIENT": {CLIENT_ID: True},
    "CLIENTS_DEFAULT": {CLIENT_ID: False},
}
"""The parts of the entity of each type, and whether they are names or defaults."""


def read(found: list[Resource], checker: Checker) -> list[QuotaFileEntry]:
    """The entries of all `found`."""
    entries = [_entry(one, checker) for one in found]
    return [entry for entry in entries if entry is not None]


def _entry(one: Resource, checker: Checker) -> QuotaFileEntry | None:
    checker.only(one.fields, _TOP_LEVEL, one.where)
    metadata = inner(one.fields, "metadata", one.where, checker)
    annotations = inner(metadata, "annotations", path(one.where, "metadata"), checker)
    for mark in _MARKS:
        if mark in annotations and _is_true(annotations[mark]):
            checker.leave_out(annotations[mark].key, one.where, f"not carried over: it is marked {mark}")
            return None
    before = len(checker.problems)
    where = path(one.where, "spec")
    if not checker.required(one.fields, ("spec",), one.node, one.where):
        return None
    spec_node = one.fields["spec"].value
    spec = inner(one.fields, "spec", one.where, checker)
    checker.only(spec, ("type", "entity", "configs"), where)
    if len(checker.problems) > before or not checker.required(spec, ("type", "configs"), spec_node, where):
        return None
    names = _names(spec, where, checker)
    configs = inner(spec, "configs", where, checker)
    checker.only(configs, map(camel_case, _KEYS), path(where, "configs"))
    values = values_of(configs, _KEYS, path(where, "configs"), checker)
    if len(checker.problems) > before or not values:
        return None
    entity = checker.entity(names, spec_node, where)
    return None if entity is None else checker.entry(entity, values, one.node, one.where)


def _names(spec: Mapping[str, Field], where: str, checker: Checker) -> dict[str, str | None]:
    kind = text_at(spec, "type", where, checker)
    is_named = _IS_NAMED.get(kind or "")
    if is_named is None:
        if kind is not None:
            reason = f"there is no type {kind!r} (there are {', '.join(_IS_NAMED)})"
            checker.report(spec["type"].value, path(where, "type"), reason)
        return {}
    place = path(where, "entity")
    entity = inner(spec, "entity", where, checker)
    checker.only(entity, _FIELDS.values(), place)
    names: dict[str, str | None] = {}
    for entity_type, name in _FIELDS.items():
        field = entity.get(name)
        is_empty = field is None or (isinstance(field.value, Scalar) and (field.value.is_null or not field.value.text))
        if is_named.get(entity_type) is True:
            if field is None or is_empty:
                checker.report(spec["type"].value, place, f"{name} is missing: {kind} needs its name")
            else:
                names[entity_type] = checker.text(field.value, path(place, name))
        elif field is not None and not is_empty:
            what = "is for a default" if entity_type in is_named else "does not use it"
            checker.report(field.value, path(place, name), f"{name} is set, and {kind} {what}; leave it out")
        elif entity_type in is_named:
            names[entity_type] = None
    return names


def _is_true(field: Field) -> bool:
    return isinstance(field.value, Scalar) and field.value.text.lower() == "true"
