"""What plan, apply and rollback share: plans and quota files read, and whose quotas they are about."""

from __future__ import annotations

from collections.abc import Iterable

from kquota.cli.targets import Target, read_file
from kquota.errors import ApiError, InputError, failed
from kquota.files import Moved, Plan, PlanTarget, QuotaFile, is_plan, read_plan, read_quota_file
from kquota.quotas import ClientQuotaFilter, QuotaSnapshot, format_number
from kquota.stores import QuotaStore

__all__ = ["all_quotas", "check_target", "moved_lines", "read_given", "target_of", "value_text"]

_SHOWN = 20


def read_given(path: str) -> Plan | QuotaFile:
    """The plan or quota file at ``path``, whichever it is; - is standard input.

    :raises InputError: it is neither.
    """
    content, name = read_file(path)
    return read_plan(content, name=name) if is_plan(content) else read_quota_file(content, name=name)


def all_quotas(store: QuotaStore) -> QuotaSnapshot:
    """Everything that is set.

    :raises KquotaError: it could not be asked, or was refused.
    """
    found = store.describe(ClientQuotaFilter.all())
    if isinstance(found, ApiError):
        raise failed(found)
    return found


def target_of(target: Target, store: QuotaStore) -> PlanTarget:
    """Whose quotas these are, as a plan has it."""
    # What is in memory is another store each time that it is opened.
    identity = None if target.store == "memory:" else store.identity
    return PlanTarget(identity, target.bootstrap_server or target.store or "")


def check_target(plan: Plan, here: PlanTarget, path: str) -> None:
    """Refuse a plan for other quotas.

    :raises InputError: the plan is not for these.
    """
    if plan.target.id != here.id:
        theirs, ours = (f"{one.name} (id {one.id})" if one.id else one.name for one in (plan.target, here))
        raise InputError(f"{path} was made for {theirs}, and this is {ours}: make a plan for this one")


def moved_lines(moved: Iterable[Moved]) -> list[str]:
    """Which values are not as they were, from what to what."""
    lines = [
        f"{one.entity.to_text()}: {one.key} was {value_text(one.expected)} and is {value_text(one.found)} now"
        for one in moved
    ]
    hidden = len(lines) - _SHOWN
    return lines if hidden <= 0 else [*lines[:_SHOWN], f"... and {hidden} more"]


def value_text(value: float | None) -> str:
    """The value, or that there is none."""
    return "not set" if value is None else format_number(value)
