"""The baseline of a straightforward PySpark program: what a limit would have done to each meter, cell by cell.

It resolves each row in a Python UDF, groups by meter, and lets pandas hand each group to a function that makes requests
of cells and counts each of them on the metering classes. Nothing is gathered, encoded or compiled.

Usage: ``python -m benchmarks.baseline_pyspark USAGE QUOTAS OUT [PARTS]``

USAGE is a directory with a table `usage`, QUOTAS a quota file. OUT receives the table ``held``; with PARTS only one
user of so many is looked at, with all their rows, because this takes long.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from kquota.files import read_quota_file
from kquota.metering.statistics import Windows
from kquota.pipeline.simulation.limiters import Connection, MeterLimiter
from kquota.pipeline.simulation.requests import simulate_requests
from kquota.pipeline.spark.session import start_session
from kquota.quotas import QuotaResolver

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

__all__ = ["MASTER", "held"]

MASTER: Final = "local[2]"
MOST_PER_S: Final = 16

_BOUND: Final = StructType([StructField("meter", StringType()), StructField("limit", DoubleType())])
_HELD: Final = (
    "broker_id int, meter string, key string, limit double, "
    "amount double, throttled_requests long, throttled_ms double, muted_ms double"
)


def held(spark: SparkSession, usage: Path, quotas: Path, out: Path, parts: int = 1) -> None:
    """Write what the limit of each meter does to its cells.

    :param parts: of the users one of so many; no meter may have clients of several users.
    """
    rules = read_quota_file(quotas.read_bytes(), name=str(quotas)).snapshot()
    resolver = QuotaResolver(rules)

    def limit_of(user: str, client_id: str, key: str) -> tuple[str, float] | None:
        found = resolver.resolve_key(key, user, client_id)
        return None if found.value is None or found.meter is None else (found.meter.to_text(), found.value)

    cells = spark.read.parquet(str(usage / "usage"))
    ends = cells.groupBy("broker_id").agg(F.max(F.col("cell_start_ms") + F.col("cell_ms")).alias("end_ms")).collect()
    end_ms = {row.broker_id: row.end_ms for row in ends}

    def replay(group: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        first = group.iloc[0]
        cells = group.groupby("cell_start_ms").agg(
            {"amount": "sum", "amount_max": "max", "requests": "sum", "cell_ms": "max"}
        )
        at_ms: list[float] = []
        amounts: list[float] = []
        for cell in cells.sort_index().itertuples():
            parts = int(min(cell.requests, MOST_PER_S))
            at_ms += [cell.Index + (part + 0.5) * cell.cell_ms / parts for part in range(parts)]
            amounts += [cell.amount / parts] * parts
        largest = max(cells.amount_max.max(), (cells.amount / cells.requests).max())
        [simulated] = simulate_requests(
            [Connection(at_ms, amounts, largest=float(largest))],
            MeterLimiter(first.key, first.limit, Windows()),
            in_flight=0,
            end_ms=end_ms[first.broker_id],
        )
        place = [first.broker_id, first.meter, first.key, first.limit]
        return pd.DataFrame([[*place, *simulated.outcome[:4]]])

    part = cells.where(F.crc32("user") % parts == 0)
    # Without `useArrow`, Spark 4.1 and newer look for pandas or Arrow types in the annotations, and warn of any others.
    bound_of = F.udf(limit_of, _BOUND, useArrow=False)
    bound = part.withColumn("bound", bound_of("user", "client_id", "key")).where("bound is not null")
    bound = bound.select("*", "bound.meter", "bound.limit").drop("bound")
    bound.groupBy("broker_id", "meter", "key").applyInPandas(replay, _HELD).write.mode("overwrite").parquet(
        str(out / "held")
    )


def main() -> int:
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        return 2
    spark = start_session(master=MASTER)
    try:
        usage, quotas, out = map(Path, sys.argv[1:4])
        held(spark, usage, quotas, out, parts=int(sys.argv[4]) if len(sys.argv) == 5 else 1)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
