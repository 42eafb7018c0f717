"""The baseline of a good SQL engine: DuckDB on a table `usage`, with limits that are resolved already.

``utilisation`` sums the clients, brings usage together by meter and second, takes each sum over eleven seconds, and
says how close to its limit a meter comes. ``held`` reads, joins and orders the same cells, which no SQL can replay, and
hands them as Arrow to the compiled replay that kquota itself uses, meter by meter, on two threads.

Usage: ``python -m benchmarks.baseline_duckdb_usage utilisation|held USAGE LIMITS OUT``

USAGE is a directory with a table `usage`, LIMITS one with a table `clients`, which says who counts on which meter. OUT
receives ``utilisation.parquet`` and ``clients.parquet``, or ``held.parquet``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from kquota.metering.statistics import Windows
from kquota.pipeline.simulation.cells import MeterCells, simulate_cells
from kquota.pipeline.spark.shuffle import group_starts

__all__ = ["HELD_COLUMNS", "held", "utilisation"]

THREADS: Final = 2
MEMORY: Final = "16GB"
"""With 4 GB, which is what kquota's driver has, its windows over 50 million rows end in "out of memory"."""
MICROBATCH_ROWS: Final = 1_000_000
HELD_COLUMNS: Final = ("broker_id", "meter", "key", "limit", "amount", "throttled_requests", "throttled_ms", "muted_ms")

# Identities are matched once, and usage by numbers after that.
_METERS: Final = """
create temp table bound as
select cluster, user, client_id, key, meter, "limit" as most,
    dense_rank() over (order by cluster, meter, key)::INTEGER as number
from read_parquet($limits) where meter is not null;
"""
_CELLS: Final = """
select number, broker_id, cell_start_ms, sum(amount) as amount, max(amount_max) as largest,
    sum(requests)::BIGINT as requests
from read_parquet($usage) u join bound b
    on u.cluster = b.cluster and u.user = b.user and u.client_id = b.client_id and u.key = b.key
group by number, broker_id, cell_start_ms
"""
_CLIENTS: Final = """
select u.cluster, u.user, u.client_id, u.key, sum(amount) as amount, sum(requests)::BIGINT as requests,
    any_value(b.most) as "limit", any_value(b.meter) as meter
from read_parquet($usage) u left join bound b
    on u.cluster = b.cluster and u.user = b.user and u.client_id = b.client_id and u.key = b.key
group by u.cluster, u.user, u.client_id, u.key
"""
_UTILISATION: Final = f"""
with cells as ({_CELLS}), rates as (
    select number, broker_id, amount, requests,
        sum(amount) over (partition by number, broker_id order by cell_start_ms
            range between 10000 preceding and current row) / 11 as rate
    from cells
), meters as (select distinct number, cluster, meter, key, most from bound)
select cluster, broker_id, meter, key, any_value(most) as "limit", avg(rate) as rate_mean,
    quantile_disc(rate, 0.5) as rate_p50, quantile_disc(rate, 0.95) as rate_p95, quantile_disc(rate, 0.99) as rate_p99,
    max(rate) as rate_max, max(amount) as peak_1s, count(*) as seconds_active,
    count(*) filter (rate > 0.8 * most) as seconds_over_80, count(*) filter (rate > most) as seconds_over_100,
    sum(requests)::BIGINT as requests
from rates join meters using (number) group by number, cluster, broker_id, meter, key
"""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class _Meter(NamedTuple):
    """A meter by its number."""

    meter: str
    key: str
    limit: float


def _files(directory: Path, table: str) -> list[str]:
    return [str(path) for path in sorted((directory / table).rglob("*.parquet"))]


def _connect(usage: Path, limits: Path, out: Path) -> duckdb.DuckDBPyConnection:
    out.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    connection.execute(f"set threads = {THREADS}")
    connection.execute(f"set memory_limit = '{MEMORY}'")
    connection.execute(f"set temp_directory = '{out / 'spilled'}'")
    connection.execute("set preserve_insertion_order = false")
    connection.execute(_METERS, {"limits": _files(limits, "clients")})
    return connection


def utilisation(usage: Path, limits: Path, out: Path) -> None:
    """Write the clients, and how close each meter comes to its limit."""
    with _connect(usage, limits, out) as connection:
        files = {"usage": _files(usage, "usage")}
        connection.execute(f"copy ({_CLIENTS}) to '{out / 'clients.parquet'}' (format parquet)", files)
        connection.execute(f"copy ({_UTILISATION}) to '{out / 'utilisation.parquet'}' (format parquet)", files)


def held(usage: Path, limits: Path, out: Path) -> None:
    """Write what the limit of each meter does to its cells."""
    with _connect(usage, limits, out) as connection, ThreadPoolExecutor(THREADS) as pool:
        files = {"usage": _files(usage, "usage")}
        end_ms = dict(
            connection.execute(
                "select broker_id, max(cell_start_ms + cell_ms) from read_parquet($usage) group by broker_id", files
            ).fetchall()
        )
        known = connection.execute("select distinct number, meter, key, most from bound").fetchall()
        meters = {number: _Meter(*rest) for number, *rest in known}
        ordered = connection.sql(f"{_CELLS} order by number, broker_id, cell_start_ms", params=files)
        rows: list[tuple[object, ...]] = []
        running: list[Future[list[tuple[object, ...]]]] = []
        for table in _whole_meters(ordered.to_arrow_reader(MICROBATCH_ROWS)):
            running.append(pool.submit(_outcomes, table, meters, end_ms))
            # As much as is being worked on lies in memory, and one more.
            for done in islice(running, max(0, len(running) - THREADS - 1)):
                rows += done.result()
            running = running[-THREADS - 1 :]
        for left in running:
            rows += left.result()
    columns = zip(*rows, strict=True) if rows else [()] * len(HELD_COLUMNS)
    pq.write_table(pa.table(dict(zip(HELD_COLUMNS, map(list, columns), strict=True))), out / "held.parquet")


def _whole_meters(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The batches, parted where one meter ends and another begins."""
    kept: list[pa.RecordBatch] = []
    for batch in reader:
        last = group_starts(batch["number"].to_numpy(), batch["broker_id"].to_numpy())[-1] if batch.num_rows else 0
        kept.append(batch.slice(0, last))
        if last:
            yield pa.Table.from_batches(kept)
            kept = []
        kept.append(batch.slice(last))
    if kept:
        yield pa.Table.from_batches(kept)


def _outcomes(table: pa.Table, meters: dict[int, _Meter], end_ms: dict[int, int]) -> list[tuple[object, ...]]:
    column = {name: np.ascontiguousarray(table[name].to_numpy()) for name in table.schema.names}
    starts = group_starts(column["number"], column["broker_id"])
    brokers = column["broker_id"][starts].tolist()
    those = [meters[number] for number in column["number"][starts].tolist()]
    requests, amount = column["requests"], column["amount"]
    cells = MeterCells(
        column["cell_start_ms"],
        np.full(table.num_rows, 1000, np.int64),
        amount,
        requests,
        np.zeros(table.num_rows, np.int64),
        np.append(starts, table.num_rows),
        [meter.key for meter in those],
        np.maximum.reduceat(np.maximum(column["largest"], amount / requests), starts),
        np.array([end_ms[broker_id] for broker_id in brokers], np.int64),
    )
    outcomes = simulate_cells(cells, [[meter.limit] for meter in those], lambda key: Windows(), lambda key: 0)
    return [
        (broker_id, *meter, *outcome[:4])
        for broker_id, meter, outcome in zip(brokers, those, outcomes.tolist(), strict=True)
    ]


def main() -> int:
    steps = {"utilisation": utilisation, "held": held}
    if len(sys.argv) != 5 or sys.argv[1] not in steps:
        print(__doc__, file=sys.stderr)
        return 2
    steps[sys.argv[1]](*map(Path, sys.argv[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
