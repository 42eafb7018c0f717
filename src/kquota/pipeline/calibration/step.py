"""The part of the step `utilisation` that checks Kafka's arithmetic against the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.pipeline.calibration.replayed_throttles import to_calibration, to_replayed_throttles
from kquota.pipeline.dataset.summary import CalibrationTotals
from kquota.pipeline.dataset.tables import CALIBRATION, REQUESTS
from kquota.quotas import REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.dataset.run import Run

__all__ = ["calibrate"]


def calibrate(run: Run, clients: DataFrame) -> None:
    """Replay `requests` into `calibration`, which has no rows without them.

    :param clients: with their limits.
    """
    with run.stage("replay the log"):
        if not run.has(REQUESTS.name):
            run.add(CALIBRATION.name)
            return
        run.write(
            CALIBRATION.name,
            to_calibration(to_replayed_throttles(run.frame(REQUESTS.name), clients, run.broker)),
        )
        agreed = F.col("key") != REQUEST_PERCENTAGE
        both = F.col("throttled_requests") + F.col("false_positives")
        sums = {
            "compared": both,
            "within_5ms_or_5pct": F.round(F.col("within_5ms_or_5pct") * both).cast("long"),
            "not_compared": F.col("not_compared"),
            "throttle_ms_logged": F.col("throttle_ms_logged"),
            "throttle_ms_predicted": F.col("throttle_ms_predicted"),
        }
        totals = (
            run.frame(CALIBRATION.name)
            .agg(*(F.coalesce(F.sum(F.when(agreed, one)), F.lit(0)).alias(name) for name, one in sums.items()))
            .first()
        )
    assert totals is not None
    run.summary.calibration = CalibrationTotals(**totals.asDict())
