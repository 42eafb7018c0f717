"""``kquota apply``: make quotas those of a file, or carry out a reviewed plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import click

from kquota.cli.options.targets import QUOTA_FILE, Target, target_options
from kquota.cli.output import format_option
from kquota.cli.plans.outcomes import outcomes, write_outcomes
from kquota.cli.plans.planning import (
    all_quotas,
    carry_out,
    check_target,
    count_entities,
    drift_lines,
    print_summary,
    read_given,
    target_of,
)
from kquota.cli.plans.rollback_file import keep_rollback_file
from kquota.errors import KquotaError
from kquota.files import QuotaFile
from kquota.policy import Plan, difference
from kquota.quotas import ClientQuotaEntity, QuotaChange, QuotaSnapshot

__all__ = ["apply"]


@click.command(
    epilog="""\b
Examples:
  kquota apply plan.json --bootstrap-server broker:9093 --command-config admin.properties
  kquota apply -f quotas.yaml --bootstrap-server localhost:9092 --dry-run
  kquota apply -f quotas.yaml --store sqlite:///kquota.db --prune
  kquota export --bootstrap-server old:9092 | kquota apply -f - --bootstrap-server new:9092

\b
Exit codes: 0 done or nothing to do, 1 some or all failed or the plan is out of date, 2 something given cannot be used,
4 not authorised, 5 unreachable or timed out."""
)
@click.argument("plan", metavar="[PLAN]", required=False)
@click.option("-f", "--file", metavar="FILE", help=f"{QUOTA_FILE} Or a plan.")
@target_options()
@click.option("--prune", is_flag=True, help="Also remove entities and values that are not in the quota file.")
@click.option("--dry-run", "--validate-only", "dry_run", is_flag=True, help="Only ask whether it could be done.")
@click.option(
    "--rollback-file",
    metavar="FILE",
    help="Where to write what undoes this.  [default: beside the file, as plan.rollback.json]",
)
@click.option("--no-rollback-file", is_flag=True, help="Write no such file.")
@format_option
def apply(
    *,
    plan: str | None,
    file: str | None,
    target: Target,
    prune: bool,
    dry_run: bool,
    rollback_file: str | None,
    no_rollback_file: bool,
    format: str,
) -> int:
    """Carry out a plan that kquota plan made, or set what a quota file says and is not set so yet. What is right
    already is left alone, and so is, without --prune, what a quota file does not name.

    A plan is carried out only if what it touches has not moved since it was made. What kquota rollback needs to undo
    it all is written first.

    Each entity is changed as a whole or not at all, and told by itself. After a failure, or an end midway, the same
    command does the rest.
    """
    path = _one_of(plan, file)
    if rollback_file is not None and no_rollback_file:
        raise click.UsageError("Give --rollback-file or --no-rollback-file, not both.")
    given = read_given(path)
    if isinstance(given, Plan) and prune:
        raise click.UsageError("--prune goes with a quota file; what a plan removes was decided when it was made.")
    # A plan was made from a store that was there.
    with target.open(writes=not dry_run, creates=isinstance(given, QuotaFile)) as store:
        current = all_quotas(store)
        entities: Iterable[ClientQuotaEntity]
        changes: tuple[QuotaChange, ...]
        if isinstance(given, Plan):
            check_target(given, target_of(target, store), path)
            entities, changes = given.entities, _pending(given, current, path)
        else:
            entities = wanted = given.snapshot()
            changes = difference(current, wanted, prune=prune)
        if changes and not dry_run and not no_rollback_file:
            kept = keep_rollback_file(
                Plan.of(target_of(target, store), current, changes),
                source=path,
                chosen=rollback_file,
                reviewed=given if isinstance(given, Plan) else None,
            )
            click.echo(f"to undo this: kquota rollback {shlex.quote(str(kept))}", err=True)
        results = carry_out(store, changes, current, dry_run=dry_run)
    code = write_outcomes(outcomes(entities, changes, results, dry_run=dry_run), format)
    print_summary(results, sum(entity not in results for entity in entities), done="changed", dry_run=dry_run)
    return code


def _one_of(plan: str | None, file: str | None) -> str:
    if plan is not None and file is not None:
        raise click.UsageError("Give a plan or -f, not both.")
    given = file if plan is None else plan
    if given is None:
        raise click.UsageError("Say what to apply: a plan, or -f and a quota file.")
    return given


def _pending(plan: Plan, current: QuotaSnapshot, path: str) -> tuple[QuotaChange, ...]:
    """What is left to be done of a plan.

    :raises KquotaError: what it touches has moved.
    """
    status = plan.status(current)
    if status.moved:
        number = len({one.entity for one in status.moved})
        raise KquotaError(
            f"{path} is out of date, so nothing was changed: {count_entities(number)} that it touches "
            f"{'is' if number == 1 else 'are'} not as planned any more:\n  "
            + "\n  ".join(drift_lines(status.moved))
            + "\nMake a new plan with kquota plan."
        )
    return status.pending
