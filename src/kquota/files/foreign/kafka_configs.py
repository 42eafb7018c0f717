"""What ``kafka-configs --describe`` prints about users, clients and ips, of today and of the times of ZooKeeper.

    Quota configs for user-principal 'alice', the default client-id are producer_byte_rate=1024.0
    Configs for user-principal 'alice', default client-id are producer_byte_rate=1024,request_percentage=5

Names stand there as they are, between quotes that nothing escapes. What can be read in several ways is refused; a user
whose name holds ``', client-id '`` once is taken for a user with a client id. Credentials are passed over.
"""

import re
from collections.abc import Iterator
from typing import Final

from kquota.files.checker import Checker, Part
from kquota.files.nodes import Scalar
from kquota.quotas import CLIENT_ID, IP, USER

__all__ = ["is_described", "read"]

_TYPES: Final = {"user-principal": USER, "client-id": CLIENT_ID, "ip": IP}
_BEGINS: Final = re.compile(r"^(?:Quota configs|Configs|SCRAM credential configs) for ", re.MULTILINE)
_NAMED: Final = re.compile(r"(user-principal|client-id|ip) '(.*)'", re.DOTALL)
_DEFAULT: Final = re.compile(r"(?:the )?default (user-principal|client-id|ip)")
_NEXT_PART: Final = re.compile(r"', (?=client-id '|(?:the )?default client-id$)")
_CREDENTIAL: Final = re.compile(r"SCRAM-SHA-\d+=|(?:salt|stored_key|server_key|iterations)=")
_VALUES: Final = r"(?: (?:[A-Za-z0-9_.-]+=[^\n]*)?)?"
_END: Final = re.compile(rf".* are{_VALUES}")
_RECORD: Final = re.compile(rf"(Quota configs|Configs|SCRAM credential configs) for (.*) are({_VALUES})", re.DOTALL)
_NOTICES: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
)


def is_described(text: str) -> bool:
    """Whether some line begins as the tool's do, which none of YAML or JSON can."""
    return _BEGINS.search(text) is not None


def read(text: str, checker: Checker) -> None:
    """The entries of all that was described."""
    for record in _records(text):
        whole = Part(checker, record, "")
        parts = _RECORD.fullmatch(record.text.removesuffix("\r"))
        if parts is None:
            whole.report(
                f"this is not what kafka-configs --describe prints about users, clients or ips: {_short(record.text)}"
            )
            continue
        if parts[1].startswith("SCRAM"):
            continue
        names = _names(parts[2], whole)
        entity = None if names is None else whole.entity(names)
        values: dict[str, float] = {}
        pairs = parts[3].strip()
        for pair in re.split(", ?", pairs) if pairs else []:
            if _CREDENTIAL.match(pair):
                continue
            key, _, number = pair.partition("=")
            field = Part(checker, Scalar(record.line, 1, number), key)
            if key in values:
                field.report(f"{key} appears twice")
                continue
            value = field.value(key, entity)
            if value is not None:
                values[key] = value
        if entity is not None and values:
            whole.add(entity, values)


def _records(text: str) -> Iterator[Scalar]:
    """What is said about each entity: a line, or several where a name holds line breaks."""
    first, lines = 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        is_begun = bool(lines) and _BEGINS.match(lines[0]) is not None and not _END.fullmatch(lines[-1].rstrip("\r"))
        if is_begun and not _BEGINS.match(line):
            lines.append(line)
            continue
        if lines:
            yield Scalar(first, 1, "\n".join(lines))
        first, lines = number, [line] if line.strip() and line.strip() not in _NOTICES else []
    if lines:
        yield Scalar(first, 1, "\n".join(lines))


def _names(text: str, whole: Part) -> dict[str, str | None] | None:
    """The parts of an entity; None where there is not exactly one way to read them, which is reported."""
    pairs = []
    for found in _NEXT_PART.finditer(text) if text.endswith(("'", "default client-id")) else ():
        user, client_id = _part(text[: found.start() + 1]), _part(text[found.end() :])
        if user is not None and client_id is not None and user.keys() == {USER}:
            pairs.append(user | client_id)
        if len(pairs) > 1:
            reason = (
                f"this can be read in several ways, because a name holds quotes: {_short(text)}; write the entity in a "
                "quota file of kquota"
            )
            whole.report(reason)
            return None
    for default in ("the default user-principal, ", "default user-principal, "):
        client_id = _part(text.removeprefix(default)) if text.startswith(default) else None
        if client_id is not None and client_id.keys() == {CLIENT_ID}:
            return {USER: None, **client_id}
    names = pairs[0] if pairs else _part(text)
    if names is None:
        reason = f"this is no user-principal, client-id or ip, or a user-principal with a client-id: {_short(text)}"
        whole.report(reason)
    return names


def _part(text: str) -> dict[str, str | None] | None:
    named = _NAMED.fullmatch(text)
    if named is not None:
        return {_TYPES[named[1]]: named[2]}
    default = _DEFAULT.fullmatch(text)
    return None if default is None else {_TYPES[default[1]]: None}


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")
