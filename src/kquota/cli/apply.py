"""``kquota apply``: make quotas those of a file."""

from __future__ import annotations

import click

from kquota.cli.alter import local_principal
from kquota.cli.outcomes import outcomes, write_outcomes
from kquota.cli.output import format_option
from kquota.cli.targets import QUOTA_FILE, Target, read_quotas, target_options
from kquota.errors import ApiError, failed
from kquota.files import alterations, difference
from kquota.quotas import ClientQuotaFilter

__all__ = ["apply"]


@click.command(
    epilog="""\b
Examples:
  kquota apply -f quotas.yaml --bootstrap-server localhost:9092 --dry-run
  kquota apply -f quotas.yaml --bootstrap-server broker:9093 --command-config admin.properties
  kquota apply -f quotas.yaml --store sqlite:///kquota.db --prune
  kquota export --bootstrap-server old:9092 | kquota apply -f - --bootstrap-server new:9092

\b
Exit codes: 0 done or nothing to do, 1 some or all failed, 2 something given cannot be used, 4 not authorised,
5 unreachable or timed out."""
)
@click.option("-f", "--file", required=True, metavar="FILE", help=QUOTA_FILE)
@target_options()
@click.option("--prune", is_flag=True, help="Also remove entities and values that are not in the file.")
@click.option("--dry-run", "--validate-only", "dry_run", is_flag=True, help="Only ask whether it could be done.")
@format_option
def apply(*, file: str, target: Target, prune: bool, dry_run: bool, format: str) -> int:
    """Set what the file says and is not set so yet. What is right already is left alone, and so is, without --prune,
    what the file does not name.

    Each entity is changed as a whole or not at all, and told by itself. After a failure the same command does the
    rest.
    """
    wanted = read_quotas(file).snapshot()
    with target.open(writes=True) as store:
        current = store.describe(ClientQuotaFilter.all())
        if isinstance(current, ApiError):
            raise failed(current)
        changes = difference(current, wanted, prune=prune)
        results = (
            store.alter(alterations(changes), validate_only=dry_run, principal=local_principal()) if changes else {}
        )
    code = write_outcomes(outcomes(wanted, changes, results, dry_run=dry_run), format)
    failures = sum(error is not None for error in results.values())
    done = len(results) - failures
    right = len(wanted.keys() - results.keys())
    say = "would be changed" if dry_run else "changed"
    click.echo(
        f"{done} {'entity' if done == 1 else 'entities'} {say}, {right} were right already"
        + (f", {failures} failed" if failures else ""),
        err=True,
    )
    return code
