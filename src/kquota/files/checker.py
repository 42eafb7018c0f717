"""What the readers of all formats share: parts of a file checked, and entities and values held to Kafka's rules."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from kquota.errors import IllegalArgumentError, QuotaFileProblem
from kquota.files import nodes
from kquota.files.nodes import Node, Scalar, kind
from kquota.files.quota_file import QuotaFileEntry
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, QuotaModel, decide, is_literal_ip, parse_quantity

__all__ = ["Checker", "Fields", "Part", "text_at"]

_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


class Checker:
    """Collects the entries of one file, what is wrong with it, and what cannot be carried over."""

    def __init__(self, model: QuotaModel) -> None:
        self.model = model
        self.entries: dict[ClientQuotaEntity, QuotaFileEntry] = {}
        self.problems: list[QuotaFileProblem] = []
        self.left_out: list[QuotaFileProblem] = []

    def report(self, node: Node | None, where: str, reason: str) -> None:
        """Something that is wrong: the file cannot be used."""
        self.problems.append(_at(node, where, reason))


@dataclass(slots=True)
class Part:
    """A part of a file, such as the value of a field."""

    checker: Checker
    """Who is told of what is found in it."""
    node: Node
    where: str
    """Its path, such as ``quotas[2].values``; empty for the whole file."""
    key: Scalar | None = None
    """The key that it is under."""

    def report(self, reason: str, *, at: Node | None = None) -> None:
        """Something that is wrong: the file cannot be used.

        :param at: the node that it is about, if that is another one.
        """
        self.checker.report(at or self.node, self.where, reason)

    def leave_out(self, reason: str, *, at: Node | None = None) -> None:
        """Something that Kafka has no quota for: the rest of the file can be used."""
        self.checker.left_out.append(_at(at or self.node, self.where, reason))

    def below(self, name: str) -> "Part":
        """The same place, by the path of a field that may not be there."""
        return Part(self.checker, self.node, _path(self.where, name))

    def fields(self, expected: str = "a mapping", *, only: Iterable[str] | None = None) -> "Fields":
        """The fields by key; YAML would let the last of two equal keys win, here they are reported.

        :param only: the fields that there may be; others are reported.
        """
        if not isinstance(self.node, nodes.Mapping):
            self.report(f"{expected} is expected, not {kind(self.node)}")
            return {}
        fields: dict[str, Part] = {}
        for key, value in self.node.pairs:
            if not isinstance(key, Scalar):
                self.report(f"a key is text, not {kind(key)}", at=key)
            elif key.text in fields:
                first = fields[key.text].key or key
                self.report(f"{key.text} appears twice, first on line {first.line}", at=key)
            else:
                fields[key.text] = Part(self.checker, value, _path(self.where, key.text), key)
        if only is not None:
            self.only(fields, only)
        return fields

    def only(self, fields: "Fields", allowed: Iterable[str]) -> None:
        """Report those of its fields that are not `allowed`."""
        known = list(allowed)
        for name in fields.keys() - set(known):
            self.report(f"there is no field {name!r}{_closest(name, known)}", at=fields[name].key)

    def required(self, fields: "Fields", *names: str) -> bool:
        """Whether all `names` are among its fields; what is missing is reported."""
        missing = [name for name in names if name not in fields]
        for name in missing:
            self.report(f"{name} is missing")
        return not missing

    def items(self, expected: str, hint: str = "") -> "list[Part]":
        """The items of a list; none where it is something else, which is reported, with the hint."""
        if not isinstance(self.node, nodes.Sequence):
            self.report(f"{expected} is expected, not {kind(self.node)}{hint}")
            return []
        return [Part(self.checker, item, f"{self.where}[{i}]") for i, item in enumerate(self.node.items)]

    def text(self) -> str | None:
        """Text; None where it is none, which is reported."""
        node = self.node
        if not isinstance(node, Scalar):
            self.report(f"text is expected, not {kind(node)}")
        elif node.is_null:
            self.report("the text is missing; leave the field out")
        elif not node.is_string:
            self.report(f'text is expected: write "{node.text}"')
        else:
            return node.text
        return None

    def name(self) -> str | None:
        """A name as it is written; None for null, which is the default."""
        node = self.node
        if not isinstance(node, Scalar):
            self.report(f"a name is expected, not {kind(node)}")
            return None
        if node.is_null:
            if not node.text:
                self.report("the name is missing; write null for the default entity, or quote the name")
            return None
        if not node.is_string:
            self.report(f'a name is text: write "{node.text}"')
        return node.text

    def entity(self, names: Mapping[str, str | None]) -> ClientQuotaEntity | None:
        """The entity of these names; None where Kafka would not take it, which is reported."""
        try:
            entity = ClientQuotaEntity(names)
        except IllegalArgumentError as error:
            self.report(str(error))
            return None
        model = self.checker.model
        decision = decide({}, [ClientQuotaAlteration(entity, ())], model=model, is_resolvable_ip=_may_be_host)
        refusal = decision.results[entity]
        if refusal is not None:
            hint = ""
            if any(t not in model.entity_types for t in names):
                hint = f" (there are {', '.join(model.entity_types)})"
            elif "" in names.values():
                hint = "; leave the type out, or write null for its default"
            self.report(f"{refusal.message}{hint}")
            return None
        return entity

    def value(self, key: str, entity: ClientQuotaEntity | None) -> float | None:
        """The value of a quota key on `entity` (None: one that was reported); None where it cannot be used."""
        model = self.checker.model
        known = model.key(key)
        if known is None:
            self.report(f"there is no quota {key!r}{_closest(key, [k.name for k in model.keys])}", at=self.key)
            return None
        keys = None if entity is None else model.keys_for(entity.entries)
        if entity is not None and keys is not None and key not in keys:
            own = " or ".join(sorted({" with ".join(sorted(shape, reverse=True)) for shape in known.shapes}))
            self.report(f"{key} is a quota of {own}, not of {' with '.join(entity.entries)}", at=self.key)
            return None
        value = self._number()
        refusal = None if value is None else known.refusal(value)
        if refusal is not None:
            self.report(refusal)
        return value

    def add(
        self,
        entity: ClientQuotaEntity,
        values: Mapping[str, float],
        *,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Take it as an entry, whose entity may be only once in the file."""
        entries = self.checker.entries
        if entity in entries:
            self.report(f"{entity.to_text()} is on line {entries[entity].line} already; put its values together")
        else:
            entries[entity] = QuotaFileEntry(entity, values, owner, labels or {}, self.node.line)

    def _number(self) -> float | None:
        node = self.node
        if not isinstance(node, Scalar):
            self.report(f"a number is expected, not {kind(node)}")
        elif node.is_null:
            self.report("the value is missing; leave the key out where there is no limit")
        else:
            try:
                return parse_quantity(node.text)
            except IllegalArgumentError as error:
                self.report(str(error))
        return None


Fields = Mapping[str, Part]
"""The fields of a mapping, by key."""


def text_at(fields: Fields, name: str) -> str | None:
    """The text of a field; None where there is none."""
    return fields[name].text() if name in fields else None


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _at(node: Node | None, where: str, reason: str) -> QuotaFileProblem:
    line, column = (None, None) if node is None else (node.line, node.column)
    return QuotaFileProblem(line, column, where, reason)


def _closest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else f" (there are {', '.join(known)})"


def _may_be_host(name: str) -> bool:
    """Whether some resolver could know ``name``: an address, or labels of which the last is not a number."""
    if is_literal_ip(name):
        return True
    labels = name.removesuffix(".").split(".")
    return len(name) <= 253 and all(map(_HOST_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
