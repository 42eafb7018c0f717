"""``kquota backup``: a copy of a store, while it is in use."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["backup", "store_option"]

store_option = click.option(
    "--store", metavar="URL", required=True, help="sqlite:///relative.db or sqlite:////absolute.db"
)


@click.command(
    epilog="""\b
Examples:
  kquota backup --store sqlite:///kquota.db --out backup.db
  kquota backup --store sqlite:////var/lib/kquota/quotas.db --out "/backups/quotas-$(date +%F).db"

\b
Exit codes: 0 done, 1 the store cannot be read, 2 something given cannot be used."""
)
@store_option
@click.option("--out", metavar="FILE", required=True, help="Where to write it: a new file.")
def backup(*, store: str, out: str) -> None:
    """Copy a store with its history into a file, whole also while kquota serve has it open.

    The file is a store itself: every command reads it with --store, and kquota restore takes it. A plain copy of a file
    in use would lack what is only in its log.
    """
    from kquota.cli.plans.outcomes import count_entities
    from kquota.stores.backup import back_up

    made = back_up(store, Path(out))
    click.echo(f"{out}: {count_entities(made.entities)}, after commit {made.commit}", err=True)
