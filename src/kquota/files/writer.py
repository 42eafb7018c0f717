"""Quota files written: YAML for people, JSON for programs. Reading gives back exactly what was written."""

import json
import math
import re
from collections.abc import Mapping

from kquota.files.plain_json import dump_json
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.quotas import CLIENT_ID, IP, USER, format_number

__all__ = ["entry_fields", "write_json", "write_yaml"]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "infinity"})
"""Words that some YAML reader takes for something else. Ours would not, but others read these files too."""

_LONGEST_SIMPLE_KEY = 1000
_RANK = {USER: 0, CLIENT_ID: 1, IP: 2}


def write_yaml(file: QuotaFile) -> str:
    """YAML, one entry for each entity, sorted by entity; a default is ``null``."""
    if not file.entries:
        return "quotas: []\n"
    return "quotas:\n" + "".join([_yaml_entry(entry) for entry in _sorted(file)])


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


def _yaml_entry(entry: QuotaFileEntry) -> str:
    lines = [
        f"{name}: {_yaml_mapping(value) if isinstance(value, Mapping) else _yaml_scalar(value)}"
        for name, value in entry_fields(entry).items()
    ]
    return "  - " + "\n    ".join(lines) + "\n"


def _yaml_mapping(mapping: Mapping[str, object]) -> str:
    pairs = []
    for key, value in mapping.items():
        shown = _yaml_scalar(key)
        # YAML gives up looking for the colon of a simple key after 1024 characters.
        pairs.append(f"{shown if len(shown) < _LONGEST_SIMPLE_KEY else f'? {shown} '}: {_yaml_scalar(value)}")
    return "{" + ", ".join(pairs) + "}"


def _yaml_scalar(value: object) -> str:
    match value:
        case None:
            return "null"
        case str():
            if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
                return value
            quoted = json.dumps(value, ensure_ascii=False)
            return quoted if quoted.isprintable() else "".join([_yaml_character(c) for c in quoted])
        case int() | float():
            text = format_number(value)
            return text if math.isfinite(value) else f'"{text}"'
        case _:
            raise TypeError(f"{type(value).__name__} does not stand in a quota file")


def _yaml_character(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
