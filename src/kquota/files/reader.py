"""Quota files read: every problem of a file is found and reported at once, with its line and its path."""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, assert_never

from kquota.errors import IllegalArgumentError, QuotaFileError, QuotaFileProblem
from kquota.files import nodes
from kquota.files.nodes import Node, Scalar
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.quotas import (
    KAFKA,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    QuotaModel,
    decide,
    is_literal_ip,
    parse_quantity,
)

__all__ = ["read_quota_file"]

Format = Literal["yaml", "json"]

_EXAMPLE: Final = """\
quotas:
  - entity: {user: alice, client-id: etl}   # null = the default entity of that type
    values: {producer_byte_rate: 1048576, consumer_byte_rate: 10MiB}"""

_TOP_LEVEL = ("quotas",)
_ENTRY = ("entity", "values", "owner", "labels")

_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def read_quota_file(
    text: str | bytes, *, name: str, format: Format | None = None, model: QuotaModel = KAFKA
) -> QuotaFile:
    """The content of a quota file called ``name`` (for messages, and for the format where ``format`` is None).

    Raises :class:`~kquota.errors.QuotaFileError` with all problems found. A host name on an ip entity is taken as it
    is: only a broker can say whether it resolves.
    """
    decoded = _decode(text)
    if isinstance(decoded, QuotaFileProblem):
        raise QuotaFileError(name, [decoded])
    is_json = _is_json(decoded, name, format)
    root = nodes.json_nodes(decoded) if is_json else nodes.yaml_nodes(decoded)
    if isinstance(root, QuotaFileProblem):
        raise QuotaFileError(name, [root])
    walker = _Walker(model)
    entries = walker.file(root)
    if walker.problems:
        raise QuotaFileError(name, sorted(walker.problems, key=lambda p: (p.line or 0, p.column or 0)))
    return QuotaFile(tuple(entries))


def _decode(raw: str | bytes) -> str | QuotaFileProblem:
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        reason = f"byte {error.object[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        return QuotaFileProblem(line, None, "", reason)
    text = text.removeprefix("\ufeff")
    nul = text.find("\x00")
    if nul >= 0:
        return QuotaFileProblem(text.count("\n", 0, nul) + 1, None, "", "there is a NUL byte: this is not a text file")
    if not text.strip():
        return QuotaFileProblem(None, None, "", f"the file is empty; a quota file looks like this:\n{_EXAMPLE}")
    return text


def _is_json(text: str, name: str, format: Format | None) -> bool:
    if format is not None:
        return format == "json"
    if name.endswith((".json", ".yaml", ".yml")):
        return name.endswith(".json")
    if text.lstrip()[0] not in "[{":
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class _Field(NamedTuple):
    """A value of a mapping, with the node of its key for the place of messages."""

    key: Scalar
    value: Node


class _Walker:
    """Checks the nodes of one file and collects what is wrong with them."""

    def __init__(self, model: QuotaModel) -> None:
        self.model = model
        self.problems: list[QuotaFileProblem] = []
        self._line_of: dict[ClientQuotaEntity, int] = {}

    def file(self, root: Node | None) -> list[QuotaFileEntry]:
        if root is None:
            self._report(None, "", f"the file holds no quotas; a quota file looks like this:\n{_EXAMPLE}")
            return []
        where, node = "", root
        if isinstance(root, nodes.Mapping):
            fields = self._mapping(root, "", "a mapping with the list quotas")
            if "entity" in fields and "quotas" not in fields:
                self._report(root, "", f"an entry must stand in a list; a quota file looks like this:\n{_EXAMPLE}")
                return []
            self._only(fields, _TOP_LEVEL, "")
            if "quotas" not in fields:
                if not fields:
                    self._report(root, "", f"there is no list quotas; a quota file looks like this:\n{_EXAMPLE}")
                return []
            where, node = "quotas", fields["quotas"].value
        if not isinstance(node, nodes.Sequence):
            hint = "; write [] for none" if where else f"; a quota file looks like this:\n{_EXAMPLE}"
            self._report(node, where, f"a list of entries is expected, not {_kind(node)}{hint}")
            return []
        entries = [self._entry(item, f"{where}[{i}]") for i, item in enumerate(node.items)]
        return [entry for entry in entries if entry is not None]

    def _entry(self, node: Node, where: str) -> QuotaFileEntry | None:
        fields = self._mapping(node, where, "an entry with entity and values")
        if not isinstance(node, nodes.Mapping):
            return None
        self._only(fields, _ENTRY, where)
        for required in ("entity", "values"):
            if required not in fields:
                self._report(node, where, f"{required} is missing")
        entity = self._entity(fields["entity"].value, f"{where}.entity") if "entity" in fields else None
        values = self._values(fields["values"].value, f"{where}.values", entity) if "values" in fields else {}
        owner = self._text(fields["owner"].value, f"{where}.owner") if "owner" in fields else None
        labels = self._labels(fields["labels"].value, f"{where}.labels") if "labels" in fields else {}
        if entity is None:
            return None
        line = node.line
        if entity in self._line_of:
            self._report(
                node, where, f"{entity.to_text()} is on line {self._line_of[entity]} already; put its values together"
            )
        else:
            self._line_of[entity] = line
        return QuotaFileEntry(entity, values, owner, labels, line)

    def _entity(self, node: Node, where: str) -> ClientQuotaEntity | None:
        before = len(self.problems)
        fields = self._mapping(node, where, "a mapping of type to name, such as {user: alice}")
        names = {
            entity_type: self._name(field.value, f"{where}.{entity_type}") for entity_type, field in fields.items()
        }
        if len(self.problems) > before:
            return None
        try:
            entity = ClientQuotaEntity(names)
        except IllegalArgumentError as error:
            self._report(node, where, str(error))
            return None
        decision = decide({}, [ClientQuotaAlteration(entity, ())], model=self.model, is_resolvable_ip=_may_be_host)
        refusal = decision.results[entity]
        if refusal is not None:
            hint = ""
            if any(t not in self.model.entity_types for t in names):
                hint = f" (there are {', '.join(self.model.entity_types)})"
            elif "" in names.values():
                hint = "; leave the type out, or write null for its default"
            self._report(node, where, f"{refusal.message}{hint}")
            return None
        return entity

    def _name(self, node: Node, where: str) -> str | None:
        """A name as it is written, or None for the default."""
        if not isinstance(node, Scalar):
            self._report(node, where, f"a name is expected, not {_kind(node)}")
            return None
        if node.is_null:
            if not node.text:
                self._report(node, where, "the name is missing; write null for the default entity, or quote the name")
            return None
        if not node.is_string:
            self._report(node, where, f'a name is text: write "{node.text}"')
        return node.text

    def _values(self, node: Node, where: str, entity: ClientQuotaEntity | None) -> dict[str, float]:
        fields = self._mapping(node, where, "a mapping of quota key to value")
        if isinstance(node, nodes.Mapping) and not node.pairs:
            self._report(node, where, "there are no values; leave the entry out")
        keys = None if entity is None else self.model.keys_for(entity.entries)
        values: dict[str, float] = {}
        for key, (key_node, value_node) in fields.items():
            place = f"{where}.{key}"
            known = self.model.key(key)
            if known is None:
                self._report(
                    key_node, place, f"there is no quota {key!r}{_closest(key, [k.name for k in self.model.keys])}"
                )
                continue
            if keys is not None and key not in keys:
                own = " or ".join(sorted({" with ".join(sorted(shape, reverse=True)) for shape in known.shapes}))
                self._report(key_node, place, f"{key} is a quota of {own}, not of {' with '.join(entity.entries)}")  # type: ignore[union-attr]
                continue
            value = self._value(value_node, place)
            if value is None:
                continue
            refusal = known.refusal(value)
            if refusal is not None:
                self._report(value_node, place, refusal)
            values[key] = value
        return values

    def _value(self, node: Node, where: str) -> float | None:
        if not isinstance(node, Scalar):
            self._report(node, where, f"a number is expected, not {_kind(node)}")
        elif node.is_null:
            self._report(node, where, "the value is missing; leave the key out where there is no limit")
        else:
            try:
                return parse_quantity(node.text)
            except IllegalArgumentError as error:
                self._report(node, where, str(error))
        return None

    def _labels(self, node: Node, where: str) -> dict[str, str]:
        fields = self._mapping(node, where, "a mapping of label to text")
        texts = {label: self._text(value, f"{where}.{label}") for label, (_, value) in fields.items()}
        return {label: text for label, text in texts.items() if text is not None}

    def _text(self, node: Node, where: str) -> str | None:
        if not isinstance(node, Scalar):
            self._report(node, where, f"text is expected, not {_kind(node)}")
        elif node.is_null:
            self._report(node, where, "the text is missing; leave the field out")
        elif not node.is_string:
            self._report(node, where, f'text is expected: write "{node.text}"')
        else:
            return node.text
        return None

    def _mapping(self, node: Node, where: str, wanted: str) -> dict[str, _Field]:
        """The fields by key; YAML would let the last of two equal keys win, here they are reported."""
        if not isinstance(node, nodes.Mapping):
            self._report(node, where, f"{wanted} is expected, not {_kind(node)}")
            return {}
        fields: dict[str, _Field] = {}
        for key, value in node.pairs:
            if not isinstance(key, Scalar):
                self._report(key, where, f"a key is text, not {_kind(key)}")
            elif key.text in fields:
                first = fields[key.text].key.line
                self._report(key, where, f"{key.text} stands twice, first on line {first}")
            else:
                fields[key.text] = _Field(key, value)
        return fields

    def _only(self, fields: Mapping[str, _Field], allowed: Iterable[str], where: str) -> None:
        for name in fields.keys() - set(allowed):
            self._report(fields[name].key, where, f"there is no field {name!r}{_closest(name, allowed)}")

    def _report(self, node: Node | None, where: str, reason: str) -> None:
        line, column = (None, None) if node is None else (node.line, node.column)
        self.problems.append(QuotaFileProblem(line, column, where, reason))


def _kind(node: Node) -> str:
    match node:
        case nodes.Sequence():
            return "a list"
        case nodes.Mapping():
            return "a mapping"
        case Scalar(is_null=True):
            return "nothing"
        case Scalar(text=text):
            return repr(text if len(text) <= 40 else text[:40] + "...")
        case _:
            assert_never(node)


def _closest(name: str, known: Iterable[str]) -> str:
    choices = list(known)
    close = get_close_matches(name, choices, 1)
    return f"; did you mean {close[0]}?" if close else f" (there are {', '.join(choices)})"


def _may_be_host(name: str) -> bool:
    """Whether some resolver could know ``name``: an address, or labels of which the last is not a number."""
    if is_literal_ip(name):
        return True
    labels = name.removesuffix(".").split(".")
    return len(name) <= 253 and all(map(_HOST_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
