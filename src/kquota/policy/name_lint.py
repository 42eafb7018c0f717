"""Names that probably match nobody, and names that are easily taken for each other.

A broker compares the name of the principal (without its type) and the client id as they are, character by character.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kquota.errors import IllegalArgumentError
from kquota.policy.findings import Finding, Severity
from kquota.quotas import IP, USER, ClientQuotaEntity, canonical_ip, desanitize, sanitize

__all__ = ["lint_names"]

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_PRINCIPAL_TYPE: Final = "User:"
_DEFAULTS: Final = ("<default>", "%3Cdefault%3E")


def lint_names(entities: Iterable[ClientQuotaEntity]) -> Iterator[Finding]:
    """Findings about the names of `entities`; each name is reported once, at the first entity that has it."""
    first: dict[str, dict[str, ClientQuotaEntity]] = {}
    for entity in sorted(entities, key=ClientQuotaEntity.sort_key):
        for entity_type, name in entity.entries.items():
            if name is not None:
                first.setdefault(entity_type, {}).setdefault(name, entity)
    for entity_type, names in first.items():
        twins: set[str] = set()
        if entity_type == IP:
            yield from _alike(names, _address, "are one address: a broker keeps whichever it hears of last", twins)
            continue
        yield from _alike(names, _decoded, "differ only in URL encoding, and a broker takes them for two", twins)
        yield from _look_alikes(names, twins)
        for name, entity in names.items():
            yield from _alone(entity_type, name, entity, twins)


def _alike(
    names: dict[str, ClientQuotaEntity], form: Callable[[str], str], what: str, twins: set[str]
) -> Iterator[Finding]:
    """One finding for each further name of the same form; `twins` gets all of them."""
    for group in _groups(names, form):
        twins.update(group)
        for name in group[1:]:
            text = f"{group[0]!r} and {name!r} {what}; keep the one that is meant"
            yield Finding("duplicate-by-encoding", Severity.WARNING, names[name], None, text)


def _look_alikes(names: dict[str, ClientQuotaEntity], twins: set[str]) -> Iterator[Finding]:
    for group in _groups(names, _look):
        for name in group[1:]:
            if name not in twins or group[0] not in twins:
                text = (
                    f"{group[0]!r} and {name!r} look alike ({_difference(group[0], name)}), and are two names to a "
                    "broker; check that both exist"
                )
                yield Finding("duplicate-by-encoding", Severity.INFO, names[name], None, text)


def _alone(entity_type: str, name: str, entity: ClientQuotaEntity, twins: set[str]) -> Iterator[Finding]:
    if name in _DEFAULTS:
        text = f"this is a {entity_type} whose name is the text {name!r}; for the default of all write null"
        yield Finding("default-as-name", Severity.WARNING, entity, None, text)
    elif entity_type == USER and name.startswith(_PRINCIPAL_TYPE):
        own = name.removeprefix(_PRINCIPAL_TYPE)
        text = f"a broker compares the name of a principal without its type: write {own!r} instead of {name!r}"
        yield Finding("principal-type", Severity.WARNING, entity, None, text)
    elif name not in twins and _ESCAPE.search(name) and sanitize(decoded := _decoded(name)) == name:
        text = (
            f"{name!r} looks URL-encoded, as metrics and ZooKeeper have it; a broker compares names as clients send "
            f"them: write {decoded!r} if that is meant"
        )
        yield Finding("encoded-name", Severity.WARNING, entity, None, text)


def _groups(names: Iterable[str], form: Callable[[str], str]) -> Iterator[list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(form(name), []).append(name)
    return (group for group in groups.values() if len(group) > 1)


def _address(name: str) -> str:
    return canonical_ip(name) or name


def _decoded(name: str) -> str:
    """What the name is if it is URL-encoded; itself where it cannot be."""
    if not _ESCAPE.search(name):
        return name
    try:
        return desanitize(name)
    except IllegalArgumentError:
        return name


def _look(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split())


def _difference(one: str, other: str) -> str:
    if unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other):
        return "composed and decomposed letters"
    if one.casefold() == other.casefold():
        return "upper and lower case"
    if one.split() == other.split():
        return "spaces"
    return "other forms of the same letters"
