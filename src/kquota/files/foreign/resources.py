"""Resources as Kubernetes has them: an ``apiVersion``, a ``kind``, one in each document or several in a list."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kquota.files import nodes
from kquota.files.checker import Checker, Field
from kquota.files.nodes import Document, Node, Scalar

__all__ = ["Resource", "are_resources", "camel_case", "inner", "path", "resources", "text_at", "values_of"]


class Resource(NamedTuple):
    """One resource, its fields unread; ``where`` is its path in the file."""

    api_version: str
    kind: str
    fields: dict[str, Field]
    node: Node
    where: str

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
    found: list[Resource] = []
    for document in documents:
        if isinstance(document.root, nodes.Sequence):
            for i, item in enumerate(document.root.items):
                found += _flat(item, f"[{i}]", checker)
        else:
            found += _flat(document.root, "", checker)
    return found


def _flat(node: Node, where: str, checker: Checker, api_version: str = "", kind: str = "") -> Iterator[Resource]:
    """`node` and what it lists; `api_version` and `kind` are those that the items of its list need not repeat."""
    fields = checker.mapping(node, where, "a resource with apiVersion and kind")
    if not isinstance(node, nodes.Mapping):
        return
    before = len(checker.problems)
    if "apiVersion" in fields or not api_version:
        checker.required(fields, ("apiVersion",), node, where)
        api_version = text_at(fields, "apiVersion", where, checker) or ""
    if "kind" in fields or not kind:
        checker.required(fields, ("kind",), node, where)
        kind = text_at(fields, "kind", where, checker) or ""
    if len(checker.problems) > before:
        return
    items = fields["items"].value if "items" in fields else None
    if not kind.endswith("List") or not isinstance(items, nodes.Sequence):
        yield Resource(api_version, kind, fields, node, where)
        return
    of_items = ("", "") if kind == "List" else (api_version, kind.removesuffix("List"))
    for i, item in enumerate(items.items):
        yield from _flat(item, f"{path(where, 'items')}[{i}]", checker, *of_items)


def inner(fields: Mapping[str, Field], name: str, where: str, checker: Checker) -> dict[str, Field]:
    """The fields of the mapping under `name`; none where it is not there."""
    if name not in fields:
        return {}
    return checker.mapping(fields[name].value, path(where, name), "a mapping")


def text_at(fields: Mapping[str, Field], name: str, where: str, checker: Checker) -> str | None:
    """The text of a field; None where there is none."""
    return checker.text(fields[name].value, path(where, name)) if name in fields else None


def path(where: str, name: str) -> str:
    """The path of what stands under `name`."""
    return f"{where}.{name}" if where else name


def camel_case(key: str) -> str:
    """A quota key as resources spell it: ``producer_byte_rate`` is ``producerByteRate``."""
    first, *others = key.split("_")
    return first + "".join(word.capitalize() for word in others)


def values_of(fields: Mapping[str, Field], keys: Iterable[str], where: str, checker: Checker) -> dict[str, float]:
    """The values of those `keys` that are set."""
    values = {
        key: checker.value(key, fields[name], f"{where}.{name}", None)
        for key in keys
        if (name := camel_case(key)) in fields
    }
    return {key: value for key, value in values.items() if value is not None}
