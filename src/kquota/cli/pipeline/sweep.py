"""``kquota pipeline sweep``: many limits on recorded usage; and what ``recommend`` shares with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import click

from kquota.cli.options.arrivals import ArrivalOptions
from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.entity_types import leave_out_added
from kquota.cli.options.paths import as_path
from kquota.cli.options.spark import SparkOptions, dataset_option
from kquota.cli.options.taking import option, takes
from kquota.cli.options.targets import QUOTA_FILE, read_quotas
from kquota.errors import IllegalArgumentError, InputError
from kquota.files import QuotaFile
from kquota.quotas import parse_quantity

__all__ = ["NONE_LIMITED", "SweepOptions", "check_finite", "own_quotas", "positive_number", "sweep"]

NONE_LIMITED = "no meter has a limit: with --unlimited-by clients are measured as if they had"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Which limits are simulated, on what."""

    quotas: str | None = option(
        "--quotas", callback=as_path, metavar="FILE", help=f"{QUOTA_FILE}  [default: those of the dataset]"
    )
    candidates: int = option(
        "--candidates",
        type=click.IntRange(2),
        default=32,
        show_default=True,
        metavar="N",
        help="How many limits to try on each meter, from half of its mean rate to above its highest.",
    )
    unlimited_by: str | None = option(
        "--unlimited-by",
        type=click.Choice(["user", "client-id", "user,client-id"]),
        help="Also clients without a limit, measured as if there were a rule for each of these.",
    )


@click.command(
    epilog="""\b
Examples:
  kquota pipeline sweep --dataset report
  kquota pipeline sweep --dataset report --factor 0.5 --factor 0.75 --factor 1.5
  kquota pipeline sweep --dataset report --limit 1MiB --limit 2MiB --limit 4MiB
  kquota pipeline sweep --dataset report --unlimited-by user --arrivals closed

\b
`kquota pipeline report --dataset report` then draws the curves."""
)
@dataset_option
@takes(arrivals=ArrivalOptions, broker=BrokerOptions, spark=SparkOptions, candidates_of=SweepOptions)
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
    dataset: str,
    arrivals: ArrivalOptions,
    broker: BrokerOptions,
    spark: SparkOptions,
    candidates_of: SweepOptions,
    limits: tuple[str, ...],
    factors: tuple[float, ...],
) -> None:
    """Many limits on recorded usage, in one pass: how throttling grows as a limit falls. Table `curve`."""
    config = broker.load()
    if limits and factors:
        raise click.UsageError("Give --limit or --factor, not both.")
    values = tuple(positive_number(text, "--limit") for text in limits)
    for factor in factors:
        check_finite(factor, "--factor")
    file = own_quotas(dataset, candidates_of.quotas)
    from kquota.pipeline.advice import sweep_job
    from kquota.pipeline.advice.curve import Grid

    found = sweep_job.sweep(
        dataset,
        file,
        spark.job(dataset, config),
        grid=Grid(candidates_of.candidates, values, factors),
        arrivals=arrivals.load(),
        unlimited_by=candidates_of.unlimited_by,
    )
    if not found.meters:
        click.echo(NONE_LIMITED, err=True)
    click.echo(f"{found.candidates:,} limits simulated on {found.meters:,} meters")
    click.echo(f"table: {dataset.rstrip('/')}/curve")


def own_quotas(dataset: str, quotas: str | None) -> QuotaFile:
    """The file that was given, otherwise what the dataset was analysed with; nothing where there is neither.

    :raises InputError: it cannot be read.
    """
    if quotas is not None:
        return leave_out_added(read_quotas(quotas))
    from kquota.pipeline.dataset.dataset import Dataset

    found = Dataset.open(dataset).quotas()
    return QuotaFile(()) if found is None else found.last or QuotaFile(())


def check_finite(number: float, option: str) -> None:
    """Refuse infinity and NaN for an option.

    :raises InputError: it is one of them.
    """
    if not math.isfinite(number):
        raise InputError(f"{option} {number}: give a number above zero")


def positive_number(text: str, option: str) -> float:
    """A number above zero that was given for an option.

    :raises InputError: it is none.
    """
    try:
        value = parse_quantity(text)
    except IllegalArgumentError as error:
        raise InputError(f"{option} {text}: {error}") from None
    if not 0 < value < math.inf:
        raise InputError(f"{option} {text}: give a number above zero")
    return value
