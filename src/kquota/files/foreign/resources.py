"""Resources as Kubernetes has them: an ``apiVersion``, a ``kind``, one in each document or several in a list."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kquota.files import nodes
from kquota.files.checker import Checker, Fields, Part, text_at
from kquota.files.nodes import Document, Node, Scalar

__all__ = ["Resource", "are_resources", "camel_case", "inner", "resources", "values_of"]


class Resource(NamedTuple):
    """One resource, its fields unread."""

    api_version: str
    kind: str
    fields: Fields
    part: Part

    @property
    def group(self) -> str:
        """The part of ``apiVersion`` before the version, such as ``kafka.strimzi.io``."""
        return self.api_version.partition("/")[0]


def are_resources(root: Node) -> bool:
    """Whether this is a resource, or a list of them: what has a kind or an apiVersion."""
    first = root.items[0] if isinstance(root, nodes.Sequence) and root.items else root
    return isinstance(first, nodes.Mapping) and any(
        isinstance(key, Scalar) and key.text in ("apiVersion", "kind") for key, _ in first.pairs
    )


def resources(documents: Iterable[Document], checker: Checker) -> list[Resource]:
    """All resources of the file, those in a ``List`` (or a ``KafkaUserList`` and the like) one by one."""
    roots = [Part(checker, document.root, "") for document in documents]
    parts = [part for one in roots for part in (one.items("") if isinstance(one.node, nodes.Sequence) else [one])]
    return [resource for part in parts for resource in _flat(part)]


def _flat(part: Part, api_version: str = "", kind: str = "") -> Iterator[Resource]:
    """A resource and what it lists; `api_version` and `kind` are those that the items of its list need not repeat."""
    fields = part.fields("a resource with apiVersion and kind")
    if not isinstance(part.node, nodes.Mapping):
        return
    before = len(part.checker.problems)
    if "apiVersion" in fields or not api_version:
        part.required(fields, "apiVersion")
        api_version = text_at(fields, "apiVersion") or ""
    if "kind" in fields or not kind:
        part.required(fields, "kind")
        kind = text_at(fields, "kind") or ""
    if len(part.checker.problems) > before:
        return
    items = fields.get("items")
    if not kind.endswith("List") or items is None or not isinstance(items.node, nodes.Sequence):
        yield Resource(api_version, kind, fields, part)
        return
    of_items = ("", "") if kind == "List" else (api_version, kind.removesuffix("List"))
    for item in items.items("a list"):
        yield from _flat(item, *of_items)


def inner(fields: Fields, name: str, *, only: Iterable[str] | None = None) -> Fields:
    """The fields of the mapping under `name`; none where it is not there."""
    return fields[name].fields(only=only) if name in fields else {}


def camel_case(key: str) -> str:
    """A quota key as resources spell it: ``producer_byte_rate`` is ``producerByteRate``."""
    first, *others = key.split("_")
    return first + "".join(word.capitalize() for word in others)


def values_of(fields: Fields, keys: Iterable[str]) -> dict[str, float]:
    """The values of those `keys` that are set."""
    values = {key: fields[name].value(key, None) for key in keys if (name := camel_case(key)) in fields}
    return {key: value for key, value in values.items() if value is not None}
