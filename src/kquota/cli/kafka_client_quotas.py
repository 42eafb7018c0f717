"""``kafka-client-quotas``: KIP-546's tool, its flags and its output to the byte.

The KIP's first draft had other names for two operations: ``--list`` is ``--describe`` here, and its effective
``--describe`` is ``--resolve``; its ``--prefix`` and ``--show-overridden`` are offered, its units were
dropped upstream. A broker's static defaults, which no request asks for, can be given to ``--resolve``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NoReturn

import click

from kquota import __version__
from kquota.cli.options.broker import BrokerOptions, StaticDefaultOptions
from kquota.cli.options.entity_filter import EntityFilter
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, check_each_once
from kquota.cli.running import run as run_command
from kquota.errors import IllegalArgumentError, InputError
from kquota.printable import printable
from kquota.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    StaticSource,
    format_number,
    parse_quantity,
    sanitize,
)
from kquota.quotas.entity import canonical_types

__all__ = ["main", "split_list"]

_FAILED: Final = 1
"""For everything that goes wrong, as Kafka's tools have it."""
_SIGNALS: Final = 128
"""From here on: ended by a signal, as shells report it."""

Op = ClientQuotaAlteration.Op
Names = Mapping[str, str]


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  kafka-client-quotas --bootstrap-server localhost:9092 --describe --names=client-id=my-client
  kafka-client-quotas --bootstrap-server localhost:9092 --describe --prefix=user=user-
  kafka-client-quotas --bootstrap-server localhost:9092 --resolve --names=user=user-two,client-id=my-client
  kafka-client-quotas --bootstrap-server localhost:9092 --alter --names=client-id=my-client --defaults=user \\
    --add=consumer_byte_rate=2000000 --delete=producer_byte_rate

\b
In lists a comma that is part of a name is written \\, and a backslash \\\\.
Exit codes: 0 done, 1 anything else.""",
)
@click.version_option(__version__, "-V", "--version", prog_name="kafka-client-quotas")
@click.option("--bootstrap-server", metavar="HOST:PORT[,..]", required=True, help="The cluster, or a quota server.")
@click.option("--command-config", metavar="FILE", help="The client's settings (Java properties).")
@click.option(
    "--describe", "--list", "describe", is_flag=True, help="List the entities that match, and what is set on them."
)
@click.option("--resolve", is_flag=True, help="List what binds a client, and where it is set.")
@click.option("--alter", is_flag=True, help="Change what is set on one entity.")
@click.option("--names", metavar="TYPE=NAME[,..]", help="Types with their names: user, client-id, ip.")
@click.option("--defaults", metavar="TYPE[,..]", help="Types whose default is meant.")
@click.option("--prefix", metavar="TYPE=TEXT[,..]", help="With --describe: types, and what their names begin with.")
@click.option("--show-overridden", is_flag=True, help="With --resolve: also what the others override, marked with *.")
@takes(broker=StaticDefaultOptions)
@click.option("--add", metavar="KEY=VALUE[,..]", help="With --alter: values to set.")
@click.option("--delete", metavar="KEY[,..]", help="With --alter: values to remove.")
@click.option("--validate-only", is_flag=True, help="With --alter: only ask whether it could be done.")
def command(
    *,
    bootstrap_server: str,
    command_config: str | None,
    describe: bool,
    resolve: bool,
    alter: bool,
    names: str | None,
    defaults: str | None,
    prefix: str | None,
    show_overridden: bool,
    broker: BrokerOptions,
    add: str | None,
    delete: str | None,
    validate_only: bool,
) -> int:
    """Describe, resolve and alter client quotas (KIP-546)."""
    if describe + resolve + alter != 1:
        raise click.UsageError("Give exactly one of --describe (or --list), --resolve and --alter.")
    for option, is_given, goes_with, is_there in (
        ("--prefix", prefix is not None, "--describe", describe),
        ("--show-overridden", show_overridden, "--resolve", resolve),
        ("--broker-config", broker.broker_config is not None, "--resolve", resolve),
        ("-D", bool(broker.defines), "--resolve", resolve),
        ("--add", add is not None, "--alter", alter),
        ("--delete", delete is not None, "--alter", alter),
        ("--validate-only", validate_only, "--alter", alter),
    ):
        if is_given and not is_there:
            raise click.UsageError(f"{option} goes with {goes_with}.")
    target = Target(bootstrap_server, command_config)
    named, begins = _pairs(names, "--names"), _pairs(prefix, "--prefix")
    of_default = _types(defaults)
    check_each_once(f"the {kind}" for kind in (*named, *of_default, *begins))
    if describe:
        return _describe(target, named, of_default, begins)
    if resolve:
        if of_default or not named:
            raise click.UsageError("--resolve asks about one client: give it with --names, such as user=alice.")
        static_defaults = broker.load().static_defaults
        return _resolve(target, named, static_defaults, show_overridden=show_overridden)
    ops = _ops(add, delete)
    entity = ClientQuotaEntity({**named, **dict.fromkeys(of_default)})
    if not entity.entries:
        raise click.UsageError("--alter needs an entity: give it with --names and --defaults.")
    return _alter(target, ClientQuotaAlteration(entity, ops), validate_only=validate_only)


def main() -> NoReturn:
    """Run the tool and leave the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the tool; the exit code, which is 0 or 1 as that of Kafka's own tools."""
    code = run_command(command, "kafka-client-quotas", arguments)
    return code if code == 0 or code > _SIGNALS else _FAILED


def _describe(target: Target, named: Names, of_default: Sequence[str], begins: Names) -> int:
    wanted = EntityFilter(tuple(named.items()), tuple(of_default), (), tuple(begins.items()), strict=False)
    blocks = []
    for entry in target.read(wanted.asked).entries:
        if wanted.has_prefixes(entry.entity):
            lines = [f"{printable(key)}={format_number(value)}" for key, value in sorted(entry.values.items())]
            blocks.append("\n".join([_shown(entry.entity), *lines]) + "\n")
    sys.stdout.write("\n".join(blocks))
    return 0


def _resolve(target: Target, named: Names, static_defaults: Mapping[str, float], *, show_overridden: bool) -> int:
    from kquota.admin import ResolveClientQuotasOptions

    client = ClientQuotaEntity(named)
    cluster = target.cluster()
    assert cluster is not None
    with cluster:
        options = ResolveClientQuotasOptions(
            omit_overridden_values=not show_overridden, static_defaults=static_defaults
        )
        found = cluster.admin.resolve_client_quotas([client], options).config()[client]
    for key, value in sorted(found.items()):
        entries = [("", value.entry), *(("*", entry) for entry in value.overridden_entries)]
        sys.stdout.writelines(
            f"{mark}{printable(key)}={format_number(entry.value)} {_shown(entry.source)}\n" for mark, entry in entries
        )
    return 0


def _alter(target: Target, alteration: ClientQuotaAlteration, *, validate_only: bool) -> int:
    with target.open(writes=True) as store:
        error = store.alter([alteration], validate_only=validate_only)[alteration.entity]
    if error is not None:
        raise error.to_exception()
    return 0


def _shown(source: ClientQuotaEntity | StaticSource) -> str:
    """``{user=alice, client-id=<default>}``, names sanitized; a broker's static default has no entity."""
    if isinstance(source, StaticSource):
        return source.to_text()
    entries = source.entries
    parts = [
        f"{sanitize(kind)}={'<default>' if (name := entries[kind]) is None else sanitize(name)}"
        for kind in canonical_types(entries)
    ]
    return f"{{{', '.join(parts)}}}"


def split_list(text: str) -> list[str]:
    r"""The items of a comma-separated list; ``\,`` is a comma of an item, ``\\`` a backslash.

    :raises InputError: another character is escaped, or none.
    """
    items = [""]
    characters = iter(text)
    for character in characters:
        if character == ",":
            items.append("")
        elif character == "\\":
            escaped = next(characters, "")
            if escaped not in (",", "\\"):
                raise InputError(f"{text}: a backslash can only be before a comma or a backslash: write \\\\ for one")
            items[-1] += escaped
        else:
            items[-1] += character
    return items


def _pairs(text: str | None, option: str) -> Names:
    """Types and names; a name may hold ``=``."""
    if text is None:
        return {}
    pairs: dict[str, str] = {}
    for item in split_list(text):
        kind, equals, name = item.partition("=")
        if not equals or not kind:
            raise InputError(f"{option}={text}: write it as type=name, such as {option}=user=alice")
        if not name:
            raise InputError(
                f"{option}={text}: the {kind} has no name; its default is asked for with --defaults={kind}"
            )
        if kind in pairs:
            raise InputError(f"{option}={text}: the {kind} is given twice")
        pairs[kind] = name
    return pairs


def _types(text: str | None) -> list[str]:
    if text is None:
        return []
    types = split_list(text)
    for kind in types:
        if not kind or "=" in kind:
            raise InputError(f"--defaults={text}: write types alone, such as --defaults=user,client-id")
    return types


def _ops(add: str | None, delete: str | None) -> list[Op]:
    ops = [*_added(add), *_deleted(delete)]
    if not ops:
        raise click.UsageError("--alter needs something to change: --add=KEY=VALUE or --delete=KEY.")
    check_each_once(op.key for op in ops)
    return ops


def _added(text: str | None) -> Iterator[Op]:
    for item in [] if text is None else split_list(text):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError(f"--add={text}: write it as key=value, such as --add=producer_byte_rate=1000000")
        try:
            yield Op(_without_unit(key, "--add"), parse_quantity(value))
        except IllegalArgumentError as error:
            raise InputError(f"--add={text}: {key}: {error}") from None


def _deleted(text: str | None) -> Iterator[Op]:
    for key in [] if text is None else split_list(text):
        if not key or "=" in key:
            raise InputError(f"--delete={text}: write keys alone, such as --delete=producer_byte_rate")
        yield Op(_without_unit(key, "--delete"), None)


def _without_unit(key: str, option: str) -> str:
    name, colon, unit = key.partition(":")
    if colon:
        raise InputError(
            f"{option}={key}: quotas have no units: those of KIP-546's draft were removed before it was accepted. "
            f"Write {name} without :{unit}; byte rates are bytes per second for each broker"
        )
    return key
