"""What plan, apply and rollback share: what is given, whose quotas it is about, and carrying it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from kquota.cli.options.targets import Target, parse_quotas, read_file
from kquota.cli.quotas.alter import local_principal
from kquota.errors import ApiError, InputError, failed
from kquota.files import QuotaFile
from kquota.policy import Drift, Plan, PlanTarget, alterations, is_plan, read_plan
from kquota.printable import printable
from kquota.quotas import ClientQuotaEntity, ClientQuotaFilter, QuotaChange, QuotaSnapshot, format_number
from kquota.stores import QuotaStore

__all__ = [
    "all_quotas",
    "carry_out",
    "check_target",
    "count_entities",
    "drift_lines",
    "print_summary",
    "read_given",
    "target_of",
    "value_text",
]

_SHOWN = 20


def read_given(path: str) -> Plan | QuotaFile:
    """The plan or quota file at ``path``, whichever it is; - is standard input.

    :raises InputError: it is neither.
    """
    content, name = read_file(path)
    return read_plan(content, name=name) if is_plan(content) else parse_quotas(content, name)


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


def carry_out(
    store: QuotaStore, changes: Sequence[QuotaChange], current: QuotaSnapshot, *, dry_run: bool
) -> Mapping[ClientQuotaEntity, ApiError | None]:
    """Make changes that were worked out from `current`, or only ask whether they could be made.

    :raises KquotaError: nothing was done.
    """
    if not changes:
        return {}
    if dry_run:
        return store.alter(alterations(changes), validate_only=True, principal=local_principal())
    from kquota.stores.changes import make_changes

    def say_progress(done: int, of: int) -> None:
        click.echo(f"{done} of {count_entities(of)}", err=True)

    return make_changes(store, changes, current, principal=local_principal(), report=say_progress)


def print_summary(
    results: Mapping[ClientQuotaEntity, ApiError | None], right: int, *, done: str, dry_run: bool, moved: int = 0
) -> None:
    """How many entities were `done` and how many were not, on standard error.

    :param moved: how many of the failures are because somebody else was there.
    """
    unknown = sum(error is not None and error.is_unknown for error in results.values())
    failures = sum(error is not None for error in results.values()) - unknown - moved
    click.echo(
        f"{count_entities(len(results) - failures - unknown - moved)} {'would be ' if dry_run else ''}{done}, "
        f"{right} were right already"
        + (f", {moved} moved since" if moved else "")
        + (f", {failures} failed" if failures else "")
        + (f", of {unknown} it is unknown" if unknown else ""),
        err=True,
    )
    if (failures or unknown) and not dry_run:
        click.echo("the same command does the rest, once the reasons are gone", err=True)


def count_entities(number: int) -> str:
    """So many entities, in words."""
    return f"{number} {'entity' if number == 1 else 'entities'}"


def drift_lines(moved: Iterable[Drift]) -> list[str]:
    """Which values are not as they were, from what to what."""
    lines = [
        printable(
            f"{one.entity.to_text()}: {one.key} was {value_text(one.expected)} and is {value_text(one.found)} now"
        )
        for one in moved
    ]
    hidden = len(lines) - _SHOWN
    return lines if hidden <= 0 else [*lines[:_SHOWN], f"... and {hidden} more"]


def value_text(value: float | None) -> str:
    """The value, or that there is none."""
    return "not set" if value is None else format_number(value)
