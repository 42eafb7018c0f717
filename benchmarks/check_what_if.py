"""Not a timing but a check: what a capture without limits says about limits, beside captures that had them.

Takes directories that ``python -m examples.capture.capture --workload examples/capture/whatif/workload.yaml`` made:
some without limits, and others with, the same limits at least twice. From the first one without limits it predicts
each of the others, per request and per cell, each meter with the arrival model that its clients have, and says how far
from the truth that is, beside how far two captures with the same limits are from each other.
Ends with 1 where a prediction is further off than `benchmarks/README.md` promises.

Usage: ``python -m benchmarks.check_what_if --unlimited CAPTURE... --limited CAPTURE...``
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import yaml
from pyspark.sql import functions as F

from kquota.config import BrokerConfig
from kquota.files import QuotaFile, QuotaTimeline, read_quota_file
from kquota.pipeline.advice.what_if import to_bindings
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.tables import CLIENTS, REQUESTS, USAGE
from kquota.pipeline.jobs import JobOptions, LogSettings, RejectLimit, analyze
from kquota.pipeline.limits.counting import counted_at_ms
from kquota.pipeline.simulation.arrivals import ENVELOPE_BYTES, ArrivalModel, Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.simulation.request_frames import simulate_request_frames
from kquota.pipeline.spark.session import start_session
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AMOUNT_WITHIN: Final = 0.05
SHARED_AMOUNT_WITHIN: Final = 0.07
CELLS_WITHIN: Final = 0.05
CELLS_MEAN: Final = 0.01
SHARE_WITHIN: Final = 0.10
DELAY_WITHIN: Final = 0.20
COMPARED_MS: Final = 165_000.0
"""How much of each capture is compared, from its first produce request on."""
BOUND: Final = (0.2, 0.8)
"""Meters are judged that are muted for this share of the time; of those always muted the limit itself is the answer."""


@dataclass(frozen=True)
class Capture:
    """One capture, and its analysis."""

    folder: Path
    analysis: Path
    quotas: QuotaFile


@dataclass(frozen=True)
class Truth:
    """What happened on one meter of one capture."""

    amount: float
    share: float
    delay_ms: float
    """Of all requests together: by how much later as much was done as each of them had brought without limits."""
    told: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_what_if", description=__doc__.split("\n\n")[0])
    parser.add_argument("--unlimited", nargs="+", type=Path, required=True, metavar="CAPTURE")
    parser.add_argument("--limited", nargs="+", type=Path, required=True, metavar="CAPTURE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the analyses there, and take those that are")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.keep or Path(temporary)
        unlimited = [analysed(one, work) for one in options.unlimited]
        groups: dict[str, list[Capture]] = defaultdict(list)
        for folder in options.limited:
            one = analysed(folder, work)
            groups[(folder / "quotas.yaml").read_text(encoding="utf-8")].append(one)
        spark = start_session()
        spark.sparkContext.setLogLevel("ERROR")
        rows = [row for group in groups.values() for row in compared(spark, unlimited, group)]
        spark.stop()
    table = pd.DataFrame(rows)
    return report(table)


def analysed(folder: Path, work: Path) -> Capture:
    """The analysis of a capture, with its requests."""
    out = work / folder.name
    quotas = read_quota_file((folder / "quotas.yaml").read_bytes(), name=str(folder))
    if not out.exists():
        analyze(
            [f"1={folder / 'kafka-request.log.gz'}"],
            QuotaTimeline.always(quotas),
            LogSettings(keep_requests=True),
            JobOptions(out, quiet=True),
            max_rejected=RejectLimit(0, per_cent=False),
            report=False,
        )
    return Capture(folder, out, quotas)


def compared(spark: SparkSession, unlimited: Sequence[Capture], limited: Sequence[Capture]) -> Iterable[dict[str, Any]]:
    """One row per meter: what was predicted from the first capture without limits, and what happened in each with."""
    base, quotas = unlimited[0], limited[0].quotas
    clients = Dataset.open(base.analysis).frame(spark, CLIENTS.name)
    bindings = to_bindings(clients, {}, quotas.snapshot(), static_defaults={}).persist()
    spans = recording_spans(Dataset.open(base.analysis).frame(spark, USAGE.name))
    curves = [Curves(spark, one) for one in (*unlimited, *limited)]
    first_ms = int(curves[0].first_ms)
    compared_until = F.lit(int(first_ms + COMPARED_MS))
    spans = spans.withColumns({"first": F.lit(first_ms), "last": compared_until})
    kinds = client_kinds()
    predictions: dict[tuple[str, str], dict[tuple[str, str], Any]] = {}
    for model in ArrivalModel:
        replay = Recording(Arrivals(model), BrokerConfig(), spans)
        until = F.col("cell_start_ms") < first_ms + COMPARED_MS
        requests = (
            Dataset.open(base.analysis).frame(spark, REQUESTS.name).where(counted_at_ms() < first_ms + COMPARED_MS)
        )
        by_request = simulate_request_frames(requests, bindings, replay)
        by_cell = simulate_cell_frames(
            Dataset.open(base.analysis).frame(spark, USAGE.name).where(until), bindings, replay
        )
        for grain, frame in (("request", by_request), ("cell", by_cell)):
            predictions[model.value, grain] = {(row.meter, row.key): row for row in frame.collect()}
    members = bindings.select("meter", "key", "user", "client_id", "limit").collect()
    meters: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in members:
        if row.limit is not None and (row.meter, row.key) in predictions["open", "request"]:
            meters[row.meter, row.key].append(row)
    for (meter, key), of_meter in sorted(meters.items()):
        names = [(row.user, row.client_id) for row in of_meter]
        kind = kinds.get((*names[0], key)) or next(
            (kinds[(*name, key)] for name in names if (*name, key) in kinds), None
        )
        if kind is None:
            continue
        arrivals = "closed" if kind.startswith("greedy") or kind == "mutations" else "open"
        request, cell = (predictions[arrivals, grain][meter, key] for grain in ("request", "cell"))
        truths = [curve.truth(names, key, curves[0]) for curve in curves[len(unlimited) :]]
        base_truth = curves[0].truth(names, key, curves[0])
        yield {
            "capture": limited[0].folder.name,
            "meter": meter,
            "key": key,
            "kind": kind,
            "clients": len([name for name in names if (*name, key) in kinds]),
            "limit": of_meter[0].limit,
            # Parts of what was recorded, because requests that were joined have fewer envelopes.
            "recorded": base_truth.amount,
            "recorded_again": [curve.truth(names, key, curve).amount for curve in curves[1 : len(unlimited)]],
            "amount": [truth.amount / base_truth.amount for truth in truths],
            "share": [truth.share for truth in truths],
            "delay_ms": [truth.delay_ms for truth in truths],
            "told": [truth.told for truth in truths],
            "largest": request.largest,
            "by_request": request,
            "by_cell": cell,
        }


def client_kinds() -> dict[tuple[str, str, str], str]:
    """By user, client id and key, from the workload."""
    workload = yaml.safe_load((Path("examples") / "capture" / "whatif" / "workload.yaml").read_text(encoding="utf-8"))
    keys = {
        "produce": "producer_byte_rate",
        "fetch": "consumer_byte_rate",
        "create-topics": CONTROLLER_MUTATION_RATE,
    }
    kinds = {}
    for one in workload["clients"]:
        key = keys[one["kind"]]
        if one["kind"] == "create-topics":
            kind = "mutations"
        elif "work" in one:
            kind = f"greedy {one['kind']}"
        elif one["kind"] == "fetch":
            kind = "fetch"
        else:
            kind = "bursty" if "burst" in one and one["burst"][0] < 20 else "steady"
        kinds[one["user"], one["client_id"], key] = kind
    return kinds


class Curves:
    """The requests of a capture, with times from the first of them, up to the end of what is compared."""

    def __init__(self, spark: SparkSession, capture: Capture) -> None:
        requests: DataFrame = Dataset.open(capture.analysis).frame(spark, REQUESTS.name)
        frame: pd.DataFrame = (
            requests.withColumn("at_ms", counted_at_ms())
            .select(
                "user", "client_id", "key", "at_ms", F.coalesce("amount", F.lit(0.0)).alias("amount"), "throttle_ms"
            )
            .orderBy("at_ms")
            .toPandas()
        )
        # Before that clients connect, which takes as long as it takes.
        self.first_ms = float(frame.at_ms[frame.key == PRODUCER_BYTE_RATE].min())
        frame["at_ms"] -= self.first_ms
        # What is let through is told in what was recorded; joined requests have fewer envelopes, and the same records.
        frame["amount"] = np.maximum(frame.amount - frame.key.map(ENVELOPE_BYTES).fillna(0.0), 0.0)
        self.requests = frame[frame.at_ms <= COMPARED_MS]
        read = _records_read(capture.folder / "kafka-request.log.gz")
        read["at_ms"] -= self.first_ms
        self.read = read[read.at_ms <= COMPARED_MS]

    def of(self, client: tuple[str, str], key: str) -> pd.DataFrame:
        """The requests of a client on a key."""
        requests = self.requests
        user, client_id = client
        return requests[(requests.key == key) & (requests.user == user) & (requests.client_id == client_id)]

    def done(self, client: tuple[str, str], key: str) -> pd.DataFrame:
        """What a client's requests brought: bytes, but records read, because large answers end amid a batch.

        What is cut off there is read again, and would count twice.
        """
        frame = self.of(client, key)
        if key == CONSUMER_BYTE_RATE:
            user, client_id = client
            frame = self.read[(self.read.user == user) & (self.read.client_id == client_id)]
        return frame[frame.amount > 0]

    def truth(self, clients: Sequence[tuple[str, str]], key: str, unlimited: Curves) -> Truth:
        """What happened to these clients' requests, beside a capture without limits."""
        amount = delay_ms = 0.0
        told = []
        for client in clients:
            mine, free = self.of(client, key), unlimited.of(client, key)
            told.append(mine[mine.throttle_ms > 0])
            if not len(mine) or not len(free):
                continue
            amount += float(mine.amount.sum())
            waits_from_ms = float(mine.at_ms[mine.throttle_ms > 0].min())
            delay_ms += _delay_ms(unlimited.done(client, key), self.done(client, key), waits_from_ms)
        muted_ms = until_ms = 0.0
        waits = pd.concat(told).sort_values("at_ms")
        for at_ms, throttle_ms in zip(waits.at_ms, waits.throttle_ms, strict=True):
            end_ms = min(at_ms + throttle_ms, COMPARED_MS)
            muted_ms += max(0.0, end_ms - max(at_ms, until_ms))
            until_ms = max(until_ms, end_ms)
        return Truth(amount, muted_ms / COMPARED_MS, delay_ms, len(waits))


def _delay_ms(free: pd.DataFrame, mine: pd.DataFrame, waits_from_ms: float) -> float:
    """By how much later as much was done as each request had brought without limits, summed.

    Two runs of a schedule do not begin at just the same time. By how much they are apart shows before anybody waits.
    """
    if not len(mine) or not len(free):
        return 0.0
    wanted = free.amount.cumsum().to_numpy() - free.amount.to_numpy() / 2
    place = np.searchsorted(mine.amount.cumsum().to_numpy(), wanted)
    done_ms = np.append(mine.at_ms.to_numpy(), COMPARED_MS)[place]
    later_ms = done_ms - free.at_ms.to_numpy()
    before = later_ms[done_ms < waits_from_ms]
    apart_ms = float(np.median(before)) if len(before) else 0.0
    return float(np.maximum(later_ms - apart_ms, 0.0).sum())


def _records_read(log: Path) -> pd.DataFrame:
    """What fetches brought: user, client_id, at_ms, and as amount the records that the next one asks for no more."""
    rows: list[tuple[str, str, float, int]] = []
    offsets: dict[tuple[str, str, int], int] = {}
    arrived_ms: dict[tuple[str, str, int], float] = {}
    with gzip.open(log, "rt", encoding="utf-8") as lines:
        for line in lines:
            if '"requestApiKeyName":"FETCH"' not in line:
                continue
            written = datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
            one = json.loads(line[line.index("{") : line.rindex("}") + 1])
            client = one["principal"].removeprefix("User:"), one["requestHeader"]["clientId"]
            for topic in one["request"]["topics"]:
                for partition in topic["partitions"]:
                    place = (one["connection"], topic["topicId"], partition["partition"])
                    before = offsets.get(place, partition["fetchOffset"])
                    offsets[place] = partition["fetchOffset"]
                    if partition["fetchOffset"] > before and place in arrived_ms:
                        rows.append((*client, arrived_ms[place], partition["fetchOffset"] - before))
            for topic in one["response"]["responses"]:
                for partition in topic["partitions"]:
                    if partition["recordsSizeInBytes"] > 0:
                        place = (one["connection"], topic["topicId"], partition["partitionIndex"])
                        arrived_ms[place] = written.timestamp() * 1000
    return pd.DataFrame(rows, columns=["user", "client_id", "at_ms", "amount"]).sort_values("at_ms")


def report(table: pd.DataFrame) -> int:
    """Print what was found; 1 where something is further off than promised."""
    failed = 0
    off: dict[str, list[float]] = defaultdict(list)
    cell_off: list[float] = []
    for capture, rows in table.groupby("capture", sort=False):
        print(f"\n{capture}")
        for row in rows.itertuples():
            request, cell = row.by_request, row.by_cell
            amount, share = float(np.mean(row.amount)), float(np.mean(row.share))
            again = spread(row.amount)
            is_shared = row.clients > 1
            error = request.amount / request.recorded / amount - 1
            by_cell = cell.amount / request.amount - 1
            predicted_share = request.muted_ms / COMPARED_MS
            cell_share = cell.muted_ms / COMPARED_MS
            judged = BOUND[0] <= share <= BOUND[1]
            is_large = row.largest > row.limit
            is_open = row.kind in ("steady", "bursty", "fetch")
            starts, predicted_starts = max(row.told) > 0, request.throttled_requests > 0
            delay = float(np.mean(row.delay_ms))
            delay_error = request.total_delay_ms / delay - 1 if delay else 0.0
            allowed = max(DELAY_WITHIN, 2 * spread(row.delay_ms))
            misses = []
            if judged:
                off[row.kind].append(abs(error))
                cell_off.append(abs(by_cell))
                if abs(error) > (SHARED_AMOUNT_WITHIN if is_shared else AMOUNT_WITHIN):
                    misses.append("throughput")
                if abs(by_cell) > CELLS_WITHIN and not is_large:
                    misses.append("cells")
                if is_open and abs(predicted_share - share) > SHARE_WITHIN:
                    misses.append("share")
                if is_open and abs(delay_error) > allowed:
                    misses.append("delay")
            if starts != predicted_starts:
                misses.append("false negative" if starts else "false positive")
            failed += bool(misses)
            print(
                f"  {'*' if judged else ' '} {row.meter:26} {row.key.split('_')[0]:10} {row.kind:14} "
                f"bound {share:4.0%} (again {row.share[-1]:4.0%}) predicted {predicted_share:4.0%}, "
                f"cells {cell_share:4.0%}"
                f" | throughput {error:+6.1%} (again {again:5.1%}), cells {by_cell:+6.1%}"
                f" | delay {delay_error:+6.0%} (allowed {allowed:4.0%}) | told {row.told} predicted "
                f"{request.throttled_requests}{' large' if is_large else ''}  {' '.join(misses)}"
            )
    print("\nthroughput of judged meters (*), predicted per request, by kind: mean and worst error")
    for kind, errors in sorted(off.items()):
        print(f"  {kind:14} {len(errors):3} meters, {np.mean(errors):.1%}, {max(errors):.1%}")
    if cell_off:
        print(f"cells beside requests: mean {np.mean(cell_off):.1%}, worst {max(cell_off):.1%}")
        failed += float(np.mean(cell_off)) > CELLS_MEAN
    print(f"{failed} of {len(table)} meters are further off than promised")
    return 1 if failed else 0


def spread(values: Sequence[float]) -> float:
    """How far apart two runs are, as a part of their mean."""
    return float((max(values) - min(values)) / np.mean(values)) if np.mean(values) else 0.0


if __name__ == "__main__":
    sys.exit(main())
