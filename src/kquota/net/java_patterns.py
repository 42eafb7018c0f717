"""Regular expressions and replacements as Java reads them, for Python's ``re``.

What Python would read as something else is translated, or refused.
Source: ``java.util.regex.Pattern``, ``Matcher.replaceAll``; for literal references Kafka's ``SslPrincipalMapper``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["Replacement", "java_pattern", "java_replacement", "replace_all"]

Replacement = Callable[[re.Match[str]], str]

_LINE_ENDS: Final = r"\n\r\u0085\u2028\u2029"
_END: Final = rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)"
_TRANSLATED: Final = {".": rf"[^{_LINE_ENDS}]", "$": _END, r"\Z": _END, r"\z": r"\Z"}
_PART: Final = re.compile(
    r"\(\?<(?P<name>[A-Za-z][A-Za-z0-9]*)>"
    r"|\\k<(?P<again>\w+)>"
    r"|(?P<odd>\\[0vNUQE]|\(\?P|\(\?\(|\(\?\#|\(\?[a-zA-Z]*[amsxudUL][a-zA-Z]*[-:)])"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\[\]\\])*\])"
    r"|(?P<one>\\.|.|\n)",
    re.DOTALL,
)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_PIECE: Final = re.compile(r"\\(.)|\$(?:\{([A-Za-z][A-Za-z0-9]*)\}|(\d+))|([^\\$])", re.DOTALL | re.ASCII)


def java_pattern(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern of Java's.

    Named groups, ``.``, ``$``, ``\z`` and ``\Z`` are translated; ``\d``, ``\w``, ``\s`` and ``(?i)`` know ASCII alone.

    :raises ValueError: it is no pattern, or one that Python has no equal of.
    """
    try:
        return re.compile("".join(_parts(pattern)), re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(f"{pattern} is not a regular expression that is offered here: {error}") from None


def _parts(pattern: str) -> Iterator[str]:
    for part in _PART.finditer(pattern):
        odd = part["odd"] or (part[0] if part[0] == "[" else None)
        if odd is None and part["set"] is not None and "&&" in part["set"]:
            odd = "&&"
        if odd is not None:
            raise ValueError(f"{pattern} is not a regular expression that is offered here: no {odd} at {part.start()}")
        if part["name"] is not None:
            yield f"(?P<{part['name']}>"
        elif part["again"] is not None:
            yield f"(?P={part['again']})"
        else:
            yield _TRANSLATED.get(part[0], part[0])


def java_replacement(text: str, pattern: re.Pattern[str]) -> Replacement:
    r"""What a match is replaced by: ``$1`` and ``${name}`` are groups, ``\`` takes what follows as it is.

    :raises ValueError: there is no such group, or nothing after ``\`` or ``$``.
    """
    pieces: list[str | int] = []
    text = _with_literals(text, pattern.groups)
    at = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise ValueError(f"{text[at:]} refers to no group: write \\{text[at]} for the character itself")
        at = piece.end()
        if piece[2] is not None:
            if piece[2] not in pattern.groupindex:
                raise ValueError(f"the pattern has no group {piece[2]}")
            pieces.append(pattern.groupindex[piece[2]])
        elif piece[3] is not None:
            digits = piece[3]
            length = 1
            while length < len(digits) and int(digits[: length + 1]) <= pattern.groups:
                length += 1
            if int(digits[:length]) > pattern.groups:
                raise ValueError(f"the pattern has no group {digits}")
            pieces.append(int(digits[:length]))
            pieces.append(digits[length:])
        else:
            pieces.append(piece[1] or piece[4])
    return lambda match: "".join(one if isinstance(one, str) else match[one] or "" for one in pieces)


def replace_all(pattern: re.Pattern[str], replacement: Replacement, text: str) -> str:
    """Replace each match. After an empty one Java goes on a character further, where Python looks for a longer one."""
    pieces: list[str] = []
    start = end = 0
    while start <= len(text) and (match := pattern.search(text, start)) is not None:
        pieces += text[end : match.start()], replacement(match)
        end = match.end()
        start = end + (match.start() == end)
    return "".join((*pieces, text[end:]))


def _with_literals(text: str, groups: int) -> str:
    """References to groups that are not there taken as they are, as Kafka does where the pattern has any group.

    The place of the second one is where it was before the first was changed: that is Kafka's.
    """
    if not groups:
        return text
    changed = text
    for reference in _REFERENCE.finditer(text):
        if reference[1].startswith("0"):
            continue
        number = int(reference[1])
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            at = reference.start()
            changed = f"{changed[:at]}\\{changed[at:]}"
    return changed
