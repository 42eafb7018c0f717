"""Options that several commands share: where the quotas are, and which broker settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from kquota.cli.options.entity_types import current_model
from kquota.cli.options.paths import as_path
from kquota.cli.running import warn
from kquota.errors import InputError
from kquota.files import QuotaFile, read_quota_file
from kquota.policy import PlanTarget, is_plan
from kquota.quotas import ClientQuotaFilter

if TYPE_CHECKING:
    from kquota.admin.properties import ClientProperties
    from kquota.stores import QuotaStore
    from kquota.stores.cluster import ClusterStore

__all__ = [
    "PLACES",
    "QUOTA_FILE",
    "Target",
    "check_each_once",
    "check_filter",
    "check_servers",
    "parse_name",
    "parse_quotas",
    "quotas_option",
    "read_file",
    "read_quotas",
    "target_options",
]

F = TypeVar("F", bound=Callable[..., Any])

QUOTA_FILE: Final = (
    "A quota file: ours, rpk's, Strimzi's or Jikkou's, YAML or JSON, or what kafka-configs --describe printed; - is "
    "standard input."
)

quotas_option = click.option("--quotas", callback=as_path, metavar="FILE", required=True, help=QUOTA_FILE)


PLACES: Final = {"bootstrap_server": "--bootstrap-server", "store": "--store", "quotas": "--quotas"}
"""The options that say where quotas are, by their names in :class:`Target`."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whose quotas: exactly one of a cluster, a store and a file."""

    bootstrap_server: str | None = None
    command_config: str | None = None
    properties: tuple[str, ...] = ()
    store: str | None = None
    quotas: str | None = None
    are_properties_typed: bool = False
    """The properties are from the command line itself, and not from the environment or the settings file."""

    def check(self, *, files: bool) -> None:
        """Refuse what names no quotas, or those of several places.

        :raises click.UsageError: with what may be given.
        """
        given = [option for name, option in PLACES.items() if getattr(self, name) is not None]
        if not given:
            choices = ["--bootstrap-server HOST:PORT", "--store URL", *(["--quotas FILE"] if files else [])]
            raise click.UsageError(f"Say where the quotas are: {', '.join(choices[:-1])} or {choices[-1]}.")
        if len(given) > 1:
            raise click.UsageError(f"Give one of {' and '.join(given)}: quotas are read from one place.")
        if self.bootstrap_server is None and (self.command_config is not None or self.properties):
            raise click.UsageError("--command-config and -X go with --bootstrap-server.")

    def cluster(self) -> ClusterStore | None:
        """The cluster, if that is what was named; a context manager.

        :raises InputError: the client's settings cannot be used.
        """
        if self.bootstrap_server is None:
            return None
        from kquota.admin import QuotaAdmin
        from kquota.admin.properties import load_client_properties
        from kquota.stores.cluster import ClusterStore

        check_servers(self.bootstrap_server)
        client = load_client_properties(self.command_config, self.properties)
        self._warn_of(client)
        settings: dict[str, Any] = {
            name: value
            for name, value in (("timeout_ms", client.timeout_ms), ("client_id", client.client_id))
            if value is not None
        }
        return ClusterStore(QuotaAdmin(self.bootstrap_server, model=current_model(), **settings, **client.connection))

    def _warn_of(self, client: ClientProperties) -> None:
        """Say where others could read the secrets of these settings."""
        from kquota.admin.servers import are_loopback

        assert self.bootstrap_server is not None
        if client.sends_login_in_clear and not are_loopback(self.bootstrap_server):
            warn(
                "the password or token goes over the network without TLS, where others can read it: use "
                "security.protocol=SASL_SSL"
            )
        for key in client.typed_secrets if self.are_properties_typed else ():
            warn(
                f"-X {key}: every user of this machine can read a command line: write -X {key}=@FILE or -X "
                f"{key}=env:NAME, or use --command-config"
            )
        for path in client.open_files:
            warn(f"{path}: others than its owner can read this file, and it holds a secret: chmod 600 it")

    def open(self, *, writes: bool = False, creates: bool = False) -> QuotaStore:
        """The cluster or store that was named, to be closed.

        :param writes: it is to be changed; otherwise nothing is written into a store or beside it.
        :param creates: a store is made where there is none; without `writes` it is only seen as if it were.
        :raises KquotaError: it cannot be opened.
        """
        cluster = self.cluster()
        if cluster is not None:
            return cluster
        from kquota.stores import Access, open_store

        assert self.store is not None
        # A request of a client may make 10,000 changes; what is done here is no request.
        reads, changes = (Access.DRY_RUN, Access.CREATE) if creates else (Access.READ, Access.WRITE)
        return open_store(
            self.store,
            access=changes if writes else reads,
            max_changes=None,
            model=current_model(),
            warn=warn,
        )

    def for_plan(self, store: QuotaStore) -> PlanTarget:
        """Whose quotas the store has that was opened, as a plan says it."""
        # What is in memory is another store each time that it is opened.
        identity = None if self.store == "memory:" else store.identity
        return PlanTarget(identity, self.bootstrap_server or self.store or "")

    def read(self, quota_filter: ClientQuotaFilter | None = None) -> QuotaFile:
        """What matches, from wherever it is; without a filter all.

        :raises KquotaError: it cannot be read, or the filter was refused.
        """
        quota_filter = quota_filter or ClientQuotaFilter.all()
        if self.quotas is not None:
            file = read_quotas(self.quotas)
            check_filter(quota_filter)
            return QuotaFile(tuple(entry for entry in file.entries if quota_filter.matches(entry.entity)))
        from kquota.stores.plans import all_quotas

        with self.open() as store:
            return QuotaFile.of(all_quotas(store, quota_filter))


def target_options(
    *, files: bool = False, folders: bool = False, stores: bool = True, required: bool = True
) -> Callable[[F], F]:
    """``--bootstrap-server``, ``--command-config``, ``-X``, with `stores` ``--store`` and with `files` ``--quotas``.

    With `folders` that may also be a folder of quota files called by the times from which they hold.

    The command gets them as one :class:`Target`, called `target`. Where it is not `required`, the command checks it.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_target(**options: Any) -> Any:
            source = click.get_current_context().get_parameter_source("properties")
            target = Target(
                **_closest({name: options.pop(name) for name in (*_OF_CLUSTER, "store", "quotas") if name in options}),
                are_properties_typed=source is ParameterSource.COMMANDLINE,
            )
            if required:
                target.check(files=files)
            return command(target=target, **options)

        decorated: Any = with_target
        for option in reversed(
            (
                click.option(
                    "--bootstrap-server", metavar="HOST:PORT[,..]", help="A Kafka cluster since 2.6, or kquota serve."
                ),
                click.option(
                    "--command-config",
                    metavar="FILE",
                    help="The client's settings, as Kafka's tools take them (Java properties): security.protocol, "
                    "sasl.*, ssl.* with PEM or PKCS12.",
                ),
                click.option(
                    "-X",
                    "--property",
                    "properties",
                    multiple=True,
                    metavar="KEY=VALUE",
                    help="A client's setting, over those of --command-config. Repeatable. A secret does not belong on "
                    "a command line: KEY=@FILE takes what a file holds, KEY=env:NAME a variable of the environment. A "
                    "value that begins with @ itself is written @@.",
                ),
                *([_STORE] if stores else []),
                *([_quotas_option(folders=folders)] if files else []),
            )
        ):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return] # what click makes of a function is one

    return decorate


_STORE: Final = click.option(
    "--store",
    metavar="URL",
    help="A store of kquota serve, read without it: sqlite:///relative.db or sqlite:////absolute.db",
)
_OF_CLUSTER: Final = ("bootstrap_server", "command_config", "properties")


def _quotas_option(*, folders: bool) -> Callable[[F], F]:
    """``--quotas``, which with `folders` may be a folder, too."""
    return click.option(
        "--quotas",
        callback=as_path,
        metavar="FILE|DIR" if folders else "FILE",
        help=QUOTA_FILE
        + (" A folder: quotas over time, a file for each time at which they changed." if folders else ""),
    )


def _closest(given: dict[str, Any]) -> dict[str, Any]:
    """What the command line names goes before a place that the environment or the settings file names."""
    context = click.get_current_context()
    typed = {name for name in given if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if "bootstrap_server" in typed:
        typed |= set(_OF_CLUSTER)
    elif not typed & {"store", "quotas"}:
        return given
    return {name: value for name, value in given.items() if name in typed}


def check_servers(text: str, option: str = "--bootstrap-server") -> None:
    """Refuse what names no servers. Raises :class:`~kquota.errors.InputError`, which names the option."""
    for server in text.split(","):
        host, colon, port = server.strip().rpartition(":")
        if "@" in server:  # a URL with a password in it, which is not repeated
            raise InputError(
                f"{option}: write it as host:port, such as localhost:9092, without a user name and password: "
                "those go into --command-config"
            )
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65535:
            raise InputError(f"{option} {text}: write it as host:port, such as localhost:9092")


def check_filter(quota_filter: ClientQuotaFilter) -> None:
    """Refuse what Kafka would, where no broker is asked.

    :raises InputError: it cannot be asked for.
    """
    refused = quota_filter.refusal(current_model())
    if refused is not None:
        raise InputError(str(refused.message))


def read_quotas(path: str, *, warns: bool = True) -> QuotaFile:
    """The quota file at ``path``; a warning names what it has and Kafka has no quota for.

    Raises :class:`~kquota.errors.InputError`.
    """
    return parse_quotas(*read_file(path), warns=warns)


def parse_quotas(content: bytes, name: str, *, warns: bool = True) -> QuotaFile:
    """What a quota file called ``name`` holds, with the warnings of :func:`read_quotas`.

    Raises :class:`~kquota.errors.InputError`.
    """
    if is_plan(content):
        raise InputError(f"{name}: this is a plan and no quota file; kquota apply carries it out")
    file = read_quota_file(content, name=name, model=current_model())
    if warns:
        for left_out in file.left_out:
            warn(left_out.to_text(name))
    return file


def read_file(path: str) -> tuple[bytes, str]:
    """What is in the file at ``path``, and its name; - is standard input. Raises :class:`~kquota.errors.InputError`."""
    if path == "-":
        return sys.stdin.buffer.read(), "<stdin>"
    try:
        return Path(path).read_bytes(), path
    except IsADirectoryError:
        raise InputError(
            f"{path}: cannot read the quotas: Is a directory; if this is a folder of quotas over time, give one of its "
            "files, or judge a log by all of them with `kquota analyze` or `kquota pipeline resolve`"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the quotas: {error.strerror}") from None


def check_each_once(names: Iterable[str]) -> None:
    """Refuse what is given twice.

    :raises InputError: with the first.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{name} is given twice")
        seen.add(name)


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
