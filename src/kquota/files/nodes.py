"""Text to nodes that know their place: YAML from PyYAML's events, JSON from a scanner of our own.

One walker then checks both formats. JSON is not read as YAML, although it nearly is YAML: surrogate pairs, tabs, keys
of more than 1024 characters and some control characters are where they differ. YAML is built from events, not with
``yaml.compose``: that recurses in C without a bound, and works out a type for every scalar that nobody asks for.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from kquota.errors import QuotaFileProblem

__all__ = ["Document", "Mapping", "Node", "Scalar", "Sequence", "json_nodes", "kind", "yaml_documents"]

_DEEPEST: Final = 50
"""A quota file is five levels deep; aliases may add some."""


@dataclass(slots=True)
class Scalar:
    """Text, or what is written without quotes; ``line`` and ``column`` count from 1."""

    line: int
    column: int
    text: str
    is_null: bool = False
    is_string: bool = True
    """False for numbers and words of JSON; YAML's plain scalars are taken as they are written."""


@dataclass(slots=True)
class Sequence:
    """A list."""

    line: int
    column: int
    items: list["Node"]


@dataclass(slots=True)
class Mapping:
    """Pairs, in the order of the file and with their duplicates."""

    line: int
    column: int
    pairs: list[tuple["Node", "Node"]]


Node: TypeAlias = Scalar | Sequence | Mapping


class Document(NamedTuple):
    """One document, and the line on which it begins."""

    line: int
    root: Node


def kind(node: Node) -> str:
    """What `node` is, for messages."""
    match node:
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
        case Scalar(is_null=True):
            return "nothing"
        case Scalar(text=text):
            return repr(text if len(text) <= 40 else text[:40] + "...")
        case _:
            assert_never(node)


_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})

# The one of libyaml comes with PyYAML's wheels; without it the other does the same, ten times slower.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TOO_DEEP = QuotaFileProblem(None, None, "", "this is nested too deeply to be a quota file")


def yaml_documents(text: str) -> list[Document] | QuotaFileProblem:
    """All documents; where there are several, without those that hold nothing."""
    try:
        documents = list(_YamlBuilder(yaml.parse(text, Loader=_Loader)).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last_line = text.count("\n") + 1  # libyaml puts the end of the text on the line after
        line, column = (None, None) if mark is None else (min(mark.line + 1, last_line), mark.column + 1)
        reason = " ".join(part for part in (error.context, error.problem) if part)
        if mark is not None and text[mark.index : mark.index + 1] == "\t":
            reason += "; a tab cannot indent, use spaces"
        return QuotaFileProblem(line, column, "", f"this is not YAML: {reason}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        return QuotaFileProblem(line, None, "", f"YAML has no character U+{code:04X}; write it as an escape in quotes")
    except _ProblemError as error:
        return error.problem
    if len(documents) > 1:
        return [one for one in documents if not isinstance(one.root, Scalar) or one.root.text] or documents[:1]
    return documents


class _ProblemError(Exception):
    def __init__(self, problem: QuotaFileProblem) -> None:
        self.problem = problem


class _YamlBuilder:
    """Builds nodes from the events of one stream."""

    __slots__ = ("anchors", "events")

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.anchors: dict[str, Node] = {}

    def documents(self) -> Iterator[Document]:
        events = self.events
        next(events)  # the start of the stream
        while isinstance(start := next(events), DocumentStartEvent):
            self.anchors = {}
            line = start.start_mark.line + 1  # type: ignore[union-attr] # PyYAML's events have their marks
            yield Document(line, self.node(next(events), 1))
            next(events)  # the end of the document

    def node(self, event: Any, depth: int) -> Node:
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        node: Node
        if isinstance(event, ScalarEvent):
            # A plain scalar has no style: None, or an empty text from libyaml.
            plain = not event.style and event.tag is None
            tagged_null = event.tag == "tag:yaml.org,2002:null"
            is_null = tagged_null or (plain and event.value in _NULLS)
            node = Scalar(line, column, "null" if tagged_null else event.value, is_null)
        elif isinstance(event, AliasEvent):
            # An alias inside the node that it names is not known yet, so nothing can hold itself.
            if event.anchor not in self.anchors:
                raise _ProblemError(QuotaFileProblem(line, column, "", f"nothing is called *{event.anchor} so far"))
            return self.anchors[event.anchor]
        elif depth > _DEEPEST:
            raise _ProblemError(_TOO_DEEP)
        elif isinstance(event, SequenceStartEvent):
            node = Sequence(line, column, list(self.nodes_until(SequenceEndEvent, depth)))
        else:
            flat = self.nodes_until(MappingEndEvent, depth)
            node = Mapping(line, column, list(zip(flat, flat, strict=True)))
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def nodes_until(self, end: type, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self.events), end):
            yield self.node(event, depth + 1)


def json_nodes(text: str) -> Node | QuotaFileProblem:
    """The root node."""
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        return QuotaFileProblem(error.lineno, error.colno, "", f"this is not JSON: {error.msg}")
    except _ConstantError as error:
        return QuotaFileProblem(
            _line_of_constant(text, str(error)), None, "", f'JSON has no {error}; write it as a string: "{error}"'
        )
    except RecursionError:
        return _TOO_DEEP
    try:
        builder = _JsonBuilder(text)
        return builder.node(builder.next(), 1)
    except _ProblemError as error:
        return error.problem


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> None:
    raise _ConstantError(name)


def _line_of_constant(text: str, name: str) -> int | None:
    """The line of a bare NaN or Infinity: the first that stands outside a string."""
    outside = re.compile(rf'"(?:[^"\\]|\\.)*"|({re.escape(name)})')
    found = next((match for match in outside.finditer(text) if match[1]), None)
    return None if found is None else text.count("\n", 0, found.start()) + 1


# Well-formed JSON can be read without its commas, colons and spaces. Line ends are for the places; no string has one.
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[-+.0-9a-zA-Z]+|[\[\]{}\n]')


class _JsonBuilder:
    """Builds nodes from JSON that is known to be well formed."""

    __slots__ = ("line", "line_start", "tokens")

    def __init__(self, text: str) -> None:
        self.tokens = _JSON_TOKEN.finditer(text)
        self.line = 1
        self.line_start = 0

    def next(self) -> re.Match[str]:
        while (token := next(self.tokens))[0] == "\n":
            self.line += 1
            self.line_start = token.end()
        return token

    def node(self, token: re.Match[str], depth: int) -> Node:
        line, column, text = self.line, token.start() - self.line_start + 1, token[0]
        if text[0] == '"':
            return Scalar(line, column, json.loads(text) if "\\" in text else text[1:-1])
        if text not in "[{":
            return Scalar(line, column, text, is_null=text == "null", is_string=False)
        if depth > _DEEPEST:
            raise _ProblemError(_TOO_DEEP)
        if text == "[":
            return Sequence(line, column, list(self.nodes_until("]", depth)))
        flat = self.nodes_until("}", depth)
        return Mapping(line, column, list(zip(flat, flat, strict=True)))

    def nodes_until(self, end: str, depth: int) -> Iterator[Node]:
        while (token := self.next())[0] != end:
            yield self.node(token, depth + 1)
