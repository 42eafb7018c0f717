"""``kquota describe``: the entities that match a filter, with their values."""

import sys
from collections.abc import Iterable

import click

from kquota.cli.options.entity_filter import EntityFilter
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, target_options
from kquota.cli.output import Layout, align, format_option, write_records
from kquota.files import QuotaFile, QuotaFileEntry, write_json, write_yaml
from kquota.files.writer import entry_fields
from kquota.quotas import KAFKA, format_number

__all__ = ["describe"]


@click.command(
    epilog="""\b
Examples:
  kquota describe --bootstrap-server localhost:9092
  kquota describe --bootstrap-server broker:9093 --command-config admin.properties --name user=alice
  kquota describe --store sqlite:///kquota.db --name user=alice --strict
  kquota describe --quotas quotas.yaml --default user --any client-id --format json
  kquota describe --quotas quotas.yaml --prefix client-id=etl- --format csv"""
)
@target_options(files=True)
@takes(entity_filter=EntityFilter)
@format_option
def describe(
    *,
    target: Target,
    entity_filter: EntityFilter,
    format: str,
) -> None:
    """List the entities that match, with their values.

    Without a filter: all. The conditions must all hold; a type that is not mentioned may be there or not, unless
    --strict is given. What json and yaml print is a quota file again.
    """
    entries = [entry for entry in target.read(entity_filter.asked).entries if entity_filter.has_prefixes(entry.entity)]
    shown = QuotaFile(tuple(sorted(entries, key=lambda entry: entry.entity.sort_key())))
    match format:
        case "json":
            sys.stdout.write(write_json(shown))
        case "yaml":
            sys.stdout.write(write_yaml(shown))
        case _:
            write_records(shown.entries, format, _LAYOUT)


def _text_rows(entries: Iterable[QuotaFileEntry]) -> list[list[str]]:
    """One row for each value; the entity is at its first."""
    rows = []
    for entry in entries:
        entity = entry.entity.to_text()
        for name, value in sorted(entry.values.items()):
            key = KAFKA.key(name)
            rows.append([entity, name, format_number(value), key.unit if key else ""])
            entity = ""
    return rows


_LAYOUT: Layout[QuotaFileEntry] = Layout(
    fields=entry_fields,
    header=("entity", "key", "value"),
    rows=lambda entry: [
        (entry.entity.to_text(), name, format_number(value)) for name, value in sorted(entry.values.items())
    ],
    text=lambda entries: align(_text_rows(entries)),
)
