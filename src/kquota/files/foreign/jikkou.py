"""Jikkou's ``KafkaClientQuota``: the type says which part of the entity is a name and which is a default.

It knows no quotas of addresses, no ``controller_mutation_rate``, and no default user with a client id. A resource that
is marked to be deleted or ignored is left out.
"""

from collections.abc import Mapping
from typing import Final

from kquota.files.checker import Fields, Part
from kquota.files.foreign.resources import Resource, camel_case, inner, values_of
from kquota.files.nodes import Scalar
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


def read(found: list[Resource]) -> None:
    """The entries of all `found`."""
    for one in found:
        _read(one)


def _read(one: Resource) -> None:
    part, problems = one.part, one.part.checker.problems
    part.only(one.fields, _TOP_LEVEL)
    annotations = inner(inner(one.fields, "metadata"), "annotations")
    for mark in _MARKS:
        if mark in annotations and _is_true(annotations[mark]):
            part.leave_out(f"not carried over: it is marked {mark}", at=annotations[mark].key)
            return
    before = len(problems)
    if not part.required(one.fields, "spec"):
        return
    whole = one.fields["spec"]
    spec = whole.fields(only=("type", "entity", "configs"))
    if len(problems) > before or not whole.required(spec, "type", "configs"):
        return
    names = _names(whole, spec)
    values = values_of(inner(spec, "configs", only=map(camel_case, _KEYS)), _KEYS)
    if len(problems) > before or not values:
        return
    entity = whole.entity(names)
    if entity is not None:
        part.add(entity, values)


def _names(whole: Part, spec: Fields) -> dict[str, str | None]:
    of_type = spec["type"]
    kind = of_type.text()
    is_named = _IS_NAMED.get(kind or "")
    if is_named is None:
        if kind is not None:
            of_type.report(f"there is no type {kind!r} (there are {', '.join(_IS_NAMED)})")
        return {}
    entity = inner(spec, "entity", only=_FIELDS.values())
    names: dict[str, str | None] = {}
    for entity_type, name in _FIELDS.items():
        field = entity.get(name)
        is_empty = field is None or (isinstance(field.node, Scalar) and (field.node.is_null or not field.node.text))
        if is_named.get(entity_type) is True:
            if field is None or is_empty:
                whole.below("entity").report(f"{name} is missing: {kind} needs its name", at=of_type.node)
            else:
                names[entity_type] = field.text()
        elif field is not None and not is_empty:
            what = "is for a default" if entity_type in is_named else "does not use it"
            field.report(f"{name} is set, and {kind} {what}; leave it out")
        elif entity_type in is_named:
            names[entity_type] = None
    return names


def _is_true(field: Part) -> bool:
    return isinstance(field.node, Scalar) and field.node.text.lower() == "true"
