"""How close each meter comes to its limit, second by second, as Kafka's sampled rate sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.config import BrokerConfig
from kquota.pipeline.tables import UTILISATION
from kquota.quotas import CONTROLLER_MUTATION_RATE

__all__ = ["enforced_rates", "to_utilisation", "window_rates", "window_seconds"]

_IDENTITY: Final = ("cluster", "user", "client_id", "ip", "key")
_NAMES: Final = ("cluster", "meter", "key", "limit", "limit_source")
_CELLS: Final = pa.schema(
    [
        ("meter_number", pa.int32()),
        ("broker_id", pa.int32()),
        ("limit", pa.float64()),
        ("reach_ms", pa.int64()),
        ("cell_start_ms", pa.int64()),
        ("amount", pa.float64()),
        ("requests", pa.int64()),
        ("throttled_requests", pa.int64()),
        ("throttle_ms", pa.int64()),
    ]
)
_RATES: Final = _CELLS.append(pa.field("rate", pa.float64()))
_FIGURES: Final = pa.schema(
    [
        ("meter_number", pa.int32()),
        ("broker_id", pa.int32()),
        *((name, pa.float64()) for name in ("rate_mean", "rate_p50", "rate_p95", "rate_p99", "rate_max", "peak_1s")),
        *((name, pa.int64()) for name in ("seconds_active", "seconds_over_80", "seconds_over_100")),
        *((name, pa.int64()) for name in ("requests", "throttled_requests", "throttle_ms")),
    ]
)
_BLOCK_ROWS: Final = 500_000

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def window_seconds(key: Column, broker_config: BrokerConfig) -> Column:
    """Seconds over which the rate of a key is taken: samples x sample length."""
    return F.when(
        key == CONTROLLER_MUTATION_RATE,
        F.lit(broker_config.controller_quota_window_num * broker_config.controller_quota_window_size_seconds),
    ).otherwise(F.lit(broker_config.quota_window_num * broker_config.quota_window_size_seconds))


def enforced_rates(usage: DataFrame, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The rate that is held against the limit, at the end of each second in which a limited meter was active.

    Rate = amount of the last ``quota.window.num`` windows / (num x size): Kafka's sampled rate on whole seconds
    (``Rate``, ``ClientQuotaManager``); for controller mutations the mean over the time that the bucket spans.

    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    :returns: one row per broker, meter, key and second: cluster, broker_id, meter, key, limit, limit_source,
        cell_start_ms, amount, rate, requests, throttled_requests, throttle_ms.
    """
    meters = _numbered_meters(clients)
    rates = _by_meter(_metered(usage, meters, broker_config), _with_rates, _RATES)
    named = _with_names(rates.drop("limit"), meters)
    amounts = ("requests", "throttled_requests", "throttle_ms")
    return named.select("cluster", "broker_id", *_NAMES[1:], "cell_start_ms", "amount", "rate", *amounts)


def to_utilisation(usage: DataFrame, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The `utilisation` table: one row per broker, meter and key, over the seconds in which the meter was active.

    Its figures are those of :func:`enforced_rates`; percentiles are rates that occurred.

    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    """
    meters = _numbered_meters(clients)
    figures = _by_meter(_metered(usage, meters, broker_config), _figures, _FIGURES)
    return UTILISATION.conform(_with_names(figures, meters).drop("meter_number"))


def _numbered_meters(clients: DataFrame) -> DataFrame:
    """Identities with a limit, and a number for their meter: numbers are shuffled and sorted for less than names."""
    by_name = Window.orderBy("cluster", "meter", "key")
    limited = clients.where(F.col("meter").isNotNull()).select(*_IDENTITY, "meter", "limit", "limit_source")
    return limited.withColumn("meter_number", F.dense_rank().over(by_name))


def _metered(usage: DataFrame, meters: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The cells that count against a limited meter."""
    same = [usage[name].eqNullSafe(meters[name]) for name in _IDENTITY]
    reach_ms = window_seconds(usage["key"], broker_config) * 1000
    return usage.join(F.broadcast(meters), same, "inner").select(
        meters["meter_number"],
        usage["broker_id"],
        meters["limit"],
        reach_ms.cast("long").alias("reach_ms"),
        usage["cell_start_ms"],
        F.coalesce(usage["amount"], F.lit(0.0)).alias("amount"),
        *(usage[name] for name in ("requests", "throttled_requests", "throttle_ms")),
    )


def _by_meter(metered: DataFrame, transform: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> DataFrame:
    """Apply `transform` to blocks of whole meters, summed by second, in order of broker and time."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for block in _whole_meters(batches):
            yield from transform(_by_second(block)).cast(schema).to_batches()

    # One shuffle. Sorting by one number is quick in Spark; the rest of the order is made in each block.
    together = metered.repartition("meter_number", "broker_id").sortWithinPartitions("meter_number")
    return together.mapInArrow(work, from_arrow_schema(schema))


def _whole_meters(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in order of meter, cut between meters."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _BLOCK_ROWS:
            block = pa.Table.from_batches(held)
            last = int(_starts(block["meter_number"].to_numpy())[-1])
            if last > 0:
                yield block.slice(0, last)
            held, rows = block.slice(last).to_batches(), rows - last
    if rows:
        yield pa.Table.from_batches(held)


def _by_second(block: pa.Table) -> pa.Table:
    """One row per meter, broker and second, in that order."""
    columns = {name: block[name].to_numpy() for name in _CELLS.names}
    order = np.lexsort((columns["cell_start_ms"], columns["broker_id"], columns["meter_number"]))
    columns = {name: values[order] for name, values in columns.items()}
    starts = _starts(columns["meter_number"], columns["broker_id"], columns["cell_start_ms"])
    summed = ("amount", "requests", "throttled_requests", "throttle_ms")
    return pa.table(
        {
            name: np.add.reduceat(values, starts) if name in summed else values[starts]
            for name, values in columns.items()
        }
    )


def _starts(*columns: npt.NDArray[np.generic]) -> Ints:
    """The rows at which any of the columns changes."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[0] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def _meter_starts(block: pa.Table) -> Ints:
    return _starts(block["meter_number"].to_numpy(), block["broker_id"].to_numpy())


def _with_rates(block: pa.Table) -> pa.Table:
    rates = window_rates(
        block["cell_start_ms"].to_numpy(),
        block["amount"].to_numpy(),
        block["reach_ms"].to_numpy(),
        _meter_starts(block),
    )
    return block.append_column("rate", pa.array(rates))


def window_rates(at_ms: Ints, amounts: Floats, reach_ms: Ints, starts: Ints) -> Floats:
    """Amount per second over the `reach_ms` up to the end of each cell.

    :param at_ms: starts of one-second cells, growing from each of `starts`, where another meter begins, to the next.
    """
    total = amounts.copy()
    first = np.repeat(starts, np.diff(np.append(starts, len(amounts))))
    rows = np.arange(len(amounts))
    # Step by step back in time, until no cell reaches that far.
    for back in range(1, len(amounts)):
        rows = rows[(rows - back >= first[rows])]
        rows = rows[at_ms[rows] - at_ms[rows - back] < reach_ms[rows]]
        if not len(rows):
            break
        total[rows] += amounts[rows - back]
    rates: Floats = total / (reach_ms / 1000)
    return rates


def _figures(block: pa.Table) -> pa.Table:
    starts = _meter_starts(block)
    rate = _with_rates(block)["rate"].to_numpy()
    amount, limit = block["amount"].to_numpy(), block["limit"].to_numpy()
    seconds = np.diff(np.append(starts, len(rate)))
    ranked = rate[np.lexsort((rate, np.repeat(starts, seconds)))]

    def percentile(share: float) -> Floats:
        figures: Floats = ranked[starts + np.ceil(share * seconds).astype(np.int64) - 1]
        return figures

    def sums(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.add.reduceat(values, starts)

    return pa.table(
        {
            "meter_number": pc.take(block["meter_number"], pa.array(starts)),
            "broker_id": pc.take(block["broker_id"], pa.array(starts)),
            "rate_mean": sums(rate) / seconds,
            "rate_p50": percentile(0.5),
            "rate_p95": percentile(0.95),
            "rate_p99": percentile(0.99),
            "rate_max": np.maximum.reduceat(rate, starts),
            "peak_1s": np.maximum.reduceat(amount, starts),
            "seconds_active": seconds,
            "seconds_over_80": sums((rate > 0.8 * limit).astype(np.int64)),
            "seconds_over_100": sums((rate > limit).astype(np.int64)),
            **{name: sums(block[name].to_numpy()) for name in ("requests", "throttled_requests", "throttle_ms")},
        }
    )


def _with_names(numbered: DataFrame, meters: DataFrame) -> DataFrame:
    names = meters.groupBy("meter_number").agg(*(F.first(name).alias(name) for name in _NAMES))
    return numbered.join(F.broadcast(names), "meter_number")
