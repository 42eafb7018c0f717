"""What a plan would have done to recorded traffic, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kquota.figures import duration
from kquota.policy import NO_IMPACT, Impact, Objective, Plan, PlanImpact
from kquota.printable import printable

__all__ = ["exceeded_lines", "impact_lines", "summary"]


def summary(found: PlanImpact) -> str:
    """What was simulated, and what it came to."""
    newly_throttled, no_longer_throttled, taken_over = (
        sum(getattr(one, name) for one in found.impacts.values())
        for name in ("newly_throttled", "no_longer_throttled", "taken_over")
    )
    return (
        f"on {duration(found.seconds * 1000)} of recorded traffic, per {found.grain}, {found.model} model: "
        f"{_meters(newly_throttled)} newly throttled, {no_longer_throttled:,} no longer throttled, "
        f"{taken_over:,} take over clients of other meters"
    )


def impact_lines(impact: Impact) -> Iterator[str]:
    """What one change would have done, in words."""
    if impact == NO_IMPACT:
        yield "nobody in the recording is bound by it"
        return
    if impact.throttled_requests:
        change = impact.amount_new / impact.amount_old - 1 if impact.amount_old else 0.0
        yield (
            f"{impact.throttled_requests:,} requests throttled, the worst of {_meters(impact.meters)} muted "
            f"{impact.throttled_share:.1%} of the time, longest delay {duration(impact.max_delay_ms)}, throughput "
            f"{change:+.1%}"
        )
    else:
        yield f"no throttling ({_meters(impact.meters)})"
    for what, count, names in (
        ("newly throttled", impact.newly_throttled, impact.newly_throttled_meters),
        ("no longer throttled", impact.no_longer_throttled, impact.no_longer_throttled_meters),
        ("take over clients of other meters", impact.taken_over, impact.taken_over_meters),
    ):
        if count:
            more = f" and {count - len(names):,} more" if count > len(names) else ""
            yield f"{what}: {'; '.join(names)}{more}"
    if impact.unknowns:
        yield f"unknown: {', '.join(impact.unknowns)}"


def exceeded_lines(plan: Plan, objectives: Sequence[Objective]) -> list[str]:
    """Which changes do more than is allowed."""
    return [
        f"{change.entity.to_text()} {printable(change.key)}: {objective.name} is {getattr(impact, objective.name):g}, "
        f"more than {objective.most:g}"
        for change in plan.changes
        for impact in (change.impact or NO_IMPACT,)
        for objective in objectives
        if not objective.is_met(getattr(impact, objective.name))
    ]


def _meters(count: int) -> str:
    return f"{count:,} {'meter' if count == 1 else 'meters'}"
