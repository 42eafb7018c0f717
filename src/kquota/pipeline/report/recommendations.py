"""Table `recommendations` as the page shows it: the rules to change most, each with the curve of its worst meter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.pipeline.report import model
from kquota.pipeline.report.curves import RULE, curve_from, curves_by_meter, worst_of
from kquota.policy import UNOWNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["recommendations_of"]


def recommendations_of(
    table: DataFrame, curve: DataFrame | None, clients: DataFrame, bounds: model.Bounds
) -> model.Recommendations:
    """Rules without an answer first, then those to add, then by how many times the value changes."""
    now, new = F.col("value_now"), F.col("value_new")
    counts = table.agg(
        F.count(F.lit(1)).alias("total"),
        F.count_if(new > now).alias("raised"),
        F.count_if(new < now).alias("lowered"),
        F.count_if(now.isNull() & new.isNotNull()).alias("added"),
    ).first()
    assert counts is not None  # an aggregate without groups always has its row
    times = F.abs(F.log(F.when((now > 0) & (new > 0), new / now)))
    listed = table.orderBy(new.isNotNull(), now.isNotNull(), times.desc_nulls_first(), *RULE).limit(
        bounds.recommendations
    )
    rows = listed.collect()
    curves = {}
    if curve is not None and rows:
        meters = curves_by_meter(curve, clients, table, bounds).join(listed.select(*RULE), list(RULE), "left_semi")
        curves = {(row.cluster, row.entity, row.key): curve_from(row) for row in worst_of(meters).collect()}
    return model.Recommendations(
        **counts.asDict(),
        rows=tuple(
            model.Recommendation(
                cluster=row.cluster or "",
                entity=row.entity,
                key=row.key,
                now=row.value_now,
                new=row.value_new,
                reason=row.reason or "",
                share=row.predicted_throttled_share,
                max_delay_ms=row.predicted_max_delay_ms,
                curve=curves.get((row.cluster, row.entity, row.key)),
                owner=None if row.owner == UNOWNED else row.owner,
            )
            for row in rows
        ),
    )
