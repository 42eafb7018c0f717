"""``kquota rollback``: undo an apply."""

from __future__ import annotations

import click

from kquota.cli.options.targets import Target, read_file, target_options
from kquota.cli.output import format_option
from kquota.cli.plans.outcomes import outcomes, write_outcomes
from kquota.cli.plans.planning import all_quotas, carry_out, check_target, print_summary, target_of, value_text
from kquota.errors import ApiError, KafkaErrorCode
from kquota.policy import Drift, read_plan

__all__ = ["rollback"]


@click.command(
    epilog="""\b
Examples:
  kquota rollback plan.rollback.json --bootstrap-server localhost:9092 --dry-run
  kquota rollback plan.rollback.json --bootstrap-server broker:9093 --command-config admin.properties
  kquota rollback quotas.rollback.json --store sqlite:///kquota.db --force

\b
Exit codes: 0 done or nothing to do, 1 some or all failed or have moved, 2 something given cannot be used,
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
    told, and left alone without --force; what the apply did not come to is right already.
    """
    content, name = read_file(file)
    done = read_plan(content, name=name)
    with target.open(writes=not dry_run) as store:
        current = all_quotas(store)
        check_target(done, target_of(target, store), name)
        back = done.reversed(current)
        status = back.status(current)
        moved = {} if force else {one.entity: one for one in reversed(status.moved)}
        shown = back.onto(current)
        changes = [change for change in shown if change.entity not in moved]
        results = dict(carry_out(store, changes, current, dry_run=dry_run))
    right = len(back.entities) - len(results) - len(moved)
    results.update({entity: _moved_error(one) for entity, one in moved.items()})
    code = write_outcomes(outcomes(back.entities, shown, results, dry_run=dry_run), format)
    print_summary(results, right, done="restored", dry_run=dry_run, moved=len(moved))
    return code


def _moved_error(one: Drift) -> ApiError:
    return ApiError(
        KafkaErrorCode.INVALID_UPDATE_VERSION,
        f"{one.key} was left at {value_text(one.expected)} and is {value_text(one.found)} now; --force restores it all "
        "the same",
    )
