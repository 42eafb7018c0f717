"""Options that several commands share: where the quotas are, which entities, which broker settings."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kquota.errors import InputError
from kquota.files import QuotaFile, read_quota_file
from kquota.quotas import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent

__all__ = [
    "broker_options",
    "filter_options",
    "parse_name",
    "quotas_option",
    "read_quotas",
    "to_filter",
]

F = TypeVar("F", bound=Callable[..., Any])

quotas_option = click.option(
    "--quotas", metavar="FILE", required=True, help="A quota file, YAML or JSON; - is standard input."
)


def broker_options(command: F) -> F:
    """``--broker-config`` and ``-D``: what ``load_broker_config`` takes."""
    command = click.option(
        "-D",
        "--define",
        "defines",
        multiple=True,
        metavar="KEY=VALUE",
        help="A broker setting, over those of --broker-config. Repeatable.",
    )(command)
    return click.option(
        "--broker-config",
        metavar="FILE",
        help="The broker's server.properties: static quota defaults, quota windows, threads.",
    )(command)


def filter_options(command: F) -> F:
    """``--name``, ``--default``, ``--any``, ``--prefix`` and ``--strict``: what ``to_filter`` takes."""
    for option in (
        click.option("--strict", is_flag=True, help="Only entities that have no other type than those named."),
        click.option(
            "--prefix",
            "prefixes",
            multiple=True,
            metavar="TYPE=TEXT",
            help="Entities whose name begins so. Repeatable.",
        ),
        click.option(
            "--any", "any_types", multiple=True, metavar="TYPE", help="Entities that have the type. Repeatable."
        ),
        click.option(
            "--default", "defaults", multiple=True, metavar="TYPE", help="Entities that are its default. Repeatable."
        ),
        click.option(
            "--name",
            "names",
            multiple=True,
            metavar="TYPE=NAME",
            help="Entities of this name; TYPE is user, client-id or ip. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def read_quotas(path: str) -> QuotaFile:
    """The quota file at ``path``. Raises :class:`~kquota.errors.InputError`."""
    if path == "-":
        return read_quota_file(sys.stdin.buffer.read(), name="<stdin>")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read the quotas: {error.strerror}") from None
    return read_quota_file(content, name=path)


def parse_name(text: str, option: str) -> tuple[str, str]:
    """``type=name`` at its first ``=``; the name may hold commas, ``=`` and anything else."""
    entity_type, equals, name = text.partition("=")
    if not equals or not entity_type:
        raise InputError(f"{option} {text}: write it as type=name, such as {option} user=alice")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{option} {text!r}: the name is not valid text in this locale's encoding") from None
    return entity_type, name


def to_filter(
    names: Iterable[str], defaults: Iterable[str], any_types: Iterable[str], prefixes: Iterable[str], *, strict: bool
) -> tuple[ClientQuotaFilter, Callable[[ClientQuotaEntity], bool]]:
    """The filter to describe with, and what is left to test on each entity found (the prefixes).

    Kafka knows no prefixes, so the whole type is asked for.
    """
    wanted = [parse_name(text, "--prefix") for text in prefixes]
    components = [
        *(ClientQuotaFilterComponent.of_entity(*parse_name(text, "--name")) for text in names),
        *(ClientQuotaFilterComponent.of_default_entity(entity_type) for entity_type in defaults),
        *(ClientQuotaFilterComponent.of_entity_type(entity_type) for entity_type in any_types),
        *(ClientQuotaFilterComponent.of_entity_type(entity_type) for entity_type, _ in wanted),
    ]

    def has_prefixes(entity: ClientQuotaEntity) -> bool:
        names = [(entity.entries.get(entity_type), prefix) for entity_type, prefix in wanted]
        return all(name is not None and name.startswith(prefix) for name, prefix in names)

    return ClientQuotaFilter(tuple(components), strict=strict), has_prefixes
