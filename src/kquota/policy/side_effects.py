"""What a change of quotas does besides what it says: rules that fall silent, limits that go, other meters."""

import math
from collections.abc import Iterator
from typing import Final

from kquota.policy.findings import Finding, Severity, in_order
from kquota.policy.shadowing import Reach, rules_by_key, shadow
from kquota.quotas import CLIENT_ID, IP, KAFKA, USER, ClientQuotaEntity, QuotaResolver, QuotaSnapshot, ResolvedQuota

__all__ = ["side_effects"]

_SHOWN: Final = 3
_COUNTED: Final = {
    frozenset({USER, CLIENT_ID}): "each client id of each user apart",
    frozenset({USER}): "all clients of a user together",
    frozenset({CLIENT_ID}): "a client id together, whichever user has it",
}
"""What a meter counts, by its tags."""
_NAN: Final = (
    "NaN limits nobody: clients that it binds are never throttled from now on; write a number, or leave it out"
)


def side_effects(before: QuotaSnapshot, after: QuotaSnapshot) -> tuple[Finding, ...]:
    """What going from `before` to `after` does to others than those that it names, sorted by entity.

    - ``silences``: a new rule takes precedence over others, which bind nobody any more
    - ``unreachable``, ``overridden``: a new rule binds nobody, since another one takes precedence for all its clients
    - ``lifts-limit``: clients that a removed rule bound have no limit any more
    - ``binds-everyone``: a new default limits whoever had no limit
    - ``moves-meters``: usage is counted on other meters, which start empty
    - ``nan-limit``: a limit that becomes NaN limits nobody
    """
    rules_before, rules_after = rules_by_key(before), rules_by_key(after)
    resolvers = QuotaResolver(before), QuotaResolver(after)
    nobody = _unused_name({name for entity in (*before, *after) for name in entity.entries.values() if name})
    findings: list[Finding] = []
    for key in rules_before.keys() | rules_after.keys():
        known = KAFKA.key(key)
        if known is None or frozenset({IP}) in known.shapes:
            continue
        was, now = rules_before.get(key, set()), rules_after.get(key, set())
        findings += _silenced(key, was, now)
        for entity in now - was:
            findings += _in_vain(key, entity, now)
            findings += _consequence(key, entity, resolvers, nobody, is_new=True)
        for entity in now:
            if math.isnan(after[entity][key]) and not math.isnan(before.get(entity, {}).get(key, 0.0)):
                findings.append(Finding("nan-limit", Severity.WARNING, entity, key, _NAN))
        for entity in was - now:
            findings += _consequence(key, entity, resolvers, nobody, is_new=False)
    return in_order(findings)


def _silenced(key: str, was: set[ClientQuotaEntity], now: set[ClientQuotaEntity]) -> Iterator[Finding]:
    """Rules that stay and reached someone, by the new rule that takes everyone from them."""
    by_cause: dict[ClientQuotaEntity, list[ClientQuotaEntity]] = {}
    for entity in was & now:
        above = shadow(entity, now)
        if above is not None and shadow(entity, was) is None:
            by_cause.setdefault(above.by, []).append(entity)
    for cause, silent in by_cause.items():
        names = [entity.to_text() for entity in sorted(silent, key=ClientQuotaEntity.sort_key)]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        plural = len(names) > 1
        left = "only clients that send no client id" if USER in silent[0].entries else "nobody"
        text = (
            f"takes precedence over {'; '.join(names[:_SHOWN])}{more}, which bind{'' if plural else 's'} {left} from "
            f"now on; remove {'them' if plural else 'it'} if that is meant, or leave this out"
        )
        yield Finding("silences", Severity.WARNING, cause, key, text)


def _in_vain(key: str, entity: ClientQuotaEntity, now: set[ClientQuotaEntity]) -> Iterator[Finding]:
    above = shadow(entity, now)
    if above is not None:
        is_nobody = above.left is Reach.NOBODY
        clients = "nobody" if is_nobody else "only clients that send no client id"
        text = f"is new and binds {clients}: {above.by.to_text()} takes precedence over it"
        yield Finding("unreachable" if is_nobody else "overridden", Severity.WARNING, entity, key, text)


def _consequence(
    key: str, entity: ClientQuotaEntity, resolvers: tuple[QuotaResolver, QuotaResolver], nobody: str, *, is_new: bool
) -> Iterator[Finding]:
    """What a rule that comes or goes means for a client that it binds."""
    found = _before_and_after(key, entity, resolvers, nobody, is_new=is_new)
    if found is None:
        return
    before, after = found
    if before.meter is not None and after.meter is not None:
        if before.meter != after.meter:
            text = (
                f"clients that it {'binds' if is_new else 'bound'} are counted on other meters from now on, which "
                f"start empty: {_COUNTED[frozenset(after.meter.tags)]}; so far {_COUNTED[frozenset(before.meter.tags)]}"
            )
            yield Finding("moves-meters", Severity.INFO, entity, key, text)
    elif before.meter is not None:
        text = "clients that it bound have no limit any more; set another rule if that is not meant"
        yield Finding("lifts-limit", Severity.WARNING, entity, key, text)
    elif after.meter is not None and not any(entity.entries.values()):
        text = (
            "limits everyone who had no limit so far, ANONYMOUS and the users of brokers and tools included; give "
            "those a rule of their own if they need more"
        )
        yield Finding("binds-everyone", Severity.INFO, entity, key, text)


def _before_and_after(
    key: str, entity: ClientQuotaEntity, resolvers: tuple[QuotaResolver, QuotaResolver], nobody: str, *, is_new: bool
) -> tuple[ResolvedQuota, ResolvedQuota] | None:
    """The limits of a client that the rule binds where it is set; None where it binds nobody.

    It is one that no other rule names.
    """
    entries = entity.entries
    user = entries.get(USER) or nobody
    for client_id in (entries.get(CLIENT_ID) or nobody, ""):
        before, after = (resolver.resolve_key(key, user, client_id) for resolver in resolvers)
        if (after if is_new else before).source == entity:
            return before, after
    return None


def _unused_name(names: set[str]) -> str:
    name = "nobody"
    while name in names:
        name += "'"
    return name
