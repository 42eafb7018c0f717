"""``kquota resolve``: what binds one client, or each client of a file, and why."""

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import click

from kquota.cli.output import Layout, align, format_option, write_records
from kquota.cli.resolving import Client, resolving
from kquota.cli.targets import Target, broker_options, parse_name, target_options
from kquota.config import load_broker_config
from kquota.errors import InputError
from kquota.printable import printable
from kquota.quotas import (
    CLIENT_ID,
    IP,
    KAFKA,
    USER,
    ClientQuotaEntity,
    MeterKey,
    ResolvedQuota,
    StaticSource,
    format_number,
    sanitize,
)

__all__ = ["level_text", "resolve"]

_LEVELS = {
    1: "user and client-id",
    2: "user and default client-id",
    3: "user",
    4: "default user and client-id",
    5: "default user and default client-id",
    6: "default user",
    7: "client-id",
    8: "default client-id",
    9: "static broker default",
}
_IP_LEVELS = {1: "ip", 2: "default ip"}

_COLUMNS = (USER, CLIENT_ID, IP)


@dataclass(frozen=True, slots=True)
class _Answer:
    client: Client
    quotas: Mapping[str, ResolvedQuota]


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
    help="The client: user=, client-id= and ip=. What is left out, the client does not have.",
)
@click.option(
    "--from",
    "clients_file",
    metavar="FILE",
    help="Clients from a CSV file with the header user,client-id[,ip]; an empty cell is none; - is standard input.",
)
@click.option("--explain", is_flag=True, help="List every rule that matches, the one that binds first, and the meter.")
@broker_options
@format_option
def resolve(
    *,
    target: Target,
    names: tuple[str, ...],
    clients_file: str | None,
    explain: bool,
    broker_config: str | None,
    defines: tuple[str, ...],
    format: str,
) -> None:
    """Say which limit binds a client, for every quota key, and which rule it comes from.

    Only json, jsonl, yaml, csv and --explain show the rules that are overridden.
    """
    if bool(names) == (clients_file is not None):
        raise click.UsageError("Give the client with --name, or a file of clients with --from.")
    if target.quotas == clients_file == "-":
        raise click.UsageError("Standard input cannot be both --quotas and --from.")
    one = None if clients_file is not None else _client_of(names)
    broker = load_broker_config(broker_config, defines)
    layout = Layout(fields=_fields, header=_HEADER, rows=_rows, text=_explained if explain else _summary)
    with resolving(target, broker.static_defaults) as resolved:

        def answers(clients: Iterable[Client]) -> Iterator[_Answer]:
            for client, quotas in resolved(clients):
                yield _Answer(client, quotas)

        if one is not None:
            write_records(answers([one]), format, layout)
        else:
            with _opened(clients_file or "-") as (stream, place):
                write_records(answers(_read_clients(stream, place)), format, layout)


def _client_of(names: Iterable[str]) -> Client:
    given: dict[str, str] = {}
    for text in names:
        entity_type, name = parse_name(text, "--name")
        if entity_type not in _COLUMNS:
            raise InputError(f"--name {text}: a client has a user, a client-id and an ip")
        if entity_type in given:
            raise InputError(f"--name {text}: the {entity_type} is given twice")
        given[entity_type] = name
    return Client(given.get(USER, ""), given.get(CLIENT_ID, ""), given.get(IP))


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
    try:
        stream = open(path, encoding="utf-8-sig", newline="")  # noqa: PTH123, SIM115 - closed below
    except OSError as error:
        raise InputError(f"{path}: cannot read the clients: {error.strerror}") from None
    with stream:
        yield stream, path


def _read_clients(stream: TextIO, place: str) -> Iterator[Client]:
    """One client for each row, as they come."""
    rows = csv.reader(stream, strict=True)
    try:
        header = next(rows, None)
        if header is None:
            raise InputError(
                f"{place}: the file is empty; it must begin with the header user,client-id or user,client-id,ip"
            )
        columns = [name.strip().replace("_", "-") for name in header]
        if sorted(columns) not in (sorted(_COLUMNS[:2]), sorted(_COLUMNS)):
            raise InputError(
                f"{place}:1: the header is {','.join(header)}; it must be user,client-id or user,client-id,ip"
            )
        at = [columns.index(name) if name in columns else None for name in _COLUMNS]
        line = rows.line_num + 1
        for row in rows:
            if row:
                if len(row) != len(columns):
                    raise InputError(
                        f"{place}:{line}: there are {len(row)} cells, the header has {len(columns)}; "
                        'a name with a comma must stand in "quotes"'
                    )
                user, client_id, ip = (None if i is None else row[i] for i in at)
                yield Client(user or "", client_id or "", ip)
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{place}:{rows.line_num}: this is not CSV: {error}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: after line {rows.line_num}: byte {error.object[error.start]:#04x} is not UTF-8"
        ) from None


def _source(source: ClientQuotaEntity | StaticSource | None) -> object:
    return dict(source.entries) if isinstance(source, ClientQuotaEntity) else None if source is None else source.value


def _fields(answer: _Answer) -> dict[str, object]:
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


_HEADER = (USER, CLIENT_ID, IP, "key", "value", "source", "level", "meter", "overridden")


def _rows(answer: _Answer) -> Iterator[tuple[str, ...]]:
    client = answer.client
    for key, quota in answer.quotas.items():
        yield (
            client.user,
            client.client_id,
            client.ip or "",
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


def level_text(quota_key: str, level: int) -> str:
    """A level in words, such as ``level 3: user``."""
    return f"level {level}: {(_IP_LEVELS if _is_ip_key(quota_key) else _LEVELS)[level]}"


def _is_ip_key(quota_key: str) -> bool:
    key = KAFKA.key(quota_key)
    return key is not None and frozenset({IP}) in key.shapes


def _amount(quota: ResolvedQuota, value: float) -> str:
    key = KAFKA.key(quota.key)
    return f"{format_number(value)} {key.unit}" if key is not None else format_number(value)


def _summary(answer: _Answer) -> str:
    rows = [
        (key, "no limit")
        if quota.value is None or quota.level is None or quota.source is None or quota.meter is None
        else (
            key,
            _amount(quota, quota.value),
            level_text(key, quota.level),
            f"set on {quota.source.to_text()}",
            f"counted on {quota.meter.to_text()}",
        )
        for key, quota in answer.quotas.items()
    ]
    return "\n".join([_title(answer.client), *align(rows, indent="  ")])


def _explained(answer: _Answer) -> str:
    lines = [_title(answer.client)]
    for key, quota in answer.quotas.items():
        if quota.value is None or quota.level is None or quota.source is None or quota.meter is None:
            lines += [f"  {printable(key)}: no limit", "    no rule binds this client"]
            continue
        rules = [("binds", level_text(key, quota.level), quota.source.to_text(), _amount(quota, quota.value))]
        rules += [
            ("overridden", level_text(key, rule.level), rule.source.to_text(), _amount(quota, rule.value))
            for rule in quota.overridden
        ]
        lines.append(f"  {printable(key)}: {_amount(quota, quota.value)}")
        lines += align(rules, indent="    ")
        lines.append(f"    counted on {quota.meter.to_text()}: {_shared_by(quota.meter)}")
    return "\n".join(lines)


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
        case _:
            return f"shared by all connections from {tags.get(IP, '')}"
