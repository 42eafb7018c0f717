"""The jobs behind ``kquota pipeline sweep`` and ``recommend``: many limits on recorded usage, and which to set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.figures import duration
from kquota.files import QuotaFile, QuotaFileEntry, write_yaml
from kquota.pipeline.advice.curve import Grid
from kquota.pipeline.advice.recommended_limits import RecommendationGoal, recommended, swept
from kquota.pipeline.advice.what_if_job import recorded_clients
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import JobOptions, spark_run
from kquota.pipeline.dataset.steps import RECOMMEND_STEP, SWEEP_STEP
from kquota.pipeline.dataset.summary import CurveRun, RecommendRun
from kquota.pipeline.dataset.tables import CURVE, RECOMMENDATIONS, USAGE
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.policy import UNOWNED, Objective, OwnerMap
from kquota.quotas import (
    STATIC,
    ClientQuotaEntity,
    format_number,
)

if TYPE_CHECKING:
    from pyspark.sql import Row


__all__ = ["RecommendationResult", "recommend", "sweep"]


@dataclass(frozen=True, slots=True)
class RecommendationResult:
    """What came of a recommendation."""

    text: str
    """A quota file, with comments."""
    rows: tuple[Row, ...]
    """Of the table `recommendations`."""
    unmet: tuple[Row, ...]
    """Those of them that miss an objective."""


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
        with run.stage("simulate all limits"):
            curve = swept(
                run.source(USAGE.name),
                recorded_clients(run),
                quotas.snapshot(),
                grid=grid,
                arrivals=arrivals,
                broker_config=run.broker,
                unlimited_by=unlimited_by,
            )
            run.write(CURVE.name, curve)
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
        with run.stage("search for limits"):
            table = recommended(
                run.source(USAGE.name),
                recorded_clients(run),
                quotas.snapshot(),
                goal,
                owners,
                grid=grid,
                arrivals=arrivals,
                broker_config=run.broker,
                unlimited_by=unlimited_by,
            )
            run.write(RECOMMENDATIONS.name, table)
            table = run.frame(RECOMMENDATIONS.name)
            rows = tuple(table.orderBy(F.col("owner") == UNOWNED, "owner", "entity", "key").collect())
        unmet = tuple(row for row in rows if _is_unmet(row, goal.objectives))
        run.summary.recommendations = RecommendRun(goal.reason(), len(rows), len(unmet))
        run.commit()
    file, comments = _as_file(rows, quotas)
    return RecommendationResult(write_yaml(file, comments, by_owner=bool(owners)), rows, unmet)


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
