"""``kquota pipeline recommend``: which limits to set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli.console import plain_table, wide_console
from kquota.cli.options.arrivals import ArrivalOptions
from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.owners import check_owners, owners_option, read_owners
from kquota.cli.options.paths import as_path
from kquota.cli.options.spark import SparkOptions, dataset_option
from kquota.cli.options.taking import takes
from kquota.cli.output import check_writable
from kquota.cli.pipeline.sweep import NONE_LIMITED, SweepOptions, check_finite, own_quotas, positive_number
from kquota.errors import InputError
from kquota.figures import duration, limit_text
from kquota.policy import OBJECTIVES, UNOWNED, Objective, OwnerMap
from kquota.quotas import KAFKA, format_number

if TYPE_CHECKING:
    from kquota.pipeline.advice.sweep_job import RecommendationResult

__all__ = ["recommend"]

_SHOWN = 30


@click.command(
    epilog="""\b
Examples:
  kquota pipeline recommend --dataset report --objective 'throttled_share<=1%' --out recommended.yaml
  kquota pipeline recommend --dataset report --objective 'max_delay_ms<=1000' --unlimited-by user
  kquota pipeline recommend --dataset report --percentile 99 --headroom 1.5 --capacity producer_byte_rate=100MiB
  kquota pipeline recommend --dataset report --owners owners.csv --out recommended.yaml
  kquota pipeline recommend --dataset report --owners owners.csv --owner search --owner shop --out recommended.yaml

\b
A rule belongs to whom the quota file names at its entity, otherwise to whom the owner map says by the names that the
entity has. The file has each owner's rules together.

\b
The file is a quota file: kquota plan -f recommended.yaml says what it would change.
Exit codes: 0 done, 1 an objective cannot be met (everything is written all the same), 2 something given cannot be
used."""
)
@dataset_option
@takes(arrivals=ArrivalOptions, broker=BrokerOptions, spark=SparkOptions, candidates_of=SweepOptions)
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
@owners_option
@click.option(
    "--owner",
    "wanted_owners",
    multiple=True,
    metavar="NAME",
    help="Only the rules of this owner; all others stay as they are, and count for --capacity as they are. "
    f"{UNOWNED}: those of nobody. Repeatable.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Choice([key.name for key in KAFKA.keys]),
    help="Which limits to find. Repeatable.  [default: both byte rates and controller_mutation_rate; of request time a "
    "log has only a part]",
)
@click.option(
    "--out", callback=as_path, metavar="FILE", help="Where to write the quota file.  [default: standard output]"
)
def recommend(
    *,
    dataset: str,
    arrivals: ArrivalOptions,
    broker: BrokerOptions,
    spark: SparkOptions,
    candidates_of: SweepOptions,
    objectives: tuple[str, ...],
    percentile: str | None,
    headroom: float,
    capacities: tuple[str, ...],
    keys: tuple[str, ...],
    owners: str | None,
    wanted_owners: tuple[str, ...],
    out: str | None,
) -> int:
    """Which limits to set: for each rule the lowest that does no more than is allowed, on recorded usage.

    Every line of the quota file that comes out says why, and what it would have done. Table `recommendations`.
    """
    config = broker.load()
    if objectives and percentile is not None:
        raise click.UsageError("Give --objective or --percentile, not both.")
    if headroom != 1.0 and percentile is None:
        raise click.UsageError("--headroom goes with --percentile.")
    check_finite(headroom, "--headroom")
    check_writable(out, "--out")
    wanted_objectives = tuple(Objective.parse(text) for text in objectives or ("throttled_share<=0.01",))
    capacity = dict(_capacity(text) for text in capacities)
    file = own_quotas(dataset, candidates_of.quotas)
    owner_map = OwnerMap(read_owners(owners), file)
    check_owners(wanted_owners, owner_map)
    from kquota.pipeline.advice import recommended_limits, sweep_job
    from kquota.pipeline.advice.curve import Grid

    found = sweep_job.recommend(
        dataset,
        file,
        spark.job(dataset, config),
        goal=recommended_limits.RecommendationGoal(
            objectives=() if percentile is not None else wanted_objectives,
            percentile=None if percentile is None else int(percentile),
            headroom=headroom,
            capacity=capacity,
            keys=keys or recommended_limits.RECOMMENDED_KEYS,
            owners=wanted_owners,
        ),
        owners=owner_map,
        grid=Grid(candidates_of.candidates),
        arrivals=arrivals.load(),
        unlimited_by=candidates_of.unlimited_by,
    )
    _write(found, out, wanted_owners)
    return 1 if found.unmet else 0


def _write(found: RecommendationResult, out: str | None, owners: tuple[str, ...]) -> None:
    if out is None:
        sys.stdout.write(found.text)
    else:
        try:
            Path(out).write_text(found.text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--out {out}: cannot write the quotas: {error.strerror}") from None
        console = wide_console()
        if found.rows:
            console.print(_table(found.rows[:_SHOWN]))
        if len(found.rows) > _SHOWN:
            console.print(f"{_SHOWN} of {len(found.rows):,} are shown")
        console.print(f"quota file: {out}", soft_wrap=True)
    if not found.rows:
        click.echo(f"no rule of {', '.join(owners)} is measured here" if owners else NONE_LIMITED, err=True)
    for row in found.unmet[:_SHOWN]:
        click.echo(
            f"kquota: cannot be met: {row.entity} {row.key}: "
            + (
                f"no limit above zero was found: {row.reason}"
                if row.value_new is None
                else f"at {format_number(row.value_new)} throttled for {row.predicted_throttled_share:.2%} of the "
                f"time, {row.predicted_throttled_requests:,} requests, the longest for "
                f"{duration(row.predicted_max_delay_ms)}"
            ),
            err=True,
        )
    if len(found.unmet) > _SHOWN:
        click.echo(f"kquota: and {len(found.unmet) - _SHOWN:,} more", err=True)


def _table(rows: tuple[Any, ...]) -> Any:
    columns: dict[str, Callable[[Any], str]] = {
        "owner": lambda row: row.owner,
        "rule": lambda row: row.entity,
        "key": lambda row: row.key,
        "now": lambda row: _limit(row.key, row.value_now),
        "recommended": lambda row: _limit(row.key, row.value_new),
        "throttled": lambda row: f"{row.predicted_throttled_share or 0:.2%}",
        "longest delay": lambda row: duration(row.predicted_max_delay_ms or 0.0),
        "because": lambda row: row.reason,
    }
    if all(row.owner is None for row in rows):
        del columns["owner"]
    return plain_table(rows, columns, folded=("owner", "rule", "key", "because"))


def _limit(key: str, value: float | None) -> str:
    return "-" if value is None else limit_text(key, value)


def _capacity(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    if not equals or KAFKA.key(key.strip()) is None:
        keys = ", ".join(one.name for one in KAFKA.keys)
        raise InputError(f"--capacity {text}: write it as KEY=VALUE, with one of {keys}")
    return key.strip(), positive_number(value, "--capacity")
