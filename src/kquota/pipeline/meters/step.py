"""The step `utilisation`: how close meters came to their limits, and who was throttled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.pipeline.dataset.tables import THROTTLED, UTILISATION
from kquota.pipeline.meters.episodes import to_throttled
from kquota.pipeline.meters.rates import to_utilisation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.dataset.run import Run

__all__ = ["utilisation"]


def utilisation(run: Run, clients: DataFrame) -> None:
    """Write `utilisation` and `throttled`.

    :param clients: with their limits.
    """
    usage = run.source("usage")

    def find_throttled() -> int:
        throttled = to_throttled(usage, clients, run.broker).persist()
        try:
            run.write(THROTTLED.name, throttled)
            named = throttled.where(F.col("meter").isNotNull()).agg(F.count_distinct("key", "meter")).first()
        finally:
            throttled.unpersist()
        return 0 if named is None else int(named[0])

    # Neither needs the other, and the planning of one leaves a core to the other.
    with run.stage("measure and find throttles"), ThreadPoolExecutor(1, "throttled") as pool:
        throttled_meters = pool.submit(find_throttled)
        run.write(UTILISATION.name, to_utilisation(usage, clients, run.broker))
    run.summary.throttled_meters = throttled_meters.result()
