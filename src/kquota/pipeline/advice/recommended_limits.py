"""Limits on recorded usage: what many of them would do, and which to set. Nothing runs when a frame is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.config import BrokerConfig
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
from kquota.pipeline.meters.rates import to_utilisation
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.spark.persisted_frames import persist
from kquota.policy import Objective, OwnerMap
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, QuotaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["RECOMMENDED_KEYS", "RecommendationGoal", "recommended", "swept"]

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
        """What a value has to meet, for the column `reason`: ``the lowest with throttled_share<=0.01``."""
        if self.percentile is not None:
            return f"p{self.percentile} of the rate x {self.headroom:g}"
        return f"the lowest with {' and '.join(map(str, self.objectives))}"


def swept(
    usage: ArrowSource,
    clients: DataFrame,
    quotas: QuotaSnapshot,
    *,
    grid: Grid,
    arrivals: Arrivals,
    broker_config: BrokerConfig,
    unlimited_by: str | None,
) -> DataFrame:
    """The `curve` table: each meter under the limits of a grid.

    :param usage: rows of the `usage` table.
    :param clients: who is in the usage, as for :func:`~kquota.pipeline.advice.curve.to_meters`.
    """
    defaults = broker_config.static_defaults
    meters = persist(to_meters(clients, quotas, static_defaults=defaults, unlimited_by=unlimited_by))
    recording = Recording(arrivals, broker_config, persist(recording_spans(usage)))
    return to_curve(simulate_cell_frames(usage, meters, recording, grid))


def recommended(
    usage: ArrowSource,
    clients: DataFrame,
    quotas: QuotaSnapshot,
    goal: RecommendationGoal,
    owners: OwnerMap,
    *,
    grid: Grid,
    arrivals: Arrivals,
    broker_config: BrokerConfig,
    unlimited_by: str | None,
) -> DataFrame:
    """The `recommendations` table: for each rule the limit that meets the goal.

    :param usage: rows of the `usage` table.
    :param clients: who is in the usage, as for :func:`~kquota.pipeline.advice.curve.to_meters`.
    """
    defaults = broker_config.static_defaults
    meters = to_meters(clients, quotas, static_defaults=defaults, unlimited_by=unlimited_by)
    meters = persist(with_rules(meters.where(F.col("key").isin(*goal.keys)), owners))
    recording = Recording(arrivals, broker_config, persist(recording_spans(usage)))
    kept = None
    if goal.owners:
        is_chosen = F.col("owner").isin(*goal.owners)
        kept = unchanged_limits(usage, meters.where(~is_chosen))
        meters = meters.where(is_chosen)
    needed = persist(_needed(usage, meters, recording, goal, grid))
    values = rule_values(needed, meters)
    values = persist(cut_to_capacity(values, needed, meters, goal.capacity or {}, kept))
    simulated = persist(simulate_cell_frames(usage, persist(with_values(meters, values)), recording))
    return to_recommendations(values, simulated, meters, goal.reason())


def _needed(
    usage: ArrowSource, meters: DataFrame, recording: Recording, goal: RecommendationGoal, grid: Grid
) -> DataFrame:
    if goal.percentile is None:
        return lowest_limits(simulate_cell_frames(usage, meters, recording, grid), goal.objectives)
    # Rates are those of the meter, whatever its limit.
    any_limit = meters.withColumn("limit", F.coalesce("limit", F.lit(float("inf"))))
    return at_percentile(to_utilisation(usage, any_limit, recording.broker_config), goal.percentile, goal.headroom)
