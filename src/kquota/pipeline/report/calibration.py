"""Table `calibration` as the page shows it: the meters whose waits the replay gives worst, and the sums of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from kquota.pipeline.report import model
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["calibration_of"]

_SUMS: Final = {
    "waits": "waits",
    "close": "close",
    "told_ms": "throttle_ms_logged",
    "predicted_ms": "throttle_ms_predicted",
    "not_compared": "not_compared",
}


def calibration_of(table: DataFrame, bounds: model.Bounds) -> model.Calibration:
    """The worst rows of the table, those of request time apart: most waits not reproduced, then the longest told."""
    of_kind = Window.partitionBy("is_estimate")
    worst_first = of_kind.orderBy(
        F.desc("not_close"), F.desc("throttle_ms_logged"), "cluster", "meter", "key", "broker_id"
    )
    ranked = (
        table.withColumn("is_estimate", F.col("key") == REQUEST_PERCENTAGE)
        .withColumn("waits", F.col("throttled_requests") + F.coalesce("false_positives", F.lit(0)))
        .withColumn("close", F.round(F.coalesce("within_5ms_or_5pct", F.lit(0.0)) * F.col("waits")).cast("long"))
        .withColumn("not_close", F.when(~F.col("is_estimate"), F.col("waits") - F.col("close")))
        .select(
            "*",
            F.row_number().over(worst_first).alias("rank"),
            F.count(F.lit(1)).over(of_kind).alias("all_total"),
            *(F.sum(column).over(of_kind).alias(f"all_{name}") for name, column in _SUMS.items()),
        )
    )
    rows = ranked.where(F.col("rank") <= bounds.calibrated).orderBy("rank").collect()
    meters = [row for row in rows if not row.is_estimate]
    estimates = [row for row in rows if row.is_estimate]
    return model.Calibration(
        **{name: meters[0][f"all_{name}"] if meters else 0 for name in ("total", *_SUMS)},
        rows=tuple(_meter(row) for row in meters),
        estimates_total=estimates[0].all_total if estimates else 0,
        estimates=tuple(
            model.EstimatedMeter(
                broker_id=row.broker_id,
                name=_name(row),
                requests=row.throttled_requests,
                told_ms=row.throttle_ms_logged,
                low_ms=row.predicted_low_ms,
                high_ms=row.predicted_high_ms,
            )
            for row in estimates
        ),
    )


def _meter(row: Row) -> model.CalibratedMeter:
    return model.CalibratedMeter(
        broker_id=row.broker_id,
        name=_name(row),
        waits=row.waits,
        within=row.within_5ms_or_5pct,
        within_as_logged=row.within_as_logged,
        false_negatives=row.false_negatives or 0,
        false_positives=row.false_positives or 0,
        error_p50_ms=row.error_p50_ms,
        error_p99_ms=row.error_p99_ms,
        told_ms=row.throttle_ms_logged,
        predicted_ms=row.throttle_ms_predicted,
        not_compared=row.not_compared,
    )


def _name(row: Row) -> model.MeterName:
    return model.MeterName(row.cluster or "", row.meter, row.key)
