"""How close each meter comes to its limit, second by second, as Kafka's sampled rate sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.config import BrokerConfig
from kquota.pipeline.tables import UTILISATION
from kquota.pipeline.transforms.meter_cells import Floats, Ints
from kquota.pipeline.transforms.meter_series import Meters, Series, series_by_meter
from kquota.quotas import CONTROLLER_MUTATION_RATE

if TYPE_CHECKING:
    from kquota.pipeline.arrow_source import ArrowSource

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
    ]
)
_COUNTS: Final = ("requests", "throttled_requests", "throttle_ms")


def window_seconds(keys: pa.ChunkedArray, broker_config: BrokerConfig) -> Ints:
    """Seconds over which the rate of each key is taken: samples x sample length; mutations have their own."""
    mutations = broker_config.controller_quota_window_num * broker_config.controller_quota_window_size_seconds
    others = broker_config.quota_window_num * broker_config.quota_window_size_seconds
    seconds: Ints = pc.if_else(pc.equal(keys, CONTROLLER_MUTATION_RATE), mutations, others).to_numpy()
    return seconds


def enforced_rates(usage: ArrowSource, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The rate that is held against the limit, at the end of each second in which a limited meter was active.

    Rate = amount of the last ``quota.window.num`` windows / (num x size): Kafka's sampled rate on whole seconds
    (``Rate``, ``ClientQuotaManager``); for controller mutations the mean over the time that the bucket spans.

    :param usage: rows of the `usage` table.
    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    :returns: one row per broker, meter, key and second, with the limit in force at its start: cluster, broker_id,
        meter, key, limit, limit_source (that of the last limit), cell_start_ms, amount, rate, requests,
        throttled_requests, throttle_ms.
    """

    def rates(series: Series, meters: Meters) -> pa.Table:
        series, rate = _limited(series, meters, broker_config)
        columns = {name: getattr(series, name) for name in ("broker_id", "cell_start_ms", "amount", *_COUNTS)}
        return _named(meters, series.meter, columns | {"rate": rate, "limit": meters.limits_of(series)}, _RATES)

    return series_by_meter(usage, clients, rates, _RATES)


def to_utilisation(usage: ArrowSource, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The `utilisation` table: one row per broker, meter and key, over the seconds in which the meter was active.

    Its figures are those of :func:`enforced_rates`; percentiles are rates that occurred. Where the limit changed, each
    second counts as over the limit that was in force then, and `limit` and `limit_source` are the last ones.

    :param usage: rows of the `usage` table.
    :param clients: resolved identities, one row per cluster, user, client_id, ip and key; small beside `usage`.
    """

    def figures(series: Series, meters: Meters) -> pa.Table:
        series, rate = _limited(series, meters, broker_config)
        columns = _figures(series, rate, meters.limits_of(series))
        return _named(meters, series.meter[series.starts], columns, schema)

    schema = to_arrow_schema(UTILISATION.schema)
    return UTILISATION.conform(series_by_meter(usage, clients, figures, schema))


def _named(meters: Meters, meter: Ints, columns: dict[str, npt.NDArray[np.generic]], schema: pa.Schema) -> pa.Table:
    """The columns beside the names of their meters."""
    names = meters.names.take(pa.array(meter))
    every = {name: names[name] for name in names.schema.names} | columns
    return pa.table({name: every[name] for name in schema.names})


def _limited(series: Series, meters: Meters, broker_config: BrokerConfig) -> tuple[Series, Floats]:
    """The seconds in which a limit was in force, and the rate at the end of each."""
    reach_ms = window_seconds(meters.names["key"], broker_config)[series.meter] * 1000
    rates = window_rates(series.cell_start_ms, series.amount, reach_ms, series.starts)
    are_limited = meters.are_limited(series)
    return (series, rates) if are_limited.all() else (series.where(are_limited), rates[are_limited])


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


def _figures(series: Series, rate: Floats, limit: Floats) -> dict[str, npt.NDArray[np.generic]]:
    """The columns of `utilisation`, without names: one element per meter and broker."""
    starts = series.starts
    seconds = np.diff(np.append(starts, len(rate)))
    ranked = rate[np.lexsort((rate, np.repeat(starts, seconds)))]

    def percentile(share: float) -> Floats:
        figures: Floats = ranked[starts + np.ceil(share * seconds).astype(np.int64) - 1]
        return figures

    def sums(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.add.reduceat(values, starts)

    return {
        "broker_id": series.broker_id[starts],
        "rate_mean": sums(rate) / seconds,
        "rate_p50": percentile(0.5),
        "rate_p95": percentile(0.95),
        "rate_p99": percentile(0.99),
        "rate_max": np.maximum.reduceat(rate, starts),
        "peak_1s": np.maximum.reduceat(series.amount, starts),
        "seconds_active": seconds,
        "seconds_over_80": sums((rate > 0.8 * limit).astype(np.int64)),
        "seconds_over_100": sums((rate > limit).astype(np.int64)),
        **{name: sums(getattr(series, name)) for name in _COUNTS},
    }
