"""Throttling against the limit: many candidate limits for each meter in one pass, table `curve`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql import functions as F

from kquota.pipeline.dataset.tables import CURVE
from kquota.pipeline.limits.clients import with_limits
from kquota.pipeline.limits.identities import IDENTITY, identities
from kquota.quotas import CLIENT_ID, KAFKA, USER, ClientQuotaEntity, QuotaSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

__all__ = ["CANDIDATES", "METERS_OF", "Grid", "to_curve", "to_meters"]

CANDIDATES: Final = 32

METERS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "user": (USER,),
    "client-id": (CLIENT_ID,),
    "user,client-id": (USER, CLIENT_ID),
}
"""What clients without a limit would be measured by, by the name of the choice."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The candidates for a meter, besides the limit that it has.

    Without `limits` and `factors` there are `count`, from half of the mean to above the highest sampled rate of the
    meter, each larger than the one before by the same factor.
    """

    count: int = CANDIDATES
    limits: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    """Of the limit that the meter has; one without is left to the grid."""

    def __call__(self, limit: float, mean: float, highest: float) -> Sequence[float]:
        """The limits for a meter with this one, infinite for none, and with these sampled rates."""
        own = [limit] if isfinite(limit) else []
        if self.limits:
            return sorted({*self.limits, *own})
        if self.factors and own:
            return sorted({*(factor * limit for factor in self.factors), limit})
        low, high = mean / 2, max(highest * 1.15, mean)
        if not low > 0:
            return own
        return sorted({*np.geomspace(low, high, self.count).tolist(), *own})


def to_meters(
    clients: DataFrame, quotas: QuotaSnapshot, *, static_defaults: Mapping[str, float], unlimited_by: str | None
) -> DataFrame:
    """Each client's meter, with its limit and rule: one row per client and key.

    Columns: cluster, user, client_id, ip, key, meter, limit, limit_source. Clients without a limit are left out, or get
    the meter that a rule for each of `unlimited_by` (of :data:`METERS_OF`) would give them.

    :param clients: the `clients` table, or any with its first five columns, a row for each client and key.
    """
    columns = (*IDENTITY, "meter", "limit", "limit_source")
    bound = with_limits(identities(clients), quotas, static_defaults=static_defaults)
    limited = bound.where(F.col("meter").isNotNull()).select(*columns)
    if unlimited_by is None:
        return limited
    types = METERS_OF[unlimited_by]
    keys = [key.name for key in KAFKA.keys if frozenset(types) in key.shapes]
    rule = {ClientQuotaEntity(dict.fromkeys(types)): dict.fromkeys(keys, 1.0)}
    free = bound.where(F.col("meter").isNull()).select(*identities(clients).columns)
    would = with_limits(free, rule).where(F.col("meter").isNotNull())
    return limited.unionByName(
        would.select(*IDENTITY, "meter", F.lit(None).cast("double").alias("limit"), F.lit("").alias("limit_source"))
    )


def to_curve(simulated: DataFrame) -> DataFrame:
    """The `curve` table: one row per broker, meter, key and candidate.

    :param simulated: columns of :data:`~kquota.pipeline.simulation.recording.SIMULATED`, for many candidates.
    """
    return CURVE.conform(
        simulated.select(
            "cluster",
            "broker_id",
            "meter",
            "key",
            "limit",
            (F.col("muted_ms") / F.col("recorded_ms")).alias("throttled_share"),
            "throttled_ms",
            "max_delay_ms",
            "amount",
            "unknown_amounts",
        )
    )
