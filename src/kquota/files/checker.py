"""What the readers of all formats share: nodes checked, and entities and values held against Kafka's rules."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from kquota.errors import IllegalArgumentError, QuotaFileProblem
from kquota.files import nodes
from kquota.files.nodes import Node, Scalar, kind
from kquota.files.quota_file import QuotaFileEntry
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, QuotaModel, decide, is_literal_ip, parse_quantity

__all__ = ["Checker", "Field"]

_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


class Field(NamedTuple):
    """A value of a mapping, with the node of its key for the place of messages."""

    key: Scalar
    value: Node


class Checker:
    """Checks the nodes of one file, and collects what is wrong with them and what cannot be carried over."""

    def __init__(self, model: QuotaModel) -> None:
        self.model = model
        self.problems: list[QuotaFileProblem] = []
        self.left_out: list[QuotaFileProblem] = []
        self._line_of: dict[ClientQuotaEntity, int] = {}

    def report(self, node: Node | None, where: str, reason: str) -> None:
        """Something that is wrong: the file cannot be used."""
        self.problems.append(_at(node, where, reason))

    def leave_out(self, node: Node, where: str, reason: str) -> None:
        """Something that Kafka has no quota for: the rest of the file can be used."""
        self.left_out.append(_at(node, where, reason))

    def mapping(self, node: Node, where: str, expected: str) -> dict[str, Field]:
        """The fields by key; YAML would let the last of two equal keys win, here they are reported."""
        if not isinstance(node, nodes.Mapping):
            self.report(node, where, f"{expected} is expected, not {kind(node)}")
            return {}
        fields: dict[str, Field] = {}
        for key, value in node.pairs:
            if not isinstance(key, Scalar):
                self.report(key, where, f"a key is text, not {kind(key)}")
            elif key.text in fields:
                first = fields[key.text].key.line
                self.report(key, where, f"{key.text} appears twice, first on line {first}")
            else:
                fields[key.text] = Field(key, value)
        return fields

    def only(self, fields: Mapping[str, Field], allowed: Iterable[str], where: str) -> None:
        """Report the fields that are not `allowed`."""
        known = list(allowed)
        for name in fields.keys() - set(known):
            self.report(fields[name].key, where, f"there is no field {name!r}{_closest(name, known)}")

    def required(self, fields: Mapping[str, Field], names: Iterable[str], node: Node, where: str) -> bool:
        """Whether all `names` are there; what is missing is reported at `node`."""
        missing = [name for name in names if name not in fields]
        for name in missing:
            self.report(node, where, f"{name} is missing")
        return not missing

    def text(self, node: Node, where: str) -> str | None:
        """Text; None where it is none, which is reported."""
        if not isinstance(node, Scalar):
            self.report(node, where, f"text is expected, not {kind(node)}")
        elif node.is_null:
            self.report(node, where, "the text is missing; leave the field out")
        elif not node.is_string:
            self.report(node, where, f'text is expected: write "{node.text}"')
        else:
            return node.text
        return None

    def name(self, node: Node, where: str) -> str | None:
        """A name as it is written; None for null, which is the default."""
        if not isinstance(node, Scalar):
            self.report(node, where, f"a name is expected, not {kind(node)}")
            return None
        if node.is_null:
            if not node.text:
                self.report(node, where, "the name is missing; write null for the default entity, or quote the name")
            return None
        if not node.is_string:
            self.report(node, where, f'a name is text: write "{node.text}"')
        return node.text

    def entity(self, names: Mapping[str, str | None], node: Node, where: str) -> ClientQuotaEntity | None:
        """The entity; None where Kafka would not take it, which is reported."""
        try:
            entity = ClientQuotaEntity(names)
        except IllegalArgumentError as error:
            self.report(node, where, str(error))
            return None
        decision = decide({}, [ClientQuotaAlteration(entity, ())], model=self.model, is_resolvable_ip=_may_be_host)
        refusal = decision.results[entity]
        if refusal is not None:
            hint = ""
            if any(t not in self.model.entity_types for t in names):
                hint = f" (there are {', '.join(self.model.entity_types)})"
            elif "" in names.values():
                hint = "; leave the type out, or write null for its default"
            self.report(node, where, f"{refusal.message}{hint}")
            return None
        return entity

    def value(self, key: str, field: Field, where: str, entity: ClientQuotaEntity | None) -> float | None:
        """The value of a quota key on `entity` (None: one that was reported); None where it cannot be used."""
        known = self.model.key(key)
        if known is None:
            reason = f"there is no quota {key!r}{_closest(key, [k.name for k in self.model.keys])}"
            self.report(field.key, where, reason)
            return None
        keys = None if entity is None else self.model.keys_for(entity.entries)
        if entity is not None and keys is not None and key not in keys:
            own = " or ".join(sorted({" with ".join(sorted(shape, reverse=True)) for shape in known.shapes}))
            self.report(field.key, where, f"{key} is a quota of {own}, not of {' with '.join(entity.entries)}")
            return None
        value = self._number(field.value, where)
        refusal = None if value is None else known.refusal(value)
        if refusal is not None:
            self.report(field.value, where, refusal)
        return value

    def entry(
        self,
        entity: ClientQuotaEntity,
        values: Mapping[str, float],
        node: Node,
        where: str,
        *,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> QuotaFileEntry:
        """An entry, whose entity may stand only once in the file."""
        if entity in self._line_of:
            reason = f"{entity.to_text()} is on line {self._line_of[entity]} already; put its values together"
            self.report(node, where, reason)
        else:
            self._line_of[entity] = node.line
        return QuotaFileEntry(entity, values, owner, labels or {}, node.line)

    def _number(self, node: Node, where: str) -> float | None:
        if not isinstance(node, Scalar):
            self.report(node, where, f"a number is expected, not {kind(node)}")
        elif node.is_null:
            self.report(node, where, "the value is missing; leave the key out where there is no limit")
        else:
            try:
                return parse_quantity(node.text)
            except IllegalArgumentError as error:
                self.report(node, where, str(error))
        return None


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
