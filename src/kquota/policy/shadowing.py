"""Which clients a rule can bind at all: Kafka asks one level after the other, and a default above takes everyone.

    1 user, client-id        4 default user, client-id           7 client-id
    2 user, default client   5 default user, default client      8 default client-id
    3 user                   6 default user

A client that authenticates with nothing is the user ANONYMOUS, so a default of users binds it too. A client that sends
no client id is never asked about levels with one.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from kquota.quotas import CLIENT_ID, USER, ClientQuotaEntity, QuotaSnapshot

__all__ = ["Reach", "Shadow", "rules_by_key", "shadow", "users_with_rules"]


class Reach(Enum):
    """Which clients a rule still binds where another one takes precedence over it."""

    NO_CLIENT_ID = "no client id"
    """Clients that send no client id, and nobody else."""
    NOBODY = "nobody"


class Shadow(NamedTuple):
    """The rule that takes precedence, and which clients the other one still binds."""

    by: ClientQuotaEntity
    left: Reach


def rules_by_key(snapshot: QuotaSnapshot) -> dict[str, set[ClientQuotaEntity]]:
    """The entities that have a value of each key: the rules that compete."""
    rules: dict[str, set[ClientQuotaEntity]] = {}
    for entity, values in snapshot.items():
        for key in values:
            rules.setdefault(key, set()).add(entity)
    return rules


def shadow(entity: ClientQuotaEntity, rules: Collection[ClientQuotaEntity]) -> Shadow | None:
    """The rule that takes precedence over the one on `entity` for everyone it could bind, among the `rules` of its key.

    None where someone who sends a client id is left. There always is for a rule that names a client id together with a
    user (or the default user), for a pair of defaults, and for an address.
    """
    entries = entity.entries
    above: list[Mapping[str, str | None]]
    if entries.keys() == {USER}:
        above, left = [{USER: entries[USER], CLIENT_ID: None}], Reach.NO_CLIENT_ID
    elif entries.keys() == {CLIENT_ID}:
        above, left = [{USER: None, CLIENT_ID: None}, {USER: None}], Reach.NOBODY
        if entries[CLIENT_ID] is not None:
            above.insert(0, {USER: None, CLIENT_ID: entries[CLIENT_ID]})
    else:
        return None
    by = next((one for one in map(ClientQuotaEntity, above) if one in rules), None)
    return None if by is None else Shadow(by, left)


def users_with_rules(rules: Iterable[ClientQuotaEntity]) -> list[str]:
    """The users with a rule for all their client ids, sorted: it binds before rules that name only the client id."""
    names = {entity.entries[USER] for entity in rules if entity.entries.get(USER) and not entity.entries.get(CLIENT_ID)}
    return sorted(name for name in names if name is not None)
