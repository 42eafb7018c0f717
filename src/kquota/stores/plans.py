"""Plans carried out on a store, and undone: what ``kquota apply`` and ``kquota rollback`` do, for Python.

A change has two steps. The first looks at the store and changes nothing; between both, what is about to be done is kept
in a file, which undoes it::

    plan = read_plan(Path("plan.json").read_bytes(), name="plan.json")
    with open_store("sqlite:///quotas.db", access=Access.WRITE) as store:
        prepared = prepare_plan(store, plan)
        write_rollback_file(prepared.plan, source=Path("plan.json"), reviewed=plan)
        outcomes = prepared.carry_out()

A plan is made by :meth:`Plan.between`, from :func:`all_quotas` and the quotas that are desired. What ended midway is
finished by the same two steps: what is done already is not done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kquota.errors import ApiError, InputError, KafkaErrorCode, KquotaError
from kquota.policy import Drift, Plan, PlanTarget, alterations, difference
from kquota.printable import printable
from kquota.quotas import ClientQuotaEntity, ClientQuotaFilter, QuotaChange, QuotaSnapshot, format_number
from kquota.stores.changes import Outcome, local_principal, make_changes, to_outcomes
from kquota.stores.port import QuotaStore

__all__ = [
    "PlanDriftError",
    "PlanTargetError",
    "PreparedChanges",
    "all_quotas",
    "prepare_plan",
    "prepare_quotas",
    "prepare_rollback",
]

_SHOWN = 20


class PlanTargetError(InputError):
    """A plan was made for the quotas of another cluster or store."""

    def __init__(self, name: str, planned: PlanTarget, found: PlanTarget) -> None:
        self.planned, self.found = planned, found
        theirs, ours = (f"{one.name} (id {one.id})" if one.id else one.name for one in (planned, found))
        super().__init__(f"{name} was made for {theirs}, and this is {ours}: make a plan for this one")


class PlanDriftError(KquotaError):
    """What a plan touches was changed by somebody else since the plan was made. Nothing was done."""

    def __init__(self, name: str, drifted: tuple[Drift, ...]) -> None:
        self.drifted = drifted
        lines = [
            printable(f"{one.entity.to_text()}: {one.key} was {_text(one.expected)} and is {_text(one.found)} now")
            for one in drifted[:_SHOWN]
        ]
        hidden = len(drifted) - len(lines)
        super().__init__(
            f"{name} is out of date, so nothing was changed. What it touches was changed since it was made:\n  "
            + "\n  ".join([*lines, *([f"... and {hidden} more"] if hidden else [])])
            + "\nMake a new plan with kquota plan."
        )


@dataclass(frozen=True, slots=True)
class PreparedChanges:
    """Changes that were worked out from the quotas of a store, and are not made yet."""

    store: QuotaStore
    target: PlanTarget
    current: QuotaSnapshot
    entities: tuple[ClientQuotaEntity, ...]
    """Those to report on, whether they are changed or not."""
    changes: tuple[QuotaChange, ...]
    drifted: tuple[Drift, ...] = ()
    """By entity the first value that somebody else has changed since: these entities are not changed."""

    @property
    def plan(self) -> Plan:
        """The changes as a plan. Kept in a file before they are made, it is what :func:`prepare_rollback` takes."""
        return Plan.of(self.target, self.current, self.changes)

    def carry_out(
        self,
        *,
        dry_run: bool = False,
        principal: str | None = None,
        report: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> list[Outcome]:
        """Make the changes; what came of each entity. Each is changed as a whole or not at all.

        :param dry_run: only ask whether the changes could be made.
        :param principal: who makes them, for the history of a store; None for the user of this process.
        :param report: called now and then with how many entities are done, and of how many.
        :raises KquotaError: nothing was done.
        """
        results: dict[ClientQuotaEntity, ApiError | None] = {one.entity: _refusal(one) for one in self.drifted}
        changes = [change for change in self.changes if change.entity not in results]
        who = local_principal() if principal is None else principal
        if changes and dry_run:
            results.update(self.store.alter(alterations(changes), validate_only=True, principal=who))
        elif changes:
            results.update(make_changes(self.store, changes, self.current, principal=who, report=report))
        return to_outcomes(self.entities, self.changes, results, dry_run=dry_run)


def all_quotas(store: QuotaStore, quota_filter: ClientQuotaFilter | None = None) -> QuotaSnapshot:
    """Everything that is set, or what of it matches.

    :raises KquotaError: it could not be asked, or was refused.
    """
    found = store.describe(quota_filter or ClientQuotaFilter.all())
    if isinstance(found, ApiError):
        raise found.to_exception()
    return found


def prepare_plan(
    store: QuotaStore, plan: Plan, *, target: PlanTarget | None = None, name: str = "the plan"
) -> PreparedChanges:
    """What is left to be done of a plan.

    :param target: whose quotas these are; None for what the store says of itself.
    :param name: what errors call the plan.
    :raises PlanTargetError: the plan is for other quotas.
    :raises PlanDriftError: what it touches was changed since.
    """
    here = _checked(plan, store, target, name)
    current = all_quotas(store)
    status = plan.status(current)
    if status.drifted:
        raise PlanDriftError(name, status.drifted)
    return PreparedChanges(store, here, current, plan.entities, status.pending)


def prepare_quotas(
    store: QuotaStore, desired: QuotaSnapshot, *, target: PlanTarget | None = None, prune: bool = False
) -> PreparedChanges:
    """What has to change for quotas to become those that are desired, without a plan that was reviewed.

    :param prune: also remove what is set and not desired: whole entities, and single keys.
    """
    current = all_quotas(store)
    changes = difference(current, desired, prune=prune)
    return PreparedChanges(store, target or _target(store), current, tuple(desired), changes)


def prepare_rollback(
    store: QuotaStore, plan: Plan, *, target: PlanTarget | None = None, force: bool = False, name: str = "the plan"
) -> PreparedChanges:
    """What undoes a plan as far as it was carried out: each value becomes what it was before.

    :param force: also undo what somebody else has changed since; otherwise such entities are left as they are.
    :raises PlanTargetError: the plan is for other quotas.
    """
    here = _checked(plan, store, target, name)
    current = all_quotas(store)
    back = plan.reversed(current)
    first = {one.entity: one for one in reversed(back.status(current).drifted)}
    drifted = () if force else tuple(first.values())
    return PreparedChanges(store, here, current, back.entities, back.onto(current), drifted)


def _checked(plan: Plan, store: QuotaStore, target: PlanTarget | None, name: str) -> PlanTarget:
    here = target or _target(store)
    if plan.target.id != here.id:
        raise PlanTargetError(name, plan.target, here)
    return here


def _target(store: QuotaStore) -> PlanTarget:
    return PlanTarget(store.identity, "this store")


def _refusal(one: Drift) -> ApiError:
    return ApiError(
        KafkaErrorCode.INVALID_UPDATE_VERSION,
        f"{one.key} was left at {_text(one.expected)} and is {_text(one.found)} now",
    )


def _text(value: float | None) -> str:
    return "not set" if value is None else format_number(value)
