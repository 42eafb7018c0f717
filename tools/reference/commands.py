"""The page of commands: what click knows of each, as `--help` says it."""

from collections.abc import Iterator
from inspect import cleandoc
from textwrap import dedent

import click

from kquota.cli import COMMANDS, SHARED_OPTIONS, cli
from kquota.cli.kafka_client_quotas import command as kafka_client_quotas
from tools.reference.markdown import code, escaped, table

INTRODUCTION = """\
# Commands

What `--help` says of every command. All options can also be set as `KQUOTA_<OPTION>` in the environment, and in a file
that `--config` names ([settings](settings.md)); what commands end with is in [exit codes](exit-codes.md).
"""


def commands_page() -> str:
    """All commands of `kquota`, in the order of its help, and `kafka-client-quotas`."""
    listed = [(f"[`kquota {name}`](#kquota-{name})", escaped(lazy.short_help)) for name, lazy in COMMANDS.items()]
    other = "kafka-client-quotas"
    listed.append((f"[`{other}`](#{other})", "The tool of KIP-546."))
    found = [*commands(cli, "kquota", None), *commands(kafka_client_quotas, other, None)]
    return "\n\n".join([INTRODUCTION + "\n" + table(["command", ""], listed), *found])


def commands(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    """The section of a command, then those of the commands inside it."""
    context = click.Context(command, parent, name, **command.context_settings)
    yield section(command, context)
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            assert inner is not None
            if not inner.hidden:
                yield from commands(inner, inner_name, context)


def section(command: click.Command, context: click.Context) -> str:
    """Usage, options and examples of one command."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {context.command_path}", *paragraphs(command.help or ""), f"```text\n{usage}\n```"]
    options = [record for one in command.get_params(context) if (record := one.get_help_record(context)) is not None]
    options = [(names, text) for names, text in options if text and "--help" not in names]
    if options:
        rows = [(code(names), escaped(text)) for names, text in options]
        parts.append(table(["option", ""], rows))
    return "\n\n".join([*parts, *paragraphs(command.epilog or "")])


def paragraphs(text: str) -> Iterator[str]:
    """Of a help text: paragraphs as they are, indented lines under a title as a block of commands."""
    for paragraph in cleandoc(text).split("\n\n"):
        lines = [line for line in paragraph.splitlines() if line != "\b"]
        indented = [line for line in lines if line.startswith("  ")]
        plain = [line for line in lines if not line.startswith("  ")]
        is_examples = plain in (["Example:"], ["Examples:"])
        if plain and not (indented and is_examples):
            yield "\n".join(escaped(line) for line in plain)
        if indented:
            language = "sh" if is_examples else "text"
            yield f"```{language}\n" + dedent("\n".join(indented)) + "\n```"


def taking(option: str) -> list[str]:
    """The commands that have an option, by their whole names."""
    found: list[str] = []

    def look(command: click.Command, name: str, parent: click.Context | None) -> None:
        context = click.Context(command, parent, name)
        if any(option in one.opts for one in command.params):
            found.append(context.command_path)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                inner_command = command.get_command(context, inner)
                assert inner_command is not None
                look(inner_command, inner, context)

    look(cli, "kquota", None)
    return found


def shared_options() -> list[str]:
    """The options that may be at the top of a settings file."""
    return sorted(SHARED_OPTIONS)
