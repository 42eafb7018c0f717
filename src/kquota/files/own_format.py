"""Our own quota file: a list of entries, at the top or under ``quotas``."""

from typing import Final

from kquota.files import nodes
from kquota.files.checker import Part, text_at
from kquota.quotas import ClientQuotaEntity

__all__ = ["EXAMPLE", "read_own"]

EXAMPLE: Final = """\
quotas:
  - entity: {user: alice, client-id: etl}   # null = the default entity of that type
    values: {producer_byte_rate: 1048576, consumer_byte_rate: 10MiB}"""

_TOP_LEVEL = ("quotas",)
_ENTRY = ("entity", "values", "owner", "labels")


def read_own(root: Part, looks_like: str) -> None:
    """The entries under `root`.

    :param looks_like: what is said where this is no list of entries at all.
    """
    part = root
    if isinstance(root.node, nodes.Mapping):
        fields = root.fields()
        if "entity" in fields and "quotas" not in fields:
            root.report(f"an entry must stand in a list; {looks_like}")
            return
        root.only(fields, _TOP_LEVEL)
        if "quotas" not in fields:
            if not fields:
                root.report(f"there is no list quotas; {looks_like}")
            return
        part = fields["quotas"]
    for item in part.items("a list of entries", f"; {'write [] for none' if part.where else looks_like}"):
        _entry(item)


def _entry(part: Part) -> None:
    fields = part.fields("an entry with entity and values", only=_ENTRY)
    if not isinstance(part.node, nodes.Mapping):
        return
    part.required(fields, "entity", "values")
    entity = _entity(fields["entity"]) if "entity" in fields else None
    values = _values(fields["values"], entity) if "values" in fields else {}
    owner = text_at(fields, "owner")
    labels = _labels(fields["labels"]) if "labels" in fields else {}
    if entity is not None:
        part.add(entity, values, owner=owner, labels=labels)


def _entity(part: Part) -> ClientQuotaEntity | None:
    before = len(part.checker.problems)
    fields = part.fields("a mapping of type to name, such as {user: alice}")
    names = {entity_type: field.name() for entity_type, field in fields.items()}
    return None if len(part.checker.problems) > before else part.entity(names)


def _values(part: Part, entity: ClientQuotaEntity | None) -> dict[str, float]:
    fields = part.fields("a mapping of quota key to value")
    if isinstance(part.node, nodes.Mapping) and not part.node.pairs:
        part.report("there are no values; leave the entry out")
    values = {key: field.value(key, entity) for key, field in fields.items()}
    return {key: value for key, value in values.items() if value is not None}


def _labels(part: Part) -> dict[str, str]:
    texts = {label: field.text() for label, field in part.fields("a mapping of label to text").items()}
    return {label: text for label, text in texts.items() if text is not None}
