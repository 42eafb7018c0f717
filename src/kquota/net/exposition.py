"""Prometheus' text format (0.0.4), written line by line: who writes a lot can pause between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, Literal, NamedTuple

__all__ = ["CONTENT_TYPE", "Exposition", "Family", "FamilyDeclaration", "counter", "gauge", "histogram"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NO_LABELS: Final[Mapping[str, str]] = {}

Kind = Literal["counter", "gauge", "histogram"]


class FamilyDeclaration(NamedTuple):
    """A metric that is known beforehand, with the labels that its series have."""

    name: str
    kind: Kind
    documentation: str
    labels: tuple[str, ...] = ()


def gauge(name: str, documentation: str, *labels: str) -> FamilyDeclaration:
    """Declare a metric that goes up and down: its value at the time of the scrape."""
    return FamilyDeclaration(name, "gauge", documentation, labels)


def counter(name: str, documentation: str, *labels: str) -> FamilyDeclaration:
    """Declare a metric that only grows; its name ends in ``_total``."""
    return FamilyDeclaration(name, "counter", documentation, labels)


def histogram(name: str, documentation: str, *labels: str) -> FamilyDeclaration:
    """Numbers of events up to a value."""
    return FamilyDeclaration(name, "histogram", documentation, (*labels, "le"))


class Family:
    """The series of one metric."""

    __slots__ = ("lines", "name")

    def __init__(self, name: str, kind: Kind, documentation: str) -> None:
        self.name = name
        text = documentation.replace("\\", "\\\\").replace("\n", "\\n")
        self.lines = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]

    def add(self, value: float, labels: Mapping[str, str] = _NO_LABELS, *, suffix: str = "") -> None:
        """A series, and its value; `suffix` is that of a histogram's series."""
        text = ",".join([f'{name}="{_escaped(one)}"' for name, one in labels.items()])
        self.lines.append(f"{self.name}{suffix}{'{' + text + '}' if text else ''} {_number(value)}\n")


class Exposition:
    """Families in the order in which they were first asked for."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def family(self, declared: FamilyDeclaration) -> Family:
        """The family that was declared, made if it is not there."""
        return self._family(declared.name, declared.kind, declared.documentation)

    def gauge(self, name: str, documentation: str) -> Family:
        """The gauge of this name, made if it is not there."""
        return self._family(name, "gauge", documentation)

    def parts(self) -> Iterator[bytes]:
        """The text, family by family; one without series is left out."""
        for family in self._families.values():
            if len(family.lines) > 1:
                yield "".join(family.lines).encode("utf-8", "replace")

    def _family(self, name: str, kind: Kind, documentation: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, documentation)
        return family


def _number(value: float) -> str:
    """As Go reads it, and Python writes it but for these."""
    if value != value or value in (inf, -inf):  # noqa: PLR0124 (NaN, in the fastest way)
        return {inf: "+Inf", -inf: "-Inf"}.get(value, "NaN")
    return repr(float(value))


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text
