"""``kquota pipeline sweep`` and ``recommend``: many limits on recorded usage, and which to set."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli.jobs import UNITS, duration, load_pipeline, plain_cell, spark_options, usage_option, wide_console
from kquota.cli.targets import QUOTA_FILE, broker_options, read_quotas
from kquota.cli.what_if import arrival_options, check_arrivals
from kquota.config import load_broker_config
from kquota.errors import IllegalArgumentError, InputError
from kquota.files import OBJECTIVES, Objective, QuotaFile
from kquota.quotas import KAFKA, format_number, parse_quantity

if TYPE_CHECKING:
    from kquota.pipeline.sweeping import Recommended

__all__ = ["recommend", "sweep"]

_SHOWN = 30


def _common(command: Any) -> Any:
    """Options of both."""
    for option in (
        click.option(
            "--unlimited-by",
            type=click.Choice(["user", "client-id", "user,client-id"]),
            help="Also clients without a limit, measured as if there were a rule for each of these.",
        ),
        click.option(
            "--candidates",
            type=click.IntRange(2),
            default=32,
            show_default=True,
            metavar="N",
            help="How many limits to try on each meter, from half of its mean rate to above its highest.",
        ),
        click.option("--quotas", metavar="FILE", help=f"{QUOTA_FILE}  [default: DIR/quotas.yaml]"),
    ):
        command = option(command)
    return usage_option(arrival_options(broker_options(spark_options(command))))


@click.command(
    epilog="""\b
Examples:
  kquota pipeline sweep --usage report
  kquota pipeline sweep --usage report --factor 0.5 --factor 0.75 --factor 1.5
  kquota pipeline sweep --usage report --limit 1MiB --limit 2MiB --limit 4MiB
  kquota pipeline sweep --usage report --unlimited-by user --model closed

\b
`kquota pipeline report --usage report` then draws the curves."""
)
@_common
@click.option("--limit", "limits", multiple=True, metavar="VALUE", help="A limit to try on all meters. Repeatable.")
@click.option(
    "--factor",
    "factors",
    multiple=True,
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="A part of the limit that a meter has, to try on it. Repeatable.",
)
def sweep(
    *,
    usage: str,
    quotas: str | None,
    candidates: int,
    limits: tuple[str, ...],
    factors: tuple[float, ...],
    unlimited_by: str | None,
    model: str,
    in_flight: int | None,
    broker_config: str | None,
    defines: tuple[str, ...],
    master: str | None,
    quiet: bool,
) -> None:
    """Many limits on recorded usage, in one pass: how throttling grows as a limit falls. Table `curve`."""
    check_arrivals(model, in_flight)
    if limits and factors:
        raise click.UsageError("Give --limit or --factor, not both.")
    tried = tuple(_number(text, "--limit") for text in limits)
    file = _quotas(usage, quotas)
    config = load_broker_config(broker_config, defines)
    jobs, sweeping = load_pipeline("jobs"), load_pipeline("sweeping")
    arrivals = load_pipeline("replay.arrivals")
    found = sweeping.sweep(
        Path(usage),
        file,
        jobs.JobOptions(out=Path(usage), broker_config=config, master=master, quiet=quiet),
        grid=load_pipeline("transforms.curve").Grid(candidates, tried, factors),
        arrivals=arrivals.Arrivals(arrivals.ArrivalModel(model), in_flight),
        unlimited_by=unlimited_by,
    )
    if not found.meters:
        click.echo("no meter has a limit: with --unlimited-by clients are measured as if they had", err=True)
    click.echo(f"{found.candidates:,} limits tried on {found.meters:,} meters")
    click.echo(f"table: {Path(usage) / 'curve'}")


@click.command(
    epilog="""\b
Examples:
  kquota pipeline recommend --usage report --objective 'throttled_share<=1%' --out-file recommended.yaml
  kquota pipeline recommend --usage report --objective 'max_delay_ms<=1000' --unlimited-by user
  kquota pipeline recommend --usage report --percentile 99 --headroom 1.5 --capacity producer_byte_rate=100MiB

\b
The file is a quota file: kquota plan -f recommended.yaml says what it would change.
Exit codes: 0 done, 1 an objective cannot be met (everything is written all the same), 2 something given cannot be
used."""
)
@_common
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="'NAME<=VALUE'",
    help=f"The most that a limit may do: {', '.join(OBJECTIVES)}. Repeatable.  [default: throttled_share<=0.01]",
)
@click.option(
    "--percentile",
    type=click.Choice(["50", "95", "99", "100"]),
    help="Instead of objectives: this percentile of the rate that Kafka compares with a limit.",
)
@click.option(
    "--headroom",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="N",
    help="With --percentile: times this.",
)
@click.option(
    "--capacity",
    "capacities",
    multiple=True,
    metavar="KEY=VALUE",
    help="What all meters of a broker may use together, such as producer_byte_rate=100MiB: if the limits come to more, "
    "all are cut. Repeatable.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Choice([key.name for key in KAFKA.keys]),
    help="Which limits to find. Repeatable.  [default: both byte rates and controller_mutation_rate; of request time a "
    "log has only a part]",
)
@click.option("--out-file", metavar="FILE", help="Where to write the quota file.  [default: standard output]")
def recommend(
    *,
    usage: str,
    quotas: str | None,
    candidates: int,
    objectives: tuple[str, ...],
    percentile: str | None,
    headroom: float,
    capacities: tuple[str, ...],
    keys: tuple[str, ...],
    out_file: str | None,
    unlimited_by: str | None,
    model: str,
    in_flight: int | None,
    broker_config: str | None,
    defines: tuple[str, ...],
    master: str | None,
    quiet: bool,
) -> int:
    """Which limits to set: for each rule the lowest that does no more than is allowed, on recorded usage.

    Every line of the quota file that comes out says why, and what it would have done. Table `recommendations`.
    """
    check_arrivals(model, in_flight)
    if objectives and percentile is not None:
        raise click.UsageError("Give --objective or --percentile, not both.")
    if headroom != 1.0 and percentile is None:
        raise click.UsageError("--headroom goes with --percentile.")
    wanted_objectives = tuple(Objective.parse(text) for text in objectives or ("throttled_share<=0.01",))
    capacity = dict(_capacity(text) for text in capacities)
    file = _quotas(usage, quotas)
    config = load_broker_config(broker_config, defines)
    jobs, sweeping = load_pipeline("jobs"), load_pipeline("sweeping")
    arrivals = load_pipeline("replay.arrivals")
    found: Recommended = sweeping.recommend(
        Path(usage),
        file,
        jobs.JobOptions(out=Path(usage), broker_config=config, master=master, quiet=quiet),
        wanted=sweeping.Wanted(
            objectives=() if percentile is not None else wanted_objectives,
            percentile=None if percentile is None else int(percentile),
            headroom=headroom,
            capacity=capacity,
            keys=keys or sweeping.RECOMMENDED_KEYS,
        ),
        grid=load_pipeline("transforms.curve").Grid(candidates),
        arrivals=arrivals.Arrivals(arrivals.ArrivalModel(model), in_flight),
        unlimited_by=unlimited_by,
    )
    _write(found, out_file)
    return 1 if found.unmet else 0


def _write(found: Recommended, out_file: str | None) -> None:
    if out_file is None:
        sys.stdout.write(found.text)
    else:
        try:
            Path(out_file).write_text(found.text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--out-file {out_file}: cannot write the quotas: {error.strerror}") from None
        console = wide_console()
        if found.rows:
            console.print(_table(found.rows[:_SHOWN]))
        if len(found.rows) > _SHOWN:
            console.print(f"{_SHOWN} of {len(found.rows):,} are shown")
        console.print(f"quota file: {out_file}", soft_wrap=True)
    if not found.rows:
        click.echo("no meter has a limit: with --unlimited-by clients are measured as if they had", err=True)
    for row in found.unmet[:_SHOWN]:
        click.echo(
            f"kquota: cannot be met: {row.entity} {row.key}: "
            + (
                "no limit that was tried does"
                if row.value_new is None
                else f"at {format_number(row.value_new)} it is muted {row.predicted_throttled_share:.2%} of the time, "
                f"longest wait {duration(row.predicted_max_delay_ms)}"
            ),
            err=True,
        )
    if len(found.unmet) > _SHOWN:
        click.echo(f"kquota: and {len(found.unmet) - _SHOWN:,} more", err=True)


def _table(rows: tuple[Any, ...]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rule", "key"):
        table.add_column(name, overflow="fold")
    for name in ("now", "recommended", "muted", "longest wait"):
        table.add_column(name, justify="right")
    table.add_column("because", overflow="fold")
    for row in rows:
        unit = UNITS.get(row.key, "/s")
        cells = [
            row.entity,
            row.key,
            "-" if row.value_now is None else f"{format_number(row.value_now)} {unit}",
            "-" if row.value_new is None else f"{format_number(row.value_new)} {unit}",
            f"{row.predicted_throttled_share or 0:.2%}",
            duration(row.predicted_max_delay_ms or 0.0),
            row.reason,
        ]
        table.add_row(*map(plain_cell, cells))
    return table


def _quotas(usage: str, quotas: str | None) -> QuotaFile:
    if quotas is not None:
        return read_quotas(quotas)
    own = Path(usage) / "quotas.yaml"
    return read_quotas(str(own)) if own.is_file() else QuotaFile(())


def _capacity(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    if not equals or KAFKA.key(key.strip()) is None:
        keys = ", ".join(one.name for one in KAFKA.keys)
        raise InputError(f"--capacity {text}: write it as KEY=VALUE, with one of {keys}")
    return key.strip(), _number(value, "--capacity")


def _number(text: str, option: str) -> float:
    try:
        value = parse_quantity(text)
    except IllegalArgumentError as error:
        raise InputError(f"{option} {text}: {error}") from None
    if not 0 < value < math.inf:
        raise InputError(f"{option} {text}: give a number above zero")
    return value
