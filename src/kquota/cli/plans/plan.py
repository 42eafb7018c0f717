"""``kquota plan``: what would have to change for quotas to become those of a file."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from kquota.cli.options.arrivals import ArrivalOptions
from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.paths import as_path, as_url
from kquota.cli.options.spark import SparkOptions
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, read_quotas, target_options
from kquota.cli.output import align, check_writable
from kquota.cli.plans.impact import exceeded_lines, impact_lines, summary
from kquota.cli.plans.outcomes import count_entities
from kquota.errors import InputError
from kquota.policy import OBJECTIVES, Objective, Plan, PlannedChange, PlanTarget, write_plan
from kquota.printable import printable
from kquota.quotas import KAFKA, QuotaSnapshot, format_number
from kquota.stores.plans import all_quotas

__all__ = ["plan"]

CHANGES_PENDING: Final = 3


@click.command(
    epilog="""\b
Examples:
  kquota plan -f quotas.yaml --bootstrap-server localhost:9092
  kquota plan -f quotas.yaml --bootstrap-server broker:9093 --command-config admin.properties --out plan.json
  kquota plan -f quotas.yaml --store sqlite:///kquota.db --prune
  kquota plan -f new.yaml --quotas quotas.yaml --format json
  kquota plan -f quotas.yaml --bootstrap-server localhost:9092 --dataset report
  kquota plan -f quotas.yaml --store sqlite:///kquota.db --dataset report --fail-on-impact 'throttled_share<=1%'

\b
Exit codes: 0 no changes, 3 changes pending, 2 something given cannot be used, 4 not authorised,
5 unreachable or timed out. So the same command, run now and then, shows when quotas drift from the file.
With --fail-on-impact: 0 where no change does more than is allowed, 3 where one does."""
)
@click.option("-f", "--file", required=True, metavar="FILE", help="A quota file, YAML or JSON; - is standard input.")
@target_options(files=True)
@click.option("--prune", is_flag=True, help="Also remove entities and values that are not in the file.")
@click.option("--out", callback=as_path, metavar="FILE", help="Write the plan here, for kquota apply.")
@click.option(
    "--dataset",
    callback=as_url,
    metavar="URL",
    help="A dataset that `kquota analyze` wrote: say what each change would have done to that traffic.",
)
@click.option(
    "--fail-on-impact",
    "allowed",
    multiple=True,
    metavar="'NAME<=VALUE'",
    help=f"The most that a change may do: {', '.join(OBJECTIVES)}. Repeatable.",
)
@takes(arrivals=ArrivalOptions, broker=BrokerOptions, spark=SparkOptions)
@click.option(
    "--format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print it; json is the plan as --out writes it.",
)
def plan(
    *,
    file: str,
    target: Target,
    prune: bool,
    out: str | None,
    dataset: str | None,
    allowed: tuple[str, ...],
    arrivals: ArrivalOptions,
    broker: BrokerOptions,
    spark: SparkOptions,
    format: str,
) -> int:
    """Say what kquota apply would change, and change nothing. What the file does not name is left out, without --prune.

    With --out the plan is written, to be reviewed; kquota apply carries out exactly that, or nothing if the quotas have
    changed since.

    With --dataset each change is simulated on recorded traffic: who would have been throttled, and for how long, the
    worst first.
    """
    config = broker.load()
    objectives = [Objective.parse(text) for text in allowed]
    if dataset is None and objectives:
        raise click.UsageError("--fail-on-impact goes with --dataset URL: there is no impact without traffic.")
    traffic = None
    if dataset is not None:
        from kquota.pipeline.dataset.dataset import Dataset

        traffic = Dataset.open(dataset)
        check_writable(out, "--out")
    desired = read_quotas(file).snapshot()
    current: QuotaSnapshot
    if target.quotas is not None:
        current, here = read_quotas(target.quotas).snapshot(), PlanTarget(None, target.quotas)
    else:
        with target.open() as store:
            current, here = all_quotas(store), target.for_plan(store)
    made = Plan.between(here, current, desired, prune=prune)
    found = None
    if dataset is not None and traffic is not None and made.changes:
        from kquota.pipeline.advice.plan_impact import plan_impact

        found = plan_impact(traffic, made, current, spark.job(dataset, config), arrivals.load())
        made = made.with_impacts(found.impacts)
    if out is not None:
        _write(out, write_plan(made))
    if format == "json":
        sys.stdout.write(write_plan(made))
    else:
        sys.stdout.write("".join([line + "\n" for line in _text_lines(made, current)]))
    click.echo(_summary(made), err=format == "json")
    if found is not None:
        click.echo(summary(found), err=format == "json")
    if not objectives:
        return CHANGES_PENDING if made.changes else 0
    exceeded = exceeded_lines(made, objectives)
    for line in exceeded:
        click.echo(f"kquota: too much: {line}", err=True)
    return CHANGES_PENDING if exceeded else 0


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {path}: cannot write the plan: {error.strerror}") from None


def _text_lines(made: Plan, current: QuotaSnapshot) -> Iterator[str]:
    for changes in made.by_entity():
        entity = changes[0].entity
        is_new = entity not in current
        is_gone = entity not in made.unchanged and all(change.after is None for change in changes)
        yield entity.to_text() + (" (new)" if is_new else " (removed)" if is_gone else "")
        for change, row in zip(changes, align([_row(change) for change in changes], indent="  "), strict=True):
            yield row
            if change.impact is not None:
                yield from (f"      {line}" for line in impact_lines(change.impact))
        yield from (
            printable(f"  ! {warning.rule}: {warning.key} {warning.message}")
            for change in changes
            for warning in change.warnings
        )


def _row(change: PlannedChange) -> Sequence[str]:
    key = KAFKA.key(change.key)
    unit = f" {key.unit}" if key else ""
    before, after = change.before, change.after
    if before is None and after is not None:
        return f"+ {change.key}", format_number(after) + unit
    if before is not None and after is None:
        return f"- {change.key}", format_number(before) + unit
    assert before is not None
    assert after is not None
    return f"~ {change.key}", f"{format_number(before)} -> {format_number(after)}{unit}", _ratio(before, after)


def _ratio(before: float, after: float) -> str:
    """By how much it changes, such as ``+50 %``; nothing where there is no such number."""
    percent = (after / before - 1) * 100 if before else math.nan
    if not math.isfinite(percent):
        return ""
    rounded = round(percent, 0 if abs(percent) >= 10 else 1)
    sign = "+" if percent > 0 else "-"
    if not rounded:
        return f"{sign}<0.1 %"
    return f"{sign}{format_number(abs(rounded))} %"


def _summary(made: Plan) -> str:
    if not made.changes:
        return "no changes"
    added = sum(change.before is None for change in made.changes)
    removed = sum(change.after is None for change in made.changes)
    return (
        f"{added} to add, {len(made.changes) - added - removed} to change, {removed} to remove, "
        f"on {count_entities(len(made.entities))}"
    )
