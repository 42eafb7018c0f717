"""What ``rpk cluster quotas describe --format yaml|json`` prints, and ``rpk cluster quotas import`` reads.

An entity is a list of parts with a type and a name, values are a list of a key and its number as text (called
``values``). A default has the name ``<default>``, so that a user of that name cannot be told from it. Redpanda's type
``client-id-prefix`` is left out: Kafka has no quotas by prefix.
"""

from typing import Final

from kquota.files import nodes
from kquota.files.checker import Checker, Field
from kquota.files.nodes import Node, Scalar, kind
from kquota.files.quota_file import QuotaFileEntry
from kquota.quotas import ClientQuotaEntity

__all__ = ["is_rpk", "read"]

PREFIX: Final = "client-id-prefix"
DEFAULT: Final = "<default>"


def is_rpk(root: Node, checker: Checker) -> bool:
    """Whether the entities under ``quotas`` are lists, as rpk has them, and not mappings, as we have them.

    Where some are the one and some the other, that is reported.
    """
    entities = list(_entities(root))
    lists = [node for node in entities if isinstance(node, nodes.Sequence)]
    mappings = [node for node in entities if isinstance(node, nodes.Mapping)]
    if lists and mappings:
        reason = "entries of two formats: this entity is a list, as rpk has it, others are mappings, as kquota has them"
        checker.report(lists[0], "quotas", reason)
    return bool(lists) and not mappings


def _entities(root: Node) -> list[Node]:
    """What stands under ``entity`` in each item of ``quotas``."""
    items = _under(root, "quotas")
    return [e for item in (items.items if isinstance(items, nodes.Sequence) else []) if (e := _under(item, "entity"))]


def _under(node: Node, name: str) -> Node | None:
    if not isinstance(node, nodes.Mapping):
        return None
    return next((value for key, value in node.pairs if isinstance(key, Scalar) and key.text == name), None)


def read(root: Node, checker: Checker) -> list[QuotaFileEntry]:
    """The entries of an export of rpk."""
    fields = checker.mapping(root, "", "a mapping with the list quotas")
    checker.only(fields, ("quotas",), "")
    quotas = fields["quotas"].value
    entries = [
        _entry(item, f"quotas[{i}]", checker)
        for i, item in enumerate(quotas.items if isinstance(quotas, nodes.Sequence) else [])
    ]
    return [entry for entry in entries if entry is not None]


def _entry(node: Node, where: str, checker: Checker) -> QuotaFileEntry | None:
    fields = checker.mapping(node, where, "an entry with entity and values")
    checker.only(fields, ("entity", "values"), where)
    if not checker.required(fields, ("entity", "values"), node, where):
        return None
    before = len(checker.problems)
    names = _names(fields["entity"].value, f"{where}.entity", checker)
    if len(checker.problems) > before:
        return None
    if PREFIX in names:
        reason = (
            f"not carried over: Kafka has no quotas by prefix ({PREFIX} {names[PREFIX]!r}); write an entry for each "
            "client id that begins so"
        )
        checker.leave_out(node, where, reason)
        return None
    entity = checker.entity(names, fields["entity"].value, f"{where}.entity")
    values = _values(fields["values"].value, f"{where}.values", entity, checker)
    return None if entity is None else checker.entry(entity, values, node, where)


def _names(node: Node, where: str, checker: Checker) -> dict[str, str | None]:
    names: dict[str, str | None] = {}
    for i, part in enumerate(_items(node, where, "a list of parts with name and type", checker)):
        place = f"{where}[{i}]"
        fields = checker.mapping(part, place, "a part with name and type")
        checker.only(fields, ("name", "type"), place)
        if not checker.required(fields, ("name", "type"), part, place):
            continue
        entity_type = checker.text(fields["type"].value, f"{place}.type")
        name = checker.text(fields["name"].value, f"{place}.name")
        if entity_type is not None and entity_type in names:
            checker.report(fields["type"].value, place, f"{entity_type} appears twice")
        elif entity_type is not None and name is not None:
            names[entity_type] = None if name == DEFAULT else name
    return names


def _values(node: Node, where: str, entity: ClientQuotaEntity | None, checker: Checker) -> dict[str, float]:
    values: dict[str, float] = {}
    items = _items(node, where, "a list of values with key and values", checker)
    if isinstance(node, nodes.Sequence) and not items:
        checker.report(node, where, "there are no values; leave the entry out")
    for i, item in enumerate(items):
        place = f"{where}[{i}]"
        fields = checker.mapping(item, place, "a value with key and values")
        checker.only(fields, ("key", "values"), place)
        if not checker.required(fields, ("key", "values"), item, place):
            continue
        key_node = fields["key"].value
        key = checker.text(key_node, f"{place}.key")
        if key is None or not isinstance(key_node, Scalar):
            continue
        if key in values:
            checker.report(key_node, place, f"{key} appears twice")
            continue
        value = checker.value(key, Field(key_node, fields["values"].value), place, entity)
        if value is not None:
            values[key] = value
    return values


def _items(node: Node, where: str, expected: str, checker: Checker) -> list[Node]:
    if isinstance(node, nodes.Sequence):
        return node.items
    checker.report(node, where, f"{expected} is expected, not {kind(node)}")
    return []
