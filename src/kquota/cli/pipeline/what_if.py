"""``kquota pipeline whatif``: what other quotas would have done to recorded traffic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli.console import broker_column, plain_table, wide_console
from kquota.cli.options.arrivals import ArrivalOptions
from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.callback_settings import CallbackOptions, import_from_here
from kquota.cli.options.entity_types import leave_out_added
from kquota.cli.options.paths import as_path, as_url
from kquota.cli.options.spark import SparkOptions, dataset_option
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import quotas_option, read_quotas
from kquota.figures import duration, limit_text
from kquota.metering.loading import load_callback

if TYPE_CHECKING:
    from kquota.pipeline.advice.what_if_job import WhatIf

__all__ = ["whatif"]


@click.command(
    epilog="""\b
Examples:
  kquota pipeline whatif --dataset report --quotas new.yaml
  kquota pipeline whatif --dataset report --quotas new.yaml --arrivals closed --out what-if
  kquota pipeline whatif --dataset report --quotas new.yaml --baseline old.yaml --only-changed
  kquota pipeline whatif --dataset report --quotas quotas.yaml --callback my_callbacks:ByPrefix

\b
The old limits are those that the dataset was analysed with, unless --baseline gives others. Where it has the table
`requests` (see --keep-requests), each request is replayed, otherwise each second of `usage`."""
)
@dataset_option
@quotas_option
@click.option(
    "--baseline",
    callback=as_path,
    metavar="FILE",
    help="The old quotas, a quota file.  [default: those of the dataset]",
)
@takes(arrivals=ArrivalOptions)
@click.option("--only-changed", is_flag=True, help="Leave out meters that the change does not touch.")
@click.option(
    "--callback",
    metavar="CALLBACK",
    help="Limits from a quota callback, package.module:Class or an installed one, which is given --quotas.",
)
@takes(given=CallbackOptions)
@click.option(
    "--out",
    callback=as_url,
    metavar="URL",
    help="Where the table goes: missing, empty, or with --overwrite.  [default: into the dataset]",
)
@click.option("--overwrite", is_flag=True, help="Replace what kquota wrote to --out before.")
@takes(broker=BrokerOptions, spark=SparkOptions)
def whatif(
    *,
    dataset: str,
    quotas: str,
    baseline: str | None,
    arrivals: ArrivalOptions,
    only_changed: bool,
    callback: str | None,
    given: CallbackOptions,
    out: str | None,
    overwrite: bool,
    broker: BrokerOptions,
    spark: SparkOptions,
) -> None:
    """Other quotas on recorded usage: who would have been throttled, for how long, and who no longer.

    Each meter goes through Kafka's own statistic under its new limit: table `whatif`, and the worst on the terminal.
    What cannot be known from the recording is said, line by line.
    """
    config = broker.load(has_callback=callback is not None)
    new = leave_out_added(read_quotas(quotas))
    old = None if baseline is None else leave_out_added(read_quotas(baseline))
    from kquota.pipeline.advice.what_if_job import what_if
    from kquota.pipeline.simulation.limiters import CallbackSetup

    setup = None
    if callback is not None:
        import_from_here()
        load_callback(callback)
        setup = CallbackSetup(
            callback,
            str(Path.cwd()),
            given.load(broker),
            new.snapshot(),
            config,
            given.cluster(),
        )
    elif given:
        raise click.UsageError("--callback-config, -C and --cluster-metadata go with --callback.")
    found = what_if(
        dataset,
        new,
        spark.job(out or dataset, config, overwrite=overwrite),
        baseline=old,
        arrivals=arrivals.load(),
        only_changed=only_changed,
        callback=setup,
    )
    print_what_if(found)
    if not found.has_baseline:
        click.echo(
            f"compared with no limits at all: {dataset} has no quotas of its own; --baseline FILE says it, or "
            f"`kquota pipeline resolve --dataset {dataset}`",
            err=True,
        )


def print_what_if(found: WhatIf) -> None:
    """The counts, the worst rows, and what they do not know."""
    from kquota.pipeline.advice.what_if import UNKNOWNS

    console = wide_console()
    part = found.run
    console.print(
        f"{part.meters:,} meters replayed per {part.grain}, {part.model} model: {part.throttled:,} "
        f"throttled, {part.newly_throttled:,} newly throttled, {part.no_longer_throttled:,} no longer throttled, "
        f"{part.taken_over:,} take over clients of other meters"
    )
    if found.rows:
        console.print()
        console.print(_table(found.rows))
        unknowns = sorted({name for row in found.rows for name in row.unknowns}, key=list(UNKNOWNS).index)
        for name in unknowns:
            console.print(f"{name}: not known is {UNKNOWNS[name]}")
    else:
        console.print("nobody is throttled whom the change touches")
    if part.changed and part.changed < part.meters:
        console.print(f"the change touches {part.changed:,} of the meters; the table has the others, too")
    difference = part.grain_difference
    if difference is not None and difference.amount_mean is not None and difference.amount_worst is not None:
        console.print(
            f"\nper second instead of per request, throughput differs by {difference.amount_mean:.1%} in the mean, "
            f"{difference.amount_worst:.1%} at worst ({difference.amount_worst_meter})"
        )
    url = found.dataset.url
    console.print(f"\ntable: {url}/whatif", soft_wrap=True)
    if found.dataset.has("utilisation"):
        console.print(f"`kquota pipeline report --dataset {url}` draws it", soft_wrap=True)


def _table(rows: tuple[Any, ...]) -> Any:
    columns: dict[str, Callable[[Any], str]] = {
        **broker_column(rows),
        "meter": lambda row: row.meter,
        "key": lambda row: row.key,
        "limit": lambda row: f"{_limit(row.limit_old, row.key)} -> {_limit(row.limit_new, row.key)}",
        "throttled": lambda row: f"{row.throttled_share:.1%}" if row.throttled_requests else "-",
        "requests": lambda row: f"{row.throttled_requests:,} x" if row.throttled_requests else "-",
        "longest delay": lambda row: duration(row.max_delay_ms) if row.max_delay_ms else "-",
        "delays in all": lambda row: duration(row.total_delay_ms) if row.total_delay_ms else "-",
        "throughput": lambda row: _percent(row.amount_new, row.amount_old),
        "": _change,
        "not known": lambda row: ", ".join(row.unknowns),
    }
    return plain_table(rows, columns, folded=("meter", "key", "", "not known"), title="Meters, worst first")


def _change(row: Any) -> str:
    change = "newly throttled" if row.newly_throttled else "no longer throttled" if row.no_longer_throttled else ""
    taken_over = f"takes over from {row.previous_meters}" if row.previous_meters else ""
    return ", ".join(filter(None, (change, taken_over)))


def _limit(limit: float | None, key: str) -> str:
    return "none" if limit is None else limit_text(key, limit)


def _percent(new: float, old: float) -> str:
    if not old or abs(new / old - 1) < 0.0005:
        return "-"
    return f"{new / old - 1:+.1%}"
