"""What a plan would have done to recorded traffic: asked for, and told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota.cli.options.arrivals import ArrivalChoice
from kquota.cli.pipeline.jobs import duration, load_pipeline
from kquota.config import BrokerConfig
from kquota.policy import NO_IMPACT, Impact, Objective, Plan, PlannedChange
from kquota.printable import printable
from kquota.quotas import ClientQuotaEntity, QuotaSnapshot, apply_changes

if TYPE_CHECKING:
    from kquota.pipeline.advice.what_if_job import PlanImpacts

__all__ = ["ImpactSource", "PlanImpact", "broken_lines", "impact_lines"]

Change = tuple[ClientQuotaEntity, str]


@dataclass(frozen=True, slots=True)
class ImpactSource:
    """The recorded traffic that a plan is tried on, and how."""

    directory: str
    arrivals: ArrivalChoice
    broker_config: BrokerConfig
    spark: Mapping[str, Any]

    def check(self) -> None:
        """Refuse a directory that is none, also where there will be nothing to replay.

        :raises InputError: it is not one that kquota wrote.
        """
        load_pipeline("dataset.output_directory").OutputDirectory.existing(Path(self.directory))

    def replay(self, plan: Plan, current: QuotaSnapshot) -> PlanImpact:
        """Try a plan that leads away from `current`.

        :raises KquotaError: it could not be replayed.
        """
        wanted = apply_changes(current, plan.changes)
        changes = [(change.entity.to_text(), change.key) for change in plan.changes]
        options = load_pipeline("jobs").JobOptions(
            out=Path(self.directory), broker_config=self.broker_config, **self.spark
        )
        found: PlanImpacts = load_pipeline("advice.what_if_job").change_impacts(
            Path(self.directory),
            current,
            wanted,
            changes,
            options,
            self.arrivals.load(),
        )
        by_change = {
            (change.entity, change.key): found.impacts[change.entity.to_text(), change.key] for change in plan.changes
        }
        return PlanImpact(by_change, found.grain, found.model, found.seconds)


@dataclass(frozen=True, slots=True)
class PlanImpact:
    """What came of it."""

    impacts: Mapping[Change, Impact]
    grain: str
    model: str
    seconds: float

    def of(self, change: PlannedChange) -> Impact:
        """What one change would have done."""
        return self.impacts.get((change.entity, change.key), NO_IMPACT)

    def put_into(self, plan: Plan) -> Plan:
        """The plan with it."""
        return plan.with_impacts({change: impact.to_json() for change, impact in self.impacts.items()})

    def worst_first(self, plan: Plan) -> list[list[PlannedChange]]:
        """The changes of each entity, and the entities in the order of the harm that they do."""
        of_entity: dict[ClientQuotaEntity, list[PlannedChange]] = {}
        for change in plan.changes:
            of_entity.setdefault(change.entity, []).append(change)
        return sorted(of_entity.values(), key=lambda changes: min(_order(self.of(change)) for change in changes))

    def summary(self) -> str:
        """What it was tried on."""
        impacts = self.impacts.values()
        newly_throttled = sum(one.newly_throttled for one in impacts)
        no_longer_throttled = sum(one.no_longer_throttled for one in impacts)
        taken_over = sum(one.taken_over for one in impacts)
        return (
            f"on {duration(self.seconds * 1000)} of recorded traffic, per {self.grain}, {self.model} model: "
            f"{_meters(newly_throttled)} newly throttled, {no_longer_throttled:,} no longer throttled, "
            f"{taken_over:,} take over clients of other meters"
        )


def _order(impact: Impact) -> tuple[float, ...]:
    return (
        -(impact.newly_throttled > 0),
        -impact.throttled_share,
        -impact.total_delay_ms,
        -impact.no_longer_throttled,
        -impact.taken_over,
    )


def impact_lines(impact: Impact) -> Iterator[str]:
    """What one change would have done, in words."""
    if impact == NO_IMPACT:
        yield "nobody in the recording is bound by it"
        return
    if impact.throttled_requests:
        change = impact.amount_new / impact.amount_old - 1 if impact.amount_old else 0.0
        yield (
            f"{impact.throttled_requests:,} requests told to wait, the worst of {_meters(impact.meters)} muted "
            f"{impact.throttled_share:.1%} of the time, longest wait {duration(impact.max_delay_ms)}, throughput "
            f"{change:+.1%}"
        )
    else:
        yield f"nobody on {_meters(impact.meters)} is throttled"
    for what, count, names in (
        ("newly throttled", impact.newly_throttled, impact.newly_throttled_meters),
        ("no longer throttled", impact.no_longer_throttled, impact.no_longer_throttled_meters),
        ("take over clients of other meters", impact.taken_over, impact.taken_over_meters),
    ):
        if count:
            more = f" and {count - len(names):,} more" if count > len(names) else ""
            yield f"{what}: {'; '.join(names)}{more}"
    if impact.unknowns:
        yield f"not known: {', '.join(impact.unknowns)}"


def broken_lines(plan: Plan, replayed: PlanImpact, objectives: Sequence[Objective]) -> list[str]:
    """Which changes do more than is allowed."""
    return [
        f"{change.entity.to_text()} {printable(change.key)}: {objective.name} is {getattr(impact, objective.name):g}, "
        f"more than {objective.most:g}"
        for change in plan.changes
        for impact in (replayed.of(change),)
        for objective in objectives
        if not objective.is_met(getattr(impact, objective.name))
    ]


def _meters(count: int) -> str:
    return f"{count:,} {'meter' if count == 1 else 'meters'}"
