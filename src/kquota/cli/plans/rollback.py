"""``kquota rollback``: undo an apply."""

from __future__ import annotations

import click

from kquota.cli.options.targets import Target, read_file, target_options
from kquota.cli.output import format_option
from kquota.cli.plans.outcomes import print_progress, print_summary, write_outcomes
from kquota.policy import read_plan
from kquota.stores.plans import prepare_rollback

__all__ = ["rollback"]


@click.command(
    epilog="""\b
Examples:
  kquota rollback plan.rollback.json --bootstrap-server localhost:9092 --dry-run
  kquota rollback plan.rollback.json --bootstrap-server broker:9093 --command-config admin.properties
  kquota rollback quotas.rollback.json --store sqlite:///kquota.db --force

\b
Exit codes: 0 done or nothing to do, 1 some or all failed or were changed since, 2 something given cannot be used,
4 not authorised, 5 unreachable or timed out."""
)
@click.argument("file", metavar="FILE")
@target_options()
@click.option("--dry-run", "--validate-only", "dry_run", is_flag=True, help="Only ask whether it could be done.")
@click.option("--force", is_flag=True, help="Also undo what somebody else has changed since.")
@format_option
def rollback(*, file: str, target: Target, dry_run: bool, force: bool, format: str) -> int:
    """Undo what an apply did, from the file that it wrote first: each value becomes what it was before.

    Only entities whose values are what the apply left are restored. Those that somebody else has changed since are
    named, and left alone without --force; what the apply did not come to is left as it is.
    """
    content, name = read_file(file)
    done = read_plan(content, name=name)
    with target.open(writes=not dry_run) as store:
        prepared = prepare_rollback(store, done, target=target.for_plan(store), force=force, name=name)
        found = prepared.carry_out(dry_run=dry_run, report=print_progress)
    code = write_outcomes(found, format)
    print_summary(found, done="restored", dry_run=dry_run, drifted=len(prepared.drifted))
    return code
