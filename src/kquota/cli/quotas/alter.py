"""``kquota alter``: change the values of one entity."""

from __future__ import annotations

from collections.abc import Iterable

import click

from kquota.cli.options.targets import Target, check_each_once, parse_name, target_options
from kquota.cli.output import format_option
from kquota.cli.plans.outcomes import write_outcomes
from kquota.errors import IllegalArgumentError, InputError
from kquota.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    QuotaChange,
    is_same_value,
    parse_quantity,
)
from kquota.stores.changes import local_principal, to_outcomes
from kquota.stores.plans import all_quotas

__all__ = ["alter"]

Op = ClientQuotaAlteration.Op


@click.command(
    epilog="""\b
Examples:
  kquota alter --bootstrap-server localhost:9092 --name user=alice --add producer_byte_rate=10MiB
  kquota alter --bootstrap-server localhost:9092 --name user=alice --name client-id=etl \\
               --add consumer_byte_rate=5MB --delete producer_byte_rate --dry-run
  kquota alter --bootstrap-server localhost:9092 --default user --add request_percentage=200
  kquota alter --store sqlite:///kquota.db --name ip=10.0.0.7 --add connection_creation_rate=20

\b
Exit codes: 0 done, 1 refused, 2 something given cannot be used, 4 not authorised, 5 unreachable or timed out."""
)
@target_options()
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="TYPE=NAME",
    help="Whose: user=, client-id=, ip= or one of [entity_types]. Repeatable.",
)
@click.option("--default", "defaults", multiple=True, metavar="TYPE", help="The default of this type. Repeatable.")
@click.option(
    "--add", "added", multiple=True, metavar="KEY=VALUE", help="Set a value; sizes as 10MiB are read. Repeatable."
)
@click.option("--delete", "deleted", multiple=True, metavar="KEY", help="Remove a value. Repeatable.")
@click.option("--dry-run", "--validate-only", "dry_run", is_flag=True, help="Only ask whether it could be done.")
@format_option
def alter(
    *,
    target: Target,
    names: tuple[str, ...],
    defaults: tuple[str, ...],
    added: tuple[str, ...],
    deleted: tuple[str, ...],
    dry_run: bool,
    format: str,
) -> int:
    """Set and remove values of one entity, all of them or none.

    The entity is --name and --default together: user alice with the default client-id is --name user=alice
    --default client-id.
    """
    entity = _entity(names, defaults)
    ops = _ops(added, deleted)
    with target.open(writes=not dry_run, creates=bool(added)) as store:
        values = all_quotas(store, _only(entity)).get(entity, {})
        results = store.alter([ClientQuotaAlteration(entity, ops)], validate_only=dry_run, principal=local_principal())
    changes = [
        QuotaChange(entity, op.key, values.get(op.key), op.value)
        for op in ops
        if not is_same_value(values.get(op.key), op.value)
    ]
    return write_outcomes(to_outcomes([entity], changes, results, dry_run=dry_run), format)


def _entity(names: Iterable[str], defaults: Iterable[str]) -> ClientQuotaEntity:
    named = [parse_name(text, "--name") for text in names]
    parts = [*named, *((entity_type, None) for entity_type in defaults)]
    check_each_once(f"the {entity_type}" for entity_type, _ in parts)
    if not parts:
        raise click.UsageError("Say whose values are to change: --name user=alice, or --default user.")
    return ClientQuotaEntity(dict(parts))


def _ops(added: Iterable[str], deleted: Iterable[str]) -> list[Op]:
    ops: list[Op] = []
    for text in added:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"--add {text}: write it as key=value, such as --add producer_byte_rate=10MiB")
        try:
            number = parse_quantity(value)
        except IllegalArgumentError as error:
            raise InputError(f"--add {text}: {error}") from None
        ops.append(Op(key, number))
    for key in deleted:
        if "=" in key:
            raise InputError(f"--delete {key}: only the key is given, such as --delete {key.partition('=')[0]}")
        ops.append(Op(key, None))
    if not ops:
        raise click.UsageError("Say what is to change: --add KEY=VALUE or --delete KEY.")
    check_each_once(op.key for op in ops)
    return ops


def _only(entity: ClientQuotaEntity) -> ClientQuotaFilter:
    return ClientQuotaFilter.contains_only(
        [
            ClientQuotaFilterComponent.of_default_entity(kind)
            if name is None
            else ClientQuotaFilterComponent.of_entity(kind, name)
            for kind, name in entity.entries.items()
        ]
    )
