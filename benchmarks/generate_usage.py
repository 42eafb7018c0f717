"""Generate a table `usage` of any length, with rules that bind, for measuring what is done with usage.

10,000 users with 5 client ids each, on 3 brokers and 2 keys: 300,000 clients of a broker and key, of which few cause
most cells (Zipf). 2,000 of them are active in a second, so 50 million rows are seven hours. A third comes in bursts.
Of 1,000 rules some limits lie below what is used, some just above, most far above. Same profile, same rows.

Usage: ``python -m benchmarks.generate_usage --out DIR [--rows N] [--seed N]``
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kquota.files import QuotaFile, QuotaTimeline, read_quota_file, write_yaml
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import ANALYZE_STEP
from kquota.pipeline.dataset.summary import Input
from kquota.pipeline.ingest.chunks import write_usage
from kquota.pipeline.ingest.request_log.cells import CELL_MS, GRAIN, SOURCE, USAGE_SCHEMA
from kquota.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    USER,
    ClientQuotaEntity,
)

__all__ = ["CANDIDATE", "UsageProfile", "ensure", "generate"]

CANDIDATE: Final = "candidate.yaml"
"""Other quotas for the same clients: each of the rules with a tenth less. Lies beside the directory."""

KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
SHARE_OF_CLIENT_ID: Final = (0.5, 0.25, 0.15, 0.07, 0.03)
MOST_TURNS_PER_S: Final = 20.0
LINE_BYTES: Final = 1_100
"""Of a request log, for each request: what the pipeline would have been given."""
FILE_ROWS: Final = 1_500_000
FIRST_DAY: Final = date(2026, 3, 2)
_FIRST_S: Final = 20 * 3600
"""Of the first day, so that a long table has two of them."""
_DAY_S: Final = 86_400
_BURST: Final = 8.0
# How much of what a meter uses its limit is, and how many have such a one.
_FACTORS: Final = (0.7, 0.95, 1.1, 1.5, 3.0, 10.0, 100.0)
_SHARE_OF_FACTOR: Final = (0.03, 0.05, 0.07, 0.10, 0.25, 0.30, 0.20)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UsageProfile:
    """What to generate."""

    rows: int = 50_000_000
    users: int = 10_000
    brokers: int = 3
    rules: int = 1_000
    cells_per_s: int = 2_000
    seed: int = 1

    @property
    def name(self) -> str:
        """As a directory is called."""
        return f"usage-{self.rows}-{self.users}-{self.rules}-{self.cells_per_s}-{self.seed}"


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Columns, one element per user, client id, broker and key: as many as users x 5 x brokers x 2, in that order."""

    turns_per_s: Floats
    requests_each: Ints
    """Of a turn."""
    bytes_per_request: Floats
    burst_every_s: Ints
    """0 where there are no bursts."""
    burst_s: Ints
    phase_s: Ints

    def factor(self, series: Ints, second: Ints) -> Floats:
        """By how much a request is larger in a burst."""
        every = self.burst_every_s[series]
        is_burst = (second + self.phase_s[series]) % np.maximum(every, 1) < self.burst_s[series]
        return np.where((every > 0) & is_burst, _BURST, 1.0)

    @property
    def mean_bytes_per_s(self) -> Floats:
        """What is to be expected."""
        share = self.burst_s / np.maximum(self.burst_every_s, 1)
        burst = np.where(self.burst_every_s > 0, 1 + share * (_BURST - 1), 1.0)
        return self.turns_per_s * self.requests_each * self.bytes_per_request * burst


def _traffic(profile: UsageProfile, random: np.random.Generator) -> _Traffic:
    rank = random.permutation(profile.users)
    weight = 1.0 / (rank + 10.0)
    shape = (profile.users, len(SHARE_OF_CLIENT_ID), profile.brokers, len(KEYS))
    each = weight[:, None, None, None] * np.array(SHARE_OF_CLIENT_ID)[None, :, None, None]
    each = (each * random.lognormal(0.0, 0.7, shape)).ravel()
    count = len(each)
    every = np.where(random.random(count) < 1 / 3, random.integers(60, 601, count), 0)
    return _Traffic(
        _scaled(each, profile.cells_per_s),
        random.choice([1, 2, 4, 8], count),
        random.lognormal(np.log(20_000), 0.8, count),
        every,
        random.integers(5, 31, count),
        random.integers(0, 601, count),
    )


def _scaled(weights: Floats, active: int) -> Floats:
    """Turns per second, such that so many clients have one in a second."""
    wanted = min(active, len(weights) // 2)
    low, high = 0.0, 1e9
    for _ in range(100):
        scale = (low + high) / 2
        found = -np.expm1(-np.minimum(weights * scale, MOST_TURNS_PER_S)).sum()
        low, high = (scale, high) if found < wanted else (low, scale)
    return np.minimum(weights * high, MOST_TURNS_PER_S)


def _names(profile: UsageProfile) -> tuple[list[str], list[str]]:
    """Users, and client ids."""
    return [f"user-{number:05d}" for number in range(profile.users)], [
        f"app-{number}" for number in range(len(SHARE_OF_CLIENT_ID))
    ]


def _quotas(profile: UsageProfile, traffic: _Traffic, random: np.random.Generator) -> QuotaFile:
    """Rules for the busiest users and pairs, and a default that binds all others."""
    shape = (profile.users, len(SHARE_OF_CLIENT_ID), profile.brokers, len(KEYS))
    # A meter is on one broker: the busiest one says how close it comes.
    of_pair = traffic.mean_bytes_per_s.reshape(shape)
    of_user = of_pair.sum(axis=1).max(axis=1)
    by_use = np.argsort(-of_user.sum(axis=1), kind="stable")[: profile.rules - 1]
    users, client_ids = _names(profile)
    rules: dict[ClientQuotaEntity, Mapping[str, float]] = {}
    for place, number in enumerate(by_use.tolist()):
        own = users[number]
        entity, used = ClientQuotaEntity({USER: own}), of_user[number]
        if place % 10 in (3, 6, 9):
            entity, used = ClientQuotaEntity({USER: own, CLIENT_ID: client_ids[0]}), of_pair[number, 0].max(axis=0)
        elif place % 10 == 5:
            entity = ClientQuotaEntity({USER: own, CLIENT_ID: None})
            used = of_pair[number].max(axis=(0, 1))
        factors = random.choice(_FACTORS, len(KEYS), p=_SHARE_OF_FACTOR)
        rules[entity] = {
            key: float(max(round(amount * factor), 1))
            for key, amount, factor in zip(KEYS, used.tolist(), factors.tolist(), strict=True)
        }
    others = np.delete(of_user, by_use, axis=0) if profile.users >= profile.rules else of_user
    rules[ClientQuotaEntity({USER: None})] = {
        key: float(max(round(1.5 * np.quantile(others[:, place], 0.99)), 1)) for place, key in enumerate(KEYS)
    }
    return QuotaFile.of(rules)


def _blocks(profile: UsageProfile, traffic: _Traffic, random: np.random.Generator) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Cells in the order of time, a file at a time: second since the first, row of `traffic`, and requests."""
    count = len(traffic.turns_per_s)
    expected = float(-np.expm1(-traffic.turns_per_s).sum())
    seconds = max(1, int(min(FILE_ROWS, profile.rows) / expected))
    left, first = profile.rows, 0
    while left:
        # No file lies in two days.
        here = min(seconds, _DAY_S - (_FIRST_S + first) % _DAY_S)
        turns = random.poisson(traffic.turns_per_s * here)
        series = np.repeat(np.arange(count), turns)
        at = random.integers(0, here, len(series)) * count + series
        cells, counted = np.unique(at, return_counts=True)
        cells, counted = cells[:left], counted[:left]
        yield first + cells // count, cells % count, counted * traffic.requests_each[cells % count]
        left -= len(cells)
        first += here


def _table(
    profile: UsageProfile, traffic: _Traffic, random: np.random.Generator, block: tuple[Ints, Ints, Ints]
) -> pa.Table:
    second, series, requests = block
    size = traffic.bytes_per_request[series] * traffic.factor(series, second)
    amount = np.maximum(np.rint(size * requests * random.lognormal(0.0, 0.3, len(series))), requests)
    most = np.minimum(np.ceil(amount / requests * random.uniform(1.0, 1.5, len(series))), amount)
    user, client_id, broker, key = np.unravel_index(
        series, (profile.users, len(SHARE_OF_CLIENT_ID), profile.brokers, len(KEYS))
    )
    users, client_ids = _names(profile)
    rows = len(series)

    def named(numbers: npt.NDArray[np.int64], names: Sequence[str]) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(names))

    zero = np.zeros(rows, np.int64)
    start_ms = (_epoch_s(FIRST_DAY) + _FIRST_S + second) * 1000
    columns: dict[str, Any] = {
        "cluster": named(zero, ["bench"]),
        "broker_id": pa.array(broker + 1, pa.int32()),
        "cell_start_ms": start_ms,
        "cell_ms": np.full(rows, CELL_MS, np.int32),
        "source": named(zero, [SOURCE]),
        "grain": named(zero, [GRAIN]),
        "user": named(user, users),
        "client_id": named(client_id, client_ids),
        "ip": pa.nulls(rows, pa.string()),
        "key": named(key, KEYS),
        "amount": amount,
        "amount_max": most,
        "requests": requests.astype(np.int64),
        "connections": np.ones(rows, np.int32),
        **dict.fromkeys(("throttled_requests", "throttle_ms", "throttle_max_ms", "unknown_amounts"), zero),
    }
    fields = [
        pa.field(field.name, columns[field.name].type if isinstance(columns[field.name], pa.Array) else field.type)
        for field in USAGE_SCHEMA
    ]
    return pa.table([pa.array(columns[field.name]) for field in fields], schema=pa.schema(fields))


def _epoch_s(day: date) -> int:
    return (day - date(1970, 1, 1)).days * _DAY_S


def generate(out: Path, profile: UsageProfile) -> dict[str, Any]:
    """Write a dataset as the ingest would have, with quotas; returns the profile and the sums of the rows.

    Not more than one file's rows are in memory at a time. Beside the dataset come lower quotas and, at last, what is
    returned.

    :raises InputError: there is something else.
    """
    random = np.random.default_rng(profile.seed)
    traffic = _traffic(profile, random)
    quotas = _quotas(profile, traffic, random)
    sums = {"rows": 0, "requests": 0, "amount": 0.0}
    with Dataset.create(out).run(ANALYZE_STEP) as run:
        summary, writer = run.summary, run.writer("usage")
        for block in _blocks(profile, traffic, random):
            table = _table(profile, traffic, random, block)
            run.add("usage", write_usage(writer, table))
            times = table["cell_start_ms"]
            summary.start_ms, summary.end_ms = summary.start_ms or times[0].as_py(), times[-1].as_py() + CELL_MS
            sums["rows"] += table.num_rows
            sums["requests"] += int(block[2].sum())
            sums["amount"] += float(np.asarray(table["amount"]).sum())
        summary.cluster = "bench"
        summary.lines = summary.good = int(sums["requests"])
        summary.inputs = [Input("generated", SOURCE, 1, summary.lines * LINE_BYTES)]
        run.set_quotas(QuotaTimeline.always(quotas))
        run.commit()
    less = QuotaFile.of(
        {
            entity: {key: float(max(round(value * 0.9), 1)) for key, value in values.items()}
            for entity, values in quotas.snapshot().items()
        }
    )
    (out.parent / f"{out.name}.{CANDIDATE}").write_text(write_yaml(less), encoding="utf-8")
    found = {"profile": asdict(profile), "sums": sums}
    _profile_path(out).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return found


def _profile_path(out: Path) -> Path:
    return out.parent / f"{out.name}.json"


def ensure(work: Path, profile: UsageProfile) -> tuple[Path, dict[str, Any]]:
    """The dataset of a profile below `work`, generated where it is not there yet, and what :func:`generate` returns."""
    out = work / profile.name
    if not _profile_path(out).is_file():
        return out, generate(out, profile)
    return out, json.loads(_profile_path(out).read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generate_usage", description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=UsageProfile().rows)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    found = generate(options.out, UsageProfile(rows=options.rows, seed=options.seed))
    rules = read_quota_file((options.out / "quotas.yaml").read_bytes(), name="quotas.yaml").entries
    print(f"{found['sums']['rows']:,} rows, {len(rules):,} rules in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
