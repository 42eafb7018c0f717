"""Not a timing but a check: what a real broker told its clients, beside Kafka's arithmetic on its request log.

Takes directories that ``python -m examples.capture.capture --out DIR`` made, and says per key how many waits are
reproduced within 5 ms or 5 % (mutations: 15 ms), per meter how far the sums are apart, and what each miss comes from.
Ends with 1 where less is reproduced than `benchmarks/README.md` promises.

Usage: ``python -m benchmarks.check_calibration CAPTURE...``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from kquota.config import BrokerConfig
from kquota.files import QuotaTimeline, read_quota_file
from kquota.pipeline.calibration.broker_replay import is_close
from kquota.pipeline.calibration.replayed_throttles import EMPTY_ANSWER_BYTES, to_replayed_throttles
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.tables import CALIBRATION, CLIENTS, REQUESTS
from kquota.pipeline.jobs import JobOptions, LogSettings, RejectLimit, analyze
from kquota.pipeline.spark.session import start_session
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED: Final = {PRODUCER_BYTE_RATE: 0.97, CONSUMER_BYTE_RATE: 0.90, CONTROLLER_MUTATION_RATE: 1.0}
GOALS: Final = {PRODUCER_BYTE_RATE: 0.99, CONSUMER_BYTE_RATE: 0.97, CONTROLLER_MUTATION_RATE: 1.0}
MUTATION_MS: Final = 15
SUMS_WITHIN: Final = 0.03
SPAN_MS: Final = 11_000
PAUSE_MS: Final = 1.5
"""A handler that took longer stood still for a while: it is not known when in that time it counted."""


@dataclass
class Found:
    """Of one key, over all captures."""

    waits: int = 0
    close: int = 0
    close_as_logged: int = 0
    causes: Counter[str] = field(default_factory=Counter)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_calibration", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE")
    options = parser.parse_args()
    found: dict[str, Found] = defaultdict(Found)
    far = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, capture in enumerate(options.captures):
            print(f"\n{capture}")
            far += check(capture, Path(folder) / str(number), found)
    print("\nall captures:")
    for key, one in sorted(found.items()):
        share = one.close / one.waits
        print(
            f"  {key:26} {one.waits:6} waits, reproduced {share:.2%} (wanted {WANTED[key]:.0%}, goal {GOALS[key]:.0%}; "
            f"times as logged: {one.close_as_logged / one.waits:.2%})"
        )
        for cause, count in one.causes.most_common():
            print(f"    {count:5} {cause}")
    print(f"  meters whose sums are more than {SUMS_WITHIN:.0%} apart: {far}")
    return 1 if far or any(one.close / one.waits < WANTED[key] for key, one in found.items()) else 0


def check(capture: Path, out: Path, found: dict[str, Found]) -> int:
    """Add to `found` what one capture shows; returns how many meters' sums are far apart."""
    quotas = read_quota_file((capture / "quotas.yaml").read_bytes(), name=str(capture))
    analyze(
        [f"1={capture / 'kafka-request.log.gz'}"],
        QuotaTimeline.always(quotas),
        LogSettings(keep_requests=True),
        JobOptions(out, quiet=True),
        max_rejected=RejectLimit(0, per_cent=False),
        report=False,
    )
    spark = start_session()
    waits, requests, clients = load(spark, out)
    reads = read_times(capture / "jmx.csv")
    for (meter, key), group in waits[waits.key != REQUEST_PERCENTAGE].groupby(["meter", "key"]):
        on_meter = requests.merge(
            clients[(clients.meter == meter) & (clients.key == key)], on=["user", "client_id", "key"]
        )
        compared = group[group.is_compared & ((group.logged_ms > 0) | (group.predicted_ms > 0))]
        for wait in compared.itertuples():
            one = found[key]
            one.waits += 1
            one.close_as_logged += fits(key, wait.unguided_ms, wait.logged_ms)
            if fits(key, wait.predicted_ms, wait.logged_ms):
                one.close += 1
            else:
                one.causes[cause(key, wait.at_ms, on_meter, reads)] += 1
    far = 0
    for row in Dataset.open(out).frame(spark, CALIBRATION.name).orderBy("key", "meter").collect():
        if row.key == REQUEST_PERCENTAGE:
            print(
                f"  {row.meter:34} {row.key:26} estimate: {row.predicted_low_ms / 1000:.0f} to "
                f"{row.predicted_high_ms / 1000:.0f} s, logged {row.throttle_ms_logged / 1000:.0f} s"
            )
            continue
        apart = row.throttle_ms_predicted / row.throttle_ms_logged - 1 if row.throttle_ms_logged else 0.0
        far += abs(apart) > SUMS_WITHIN
        print(
            f"  {row.meter:34} {row.key:26} {row.throttled_requests:5} logged, {row.false_negatives:3} false negative, "
            f"{row.false_positives:3} false positive, close {row.within_5ms_or_5pct or 0:.4f}, sums apart {apart:+.2%}"
        )
    spark.stop()
    return far


def load(spark: SparkSession, out: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Waits, requests and limited clients of an analysis."""
    requests, clients = Dataset.open(out).frame(spark, REQUESTS.name), Dataset.open(out).frame(spark, CLIENTS.name)
    waits = to_replayed_throttles(requests, clients, BrokerConfig()).toPandas()
    limited = clients.where("meter is not null").select("user", "client_id", "key", "meter").toPandas()
    return waits, requests.orderBy("end_ms").toPandas(), limited


def read_times(metrics: Path) -> list[int]:
    """When somebody read the broker's metrics."""
    if not metrics.exists():
        return []
    return sorted(set(pd.read_csv(metrics, usecols=["epoch_ms"]).epoch_ms))


def fits(key: str, predicted_ms: int, logged_ms: int) -> bool:
    if key == CONTROLLER_MUTATION_RATE:
        return abs(predicted_ms - logged_ms) <= MUTATION_MS
    return is_close(predicted_ms, logged_ms)


def cause(key: str, at_ms: float, requests: pd.DataFrame, reads: list[int]) -> str:
    """What a miss comes from, by what happened on its meter while what counts now was counted."""
    if key == CONTROLLER_MUTATION_RATE:
        return "the way to the controller took long"
    before = requests[(requests.end_ms <= at_ms + 5) & (requests.end_ms > at_ms - 2 * SPAN_MS)]
    ends = [at_ms - 3 * SPAN_MS, *requests[requests.end_ms <= at_ms + 5].end_ms[-2_000:]]
    idle = any(later - earlier > SPAN_MS for earlier, later in pairwise(ends) if later > at_ms - 2 * SPAN_MS)
    if reads and idle and any(at_ms - 3 * SPAN_MS < one <= at_ms for one in reads):
        return "the meter was idle and its metric was read, which begins a window anew"
    if key == CONSUMER_BYTE_RATE:
        sizes = before[(before.throttle_ms == 0) & (before.amount > EMPTY_ANSWER_BYTES)].amount
        if len(sizes) and sizes.max() > 1.05 * sizes.min():
            return "fetches of different sizes: what a throttled one would have brought is not known"
    if ((before.local_ms > PAUSE_MS) | (before.remote_ms > PAUSE_MS)).any():
        return "a handler stood still in the last two rounds of windows: when it counted is not known"
    return "times in whole milliseconds: a sample began or was forgotten one earlier or later"


if __name__ == "__main__":
    sys.exit(main())
