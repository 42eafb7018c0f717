"""How close each meter comes to its limit, by Kafka's sampled rate: computed for each second of a request log, and as
read where a broker's metrics have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.config import BrokerConfig
from kquota.pipeline.dataset.tables import UTILISATION
from kquota.pipeline.meters.meter_series import Meters, Series, known_sums, series_by_meter, to_counts
from kquota.pipeline.spark.group_by_meter import Bools, Floats, Ints
from kquota.pipeline.spark.shuffle import group_starts
from kquota.quotas import CONTROLLER_MUTATION_RATE

if TYPE_CHECKING:
    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["enforced_rates", "to_utilisation", "window_rates", "window_seconds"]

_RATES: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("broker_id", pa.int32()),
        ("meter", pa.string()),
        ("key", pa.string()),
        ("limit", pa.float64()),
        ("limit_source", pa.string()),
        ("cell_start_ms", pa.int64()),
        ("amount", pa.float64()),
        ("rate", pa.float64()),
        ("requests", pa.int64()),
        ("throttled_requests", pa.int64()),
        ("throttle_ms", pa.int64()),
        ("unknown_amounts", pa.int64()),
    ]
)
_COUNTS: Final = ("requests", "throttled_requests", "throttle_ms", "unknown_amounts")


def window_seconds(keys: pa.ChunkedArray, broker_config: BrokerConfig) -> Ints:
    """Seconds over which the rate of each key is taken: samples x sample length; mutations have their own."""
    mutations = broker_config.controller_quota_window_num * broker_config.controller_quota_window_size_seconds
    others = broker_config.quota_window_num * broker_config.quota_window_size_seconds
    seconds: Ints = pc.if_else(pc.equal(keys, CONTROLLER_MUTATION_RATE), mutations, others).to_numpy()
    return seconds


def enforced_rates(usage: ArrowSource, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The rate that Kafka compares with the limit, at the end of each cell in which a limited meter was active.

    Of a cell of a broker's metrics it is the rate that was read: amount / seconds of the cell. Otherwise it is the
    amount of the last ``quota.window.num`` windows / (num x size): Kafka's sampled rate on whole seconds (``Rate``,
    ``ClientQuotaManager``); for controller mutations the mean over the time that the bucket spans.

    :param usage: rows of the `usage` table.
    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    :returns: one row per broker, meter, key and cell, with the limit in force at its start: cluster, broker_id, meter,
        key, limit, limit_source (that of the last limit), cell_start_ms, amount, rate, requests, throttled_requests,
        throttle_ms, unknown_amounts.
    """

    def rates(series: Series, meters: Meters) -> pa.Table:
        series, rate = _limited(series, meters, broker_config)
        columns = {name: getattr(series, name) for name in ("broker_id", "cell_start_ms", "amount")}
        columns |= {name: to_counts(getattr(series, name)) for name in _COUNTS}
        return _named(meters, series.meter, columns | {"rate": rate, "limit": meters.limits_of(series)}, _RATES)

    return series_by_meter(usage, clients, rates, _RATES)


def to_utilisation(usage: ArrowSource, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The `utilisation` table: one row per broker, meter and key, over the seconds in which the meter was active.

    Its figures are those of :func:`enforced_rates`, each for as long as its cell; percentiles are rates that occurred.
    A cell of a broker's metrics with rate 0 is not active, and `peak_1s` is null where there is no other. Where the
    limit changed, each cell counts as over the limit that was in force at its start, and `limit` and `limit_source` are
    the last ones.

    :param usage: rows of the `usage` table.
    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    """

    def figures(series: Series, meters: Meters) -> pa.Table:
        series, rate = _limited(series, meters, broker_config)
        columns = _figures(series, rate, meters.limits_of(series))
        return _named(meters, series.meter[series.starts], columns, schema)

    schema = to_arrow_schema(UTILISATION.schema)
    return UTILISATION.conform(series_by_meter(usage, clients, figures, schema))


def _named(
    meters: Meters, meter: Ints, columns: dict[str, npt.NDArray[np.generic] | pa.Array], schema: pa.Schema
) -> pa.Table:
    """The columns beside the names of their meters."""
    names = meters.names.take(pa.array(meter))
    every = {name: names[name] for name in names.schema.names} | columns
    return pa.table({name: every[name] for name in schema.names})


def _limited(series: Series, meters: Meters, broker_config: BrokerConfig) -> tuple[Series, Floats]:
    """The cells in which a limit was in force, and the rate at the end of each."""
    window_ms = window_seconds(meters.names["key"], broker_config)[series.meter] * 1000
    starts = group_starts(series.meter, series.broker_id, series.is_sampled)
    windows = window_rates(series.cell_start_ms, series.cell_ms, series.amount, window_ms, starts)
    rates = np.where(series.is_sampled, series.rate, windows)
    are_limited = meters.are_limited(series)
    return (series, rates) if are_limited.all() else (series.where(are_limited), rates[are_limited])


def window_rates(starts_ms: Ints, cell_ms: Ints, amounts: Floats, window_ms: Ints, starts: Ints) -> Floats:
    """Amount per second over the `window_ms` up to the end of each cell, or over the cell where that is longer.

    :param starts_ms: of the cells, growing from each of `starts`, where another meter begins, to the next.
    """
    ends_ms = starts_ms + cell_ms
    total = amounts.copy()
    first = np.repeat(starts, np.diff(np.append(starts, len(amounts))))
    rows = np.arange(len(amounts))
    # Add the cell before, the one before that, and so on, to all rows that have it within their window.
    for back in range(1, len(amounts)):
        rows = rows[(rows - back >= first[rows])]
        rows = rows[ends_ms[rows] - starts_ms[rows - back] <= window_ms[rows]]
        if not len(rows):
            break
        total[rows] += amounts[rows - back]
    rates: Floats = total / (np.maximum(window_ms, cell_ms) / 1000)
    return rates


def _figures(series: Series, rate: Floats, limit: Floats) -> dict[str, npt.NDArray[np.generic] | pa.Array]:
    """The columns of `utilisation`, without names: one element per meter and broker."""
    starts = series.starts
    cells = np.diff(np.append(starts, len(rate)))
    active_ms = np.where(series.is_sampled & (rate == 0), 0, series.cell_ms)
    rank = np.lexsort((rate, np.repeat(starts, cells)))
    ranked, ranked_ms = rate[rank], np.cumsum(active_ms[rank])
    before_ms = np.concatenate([[0], ranked_ms])[starts]

    def sums(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.add.reduceat(values, starts)

    total_ms = np.add.reduceat(active_ms, starts)

    def percentile(share: float) -> Floats:
        """The smallest rate that is not exceeded for that share of the time."""
        wanted_ms = before_ms + np.ceil(np.round(share * total_ms, 6)).astype(np.int64)
        # Of a meter that is never active it is the first of its own, not the last of the meter before.
        figures: Floats = ranked[np.maximum(np.searchsorted(ranked_ms, wanted_ms), starts)]
        return figures

    def seconds(is_meant: Bools) -> Ints:
        return np.rint(np.add.reduceat(np.where(is_meant, active_ms, 0), starts) / 1000).astype(np.int64)

    has_seconds = np.logical_or.reduceat(~series.is_sampled, starts)
    peak = np.maximum.reduceat(np.where(series.is_sampled, 0.0, series.amount), starts)
    return {
        "broker_id": series.broker_id[starts],
        "rate_mean": sums(rate * active_ms) / np.maximum(total_ms, 1),
        "rate_p50": percentile(0.5),
        "rate_p95": percentile(0.95),
        "rate_p99": percentile(0.99),
        "rate_max": np.maximum.reduceat(rate, starts),
        "peak_1s": pa.array(peak, mask=~has_seconds),
        "seconds_active": seconds(active_ms > 0),
        "seconds_over_80": seconds(rate > 0.8 * limit),
        "seconds_over_100": seconds(rate > limit),
        **{name: to_counts(known_sums(getattr(series, name), starts)) for name in _COUNTS},
    }
