"""Owner maps: who owns a client, and who a limit. Rules by name and prefix, the first that matches wins.

As CSV, with any of these columns besides `owner` (an empty cell is not looked at):

    owner,user,user-prefix,client-id,client-id-prefix,ip,ip-prefix
    payments,alice,,,,,
    search,,search-,,indexer-,,

or as YAML, a list (or ``owners:`` with one), where an empty text is a name, too: that of a client without any.

    - {owner: payments, user: alice}
    - {owner: search, user-prefix: search-, client-id-prefix: indexer-}
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kquota.errors import InputError, QuotaFileProblem
from kquota.files import nodes
from kquota.files.nodes import Node, Scalar
from kquota.files.quota_file import QuotaFile
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    ClientQuotaEntity,
    QuotaResolver,
)

__all__ = ["UNOWNED", "OwnerMap", "OwnerRule", "read_owner_rules"]

UNOWNED: Final = "unowned"
"""Who owns what nobody does."""

_OWNER: Final = "owner"
_TESTS: Final = tuple((kind, suffix) for kind in (USER, CLIENT_ID, IP) for suffix in ("", "-prefix"))
_COLUMNS: Final = (_OWNER, *(f"{kind}{suffix}" for kind, suffix in _TESTS))


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """Clients with these names and prefixes of names. Clients that a rule without an owner matches have no owner."""

    owner: str
    names: Mapping[str, str]
    """By type (user, client-id, ip) the whole name."""
    prefixes: Mapping[str, str]
    """By type how the name begins."""

    def matches(self, client: Mapping[str, str | None]) -> bool | None:
        """Whether a client is one of these; None where that is not known.

        :param client: by type its name, None for one that is not known; types that it cannot have are not there.
        """
        found: bool | None = True
        for tests, test in ((self.names, str.__eq__), (self.prefixes, str.startswith)):
            for kind, text in tests.items():
                if kind not in client:
                    return False
                name = client[kind]
                if name is None:
                    found = None
                elif not test(name, text):
                    return False
        return found


class OwnerMap:
    """Who owns clients: by the first rule that matches, otherwise by the owners that a quota file names.

    Of the entities with an owner, the one counts that would bind the client if each had a limit.
    """

    def __init__(self, rules: Iterable[OwnerRule], quotas: QuotaFile | None = None) -> None:
        """Take the rules, in their order, and the quota file, if there is one."""
        self._rules = tuple(rules)
        self._of_entity = {
            entry.entity: entry.owner for entry in (quotas.entries if quotas is not None else ()) if entry.owner
        }
        self._resolver = QuotaResolver({entity: {_key_of(entity): 1.0} for entity in self._of_entity})

    def __bool__(self) -> bool:
        """Whether it knows any owner."""
        return bool(self._rules or self._of_entity)

    @property
    def owners(self) -> frozenset[str]:
        """The owners that are named."""
        return frozenset(rule.owner for rule in self._rules if rule.owner) | frozenset(self._of_entity.values())

    def owner(self, user: str | None, client_id: str | None, ip: str | None) -> str:
        """The owner of a client, or of an address (then user and client_id are None); :data:`UNOWNED` without any.

        A name of a client that is None is not known. Where it decides whether a rule matches, it is not known who the
        owner is either: nobody.
        """
        # Usage is of a client, or of an address from which connections come: never of both.
        client = {USER: user, CLIENT_ID: client_id} if ip is None else {IP: ip}
        for rule in self._rules:
            matches = rule.matches(client)
            if matches is None:
                return UNOWNED
            if matches:
                return rule.owner or UNOWNED
        return self._by_entity(user, client_id, ip) or UNOWNED

    def owner_of_entity(self, entity: ClientQuotaEntity) -> str:
        """The owner of the limits of an entity; :data:`UNOWNED` without any.

        The owner that the quota file names for just this entity comes first. A rule with a name that the entity leaves
        open, because it is for all clients or for those without a limit of their own, does not match it: `user=alice`
        belongs to the owner of those clients of alice that no rule matches by their client-id.
        """
        if entity in self._of_entity:
            return self._of_entity[entity]
        names = {kind: entity.entries.get(kind) for kind in ((IP,) if IP in entity.entries else (USER, CLIENT_ID))}
        for rule in self._rules:
            if rule.matches(names):
                return rule.owner or UNOWNED
        return self._by_entity(names.get(USER), names.get(CLIENT_ID), names.get(IP)) or UNOWNED

    def _by_entity(self, user: str | None, client_id: str | None, ip: str | None) -> str | None:
        if ip is not None:
            found = self._resolver.resolve("", "", ip)[CONNECTION_CREATION_RATE]
        elif user is not None and client_id is not None:
            found = self._resolver.resolve_key(PRODUCER_BYTE_RATE, user, client_id)
        else:
            return None
        return self._of_entity[found.source] if isinstance(found.source, ClientQuotaEntity) else None


def _key_of(entity: ClientQuotaEntity) -> str:
    return CONNECTION_CREATION_RATE if IP in entity.entries else PRODUCER_BYTE_RATE


def read_owner_rules(content: bytes, *, name: str) -> list[OwnerRule]:
    """The rules of an owner map called `name`: YAML or JSON where the name ends so, otherwise CSV.

    :raises InputError: it cannot be used.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name}: not UTF-8; save the file as UTF-8") from None
    if name.endswith((".yaml", ".yml", ".json")):
        rows = _yaml_rows(text, name, is_json=name.endswith(".json"))
    else:
        rows = _csv_rows(text, name)
    return [_rule(fields, f"{name}:{line}") for line, fields in rows]


def _rule(fields: Mapping[str, str], place: str) -> OwnerRule:
    owner = fields[_OWNER].strip()
    if owner == UNOWNED:
        raise InputError(f"{place}: {UNOWNED} is what clients without an owner are called; leave the owner empty")
    names = {kind: fields[kind] for kind, suffix in _TESTS if not suffix and kind in fields}
    prefixes = {kind: fields[f"{kind}-prefix"] for kind, suffix in _TESTS if suffix and f"{kind}-prefix" in fields}
    if not names and not prefixes:
        raise InputError(f"{place}: the rule for {owner!r} names no user, client-id or ip; it would match everything")
    kinds = names.keys() | prefixes.keys()
    if IP in kinds and len(kinds) > 1:
        raise InputError(
            f"{place}: give the address a rule of its own: usage is of clients or of addresses, not of both"
        )
    return OwnerRule(owner, names, prefixes)


def _csv_rows(text: str, name: str) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [column.strip() for column in next(rows, [])]
        _check_columns(header, f"{name}:1", f"the header must name {_OWNER} and what it goes by")
        for row in rows:
            if not any(row):
                continue
            if len(row) > len(header):
                raise InputError(f"{name}:{rows.line_num}: {len(row)} cells under a header of {len(header)}")
            cells = dict(zip(header, row, strict=False))
            yield rows.line_num, {column: cell for column, cell in cells.items() if cell or column == _OWNER}
    except csv.Error as error:
        raise InputError(f"{name}: not CSV: {error}") from None


def _yaml_rows(text: str, name: str, *, is_json: bool) -> Iterator[tuple[int, dict[str, str]]]:
    root = _root(text, is_json=is_json)
    if isinstance(root, QuotaFileProblem):
        raise InputError(f"{name}:{root.line or 1}: {root.reason}")
    if isinstance(root, nodes.Mapping) and len(root.pairs) == 1 and _text(root.pairs[0][0]) == "owners":
        root = root.pairs[0][1]
    if not isinstance(root, nodes.Sequence):
        raise InputError(f"{name}: an owner map is a list of rules such as - {{owner: payments, user: alice}}")
    for item in root.items:
        place = f"{name}:{item.line}"
        if not isinstance(item, nodes.Mapping):
            raise InputError(f"{place}: a rule is expected, such as {{owner: payments, user: alice}}")
        fields: list[tuple[str, str]] = []
        for key, value in item.pairs:
            field, content = _text(key), _text(value)
            if field is None or content is None:
                raise InputError(f"{name}:{value.line}: text is expected as the {field or 'field'}")
            fields.append((field, content))
        _check_columns([field for field, _ in fields], place, f"a rule must name its {_OWNER}")
        yield item.line, dict(fields)


def _root(text: str, *, is_json: bool) -> Node | QuotaFileProblem | None:
    if is_json:
        return nodes.json_nodes(text)
    documents = nodes.yaml_documents(text)
    if isinstance(documents, QuotaFileProblem):
        return documents
    if len(documents) > 1:
        return QuotaFileProblem(documents[1].line, None, "", "a second document begins here; an owner map is one list")
    return documents[0].root if documents else None


def _text(node: Node) -> str | None:
    return node.text if isinstance(node, Scalar) and not node.is_null else None


def _check_columns(columns: Sequence[str], place: str, expected: str) -> None:
    unknown = [column for column in columns if column not in _COLUMNS]
    if unknown:
        raise InputError(f"{place}: there is no field {unknown[0]!r} (there are {', '.join(_COLUMNS)})")
    if _OWNER not in columns:
        raise InputError(f"{place}: {expected} (there are {', '.join(_COLUMNS)})")
    if len(set(columns)) < len(columns):
        raise InputError(f"{place}: a field appears twice")
