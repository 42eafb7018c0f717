"""Quota files written: YAML for people, JSON for programs. Reading gives back exactly what was written."""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kquota.files.plain_json import dump_json, flow
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.quotas import CLIENT_ID, IP, USER, ClientQuotaEntity

__all__ = ["entry_fields", "write_json", "write_yaml", "yaml_flow"]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "infinity"})
"""Words that some YAML reader takes for something else. Ours would not, but others read these files too."""

_LONGEST_SIMPLE_KEY = 1000
_RANK = {USER: 0, CLIENT_ID: 1, IP: 2}


def write_yaml(
    file: QuotaFile,
    comments: Mapping[ClientQuotaEntity, Sequence[str]] = MappingProxyType({}),
    *,
    by_owner: bool = False,
) -> str:
    """YAML, one entry for each entity, sorted by entity; a default is ``null``.

    :param comments: lines to stand above the entry of an entity.
    :param by_owner: the entries of each owner together, under a comment with the name; those without one come last.
    """
    if not file.entries:
        return "quotas: []\n"
    groups = _by_owner(file) if by_owner else [("", _sorted(file))]
    return "quotas:\n" + "\n".join(
        [
            (_yaml_comment(title) if title else "")
            + "".join(["".join(map(_yaml_comment, comments.get(one.entity, ()))) + _yaml_entry(one) for one in entries])
            for title, entries in groups
        ]
    )


def write_json(file: QuotaFile) -> str:
    """A JSON list with one line for each entity, sorted by entity; a default is ``null``."""
    lines = [dump_json(entry_fields(entry)) for entry in _sorted(file)]
    return "[\n  " + ",\n  ".join(lines) + "\n]\n" if lines else "[]\n"


def entry_fields(entry: QuotaFileEntry) -> dict[str, object]:
    """An entry as plain mappings: entity (types in the order user, client-id, ip), values by key, owner and labels."""
    fields: dict[str, object] = {
        "entity": dict(sorted(entry.entity.entries.items(), key=lambda pair: (_RANK.get(pair[0], 3), pair[0]))),
        "values": dict(sorted(entry.values.items())),
    }
    if entry.owner is not None:
        fields["owner"] = entry.owner
    if entry.labels:
        fields["labels"] = dict(sorted(entry.labels.items()))
    return fields


def _sorted(file: QuotaFile) -> list[QuotaFileEntry]:
    return sorted(file.entries, key=lambda entry: entry.entity.sort_key())


def _by_owner(file: QuotaFile) -> list[tuple[str, list[QuotaFileEntry]]]:
    of_owner: dict[str | None, list[QuotaFileEntry]] = {}
    for entry in _sorted(file):
        of_owner.setdefault(entry.owner, []).append(entry)
    names = sorted(of_owner, key=lambda owner: (owner is None, owner or ""))
    return [("without an owner" if owner is None else f"owner {owner}", of_owner[owner]) for owner in names]


def _yaml_comment(line: str) -> str:
    # A line that does not end where it should would be read.
    return "  # " + "".join([c if c.isprintable() else " " for c in line]) + "\n"


def _yaml_entry(entry: QuotaFileEntry) -> str:
    lines = [f"{name}: {yaml_flow(value)}" for name, value in entry_fields(entry).items()]
    return "  - " + "\n    ".join(lines) + "\n"


def yaml_flow(value: object) -> str:
    """``value`` as YAML on one line, readable again as the same text, numbers, nulls, lists and mappings."""
    return flow(value, _yaml_text, _yaml_key)


def _yaml_key(key: str) -> str:
    shown = _yaml_text(key)
    # YAML gives up looking for the colon of a simple key after 1024 characters.
    return shown if len(shown) < _LONGEST_SIMPLE_KEY else f"? {shown} "


def _yaml_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join([_yaml_character(c) for c in quoted])


def _yaml_character(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
