"""``kquota apply``: make quotas those of a file, or carry out a reviewed plan."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kquota.cli.options.targets import QUOTA_FILE, Target, parse_quotas, read_file, target_options
from kquota.cli.output import format_option
from kquota.cli.plans.outcomes import print_progress, print_summary, write_outcomes
from kquota.errors import InputError
from kquota.files import QuotaFile
from kquota.policy import Plan, is_plan, read_plan
from kquota.stores.plans import PreparedChanges, prepare_plan, prepare_quotas
from kquota.stores.rollback_file import RollbackFileError, write_rollback_file

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
    """Carry out a plan that kquota plan made, or set what a quota file says and is not set yet. What is as it should be
    is left alone, and so is, without --prune, what a quota file does not name.

    A plan is carried out only if nobody has changed what it touches since it was made. What kquota rollback needs to
    undo it all is written first.

    Each entity is changed as a whole or not at all, and has its own result. After a failure, or an end midway, run the
    same command again: it resumes.
    """
    path = _one_of(plan, file)
    if rollback_file is not None and no_rollback_file:
        raise click.UsageError("Give --rollback-file or --no-rollback-file, not both.")
    given = _read(path)
    if isinstance(given, Plan) and prune:
        raise click.UsageError("--prune goes with a quota file; what a plan removes was decided when it was made.")
    # A plan was made from a store that existed.
    with target.open(writes=not dry_run, creates=isinstance(given, QuotaFile)) as store:
        here = target.for_plan(store)
        if isinstance(given, Plan):
            prepared = prepare_plan(store, given, target=here, name=path)
        else:
            prepared = prepare_quotas(store, given.snapshot(), target=here, prune=prune)
        if prepared.changes and not dry_run and not no_rollback_file:
            _write_rollback_file(prepared, path, rollback_file, given if isinstance(given, Plan) else None)
        found = prepared.carry_out(dry_run=dry_run, report=print_progress)
    code = write_outcomes(found, format)
    print_summary(found, done="changed", dry_run=dry_run)
    return code


def _one_of(plan: str | None, file: str | None) -> str:
    if plan is not None and file is not None:
        raise click.UsageError("Give a plan or -f, not both.")
    given = file if plan is None else plan
    if given is None:
        raise click.UsageError("Say what to apply: a plan, or -f and a quota file.")
    return given


def _read(path: str) -> Plan | QuotaFile:
    """The plan or quota file at ``path``, whichever it is; - is standard input.

    :raises InputError: it is neither.
    """
    content, name = read_file(path)
    return read_plan(content, name=name) if is_plan(content) else parse_quotas(content, name)


def _write_rollback_file(prepared: PreparedChanges, source: str, chosen: str | None, reviewed: Plan | None) -> None:
    try:
        written = write_rollback_file(
            prepared.plan,
            source=Path("quotas" if source == "-" else source),
            path=None if chosen is None else Path(chosen),
            reviewed=reviewed,
        )
    except RollbackFileError as error:
        raise InputError(
            f"{error}. Name another place with --rollback-file, or go without it: --no-rollback-file"
        ) from None
    click.echo(f"to undo this: kquota rollback {shlex.quote(str(written))}", err=True)
