"""``kquota lint``: quotas that bind nobody, or not as they were meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import click
from click.core import ParameterSource

from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import PLACES, QUOTA_FILE, Target, read_quotas, target_options
from kquota.cli.output import Layout, format_option, write_records
from kquota.config import BrokerConfig
from kquota.errors import InputError
from kquota.files import QuotaFile
from kquota.policy import Finding, Severity
from kquota.policy import lint as find
from kquota.printable import printable

__all__ = ["lint"]


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding, and the place in a file that it is about."""

    finding: Finding
    file: str | None
    """None where only one place is looked at, and for a cluster and a store."""
    place: str


@click.command(
    epilog="""\b
Examples:
  kquota lint quotas.yaml
  kquota lint clusters/*.yaml --fail-on error
  kquota lint --bootstrap-server broker:9093 --command-config admin.properties --format json
  kquota lint --store sqlite:///kquota.db -D message.max.bytes=10485760
  kquota lint -f quotas.yaml --broker-config server.properties

\b
Each rule is explained in docs/lint.md.
Exit codes: 0 nothing that --fail-on names, 1 something, 2 a file or an option cannot be used, 4 not authorised,
5 unreachable or timed out."""
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-f", "--file", "more_files", multiple=True, metavar="FILE", help=f"{QUOTA_FILE} Repeatable.")
@target_options(files=True, required=False)
@takes(broker=BrokerOptions)
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.WARNING.value,
    show_default=True,
    help="Exit with 1 where something so bad or worse is found.",
)
@format_option
def lint(
    *,
    files: tuple[str, ...],
    more_files: tuple[str, ...],
    target: Target,
    broker: BrokerOptions,
    fail_on: str,
    format: str,
) -> int:
    """Find quotas that Kafka takes and nobody means: rules that bind nobody, names that match nobody, limits that let
    not even one request pass.

    Quotas come from files, or from a cluster or a store. What a limit comes to depends on the broker's settings: window
    sizes, threads, the largest batch. Those of Kafka are taken where none are given.
    """
    config = broker.load()
    paths = (*files, *more_files)
    if paths:
        _check_alone()
        findings, is_read = _of_files(paths, config)
    else:
        target.check(files=True)
        findings, is_read = _of_target(target, config), True
    write_records(findings, format, _LAYOUT)
    if findings or is_read:
        _sum_up(findings)
    if not is_read:
        return InputError.exit_code
    return int(any(one.finding.severity.rank <= Severity(fail_on).rank for one in findings))


def _check_alone() -> None:
    """Refuse another place beside files, if it was asked for here and not in the environment."""
    context = click.get_current_context()
    for name, option in PLACES.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"Give files or {option}: quotas are read from one place.")


def _of_files(paths: tuple[str, ...], broker: BrokerConfig) -> tuple[list[LocatedFinding], bool]:
    """What is found in each, and whether all could be read; a message on standard error names those that could not."""
    findings: list[LocatedFinding] = []
    is_read = True
    for path in paths:
        try:
            file = read_quotas(path, warns=False)
        except InputError as error:
            click.echo(f"kquota: error: {error}", err=True)
            is_read = False
            continue
        findings += _located(file, find(file, broker=broker), path if len(paths) > 1 else None, path)
    return findings, is_read


def _of_target(target: Target, broker: BrokerConfig) -> list[LocatedFinding]:
    file = read_quotas(target.quotas, warns=False) if target.quotas is not None else target.read()
    return _located(file, find(file, broker=broker), None, target.quotas or "")


def _located(file: QuotaFile, findings: Iterable[Finding], name: str | None, path: str) -> list[LocatedFinding]:
    """Each finding with its place; those of a file in its order."""
    lines = {entry.entity: entry.line for entry in file.entries}
    numbered = [(lines.get(one.entity) if one.entity is not None else None, one) for one in findings]
    path = "<stdin>" if path == "-" else path
    return [
        LocatedFinding(one, name, path if line is None or not path else f"{path}:{line}")
        for line, one in sorted(numbered, key=lambda pair: pair[0] or 0)
    ]


def _sum_up(findings: list[LocatedFinding]) -> None:
    counts = Counter(one.finding.severity for one in findings)
    shown = [
        f"{counts[severity]} {word}{'s' if counts[severity] > 1 else ''}"
        for severity, word in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "note"))
        if counts[severity]
    ]
    click.echo(", ".join(shown) or "nothing found", err=True)


def _text(located: LocatedFinding) -> str:
    one = located.finding
    place = f"{located.place}: " if located.place else ""
    about = " ".join(part for part in (one.entity.to_text() if one.entity else "", one.key or "") if part)
    return printable(f"{place}{one.severity}: {about}{': ' if about else ''}{one.message} [{one.rule}]")


def _fields(located: LocatedFinding) -> Mapping[str, object]:
    one = located.finding
    fields = {
        "rule": one.rule,
        "severity": one.severity.value,
        "entity": None if one.entity is None else dict(one.entity.entries),
        "key": one.key,
        "message": one.message,
    }
    return fields if located.file is None else {"file": located.file, **fields}


def _row(located: LocatedFinding) -> tuple[str, ...]:
    one = located.finding
    entity = "" if one.entity is None else one.entity.to_text()
    return located.place, one.rule, one.severity.value, entity, one.key or "", one.message


_LAYOUT: Layout[LocatedFinding] = Layout(
    fields=_fields,
    header=("place", "rule", "severity", "entity", "key", "message"),
    rows=lambda located: [_row(located)],
    text=lambda findings: map(_text, findings),
)
