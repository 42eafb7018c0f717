"""Our own quota file: a list of entries, at the top or under ``quotas``."""

from typing import Final

from kquota.files import nodes
from kquota.files.checker import Checker
from kquota.files.nodes import Node, kind
from kquota.files.quota_file import QuotaFileEntry
from kquota.quotas import ClientQuotaEntity

__all__ = ["EXAMPLE", "read_own"]

EXAMPLE: Final = """\
quotas:
  - entity: {user: alice, client-id: etl}   # null = the default entity of that type
    values: {producer_byte_rate: 1048576, consumer_byte_rate: 10MiB}"""

_TOP_LEVEL = ("quotas",)
_ENTRY = ("entity", "values", "owner", "labels")


def read_own(root: Node, checker: Checker, looks_like: str) -> list[QuotaFileEntry]:
    """The entries under `root`.

    :param looks_like: what is said where this is no list of entries at all.
    """
    where, node = "", root
    if isinstance(root, nodes.Mapping):
        fields = checker.mapping(root, "", "a mapping with the list quotas")
        if "entity" in fields and "quotas" not in fields:
            checker.report(root, "", f"an entry must stand in a list; {looks_like}")
            return []
        checker.only(fields, _TOP_LEVEL, "")
        if "quotas" not in fields:
            if not fields:
                checker.report(root, "", f"there is no list quotas; {looks_like}")
            return []
        where, node = "quotas", fields["quotas"].value
    if not isinstance(node, nodes.Sequence):
        hint = "write [] for none" if where else looks_like
        checker.report(node, where, f"a list of entries is expected, not {kind(node)}; {hint}")
        return []
    entries = [_entry(item, f"{where}[{i}]", checker) for i, item in enumerate(node.items)]
    return [entry for entry in entries if entry is not None]


def _entry(node: Node, where: str, checker: Checker) -> QuotaFileEntry | None:
    fields = checker.mapping(node, where, "an entry with entity and values")
    if not isinstance(node, nodes.Mapping):
        return None
    checker.only(fields, _ENTRY, where)
    checker.required(fields, ("entity", "values"), node, where)
    entity = _entity(fields["entity"].value, f"{where}.entity", checker) if "entity" in fields else None
    values = _values(fields["values"].value, f"{where}.values", entity, checker) if "values" in fields else {}
    owner = checker.text(fields["owner"].value, f"{where}.owner") if "owner" in fields else None
    labels = _labels(fields["labels"].value, f"{where}.labels", checker) if "labels" in fields else {}
    if entity is None:
        return None
    return checker.entry(entity, values, node, where, owner=owner, labels=labels)


def _entity(node: Node, where: str, checker: Checker) -> ClientQuotaEntity | None:
    before = len(checker.problems)
    fields = checker.mapping(node, where, "a mapping of type to name, such as {user: alice}")
    names = {entity_type: checker.name(field.value, f"{where}.{entity_type}") for entity_type, field in fields.items()}
    return None if len(checker.problems) > before else checker.entity(names, node, where)


def _values(node: Node, where: str, entity: ClientQuotaEntity | None, checker: Checker) -> dict[str, float]:
    fields = checker.mapping(node, where, "a mapping of quota key to value")
    if isinstance(node, nodes.Mapping) and not node.pairs:
        checker.report(node, where, "there are no values; leave the entry out")
    values = {key: checker.value(key, field, f"{where}.{key}", entity) for key, field in fields.items()}
    return {key: value for key, value in values.items() if value is not None}


def _labels(node: Node, where: str, checker: Checker) -> dict[str, str]:
    fields = checker.mapping(node, where, "a mapping of label to text")
    texts = {label: checker.text(field.value, f"{where}.{label}") for label, field in fields.items()}
    return {label: text for label, text in texts.items() if text is not None}
