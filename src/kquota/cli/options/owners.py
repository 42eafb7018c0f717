"""Owner maps on the command line, and names of owners that are in them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from kquota.cli.options.paths import as_path, reading
from kquota.errors import InputError
from kquota.policy import UNOWNED, OwnerMap, OwnerRule, read_owner_rules

__all__ = ["check_owners", "owners_option", "read_owners"]

_SHOWN: Final = 8

owners_option = click.option(
    "--owners", callback=as_path, metavar="FILE", help="Who owns which clients: CSV, YAML or JSON."
)


def read_owners(path: str | None) -> list[OwnerRule]:
    """The rules of an owner map; none without a file.

    :raises InputError: it cannot be used.
    """
    if path is None:
        return []
    with reading(path, "owners"):
        content = Path(path).read_bytes()
    return read_owner_rules(content, name=path)


def check_owners(names: Iterable[str], owners: OwnerMap) -> None:
    """Refuse a name that is nobody's; ``unowned`` is that of what nobody owns.

    :raises InputError: with the names that there are.
    """
    known = sorted(owners.owners)
    for name in names:
        if not owners:
            raise InputError(
                f"--owner {name}: no owners are known: give --owners FILE, or quotas in which entries have an `owner`"
            )
        if name not in (*known, UNOWNED):
            more = f" and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
            raise InputError(f"--owner {name}: there is no such owner; there are {', '.join(known[:_SHOWN])}{more}")
