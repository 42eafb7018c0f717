"""``kquota restore``: the quotas of a backup, as a change of the store that is in use."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from kquota.cli.output import format_option
from kquota.cli.plans.outcomes import print_summary, write_outcomes
from kquota.cli.quotas.backup import store_option
from kquota.errors import InputError

__all__ = ["restore"]


@click.command(
    epilog="""\b
Examples:
  kquota restore --store sqlite:///kquota.db --from backup.db --dry-run
  kquota restore --store sqlite:///kquota.db --from backup.db

\b
Exit codes: 0 done or nothing to do, 1 some or all failed, 2 something given cannot be used."""
)
@store_option
@click.option("--from", "source", metavar="FILE", required=True, help="What kquota backup made of this store.")
@click.option("--dry-run", "--validate-only", "dry_run", is_flag=True, help="Only say what would change.")
@format_option
def restore(*, store: str, source: str, dry_run: bool, format: str) -> int:
    """Make the quotas of a store those of a backup of it, also while kquota serve has it open.

    What differs is changed, in one commit: nothing of the history is lost, and kquota history shows it.
    """
    from kquota.cli.options.targets import Target
    from kquota.policy import alterations, difference
    from kquota.stores.backup import read_backup
    from kquota.stores.changes import local_principal, to_outcomes
    from kquota.stores.host_names import hosts_of
    from kquota.stores.local import LocalStore
    from kquota.stores.plans import all_quotas

    with closing(read_backup(Path(source))) as backup, Target(store=store).open(writes=not dry_run) as opened:
        assert isinstance(opened, LocalStore)
        if backup.identity != opened.identity:
            raise InputError(
                f"{source} is a backup of another store (its id is {backup.identity}, and this is {opened.identity}); "
                "to take over its quotas all the same: kquota export --store and kquota apply --prune"
            )
        current, desired = all_quotas(opened), backup.read().snapshot
        changes = difference(current, desired, prune=True)
        asked = alterations(changes)
        # They were found when they were set.
        hosts = dict.fromkeys(hosts_of(asked), True)
        if dry_run:
            results = opened.alter(asked, validate_only=True, hosts=hosts)
        else:
            results = opened.compare_and_alter(asked, current, principal=local_principal(), hosts=hosts)
    found = to_outcomes([], changes, results, dry_run=dry_run)
    code = write_outcomes(found, format)
    print_summary(found, done="restored", dry_run=dry_run, more_unchanged=len(desired.keys() - results.keys()))
    return code
