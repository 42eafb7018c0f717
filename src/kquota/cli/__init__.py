"""The command line: parse, call, print. Commands are imported when they run, so that ``--help`` loads none of them."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, NamedTuple

import click

from kquota import __version__
from kquota.cli.running import run as run_command
from kquota.errors import InputError

__all__ = ["cli", "main"]


class _Lazy(NamedTuple):
    """The module that has a command, by its own name, and its line in ``kquota --help``."""

    module: str
    short_help: str


COMMANDS: Final[Mapping[str, _Lazy]] = {
    "analyze": _Lazy("kquota.cli.pipeline.analyze", "Who is limited by what, how close, and who was throttled."),
    "demo": _Lazy("kquota.cli.pipeline.demo", "Run analyze on the sample capture of a real broker."),
    "resolve": _Lazy("kquota.cli.quotas.resolve", "Say which limit binds a client, and why."),
    "describe": _Lazy("kquota.cli.quotas.describe", "List the entities that match, with their values."),
    "alter": _Lazy("kquota.cli.quotas.alter", "Change what is set on one entity."),
    "export": _Lazy("kquota.cli.quotas.export", "Write all quotas as a quota file."),
    "lint": _Lazy("kquota.cli.quotas.lint", "Find quotas that bind nobody, or not as they were meant."),
    "plan": _Lazy("kquota.cli.plans.plan", "Say what apply would change, and keep it for review."),
    "apply": _Lazy("kquota.cli.plans.apply", "Make quotas those of a file, or carry out a plan."),
    "rollback": _Lazy("kquota.cli.plans.rollback", "Undo an apply."),
    "history": _Lazy("kquota.cli.quotas.history", "Say who changed what in a store, and when."),
    "backup": _Lazy("kquota.cli.quotas.backup", "Copy a store into a file, while it is in use."),
    "restore": _Lazy("kquota.cli.quotas.restore", "Make the quotas of a store those of a backup."),
    "serve": _Lazy("kquota.cli.servers.serve", "Answer Kafka's quota APIs, from a store of ours."),
    "gateway": _Lazy("kquota.cli.servers.gateway", "Enforce quotas in front of any Kafka cluster."),
    "callback": _Lazy("kquota.cli.callback.group", "Try a quota callback on recorded traffic."),
    "engine": _Lazy("kquota.cli.engine", "The metering engine on written traffic."),
    "pipeline": _Lazy("kquota.cli.pipeline.group", "The single steps of analyze, and the jobs built on them."),
    "dataset": _Lazy("kquota.cli.dataset", "What is in a dataset, and what killed runs left there."),
}

SHARED_OPTIONS: Final = frozenset(
    {
        "bootstrap-server",
        "broker-config",
        "cluster",
        "command-config",
        "define",
        "format",
        "master",
        "max-rejected",
        "property",
        "quotas",
        "store",
        "timezone",
    }
)
"""Options that may be at the top of the settings file, for every command that has them."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported, with what the environment and the settings file say as its defaults."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        try:
            command: click.Command = getattr(import_module(lazy.module), cmd_name)
        except ModuleNotFoundError as error:
            if error.name != lazy.module:
                raise
            raise InputError(f"this installation has no `kquota {cmd_name}`") from None
        _set_defaults(ctx, cmd_name, command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.short_help) for name, lazy in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  kquota analyze --log '/var/log/kafka/kafka-request.log*' --quotas quotas.yaml --out report
  kquota resolve --bootstrap-server localhost:9092 --name user=alice --name client-id=etl --explain
  kquota describe --bootstrap-server localhost:9092 --any user
  kquota apply -f quotas.yaml --bootstrap-server localhost:9092 --dry-run

Every option can also be set as KQUOTA_<OPTION> in the environment, or in the file given with --config.""",
)
@click.version_option(__version__, "-V", "--version", prog_name="kquota", message="%(prog)s %(version)s")
@click.option(
    "--config",
    metavar="FILE",
    envvar="KQUOTA_CONFIG",
    help="Settings in TOML: options of all commands at the top, of one command in its table, such as [resolve]; "
    "entity types beside Kafka's in [entity_types].",
)
@click.option("-v", "--verbose", is_flag=True, envvar="KQUOTA_VERBOSE", help="Show where an error comes from.")
def cli(config: str | None, verbose: bool) -> None:  # noqa: FBT001 - read by LazyGroup and run
    """Apache Kafka's client quotas: which limit binds whom, why, and what it does to them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code."""
    return run_command(cli, "kquota", arguments)


def _set_defaults(ctx: click.Context, name: str, command: click.Command) -> None:
    """Hand the settings to click as the defaults of ``command`` and of the commands inside it."""
    path: str | None = ctx.params.get("config")
    if path is None and not any(variable.startswith("KQUOTA_") for variable in os.environ):
        return
    from kquota.config import load_settings

    settings = load_settings(path, os.environ)
    settings.check_tables(COMMANDS.keys(), SHARED_OPTIONS)
    if settings.entity_types:
        from kquota.cli.options.entity_types import set_model

        set_model(ctx, settings)
    origins: dict[tuple[str, ...], str] = ctx.meta.setdefault("kquota.origins", {})

    def defaults_of(command: click.Command, path: tuple[str, ...]) -> dict[str, object]:
        options = {_option_name(p): p for p in command.params if isinstance(p, click.Option)}
        inner = command.commands if isinstance(command, click.Group) else {}
        settings.check_options(path, {*options, *inner})
        defaults: dict[str, object] = {step: defaults_of(child, (*path, step)) for step, child in inner.items()}
        for option, parameter in options.items():
            setting = settings.lookup(path, option)
            if setting is None:
                continue
            value: object = setting.value
            if parameter.multiple and not isinstance(value, list):
                value = str(value).splitlines()
            defaults[parameter.name] = value
            origins[*path, parameter.name] = setting.origin
        return defaults

    ctx.default_map = {**(ctx.default_map or {}), name: defaults_of(command, (name,))}


def _option_name(option: click.Option) -> str:
    """The long name without its dashes: what a setting is called."""
    long_names = [name for name in option.opts if name.startswith("--")]
    return (long_names or option.opts)[0].lstrip("-")
