"""``kquota resolve``: what binds one client, or each client of a file, and why."""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TextIO

import click

from kquota.cli.options.broker import BrokerOptions, StaticDefaultOptions
from kquota.cli.options.entity_types import current_model
from kquota.cli.options.paths import reading
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, parse_name, target_options
from kquota.cli.output import Layout, align, format_option, write_records
from kquota.cli.quotas.resolving import Answer, Client, resolving
from kquota.errors import InputError
from kquota.printable import printable
from kquota.quotas import (
    CLIENT_ID,
    KAFKA,
    USER,
    ClientQuotaEntity,
    MeterKey,
    ResolvedQuota,
    StaticSource,
    format_number,
    sanitize,
)
from kquota.quotas.entity import canonical_types

__all__ = ["resolve"]

_NEEDED = {USER, CLIENT_ID}
"""The columns that a file of clients always has; ``ip`` and added types as it likes."""


@click.command(
    epilog="""\b
Examples:
  kquota resolve --bootstrap-server localhost:9092 --name user=alice --name client-id=etl
  kquota resolve --bootstrap-server broker:9093 --command-config admin.properties --name user=alice --explain
  kquota resolve --store sqlite:///kquota.db --name ip=10.0.0.7 --format json
  kquota resolve --quotas quotas.yaml --from clients.csv --format csv
  kquota resolve --quotas quotas.yaml --name client-id=etl -D quota.producer.default=1048576"""
)
@target_options(files=True)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="TYPE=NAME",
    help="The client: user=, client-id=, ip= and types of [entity_types]. What is left out, the client does not have.",
)
@click.option(
    "--from",
    "clients_file",
    metavar="FILE",
    help="Clients from a CSV file with the header user,client-id[,ip][,TYPE]; an empty cell is none; - is standard "
    "input.",
)
@click.option("--explain", is_flag=True, help="List every rule that matches, the one that binds first, and the meter.")
@takes(broker=StaticDefaultOptions)
@format_option
def resolve(
    *,
    target: Target,
    names: tuple[str, ...],
    clients_file: str | None,
    explain: bool,
    broker: BrokerOptions,
    format: str,
) -> None:
    """Say which limit binds a client, for every quota key, and which rule it comes from.

    Only json, jsonl, yaml, csv and --explain show the rules that are overridden.
    """
    if bool(names) == (clients_file is not None):
        raise click.UsageError("Give the client with --name, or a file of clients with --from.")
    if target.quotas == clients_file == "-":
        raise click.UsageError("Standard input cannot be both --quotas and --from.")
    one = None if clients_file is not None else _client_of(names, is_cluster=target.bootstrap_server is not None)
    static_defaults = broker.load().static_defaults
    types = dict.fromkeys((*current_model().entity_types, *(() if one is None else one.names)))
    layout = Layout(
        fields=_fields,
        header=(*types, *_HEADER),
        rows=lambda answer: _rows(answer, types),
        text=partial(_blocks, _explained if explain else _summary),
    )
    with resolving(target, static_defaults) as answers:
        if one is not None:
            write_records(answers([one]), format, layout)
        else:
            with _opened(clients_file or "-") as (stream, place):
                write_records(answers(_read_clients(stream, place)), format, layout)


def _client_of(names: Iterable[str], *, is_cluster: bool) -> Client:
    """The client that is named. A cluster is asked for whatever types it may know."""
    known = current_model().entity_types
    given: dict[str, str] = {}
    for text in names:
        entity_type, name = parse_name(text, "--name")
        if entity_type not in known and not is_cluster:
            raise InputError(
                f"--name {text}: there is no entity type {entity_type} (there are {', '.join(known)}); others are "
                "named under [entity_types] in the file given with --config"
            )
        if entity_type in given:
            raise InputError(f"--name {text}: the {entity_type} is given twice")
        given[entity_type] = name
    return Client(given)


@contextmanager
def _opened(path: str) -> Iterator[tuple[TextIO, str]]:
    """The text of a CSV file (UTF-8, line ends untouched), and what to call it."""
    if path == "-":
        # Not closed: standard input is not ours.
        wrapper = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", newline="")
        try:
            yield wrapper, "<stdin>"
        finally:
            wrapper.detach()
        return
    with reading(path, "clients"):
        stream = open(path, encoding="utf-8-sig", newline="")  # noqa: PTH123, SIM115 - closed below
    with stream:
        yield stream, path


def _read_clients(stream: TextIO, place: str) -> Iterator[Client]:
    """One client for each row, as they come."""
    known = current_model().entity_types
    expected = f"{','.join([one for one in known if one in _NEEDED])} or {','.join(known)}"
    rows = csv.reader(stream, strict=True)
    try:
        header = next(rows, None)
        if header is None:
            raise InputError(f"{place}: the file is empty; it must begin with the header {expected}")
        columns = [name if name in known else name.replace("_", "-") for name in map(str.strip, header)]
        if len(set(columns)) < len(columns) or not _NEEDED <= set(columns) <= set(known):
            raise InputError(f"{place}:1: the header is {','.join(header)}; it must be {expected}")
        line = rows.line_num + 1
        for row in rows:
            if row:
                if len(row) != len(columns):
                    raise InputError(
                        f"{place}:{line}: there are {len(row)} cells, the header has {len(columns)}; "
                        'a name with a comma must be in "quotes"'
                    )
                yield Client(dict(zip(columns, row, strict=True)))
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{place}:{rows.line_num}: this is not CSV: {error}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: after line {rows.line_num}: byte {error.object[error.start]:#04x} is not UTF-8"
        ) from None


def _source(source: ClientQuotaEntity | StaticSource | None) -> object:
    return dict(source.entries) if isinstance(source, ClientQuotaEntity) else None if source is None else source.value


def _fields(answer: Answer) -> dict[str, object]:
    return {
        "client": answer.client.fields(),
        "quotas": {
            key: {
                "value": quota.value,
                "source": _source(quota.source),
                "level": quota.level,
                "meter": None if quota.meter is None else dict(quota.meter.tags),
                "overridden": [
                    {"source": _source(rule.source), "level": rule.level, "value": rule.value}
                    for rule in quota.overridden
                ],
            }
            for key, quota in answer.quotas.items()
        },
    }


_HEADER = ("key", "value", "source", "level", "meter", "overridden")
"""After the columns of the client, one for each entity type."""


def _rows(answer: Answer, types: Iterable[str]) -> Iterator[tuple[str, ...]]:
    client = [answer.client.names.get(entity_type, "") for entity_type in types]
    for key, quota in answer.quotas.items():
        yield (
            *client,
            key,
            "" if quota.value is None else format_number(quota.value),
            "" if quota.source is None else quota.source.to_text(),
            "" if quota.level is None else str(quota.level),
            "" if quota.meter is None else quota.meter.to_text(),
            " ".join(
                [f"{rule.level}:{rule.source.to_text()}:{format_number(rule.value)}" for rule in quota.overridden]
            ),
        )


def _title(client: Client) -> str:
    """The client as canonical text, with a word on what it does not have."""
    named = {tag: name for tag, name in client.fields().items() if name}
    missing = [tag for tag in (USER, CLIENT_ID) if not named.get(tag)]
    note = f" ({', '.join(f'no {tag}' for tag in missing)})" if missing else ""
    return (MeterKey(named).to_text() or "a client without a name") + note


def _level(level: int, source: ClientQuotaEntity | StaticSource) -> str:
    """A level in words, such as ``level 2: user and default client-id``."""
    if isinstance(source, StaticSource):
        return f"level {level}: static broker default"
    types = [f"default {kind}" if source.entries[kind] is None else kind for kind in canonical_types(source.entries)]
    return f"level {level}: {' and '.join(types)}"


def _amount(quota: ResolvedQuota, value: float) -> str:
    key = KAFKA.key(quota.key)
    return f"{format_number(value)} {key.unit}" if key is not None else format_number(value)


def _blocks(block: Callable[[Answer], list[str]], answers: Iterable[Answer]) -> Iterator[str]:
    """The lines of each answer, with an empty one between two."""
    for number, answer in enumerate(answers):
        yield from ([""] if number else []) + block(answer)


def _summary(answer: Answer) -> list[str]:
    rows = [
        (key, "no limit")
        if quota.value is None or quota.level is None or quota.source is None or quota.meter is None
        else (
            key,
            _amount(quota, quota.value),
            _level(quota.level, quota.source),
            f"set on {quota.source.to_text()}",
            f"counted on {quota.meter.to_text()}",
        )
        for key, quota in answer.quotas.items()
    ]
    return [_title(answer.client), *align(rows, indent="  ")]


def _explained(answer: Answer) -> list[str]:
    lines = [_title(answer.client)]
    for key, quota in answer.quotas.items():
        if quota.value is None or quota.level is None or quota.source is None or quota.meter is None:
            lines += [f"  {printable(key)}: no limit", "    no rule binds this client"]
            continue
        rules = [("binds", _level(quota.level, quota.source), quota.source.to_text(), _amount(quota, quota.value))]
        rules += [
            ("overridden", _level(rule.level, rule.source), rule.source.to_text(), _amount(quota, rule.value))
            for rule in quota.overridden
        ]
        lines.append(f"  {printable(key)}: {_amount(quota, quota.value)}")
        lines += align(rules, indent="    ")
        lines.append(f"    counted on {quota.meter.to_text()}: {_shared_by(quota.meter)}")
    return lines


def _shared_by(meter: MeterKey) -> str:
    """Whose usage adds up on ``meter``."""
    tags = {tag: name if name.isprintable() else sanitize(name) for tag, name in meter.tags.items()}
    match tags:
        case {"user": user, "client-id": client_id}:
            return f"used by client-id {client_id} of user {user} alone"
        case {"user": user}:
            return f"shared by all clients of user {user} without a better match"
        case {"client-id": client_id}:
            return f"shared by client-id {client_id} of all users without a better match"
        case {"ip": ip}:
            return f"shared by all connections from {ip}"
        case _:
            named = " and ".join(f"{tag} {name}" for tag, name in tags.items())
            return f"shared by all clients of {named} without a better match"
