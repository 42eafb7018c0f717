"""The jobs behind ``kquota pipeline sweep`` and ``recommend``: many limits on recorded usage, and which to set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.figures import duration
from kquota.files import QuotaFile, QuotaFileEntry, write_yaml
from kquota.pipeline.advice.curve import Grid, to_curve, to_meters
from kquota.pipeline.advice.recommendations import (
    at_percentile,
    cut_to_capacity,
    lowest_limits,
    rule_values,
    to_recommendations,
    unchanged_limits,
    with_rules,
    with_values,
)
from kquota.pipeline.advice.what_if_job import recorded_clients
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import JobOptions, spark_run
from kquota.pipeline.dataset.steps import RECOMMEND_STEP, SWEEP_STEP
from kquota.pipeline.dataset.summary import CurveRun, RecommendRun
from kquota.pipeline.dataset.tables import CURVE, RECOMMENDATIONS, USAGE
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.spark.persisted_frames import persist
from kquota.pipeline.utilisation.rates import to_utilisation
from kquota.policy import UNOWNED, Objective, OwnerMap
from kquota.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    STATIC,
    ClientQuotaEntity,
    format_number,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from kquota.pipeline.dataset.run import Run

__all__ = ["RECOMMENDED_KEYS", "RecommendationGoal", "RecommendationResult", "recommend", "sweep"]

RECOMMENDED_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE)
"""Keys with amounts that a request log has in full; of request time it has only a part."""


@dataclass(frozen=True, slots=True)
class RecommendationGoal:
    """What limits have to meet: objectives, or a percentile of the rate times a headroom."""

    objectives: tuple[Objective, ...] = ()
    percentile: int | None = None
    headroom: float = 1.0
    capacity: Mapping[str, float] | None = None
    """What all meters of a broker may use together, per second, by key."""
    keys: tuple[str, ...] = RECOMMENDED_KEYS
    """Which keys to find limits for."""
    owners: tuple[str, ...] = ()
    """Find limits only for the rules of these owners, or for all rules where there are none; other rules stay."""

    def reason(self) -> str:
        """How values are found."""
        if self.percentile is not None:
            return f"p{self.percentile} of the rate x {self.headroom:g}"
        return f"the lowest with {' and '.join(map(str, self.objectives))}"


@dataclass(frozen=True, slots=True)
class RecommendationResult:
    """What came of a recommendation."""

    text: str
    """A quota file, with comments."""
    rows: tuple[Row, ...]
    """Of the table `recommendations`."""
    unmet: tuple[Row, ...]
    """Those of them that miss an objective."""


def _measured(run: Run, quotas: QuotaFile, arrivals: Arrivals, unlimited_by: str | None) -> tuple[DataFrame, Recording]:
    """The meter of each client in the usage, persisted, and the recording."""
    with run.stage("find the meters"):
        defaults = run.broker.static_defaults
        clients = recorded_clients(run)
        meters = to_meters(clients, quotas.snapshot(), static_defaults=defaults, unlimited_by=unlimited_by)
        return persist(meters), Recording(arrivals, run.broker, persist(recording_spans(run.source(USAGE.name))))


def sweep(
    usage: str | Path,
    quotas: QuotaFile,
    options: JobOptions,
    *,
    grid: Grid,
    arrivals: Arrivals,
    unlimited_by: str | None = None,
) -> CurveRun:
    """Simulate all meters with the limits of a grid, into the table `curve` of the dataset."""
    with spark_run(options, SWEEP_STEP, Dataset.open(usage)) as run:
        meters, recording = _measured(run, quotas, arrivals, unlimited_by)
        with run.stage("simulate all limits"):
            simulated = simulate_cell_frames(run.source(USAGE.name), meters, recording, grid)
            run.write(CURVE.name, to_curve(simulated))
        totals = (
            run.frame(CURVE.name)
            .agg(
                F.count_distinct("cluster", "broker_id", "meter", "key").alias("meters"),
                F.count(F.lit(1)).alias("candidates"),
            )
            .first()
        )
        assert totals is not None
        run.summary.curve = found = CurveRun(arrivals.model.value, totals.meters, totals.candidates)
        run.commit()
    return found


def recommend(
    usage: str | Path,
    quotas: QuotaFile,
    options: JobOptions,
    *,
    goal: RecommendationGoal,
    owners: OwnerMap,
    grid: Grid,
    arrivals: Arrivals,
    unlimited_by: str | None = None,
) -> RecommendationResult:
    """Find the limits to set, into the table `recommendations` of the dataset, and as a quota file."""
    with spark_run(options, RECOMMEND_STEP, Dataset.open(usage)) as run:
        meters, recording = _measured(run, quotas, arrivals, unlimited_by)
        meters = persist(with_rules(meters.where(F.col("key").isin(*goal.keys)), owners))
        kept = None
        if goal.owners:
            is_chosen = F.col("owner").isin(*goal.owners)
            kept = unchanged_limits(run.frame(USAGE.name), meters.where(~is_chosen))
            meters = meters.where(is_chosen)
        with run.stage("search for limits"):
            needed = persist(_needed(run, meters, recording, goal, grid))
            values = rule_values(needed, meters)
            values = persist(cut_to_capacity(values, needed, meters, goal.capacity or {}, kept))
        with run.stage("simulate the recommended limits"):
            simulated = persist(
                simulate_cell_frames(run.source(USAGE.name), persist(with_values(meters, values)), recording)
            )
            run.write(RECOMMENDATIONS.name, to_recommendations(values, simulated, meters, goal.reason()))
            table = run.frame(RECOMMENDATIONS.name)
            rows = tuple(table.orderBy(F.col("owner") == UNOWNED, "owner", "entity", "key").collect())
        unmet = tuple(row for row in rows if _is_unmet(row, goal.objectives))
        run.summary.recommendations = RecommendRun(goal.reason(), len(rows), len(unmet))
        run.commit()
    file, comments = _as_file(rows, quotas)
    return RecommendationResult(write_yaml(file, comments, by_owner=bool(owners)), rows, unmet)


def _needed(run: Run, meters: DataFrame, recording: Recording, goal: RecommendationGoal, grid: Grid) -> DataFrame:
    usage = run.source(USAGE.name)
    if goal.percentile is None:
        return lowest_limits(simulate_cell_frames(usage, meters, recording, grid), goal.objectives)
    # Rates are those of the meter, whatever its limit.
    any_limit = meters.withColumn("limit", F.coalesce("limit", F.lit(float("inf"))))
    return at_percentile(to_utilisation(usage, any_limit, run.broker), goal.percentile, goal.headroom)


def _is_unmet(row: Row, objectives: Sequence[Objective]) -> bool:
    return row.value_new is None or not all(one.is_met(row[f"predicted_{one.name}"]) for one in objectives)


def _as_file(rows: Sequence[Row], quotas: QuotaFile) -> tuple[QuotaFile, dict[ClientQuotaEntity, list[str]]]:
    """A quota file of the recommended limits, and comments for its entries: the reason and what is predicted."""
    before = {entry.entity: entry for entry in quotas.entries}
    values: dict[ClientQuotaEntity, dict[str, float]] = {}
    owners: dict[ClientQuotaEntity, str | None] = {}
    comments: dict[ClientQuotaEntity, list[str]] = {}
    for row in rows:
        if row.value_new is None or row.entity == STATIC.to_text():
            continue
        entity = ClientQuotaEntity.from_text(row.entity)
        values.setdefault(entity, {})[row.key] = row.value_new
        owners[entity] = None if row.owner == UNOWNED else row.owner
        was = "new" if row.value_now is None else f"was {format_number(row.value_now)}"
        longest = duration(row.predicted_max_delay_ms or 0.0)
        comments.setdefault(entity, []).append(
            f"{row.key}: {was}; {row.reason}; "
            f"predicted: throttled {row.predicted_throttled_share or 0.0:.2%} of the time, longest delay {longest}"
        )
    entries = (
        QuotaFileEntry(entity, found, owners[entity], before[entity].labels if entity in before else {})
        for entity, found in values.items()
    )
    return QuotaFile(tuple(entries)), comments
