"""``kquota callback``: a quota callback on recorded traffic."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kquota.cli.jobs import UNITS, duration, load_pipeline, plain_cell, wide_console
from kquota.cli.targets import broker_options, read_quotas
from kquota.clock import SystemClock
from kquota.config import load_broker_config, read_properties
from kquota.errors import InputError
from kquota.files import dump_json
from kquota.quotas import MeterKey, format_number

if TYPE_CHECKING:
    from kquota.metering.contract import Finding
    from kquota.metering.contract_check import ContractCheck, MeterOutcome, Waits

__all__ = ["callback"]

_SHOWN_METERS: Final = 20


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def callback() -> None:
    """Quota callbacks (KIP-257): what they would do, and whether they keep their contract."""


@callback.command(
    epilog="""\b
Examples:
  kquota callback test groups --usage report --quotas quotas.yaml -C 'kquota.groups={"etl": {"client-ids": ["etl*"]}}'
  kquota callback test my_callbacks:ByPrefix --usage report
  kquota callback test my_callbacks:ByPrefix --usage report --callback-config callback.properties --budget-ms 0.5
  kquota callback test fair-share --usage report --quotas quotas.yaml --format json

\b
CALLBACK is a class, as package.module:Class (also of a module in this directory), or the name of one that is installed:
default, groups, partitions, fair-share and those of other packages.
Its limits are those of --quotas, otherwise those that the directory was analysed with.
Exit codes: 0 it keeps its contract, 1 it does not, 2 something given cannot be used."""
)
@click.argument("name", metavar="CALLBACK")
@click.option(
    "--usage",
    required=True,
    metavar="DIR",
    help="A directory that `kquota analyze --out` wrote. Its table `requests` is used where it was kept "
    "(--keep-requests), otherwise the seconds of `usage`.",
)
@click.option("--callback-config", metavar="FILE", help="The callback's settings, a Java properties file.")
@click.option(
    "-C",
    "--callback-setting",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="One of its settings, over those of --callback-config. Repeatable.",
)
@click.option(
    "--quotas", metavar="FILE", help="A quota file, YAML or JSON; - is standard input.  [default: DIR/quotas.yaml]"
)
@click.option(
    "--budget-ms",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="MS",
    help="How long a call may take. More than 1 of 100 calls of a method over it are a fault.",
)
@broker_options
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print.")
@click.option("-q", "--quiet", is_flag=True, help="Do not tell what is being done.")
def test(
    *,
    name: str,
    usage: str,
    callback_config: str | None,
    settings: tuple[str, ...],
    quotas: str | None,
    budget_ms: float,
    broker_config: str | None,
    defines: tuple[str, ...],
    format: str,
    quiet: bool,
) -> int:
    """Run a callback over recorded traffic: whether it keeps its contract, and what it would have done.

    It is asked what a broker asks, request by request; a new one is made for each broker, and told its node.id. Tags
    must depend on the request alone, limits be above zero or None and change only when the callback says so, and
    answers come within the budget.

    Requests arrive as they were recorded: that some would have been made to wait, and the next have come later, is left
    aside. The same requests go through Kafka's own rules, for comparison, and what the log says was told stands beside
    both. A fetch that was held back counts nothing in the log, because its answer went out empty: fewer fetches wait
    here than did.
    """
    from kquota.metering.contract_check import ContractCheck
    from kquota.metering.loading import load_callback

    broker = load_broker_config(broker_config, defines)
    _import_from_here()
    load_callback(name)
    traffic = load_pipeline("recorded_traffic").RecordedTraffic.of(Path(usage))
    found = read_quotas(quotas) if quotas is not None else traffic.quotas()
    clock = SystemClock()
    check = ContractCheck(
        lambda: load_callback(name),
        _configs(broker_config, defines, callback_config, settings),
        {} if found is None else found.snapshot(),
        broker,
        monotonic_ms=clock.monotonic_ms,
        budget_ms=budget_ms,
    )
    progress = load_pipeline("progress").Progress(sys.stderr, clock, quiet=quiet)
    brokers = traffic.brokers()
    for broker_id in brokers:
        with progress.stage(f"broker {broker_id}", lambda: check.records, traffic.rows(), traffic.grain):
            check.broker(broker_id, traffic.of_broker(broker_id))
    findings = check.findings()
    if format == "json":
        _print_json(name, usage, traffic, check, findings)
    else:
        _print_text(name, usage, traffic, check, findings, has_quotas=found is not None)
    return 1 if findings else 0


def _import_from_here() -> None:
    """So that a module in the directory is found; after all that is installed, which it must not replace."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _configs(
    broker_config: str | None, defines: Iterable[str], callback_config: str | None, settings: Iterable[str]
) -> dict[str, str]:
    """What a broker would hand to the callback: its own settings, and the callback's.

    :raises InputError: a file cannot be read, or a setting is not written as key=value.
    """
    configs: dict[str, str] = {}
    if broker_config is not None:
        configs |= read_properties(broker_config, "the broker's settings")
        for name in ("broker.id", "node.id"):  # each broker of the traffic has its own
            configs.pop(name, None)
    configs |= _pairs(defines, "-D")
    if callback_config is not None:
        configs |= read_properties(callback_config, "the callback's settings")
    return configs | _pairs(settings, "-C")


def _pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{option} {text}: write it as key=value")
        pairs[key.strip()] = value
    return pairs


def _print_json(name: str, usage: str, traffic: Any, check: ContractCheck, findings: list[Finding]) -> None:
    answer = {
        "callback": name,
        "usage": usage,
        "grain": "request" if traffic.is_per_request else "cell",
        "brokers": traffic.brokers(),
        "records": check.records,
        "skipped": traffic.skipped,
        "keeps_contract": not findings,
        "findings": [
            {
                "fault": one.fault.name.lower(),
                "method": one.method,
                "count": one.count,
                "question": one.question,
                "answer": one.answer,
            }
            for one in findings
        ],
        "methods": [
            {
                "method": method,
                "calls": times.calls,
                "p50_ms": times.percentile_ms(0.5),
                "p99_ms": times.percentile_ms(0.99),
                "max_ms": times.max_ms,
                "over_budget": times.over_budget,
                "over_budget_share": times.over_budget / times.calls,
            }
            for method, times in check.times.items()
        ],
        "meters": [
            {
                "broker_id": meter.broker_id,
                "meter": {tag: value for tag, value in meter.tags.items() if value},
                "key": meter.quota_type.key,
                "requests": meter.requests,
                "amount": meter.amount,
                "limit_min": meter.lowest_limit if meter.is_limited else None,
                "limit_max": meter.highest_limit if meter.is_limited else None,
                "callback": _waits_fields(meter.callback),
                "kafka": _waits_fields(meter.kafka),
                "logged": _waits_fields(meter.logged),
            }
            for meter in check.meters()
        ],
    }
    sys.stdout.write(dump_json(answer) + "\n")


def _waits_fields(waits: Waits) -> dict[str, int]:
    return {
        "throttled_requests": waits.count,
        "throttle_ms": waits.total_ms,
        "throttle_max_ms": waits.longest_ms,
    }


def _print_text(
    name: str, usage: str, traffic: Any, check: ContractCheck, findings: list[Finding], *, has_quotas: bool
) -> None:
    console = wide_console()

    def say(text: str) -> None:
        console.print(plain_cell(text), soft_wrap=True)

    seconds = 0 if check.first_ms is None else (check.last_ms - check.first_ms) / 1000
    brokers = traffic.brokers()
    say(
        f"{name} on {check.records:,} {traffic.grain} of {len(brokers)} broker{'s' * (len(brokers) != 1)}, "
        f"{duration(seconds * 1000)} of {usage}"
    )
    if not traffic.is_per_request:
        say(
            "The requests themselves were not kept (kquota analyze --keep-requests): what a client used in a second "
            "counts as one request, at the beginning of that second."
        )
    if traffic.skipped:
        say(f"{traffic.skipped:,} more are left out: their client or what they used is not known.")
    if not has_quotas:
        say(f"There are no quotas: {usage} has no quotas.yaml; --quotas FILE gives some.")
    console.print()
    if findings:
        console.print("[bold red]It does not keep its contract.[/] What is wrong, the worst first:")
        for one in findings:
            say(f"  {one.method} {one.fault.value}: {one.count:,}x")
            say(f"    such as {one.question} {one.answer}")
    else:
        console.print("[bold green]It keeps its contract.[/]")
    console.print()
    console.print(_times_table(check))
    console.print()
    meters = check.meters()
    shown = [one for one in meters if one.is_limited or one.kafka.count or one.logged.count][:_SHOWN_METERS]
    if shown:
        console.print(_meters_table(shown, several=len(brokers) > 1))
        if any(one.callback.total_ms > 2 * one.logged.total_ms + seconds * 1000 for one in shown):
            say(
                "Requests come as they were recorded, waits or not: under limits much tighter than then, waits pile up."
            )
    if len(shown) < len(meters):
        others = len(meters) - len(shown)
        say(f"{others:,} {'more ' * bool(shown)}meter{'s' * (others != 1)} with shorter waits or none: --format json has all.")


def _times_table(check: ContractCheck) -> Any:
    from rich.table import Table

    budget_ms = check.budget_ms
    table = Table(title="Calls", title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    for column in ("calls", "p50", "p99", "longest", f"over {budget_ms:g} ms"):
        table.add_column(column, justify="right")
    for method, times in check.times.items():
        table.add_row(
            method,
            f"{times.calls:,}",
            _fine(times.percentile_ms(0.5)),
            _fine(times.percentile_ms(0.99)),
            _fine(times.max_ms),
            f"{times.over_budget:,} ({times.over_budget / times.calls:.2%})" if times.over_budget else "-",
        )
    return table


def _meters_table(meters: Iterable[MeterOutcome], *, several: bool) -> Any:
    from rich.table import Table

    table = Table(
        title="What it would have done, beside Kafka's rules and the log: requests told to wait, and how long in all",
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    if several:
        table.add_column("broker", justify="right")
    for column in ("meter", "key"):
        table.add_column(column, overflow="fold")
    for column in ("requests", "amount", "limit", "told to wait", "longest", "by Kafka's rules", "logged"):
        table.add_column(column, justify="right", no_wrap=True)
    for meter in meters:
        cells = [
            _meter_name(meter.tags),
            meter.quota_type.key,
            f"{meter.requests:,}",
            f"{meter.amount:,.0f}",
            _limit(meter),
            _waits(meter.callback),
            duration(meter.callback.longest_ms) if meter.callback.count else "-",
            _waits(meter.kafka),
            _waits(meter.logged),
        ]
        table.add_row(*([str(meter.broker_id)] if several else []), *map(plain_cell, cells))
    return table


def _meter_name(tags: Mapping[str, str]) -> str:
    if "" in tags:  # of all that are too many
        return tags[""]
    return MeterKey(tags).to_text() or "(no tags)"


def _limit(meter: MeterOutcome) -> str:
    if not meter.is_limited:
        return "-"
    low, high = (
        format_number(round(limit, 2 if limit < 100 else None)) for limit in (meter.lowest_limit, meter.highest_limit)
    )
    return f"{low if low == high else f'{low} to {high}'} {UNITS.get(meter.quota_type.key, '/s')}"


def _waits(waits: Waits) -> str:
    return f"{waits.count:,} {duration(waits.total_ms):>8}" if waits.count else "-"


def _fine(ms: float) -> str:
    return f"{ms * 1000:,.1f} us" if ms < 0.1 else f"{ms:,.2f} ms" if ms < 100 else f"{ms:,.0f} ms"
