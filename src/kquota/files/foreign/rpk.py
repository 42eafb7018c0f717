"""What ``rpk cluster quotas describe --format yaml|json`` prints, and ``rpk cluster quotas import`` reads.

An entity is a list of parts with a type and a name, values are a list of a key and its number as text (called
``values``). A default has the name ``<default>``, so that a user of that name cannot be told from it. Redpanda's type
``client-id-prefix`` is left out: Kafka has no quotas by prefix.
"""

from dataclasses import replace
from typing import Final

from kquota.files import nodes
from kquota.files.checker import Part
from kquota.files.nodes import Node, Scalar
from kquota.quotas import ClientQuotaEntity

__all__ = ["is_rpk", "read"]

PREFIX: Final = "client-id-prefix"
DEFAULT: Final = "<default>"


def is_rpk(root: Part) -> bool:
    """Whether the entities under ``quotas`` are lists, as rpk has them, and not mappings, as we have them.

    Where some are the one and some the other, that is reported.
    """
    entities = list(_entities(root.node))
    lists = [node for node in entities if isinstance(node, nodes.Sequence)]
    mappings = [node for node in entities if isinstance(node, nodes.Mapping)]
    if lists and mappings:
        reason = "entries of two formats: this entity is a list, as rpk has it, others are mappings, as kquota has them"
        root.below("quotas").report(reason, at=lists[0])
    return bool(lists) and not mappings


def _entities(root: Node) -> list[Node]:
    """What stands under ``entity`` in each item of ``quotas``."""
    items = _under(root, "quotas")
    return [e for item in (items.items if isinstance(items, nodes.Sequence) else []) if (e := _under(item, "entity"))]


def _under(node: Node, name: str) -> Node | None:
    if not isinstance(node, nodes.Mapping):
        return None
    return next((value for key, value in node.pairs if isinstance(key, Scalar) and key.text == name), None)


def read(root: Part) -> None:
    """The entries of an export of rpk."""
    for item in root.fields(only=("quotas",))["quotas"].items("a list"):
        _read(item)


def _read(part: Part) -> None:
    fields = part.fields("an entry with entity and values", only=("entity", "values"))
    if not part.required(fields, "entity", "values"):
        return
    before = len(part.checker.problems)
    names = _names(fields["entity"])
    if len(part.checker.problems) > before:
        return
    if PREFIX in names:
        part.leave_out(
            f"not carried over: Kafka has no quotas by prefix ({PREFIX} {names[PREFIX]!r}); write an entry for each "
            "client id that begins so"
        )
        return
    entity = fields["entity"].entity(names)
    values = _values(fields["values"], entity)
    if entity is not None:
        part.add(entity, values)


def _names(whole: Part) -> dict[str, str | None]:
    names: dict[str, str | None] = {}
    for part in whole.items("a list of parts with name and type"):
        fields = part.fields("a part with name and type", only=("name", "type"))
        if not part.required(fields, "name", "type"):
            continue
        entity_type = fields["type"].text()
        name = fields["name"].text()
        if entity_type is not None and entity_type in names:
            part.report(f"{entity_type} appears twice", at=fields["type"].node)
        elif entity_type is not None and name is not None:
            names[entity_type] = None if name == DEFAULT else name
    return names


def _values(whole: Part, entity: ClientQuotaEntity | None) -> dict[str, float]:
    values: dict[str, float] = {}
    items = whole.items("a list of values with key and values")
    if isinstance(whole.node, nodes.Sequence) and not items:
        whole.report("there are no values; leave the entry out")
    for part in items:
        fields = part.fields("a value with key and values", only=("key", "values"))
        if not part.required(fields, "key", "values"):
            continue
        key_node = fields["key"].node
        key = fields["key"].text()
        if key is None or not isinstance(key_node, Scalar):
            continue
        if key in values:
            part.report(f"{key} appears twice", at=key_node)
            continue
        value = replace(part, node=fields["values"].node, key=key_node).value(key, entity)
        if value is not None:
            values[key] = value
    return values
