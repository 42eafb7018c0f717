"""The files that match a pattern, and the broker of each.

``[N=]GLOB``: N is the broker of all of them. ``{broker}`` in the glob matches a whole number, which is the broker's
id: ``logs/broker-{broker}/*`` are the files of many brokers.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Final

from kquota.errors import InputError
from kquota.files.local_paths import local_path, url_scheme
from kquota.pipeline.storage.files import StoredFile
from kquota.pipeline.storage.opening import open_storage

__all__ = ["MAX_BROKER_ID", "matching_files"]

MAX_BROKER_ID: Final = 2**31 - 1
"""Kafka's are signed integers of four bytes."""

_BROKER: Final = "{broker}"
_TOKEN: Final = re.compile(r"\{broker\}|\*\*/|\*+|\?|\[!?\]?[^]]*\]")


def matching_files(pattern: str) -> list[tuple[StoredFile, int | None]]:
    """The files that match a pattern, a path or a URL, in order of their paths, each with its broker: None where the
    pattern does not say it.

    :raises InputError: the pattern says the broker in more than one way, or one that is none, or it is a URL of
        a storage that is not served.
    """
    given, glob_pattern = _split_broker(pattern)
    if url_scheme(glob_pattern) is None:
        glob_pattern = local_path(glob_pattern)
        found = {path: StoredFile.of(str(Path(path).resolve())) for path in _local_paths(glob_pattern)}
        if [*found] == [glob_pattern]:
            return [(found[glob_pattern], given)]
    else:
        glob_pattern, found = _in_storage(glob_pattern)
    if _BROKER not in glob_pattern:
        return [(file, given) for file in found.values()]
    if given is not None:
        raise InputError(f"{pattern}: give the broker by N= or by {_BROKER}, not by both")
    first, last = (_expression(glob_pattern, is_greedy=is_greedy) for is_greedy in (False, True))
    files: list[tuple[StoredFile, int | None]] = []
    for path, file in found.items():
        one, other = first.fullmatch(path), last.fullmatch(path)
        if one is None or other is None:
            continue
        if one["broker"] != other["broker"]:
            raise InputError(
                f"{pattern}: the broker of {path} may be {one['broker']} or {other['broker']}: write more of the path"
            )
        files.append((file, _broker_id(one["broker"], path)))
    return files


def _local_paths(pattern: str) -> list[str]:
    if Path(pattern).is_file():
        return [pattern]
    # Path.glob takes no absolute patterns.
    found = sorted(glob.glob(pattern.replace(_BROKER, "[0-9]*"), recursive=True))  # noqa: PTH207
    return [path for path in found if Path(path).is_file()]


def _in_storage(pattern: str) -> tuple[str, dict[str, StoredFile]]:
    """A pattern as the storage spells its URLs, and the files that match it, by URL.

    As in a folder, wildcards do not match names that begin with a dot.
    """
    wildcard = _TOKEN.search(pattern)
    folder = pattern[: wildcard.start() if wildcard else None].rpartition("/")[0]
    storage = open_storage(folder)
    rest = pattern[len(folder) + 1 :]
    if wildcard is None:
        file = StoredFile(storage, rest)
        try:
            file.size()
        except FileNotFoundError:
            return pattern, {}
        return file.path, {file.path: file}
    files = (StoredFile(storage, info.path) for info in storage.list() if "/." not in f"/{info.path}")
    expression = _expression(rest, is_greedy=True)
    return f"{storage.url}/{rest}", {file.path: file for file in files if expression.fullmatch(file.name)}


def _split_broker(pattern: str) -> tuple[int | None, str]:
    """``3=logs/*`` is broker 3 and ``logs/*``; None where no broker is given."""
    head, equals, rest = pattern.partition("=")
    if equals and rest and head.isascii() and head.isdigit():
        return _broker_id(head, pattern), rest
    return None, pattern


def _broker_id(digits: str, where: str) -> int:
    if len(digits) > 10 or int(digits) > MAX_BROKER_ID:
        raise InputError(f"{where}: {digits} is no broker's id: the highest is {MAX_BROKER_ID}")
    return int(digits)


def _expression(pattern: str, *, is_greedy: bool) -> re.Pattern[str]:
    """What matches the paths that a glob does; its group `broker` the last number that can be meant, or the first."""
    quantifier = "" if is_greedy else "?"
    translated, at = "", 0
    for token in _TOKEN.finditer(pattern):
        translated += re.escape(pattern[at : token.start()])
        at = token.end()
        match token[0]:
            case "{broker}":
                is_first = "(?P<broker>" not in translated
                translated += "(?<![0-9])" + ("(?P<broker>[0-9]+)" if is_first else "(?P=broker)") + "(?![0-9])"
            case "**/":
                translated += f"(?:.*{quantifier}/)?{quantifier}"
            case "*":
                translated += f"[^/]*{quantifier}"
            case "?":
                translated += "[^/]"
            case text if text[0] == "*":
                translated += f".*{quantifier}"
            case text:
                characters = re.sub(r"([\\[&~|])", r"\\\1", text[1:-1])
                translated += "[" + ("^" + characters[1:] if characters[0] == "!" else characters) + "]"
    return re.compile(translated + re.escape(pattern[at:]), re.DOTALL)
